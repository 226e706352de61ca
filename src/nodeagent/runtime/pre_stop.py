"""Hooks before the end of a container, each performed once (docs/behaviour/runtime.md, "Hooks").

A stop may be made again while a hook goes on: because the pod gets less time, or because the
runtime could not stop the container. The hook is not begun again then: it belongs to the
container, and whoever stops the container joins it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import anyio
from anyio import TASK_STATUS_IGNORED
from anyio.abc import TaskGroup, TaskStatus

from nodeagent.api import LifecycleHandler
from nodeagent.model import ContainerID, PodUID
from nodeagent.runtime.context import RuntimeContext
from nodeagent.runtime.hooks import HookError, HookRunner, HookTarget

FAILED = "FailedPreStopHook"


@dataclass(slots=True)
class _Hook:
    """A hook that was begun."""

    uid: PodUID
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    over: anyio.Event = field(default_factory=anyio.Event)


class PreStops:
    """Performs hooks before containers are stopped.

    While :meth:`run` runs, hooks live beside whoever stops the container; without it they end
    with them.

    Args:
        context: what the runtime side shares.
        hooks: performs them.
    """

    def __init__(self, context: RuntimeContext, hooks: HookRunner) -> None:
        self._context = context
        self._runner = hooks
        self._host: TaskGroup | None = None
        self._hooks: dict[ContainerID, _Hook] = {}

    async def run(self, *, task_status: TaskStatus[None] = TASK_STATUS_IGNORED) -> None:
        """Be home to hooks until cancelled."""
        async with anyio.create_task_group() as tasks:
            self._host = tasks
            try:
                task_status.started()
                await anyio.sleep_forever()
            finally:
                self._host = None

    async def finish(self, target: HookTarget, handler: LifecycleHandler, grace: int) -> int:
        """Begin the container's hook, or join it, and wait until it is over.

        Args:
            target: the container.
            handler: its hook.
            grace: seconds after which it is cut.

        Returns:
            Whole seconds that it took.
        """
        began = anyio.current_time()
        hook = self._hooks.get(target.id)
        if hook is not None:
            await self._wait(target, hook, grace)
        else:
            hook = self._hooks[target.id] = _Hook(target.uid)
            if self._host is not None:
                self._host.start_soon(self._perform, target, handler, hook)
                await self._wait(target, hook, grace)
            else:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self._perform, target, handler, hook)
                    await self._wait(target, hook, grace)
        return int(anyio.current_time() - began)

    def forget(self, container_id: ContainerID) -> None:
        """The container has stopped."""
        hook = self._hooks.pop(container_id, None)
        if hook is not None:
            hook.scope.cancel()

    def forget_pod(self, uid: PodUID) -> None:
        """The pod is gone with its containers."""
        for cid in [cid for cid, hook in self._hooks.items() if hook.uid == uid]:
            self.forget(cid)

    async def _wait(self, target: HookTarget, hook: _Hook, grace: int) -> None:
        with anyio.move_on_after(grace):
            await hook.over.wait()
        if not hook.over.is_set():
            text = f"PreStop hook not completed in grace period of {grace}s"
            self._tell(target, text, "PreStopHookCut", text)
            hook.scope.cancel()

    async def _perform(self, target: HookTarget, handler: LifecycleHandler, hook: _Hook) -> None:
        began = anyio.current_time()
        try:
            with hook.scope:
                await self._runner.run(target, handler)
                took = anyio.current_time() - began
                self._note(target, "PreStopHookDone", "", took)
        except HookError as error:
            # The event leaves the details out: they may hold what only the pod's owner may see.
            self._tell(target, "PreStopHook failed", "PreStopHookFailed", str(error))
        except Exception as error:  # noqa: BLE001 - whatever it is, the container must stop
            self._tell(target, "PreStopHook failed", "PreStopHookFailed", repr(error))
        finally:
            hook.over.set()

    def _tell(self, target: HookTarget, event: str, what: str, why: str) -> None:
        self._context.say(target.pod, "Warning", FAILED, event, target.container.name)
        self._note(target, what, why)

    def _note(self, target: HookTarget, what: str, why: str, duration: float | None = None) -> None:
        self._context.note(what, target.uid, why, duration, container=target.container.name)
