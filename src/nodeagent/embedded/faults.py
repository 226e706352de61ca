"""Where faults are put in: every call and every event passes through the hooks.

The default hooks do nothing. A test or a scenario gives its own to delay, hang or fail calls
before or after their work is done, to change answers, and to lose, repeat or delay events.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable

    from nodeagent.proto.runtime import v1

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Call:
    """One call to the embedded runtime.

    Attributes:
        method: the CRI method name, ``StartContainer``.
        pod_uid: the pod that it is about; empty when it is about none or about an unknown id.
        container: the container's name, empty when it is about none.
        subject: the id or image in the request, empty for calls about nothing in particular.
    """

    method: str
    pod_uid: str = ""
    container: str = ""
    subject: str = ""


class Hooks(Protocol):
    """What happens around every call, and to every event."""

    async def before(self, call: Call) -> None:
        """Runs before the work of a call; an RpcError raised here is its answer."""
        ...

    async def after(self, call: Call, answer: T) -> T:
        """Runs when the work is done; what it returns or raises is the answer.

        ``answer`` is what the method of :mod:`nodeagent.cri` returns (an id, a list, a
        response message, None). It must not be changed in place.
        """
        ...

    def deliver(
        self, event: v1.ContainerEventResponse
    ) -> Iterable[tuple[float, v1.ContainerEventResponse]]:
        """Say when the event reaches subscribers: ``(delay in seconds, event)`` for each time.

        An empty answer loses the event.
        """
        ...


class NoFaults:
    """Hooks that do nothing."""

    async def before(self, call: Call) -> None:
        """Do nothing."""

    async def after(self, call: Call, answer: T) -> T:
        """Give the answer as it is."""
        return answer

    def deliver(
        self, event: v1.ContainerEventResponse
    ) -> Iterable[tuple[float, v1.ContainerEventResponse]]:
        """Once, now."""
        return ((0.0, event),)
