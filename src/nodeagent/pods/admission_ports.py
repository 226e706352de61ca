"""Whether the host ports that a pod wants are free. Pure.

Rows and their tests: docs/behaviour/admission.md, "Ports".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from nodeagent.api import Pod
from nodeagent.model.restart import is_sidecar

ANY_ADDRESS: Final = "0.0.0.0"  # noqa: S104 - compared with, never bound


class HostPort(NamedTuple):
    """A port of the node that a container has for itself."""

    protocol: str
    port: int
    address: str


def host_ports(pod: Pod) -> Iterator[HostPort]:
    """The host ports of all containers that run as long as the pod does."""
    sidecars = [c for c in pod.spec.init_containers if is_sidecar(c)]
    for container in (*sidecars, *pod.spec.containers):
        for port in container.ports:
            if port.host_port > 0:
                address = port.host_ip or ANY_ADDRESS
                yield HostPort(port.protocol or "TCP", port.host_port, address)


def ports_are_free(pod: Pod, others: Iterable[Pod]) -> bool:
    """Whether no other pod has a host port that this one wants."""
    wanted = tuple(host_ports(pod))
    if not wanted:
        return True
    used: dict[tuple[str, int], set[str]] = {}
    for other in others:
        for protocol, port, address in host_ports(other):
            used.setdefault((protocol, port), set()).add(address)
    return not any(_conflicts(want, used.get((want.protocol, want.port))) for want in wanted)


def _conflicts(want: HostPort, taken: set[str] | None) -> bool:
    if not taken:
        return False
    return want.address == ANY_ADDRESS or ANY_ADDRESS in taken or want.address in taken
