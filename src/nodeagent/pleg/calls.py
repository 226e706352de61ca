"""Calls to the runtime about one pod: named, bounded, and given up when they are pointless."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol, TypeVar

import anyio

from nodeagent.cri.inspection import AT_ONCE, CallWatch, EndSeen, unwatched
from nodeagent.model import PodRuntimeStatus, PodUID, RuntimePod
from nodeagent.pleg.errors import InspectionError
from nodeagent.pleg.health import Trouble
from nodeagent.pleg.tracked import TrackedPod
from nodeagent.rpc import RpcError

T = TypeVar("T")


class Lister(Protocol):
    """How PLEG looks at the runtime; :class:`nodeagent.cri.pods.PodLister` is one."""

    async def list_pods(self, watch: CallWatch = unwatched) -> Mapping[PodUID, RuntimePod]:
        """All pods; the same mapping and the same pods as long as nothing changes."""
        ...

    async def get_pod(self, uid: PodUID, watch: CallWatch = unwatched) -> RuntimePod | None:
        """One pod; None when the runtime has nothing of it."""
        ...

    async def inspect(
        self,
        pod: RuntimePod,
        watch: CallWatch = unwatched,
        known: PodRuntimeStatus | None = None,
        at_once: int = AT_ONCE,
    ) -> PodRuntimeStatus:
        """Details of all that the pod has.

        ``known`` is what an earlier inspection found; ``at_once`` calls are made side by side.
        """
        ...

    async def end_of(
        self, pod: RuntimePod, id_: str, watch: CallWatch = unwatched
    ) -> EndSeen | None:
        """Whether one container or sandbox of the pod does not run any more; None while it does."""
        ...


class SupersededError(Exception):
    """A call was given up because something newer is known."""


class _PodCalls:
    """The calls about one pod that are under way; the oldest is the one that keeps it.

    Attributes:
        culprit: the call that failed or did not answer.
    """

    def __init__(self, pod: TrackedPod, scope: anyio.CancelScope, timeout: float) -> None:
        self._pod = pod
        self._scope = scope
        self._timeout = timeout
        self._under_way: dict[object, Trouble] = {}
        self.culprit = ""
        self._show("")

    @contextmanager
    def watch(self, rpc: str) -> Iterator[None]:
        """One call; while it runs it may be what the pod waits for."""
        token = object()
        self._under_way[token] = Trouble(rpc, anyio.current_time())
        if len(self._under_way) == 1:
            self._show(rpc)
        try:
            yield
        except anyio.get_cancelled_exc_class():
            self.culprit = self.culprit or next(iter(self._under_way.values())).rpc
            raise
        except Exception:
            self.culprit = rpc
            raise
        finally:
            oldest = next(iter(self._under_way)) is token
            del self._under_way[token]
            if oldest:
                self._show(rpc)

    def _show(self, last: str) -> None:
        oldest = next(iter(self._under_way.values()), None)
        self._pod.call = oldest or Trouble(last, anyio.current_time())
        self._scope.deadline = self._pod.call.since + self._timeout


class ListCalls:
    """The list calls of one relist; what failed, or has been without an answer for longest."""

    def __init__(self, began: float) -> None:
        self._began = Trouble("", began)
        self._under_way: list[Trouble] = []
        self._failed: Trouble | None = None

    @property
    def trouble(self) -> Trouble:
        """The call that failed first, or else the oldest that is under way."""
        return self._failed or next(iter(self._under_way), self._began)

    @contextmanager
    def watch(self, rpc: str) -> Iterator[None]:
        """One call."""
        call = Trouble(rpc, anyio.current_time())
        self._under_way.append(call)
        try:
            yield
        except Exception:
            self._failed = self._failed or call
            raise
        except anyio.get_cancelled_exc_class():
            # Given up because of another one, or because nothing answers any more.
            self._failed = self._failed or self._under_way[0]
            raise
        finally:
            self._began = call
            self._under_way.remove(call)


async def ask_runtime(
    pod: TrackedPod, timeout: float, work: Callable[[CallWatch], Awaitable[T]]
) -> T:
    """Make runtime calls about one pod; each has ``timeout`` seconds to answer.

    While it runs, ``pod.call`` tells which call has been under way for longest, since when.

    Raises:
        InspectionError: a call failed or did not answer.
        SupersededError: ``pod.give_up()`` was called.
    """
    pod.superseded = False
    with anyio.CancelScope() as scope:
        calls = _PodCalls(pod, scope, timeout)
        pod.scope = scope
        try:
            return await work(calls.watch)
        except Exception as error:
            rpc = error.method if isinstance(error, RpcError) else ""
            raise InspectionError(pod.uid, calls.culprit or rpc, cause_of(error)) from error
        finally:
            pod.scope = None
            pod.call = None
    if pod.superseded:
        raise SupersededError
    raise InspectionError(pod.uid, calls.culprit, f"no answer within {timeout:g}s")


def cause_of(error: Exception) -> str:
    """What went wrong, without the name of the call."""
    if isinstance(error, RpcError):
        kind = error.code.name.lower().replace("_", " ")
        return f"{kind}: {error.message}" if error.message else kind
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return repr(error)
