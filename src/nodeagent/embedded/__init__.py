"""The embedded container runtime: a real CRI v1 server in Python, for development and tests.

Backends: ``process`` runs containers as processes of this machine, ``simulated`` runs none
and follows scripts. See docs/embedded-runtime.md.
"""

from nodeagent.embedded.backend import Backend, ExecResult, StartError, Usage
from nodeagent.embedded.faults import Call, Hooks, NoFaults
from nodeagent.embedded.image_service import EmbeddedImages
from nodeagent.embedded.records import ContainerRecord, Exit, RunState, SandboxRecord
from nodeagent.embedded.runtime import EmbeddedRuntime
from nodeagent.embedded.server import (
    Embedded,
    make_backend,
    open_embedded,
    run_embedded,
    serve_embedded,
    serve_open,
)
from nodeagent.embedded.simulated import Script, SimulatedBackend

__all__ = [
    "Backend",
    "Call",
    "ContainerRecord",
    "Embedded",
    "EmbeddedImages",
    "EmbeddedRuntime",
    "ExecResult",
    "Exit",
    "Hooks",
    "NoFaults",
    "RunState",
    "SandboxRecord",
    "Script",
    "SimulatedBackend",
    "StartError",
    "Usage",
    "make_backend",
    "open_embedded",
    "run_embedded",
    "serve_embedded",
    "serve_open",
]
