"""Hooks after the start of a container (docs/behaviour/runtime.md, "Hooks")."""

from __future__ import annotations

import anyio

from nodeagent.api import Container, Pod
from nodeagent.model import ContainerID, PodUID
from nodeagent.model.actions import KillReason
from nodeagent.rpc import RpcError
from nodeagent.runtime.context import RuntimeContext
from nodeagent.runtime.errors import ContainerStartError, Waiting
from nodeagent.runtime.hooks import HookError, HookRunner, HookTarget
from nodeagent.runtime.names import PodNames
from nodeagent.runtime.stopping import Stopper, Victim

FAILED = "FailedPostStartHook"


class PostStarts:
    """Performs hooks of containers that have just started; who fails is killed.

    Args:
        context: what the runtime side shares.
        hooks: performs them.
        stopper: kills.
    """

    def __init__(self, context: RuntimeContext, hooks: HookRunner, stopper: Stopper) -> None:
        self._context = context
        self._hooks = hooks
        self._stopper = stopper

    async def run(
        self, pod: Pod, container: Container, container_id: ContainerID, address: str
    ) -> None:
        """Perform the container's hook, if it has one.

        Raises:
            ContainerStartError: with PostStartHookError; the container has been killed.
        """
        handler = container.lifecycle.post_start if container.lifecycle is not None else None
        if handler is None:
            return
        uid, began = PodUID(pod.metadata.uid), anyio.current_time()
        shown = str(PodNames.of(pod))
        target = HookTarget(uid, pod, shown, container, container_id, address)
        try:
            await self._hooks.run(target, handler)
        except HookError as error:
            # The event leaves the details out: they may hold what only the pod's owner may see.
            self._context.say(pod, "Warning", FAILED, "PostStartHook failed", container.name)
            await self._kill(pod, target)
            raise ContainerStartError(Waiting.POST_START, str(error)) from error
        took = anyio.current_time() - began
        self._context.note("PostStartHookDone", uid, "", took, container=container.name)

    async def _kill(self, pod: Pod, target: HookTarget) -> None:
        reason = KillReason.FAILED_POST_START_HOOK
        victim = Victim(
            target.id, target.container.name, {}, reason.value, reason, address=target.address
        )
        try:
            await self._stopper.stop_container(pod, target.uid, victim)
        except RpcError:
            return  # it is in the journal; the container runs on until it is stopped again
