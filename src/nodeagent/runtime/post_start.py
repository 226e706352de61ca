"""Hooks after the start of a container (docs/behaviour/runtime.md, "Hooks")."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import anyio

from nodeagent.api import Container, LifecycleHandler, Pod
from nodeagent.model import ContainerID, PodUID
from nodeagent.model.actions import KillReason
from nodeagent.rpc import RpcError
from nodeagent.runtime.context import RuntimeContext
from nodeagent.runtime.errors import ContainerStartError, Waiting
from nodeagent.runtime.hooks import HookError, HookRunner, HookTarget
from nodeagent.runtime.image_pulls import OnNote, no_note
from nodeagent.runtime.names import PodNames
from nodeagent.runtime.stopping import Stopper, Victim

FAILED: Final = "FailedPostStartHook"


class PostStarts:
    """Performs hooks of containers that have just started; who fails is killed.

    Args:
        context: what the runtime side shares.
        hooks: performs them.
        stopper: kills.
        on_note: told when :meth:`note` of a pod has changed.
    """

    def __init__(
        self,
        context: RuntimeContext,
        hooks: HookRunner,
        stopper: Stopper,
        on_note: OnNote = no_note,
    ) -> None:
        self._context = context
        self._on_note = on_note
        self._notes: dict[tuple[PodUID, str], str] = {}
        self._hooks = hooks
        self._stopper = stopper

    def note(self, uid: PodUID, container: str) -> str:
        """What a container waits for when its hook is taking long; "" when it is not."""
        return self._notes.get((uid, container), "")

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
            await self._perform(target, handler)
        except HookError as error:
            # The event leaves the details out: they may hold what only the pod's owner may see.
            self._context.say(pod, "Warning", FAILED, "PostStartHook failed", container.name)
            await self._kill(pod, target)
            raise ContainerStartError(Waiting.POST_START, str(error)) from error
        took = anyio.current_time() - began
        self._context.note("PostStartHookDone", uid, "", took, container=container.name)

    async def _perform(self, target: HookTarget, handler: LifecycleHandler) -> None:
        errors: list[HookError] = []
        with self._noted(target):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._tell, target)
                try:
                    await self._hooks.run(target, handler)
                except HookError as error:
                    errors.append(error)
                tasks.cancel_scope.cancel()
        if errors:
            raise errors[0]

    @contextmanager
    def _noted(self, target: HookTarget) -> Iterator[None]:
        try:
            yield
        finally:
            if self._notes.pop((target.uid, target.container.name), ""):
                self._on_note(target.uid)

    async def _tell(self, target: HookTarget) -> None:
        since = self._context.clock.now()
        await anyio.sleep(self._context.settings.images.note_after)
        text = f"running its postStart hook since {since:%Y-%m-%dT%H:%M:%SZ}"
        self._notes[target.uid, target.container.name] = text
        self._on_note(target.uid)

    async def _kill(self, pod: Pod, target: HookTarget) -> None:
        reason = KillReason.FAILED_POST_START_HOOK
        victim = Victim(
            target.id, target.container.name, {}, reason.value, reason, address=target.address
        )
        try:
            await self._stopper.stop_container(pod, target.uid, victim)
        except RpcError:
            return  # it is in the journal; the container runs on until it is stopped again
