"""What one try of a probe came to, and what it is a try of."""

from __future__ import annotations

import errno
from dataclasses import dataclass
from typing import Final, Protocol

from nodeagent.api import Container, Pod, Probe
from nodeagent.model import ProbeKind, ProbeResult

_OUR_OWN: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
"""What only the agent and its node are to blame for: no descriptor or memory is left."""

MAX_TEXT: Final = 10 * 1024
"""Bytes of output or of a body that are kept."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """An answer; UNKNOWN means that the probe itself could not be made.

    Attributes:
        result: what it is worth.
        text: what the other side, or the error, said.
        warning: a success that somebody should look at.
    """

    result: ProbeResult
    text: str = ""
    warning: bool = False


def success(text: str = "") -> Outcome:
    """It answered well."""
    return Outcome(ProbeResult.SUCCESS, text)


def failure(text: str) -> Outcome:
    """It answered badly, or not at all."""
    return Outcome(ProbeResult.FAILURE, text)


def unknown(text: str) -> Outcome:
    """The probe could not be made."""
    return Outcome(ProbeResult.UNKNOWN, text)


def unreachable(text: str, error: OSError) -> Outcome:
    """There is no connection; when the node has no means left to open one, nobody knows."""
    return unknown(text) if error.errno in _OUR_OWN else failure(text)


@dataclass(frozen=True, slots=True)
class Target:
    """What is probed.

    Attributes:
        kind: liveness, readiness or startup.
        probe: what the pod's spec says about it.
        pod: the pod.
        container: its container.
        container_id: the runtime's id of the container.
        address: the pod's address, "" while it has none.
    """

    kind: ProbeKind
    probe: Probe
    pod: Pod
    container: Container
    container_id: str
    address: str

    @property
    def timeout(self) -> float:
        """Seconds that one try may take."""
        return float(max(self.probe.timeout_seconds, 1))


class Handler(Protocol):
    """Makes one try of one kind of action (exec, httpGet, tcpSocket, grpc)."""

    async def __call__(self, target: Target) -> Outcome:
        """Ask, within the target's timeout; raises nothing but cancellation."""
        ...

    async def aclose(self) -> None:
        """Close what is kept open between tries."""
        ...
