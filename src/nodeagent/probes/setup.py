"""The kinds of probes there are, put together."""

from __future__ import annotations

from typing import Final

from nodeagent.aio import PatientLimiter
from nodeagent.probes.exec_probe import ExecProbe, ExecRuntime
from nodeagent.probes.prober import ProbeEvents, Prober

EXECS: Final = 16
"""Commands side by side: each is a process that the runtime has to start."""
PATIENCE: Final = 0.5
"""Seconds after which a probe that is still waited for lets the next one begin."""


def make_prober(runtime: ExecRuntime, events: ProbeEvents) -> Prober:
    """A prober for all kinds of actions that are supported."""
    execs = PatientLimiter(EXECS, PATIENCE)
    return Prober({"exec": (ExecProbe(runtime), execs)}, events)
