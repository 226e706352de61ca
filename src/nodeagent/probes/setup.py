"""The kinds of probes there are, put together."""

from __future__ import annotations

from typing import Final

from nodeagent.limiter import PatientLimiter
from nodeagent.probes.exec_probe import ExecProbe, ExecRuntime
from nodeagent.probes.grpc_probe import GrpcProbe
from nodeagent.probes.http_probe import HttpProbe
from nodeagent.probes.prober import ProbeEvents, Prober
from nodeagent.probes.tcp_probe import TcpProbe

EXECS: Final = 16
"""Commands side by side: each is a process that the runtime has to start."""
EXEC_PATIENCE: Final = 0.5
"""Seconds after which a command that has not ended lets the next one begin."""
CALLS: Final = 256
"""Connections side by side: each is a descriptor for as long as it takes."""
CALL_PATIENCE: Final = 0.1
"""Seconds after which one that is still waited for lets the next one begin."""


def make_prober(runtime: ExecRuntime, events: ProbeEvents) -> Prober:
    """A prober for all kinds of actions that are supported."""
    execs = PatientLimiter(EXECS, EXEC_PATIENCE)
    calls = PatientLimiter(CALLS, CALL_PATIENCE)
    return Prober(
        {
            "http_get": (HttpProbe(), calls),
            "exec": (ExecProbe(runtime), execs),
            "tcp_socket": (TcpProbe(), calls),
            "grpc": (GrpcProbe(), calls),
        },
        events,
    )
