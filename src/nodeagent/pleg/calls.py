"""Calls to the runtime about one pod: named, bounded, and given up when they are pointless."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol, TypeAlias, TypeVar

import anyio

from nodeagent.model import PodRuntimeStatus, PodUID, RuntimePod
from nodeagent.pleg.errors import InspectionError
from nodeagent.pleg.health import Trouble
from nodeagent.pleg.tracked import TrackedPod
from nodeagent.rpc import RpcError

T = TypeVar("T")

OnCall: TypeAlias = Callable[[str], None]
"""Is told the name of each runtime call just before it is made."""


class Lister(Protocol):
    """How PLEG looks at the runtime; :class:`nodeagent.cri.pods.PodLister` is one."""

    async def list_pods(self, on_call: OnCall = ...) -> Mapping[PodUID, RuntimePod]:
        """All pods; the same mapping and the same pods as long as nothing changes."""
        ...

    async def get_pod(self, uid: PodUID, on_call: OnCall = ...) -> RuntimePod | None:
        """One pod; None when the runtime has nothing of it."""
        ...

    async def inspect(self, pod: RuntimePod, on_call: OnCall = ...) -> PodRuntimeStatus:
        """Details of all that the pod has."""
        ...


class SupersededError(Exception):
    """A call was given up because something newer is known."""


async def ask_runtime(pod: TrackedPod, timeout: float, work: Callable[[OnCall], Awaitable[T]]) -> T:
    """Make runtime calls about one pod; each has ``timeout`` seconds to answer.

    While it runs, ``pod.call`` tells which call is under way and since when.

    Raises:
        InspectionError: a call failed or did not answer.
        SupersededError: ``pod.give_up()`` was called.
    """
    rpc = ""
    pod.superseded = False
    try:
        with anyio.CancelScope() as scope:

            def on_call(name: str) -> None:
                nonlocal rpc
                rpc = name
                now = anyio.current_time()
                pod.call = Trouble(name, now)
                scope.deadline = now + timeout

            on_call(rpc)
            pod.scope = scope
            return await work(on_call)
    except Exception as error:
        raise InspectionError(pod.uid, rpc, cause_of(error)) from error
    finally:
        pod.scope = None
        pod.call = None
    if pod.superseded:
        raise SupersededError
    raise InspectionError(pod.uid, rpc, f"no answer within {timeout:g}s")


def cause_of(error: Exception) -> str:
    """What went wrong, without the name of the call."""
    if isinstance(error, RpcError):
        kind = error.code.name.lower().replace("_", " ")
        return f"{kind}: {error.message}" if error.message else kind
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return repr(error)
