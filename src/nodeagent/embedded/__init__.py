"""The embedded container runtime: a real CRI v1 server in Python, for development and tests.

Backends: ``process`` runs containers as processes of this machine, ``simulated`` runs none
and follows scripts. See docs/embedded-runtime.md.
"""

from nodeagent.embedded.backend import Backend, ExecResult, StartError, Usage
from nodeagent.embedded.fault_plan import FaultPlan, Injected
from nodeagent.embedded.fault_rules import (
    Cut,
    Delay,
    Drop,
    Duplicate,
    Fail,
    FailAfter,
    Fault,
    Hang,
    Hold,
    Late,
    Reorder,
)
from nodeagent.embedded.faults import Call, Hooks, NoFaults, Work
from nodeagent.embedded.faulty import RuntimeServer, serve_faulty
from nodeagent.embedded.image_service import EmbeddedImages
from nodeagent.embedded.populate import OldPod, list_size, populate
from nodeagent.embedded.records import ContainerRecord, Exit, RunState, SandboxRecord
from nodeagent.embedded.runtime import EmbeddedRuntime
from nodeagent.embedded.script import ExecRule, LogLine, Script, ScriptRule
from nodeagent.embedded.server import (
    Embedded,
    make_backend,
    open_embedded,
    run_embedded,
    serve_embedded,
    serve_open,
)
from nodeagent.embedded.shown import Show
from nodeagent.embedded.simulated import SimulatedBackend

__all__ = [
    "Backend",
    "Call",
    "ContainerRecord",
    "Cut",
    "Delay",
    "Drop",
    "Duplicate",
    "Embedded",
    "EmbeddedImages",
    "EmbeddedRuntime",
    "ExecResult",
    "ExecRule",
    "Exit",
    "Fail",
    "FailAfter",
    "Fault",
    "FaultPlan",
    "Hang",
    "Hold",
    "Hooks",
    "Injected",
    "Late",
    "LogLine",
    "NoFaults",
    "OldPod",
    "Reorder",
    "RunState",
    "RuntimeServer",
    "SandboxRecord",
    "Script",
    "ScriptRule",
    "Show",
    "SimulatedBackend",
    "StartError",
    "Usage",
    "Work",
    "list_size",
    "make_backend",
    "open_embedded",
    "populate",
    "run_embedded",
    "serve_embedded",
    "serve_faulty",
    "serve_open",
]
