"""Stopping containers and whole pods (docs/behaviour/runtime.md, "Stopping")."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import anyio

from nodeagent.api import Container, Pod
from nodeagent.model import (
    ContainerID,
    ContainerState,
    PodRuntimeStatus,
    PodUID,
    SandboxID,
    SyncError,
)
from nodeagent.model.actions import KillReason
from nodeagent.proto.runtime import v1
from nodeagent.rpc import NotFound, RpcError, Unavailable
from nodeagent.runtime import names
from nodeagent.runtime.context import RuntimeContext
from nodeagent.runtime.errors import SyncReason, describe
from nodeagent.runtime.grace import container_grace, stop_timeout
from nodeagent.runtime.hooks import HookTarget, pre_stop_handler, restored
from nodeagent.runtime.pre_stop import PreStops
from nodeagent.runtime.settings import RuntimeSettings
from nodeagent.runtime.stop_order import StopOrder, stops_after
from nodeagent.runtime.strays import Strays


@dataclass(frozen=True, slots=True)
class Victim:
    """A container to stop.

    Attributes:
        id: its id.
        name: its name in the spec.
        annotations: what it carries, for when the spec is gone.
        message: text of the ``Killing`` event.
        reason: why, when the pod goes on.
        address: the pod's address, where its hook asks; "" for none.
    """

    id: ContainerID
    name: str
    annotations: dict[str, str]
    message: str
    reason: KillReason = KillReason.NONE
    address: str = ""


@dataclass(frozen=True, slots=True)
class _Failure:
    """Something that could not be stopped."""

    what: str
    error: RpcError

    def __str__(self) -> str:
        return f"{self.what}: {describe(self.error)}"


def hook_address(status: PodRuntimeStatus, settings: RuntimeSettings) -> str:
    """Where the pod can be reached; "" when it cannot."""
    if status.sandboxes and status.sandboxes[0].host_network:
        return settings.node_ips[0] if settings.node_ips else ""
    return status.ips[0] if status.ips else ""


class Stopper:
    """Stops containers and sandboxes.

    Args:
        context: what the runtime side shares.
        pre_stops: performs what containers want done before their end.
    """

    def __init__(self, context: RuntimeContext, pre_stops: PreStops) -> None:
        self._context = context
        self._pre_stops = pre_stops

    async def stop_container(
        self,
        pod: Pod | None,
        uid: str,
        victim: Victim,
        grace_override: int | None = None,
        order: StopOrder | None = None,
    ) -> None:
        """Stop one container; one that is gone counts as stopped.

        Args:
            pod: its pod's spec; None when it is gone.
            uid: its pod.
            victim: the container.
            grace_override: seconds it may take, whatever the spec says.
            order: what it has to wait for, out of its grace.

        Raises:
            RpcError: the runtime could not stop it.
        """
        context = self._context
        container = names.find_container(pod, victim.name) if pod is not None else None
        grace = container_grace(pod, container, victim.annotations, victim.reason)
        context.say(pod, "Normal", "Killing", victim.message, victim.name)
        if grace_override is not None:
            grace = grace_override
        began = anyio.current_time()
        grace -= await self._pre_stop(pod, container, PodUID(uid), victim, grace)
        if order is not None and grace > 0:
            grace -= await order.wait_turn(victim.id, grace)
        timeout = stop_timeout(grace)
        context.note("ContainerKilling", uid, victim.message, container=victim.name, grace=timeout)
        try:
            await context.runtime.stop_container(victim.id, timeout)
        except NotFound:
            pass
        except RpcError as error:
            context.note("ContainerKillFailed", uid, describe(error), container=victim.name)
            raise
        context.note(
            "ContainerKilled",
            uid,
            victim.reason.value,
            anyio.current_time() - began,
            container=victim.name,
            id=victim.id,
        )
        self._pre_stops.forget(victim.id)
        if order is not None:
            order.stopped(victim.id)
        context.acted(uid, "container killed")

    async def _pre_stop(
        self, pod: Pod | None, container: Container | None, uid: PodUID, victim: Victim, grace: int
    ) -> int:
        """Perform the container's hook within its grace; returns the seconds that it took."""
        handler = pre_stop_handler(container, victim.annotations)
        if handler is None or grace <= 0:
            return 0
        shown = str(names.PodNames.of(pod)) if pod is not None else uid
        spec = container or restored(victim.name, victim.annotations)
        target = HookTarget(uid, pod, shown, spec, victim.id, victim.address)
        return await self._pre_stops.finish(target, handler, grace)

    async def kill_pod(
        self,
        pod: Pod | None,
        status: PodRuntimeStatus,
        grace_override: int | None = None,
        *,
        unseen: bool = True,
    ) -> None:
        """Stop all containers of a pod side by side, sidecars last, then its sandboxes.

        Args:
            pod: the spec; None when it is gone.
            status: what the runtime reports.
            grace_override: seconds that each container may take, whatever the spec says.
            unseen: look for what a call that was cut may have made after the status.

        Raises:
            SyncError: something could not be stopped; the rest was.
        """
        victims, sandboxes = await self._all_of(status, unseen=unseen)
        failures: list[_Failure] = []
        order = StopOrder(stops_after(pod, ((v.id, v.name) for v in victims)))

        async def stop(victim: Victim) -> None:
            try:
                await self.stop_container(pod, status.uid, victim, grace_override, order)
            except RpcError as error:
                failures.append(_Failure(f"container {victim.name}", error))

        async with anyio.create_task_group() as tasks:
            for victim in victims:
                tasks.start_soon(stop, victim)
        reason = SyncReason.KILL_CONTAINER if failures else SyncReason.KILL_SANDBOX
        failures += await self.stop_sandboxes(status.uid, sandboxes)
        if failures:
            raise SyncError("; ".join(map(str, failures)), reason=reason) from _cause(failures)

    async def stop_sandboxes(self, uid: str, sandboxes: Iterable[SandboxID]) -> list[_Failure]:
        """Stop sandboxes one after the other; returns what went wrong."""
        failures: list[_Failure] = []
        for sandbox in sandboxes:
            began = anyio.current_time()
            try:
                await self._context.runtime.stop_pod_sandbox(sandbox)
            except NotFound:
                continue
            except RpcError as error:
                failures.append(_Failure(f"sandbox {sandbox}", error))
                continue
            took = anyio.current_time() - began
            self._context.note("SandboxStopped", uid, "", took, id=sandbox)
            self._context.acted(uid, "sandbox stopped")
        return failures

    async def clear_strays(self, uid: str, strays: Strays) -> None:
        """Clear away what late calls left behind; what fails is tried again next time."""
        context = self._context
        context.note(
            "StraysCleared",
            uid,
            "left behind by calls whose answers came too late",
            sandboxes=list(strays.sandboxes),
            containers=[c.id for c in strays.containers],
        )
        await self.stop_sandboxes(uid, strays.sandboxes)
        for container in strays.containers:
            try:
                await context.runtime.remove_container(container.id)
            except RpcError as error:
                context.note("StrayNotRemoved", uid, describe(error), container=container.name)
        context.acted(uid, "strays cleared")

    async def _all_of(
        self, status: PodRuntimeStatus, *, unseen: bool
    ) -> tuple[list[Victim], list[SandboxID]]:
        address = hook_address(status, self._context.settings)
        victims = {
            c.id: _victim(c.id, c.name, c.annotations, address)
            for c in status.containers
            if c.state in (ContainerState.RUNNING, ContainerState.UNKNOWN)
        }
        sandboxes = dict.fromkeys(s.id for s in status.sandboxes)
        if unseen and self._context.records.anything_open(status.uid):
            labels: dict[str, str] = {names.POD_UID: status.uid}
            try:
                await self._add_unseen(labels, victims, sandboxes)
            except RpcError as error:
                raise SyncError(describe(error), reason=SyncReason.KILL_CONTAINER) from error
        return list(victims.values()), list(sandboxes)

    async def _add_unseen(
        self,
        labels: dict[str, str],
        victims: dict[ContainerID, Victim],
        sandboxes: dict[SandboxID, None],
    ) -> None:
        runtime = self._context.runtime
        for found in await runtime.list_containers(v1.ContainerFilter(label_selector=labels)):
            if found.state in (
                v1.ContainerState.CONTAINER_RUNNING,
                v1.ContainerState.CONTAINER_UNKNOWN,
            ):
                cid = ContainerID(found.id)
                name = found.labels.get(names.CONTAINER_NAME, "")
                victims.setdefault(cid, _victim(cid, name, dict(found.annotations), ""))
        for sandbox in await runtime.list_pod_sandbox(v1.PodSandboxFilter(label_selector=labels)):
            sandboxes.setdefault(SandboxID(sandbox.id))


def _cause(failures: Iterable[_Failure]) -> RpcError:
    """The error that decides when to try again: the runtime being away, else the first."""
    errors = [failure.error for failure in failures]
    return next((error for error in errors if isinstance(error, Unavailable)), errors[0])


def _victim(cid: ContainerID, name: str, annotations: dict[str, str], address: str) -> Victim:
    message = f"Stopping container {name}"
    return Victim(cid, name, annotations, message, address=address)
