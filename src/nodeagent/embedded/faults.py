"""Where faults are put in: every call and every event passes through the hooks.

The default hooks do nothing. :class:`nodeagent.embedded.FaultPlan` is hooks made of rules; a
test may also give hooks of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

import anyio

from nodeagent.log import Log
from nodeagent.rpc import Unavailable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from anyio.abc import TaskGroup

    from nodeagent.proto.runtime import v1

T = TypeVar("T")
log = Log("embedded.faults")


@dataclass(frozen=True, slots=True)
class Call:
    """One call to the embedded runtime.

    Attributes:
        method: the CRI method name, ``StartContainer``.
        pod_uid: the pod that it is about; empty when it is about none or about an unknown id.
        container: the container's name, empty when it is about none.
        subject: the id or image in the request, empty for calls about nothing in particular.
        pod_name: name of the pod; empty when it is about none or about an unknown id, and for
            lists of one pod, which ask by UID.
        namespace: namespace of the pod, as ``pod_name``.
    """

    method: str
    pod_uid: str = ""
    container: str = ""
    subject: str = ""
    pod_name: str = ""
    namespace: str = ""


class Work(Generic[T]):
    """What a call does; hooks decide when, where and how often.

    Args:
        run: does it, and gives the answer.
        tasks: tasks of the runtime, which outlive the caller.
    """

    def __init__(self, run: Callable[[], Awaitable[T]], tasks: TaskGroup) -> None:
        self._run = run
        self._tasks = tasks

    async def __call__(self) -> T:
        """Do it, for as long as the caller waits."""
        return await self._run()

    async def apart(self, first: Callable[[], Awaitable[None]]) -> T:
        """Run ``first`` and then do it, to the end also when the caller gives up.

        Real runtimes are like that: a creation whose client has gone may still come about.
        """
        answers: list[T] = []
        errors: list[Exception] = []
        done = anyio.Event()

        async def run() -> None:
            try:
                await first()
                answers.append(await self._run())
            except Exception as exc:  # noqa: BLE001 - the caller raises it, if it still waits
                log.debug("work_apart_failed", error=repr(exc))
                errors.append(exc)
            finally:
                done.set()

        self._tasks.start_soon(run)
        await done.wait()
        if errors:
            raise errors[0]
        if not answers:
            raise Unavailable("the embedded runtime has stopped")
        return answers[0]


class Hooks(Protocol):
    """What happens around every call, and to every event."""

    async def around(self, call: Call, work: Work[T]) -> T:
        """Answer a call: do its work, or not, and give or change its answer.

        The answer is what the method of :mod:`nodeagent.cri` returns (an id, a list, a response
        message, None); one that work gave must not be changed in place. An RpcError raised here
        is the answer too.
        """
        ...

    def deliver(
        self, event: v1.ContainerEventResponse
    ) -> Iterable[tuple[float, v1.ContainerEventResponse]]:
        """Say when the event reaches subscribers: ``(delay in seconds, event)`` for each time.

        An empty answer loses the event. An RpcError raised here ends all streams.
        """
        ...


class NoFaults:
    """Hooks that do nothing."""

    async def around(self, call: Call, work: Work[T]) -> T:
        """Do the work."""
        del call
        return await work()

    def deliver(
        self, event: v1.ContainerEventResponse
    ) -> Iterable[tuple[float, v1.ContainerEventResponse]]:
        """Once, now."""
        return ((0.0, event),)
