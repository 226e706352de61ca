"""Lifecycle hooks: what a container wants done after its start and before its end.

docs/behaviour/runtime.md, "Hooks".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import anyio
import msgspec

from nodeagent.api import Container, ContainerPort, ExecAction, LifecycleHandler, Pod, SleepAction
from nodeagent.http_action import MAX_BODY
from nodeagent.model import ContainerID, PodUID
from nodeagent.rpc import RpcError
from nodeagent.runtime import names
from nodeagent.runtime.context import RuntimeContext
from nodeagent.runtime.errors import describe
from nodeagent.runtime.hook_http import HookRequest, RequestFailed, make_request

_LOOK_PERIOD: Final = 0.5
"""Seconds between two looks whether the container of a running hook has ended."""


_KILLED: Final = 137
"""Exit code of a command that did not come to its own end."""
_SETTLE: Final = 1.5
"""Seconds within which the end of a container is known after that of its commands."""
_SETTLE_PERIOD: Final = 0.05


class HookError(Exception):
    """A hook failed; the text says all that is known, for the container's status.

    Args:
        text: what failed, and why.
        cut_off: it did not come to its own end; its container may have ended.
    """

    def __init__(self, text: str, *, cut_off: bool = False) -> None:
        super().__init__(text)
        self.cut_off = cut_off


@dataclass(frozen=True, slots=True)
class HookTarget:
    """The container that a hook belongs to.

    Attributes:
        uid: its pod.
        pod: the pod's spec; None when it is gone.
        shown: the pod as messages name it.
        container: name and ports count.
        id: its id.
        address: the pod's address, "" for none.
    """

    uid: PodUID
    pod: Pod | None
    shown: str
    container: Container
    id: ContainerID
    address: str

    def about(self, what: str, trouble: str, *, cut_off: bool = False) -> HookError:
        """A failure of a hook, named in full."""
        where = f'for Container "{self.container.name}" in Pod "{self.shown}"'
        return HookError(f"{what} {where} failed - error: {trouble}", cut_off=cut_off)


def restored(name: str, annotations: Mapping[str, str]) -> Container:
    """A container that has left the spec, as far as hooks need it."""
    try:
        ports = msgspec.json.decode(
            annotations.get(names.PORTS, "[]"), type=tuple[ContainerPort, ...]
        )
    except msgspec.MsgspecError:
        ports = ()
    return Container(name=name, ports=ports)


def pre_stop_handler(
    container: Container | None, annotations: Mapping[str, str]
) -> LifecycleHandler | None:
    """What the container wants done before its end; None for nothing.

    Args:
        container: its spec; None when it is gone, then what it carries counts.
        annotations: those of the container.
    """
    if container is not None:
        return container.lifecycle.pre_stop if container.lifecycle is not None else None
    text = annotations.get(names.PRE_STOP_HANDLER)
    if not text:
        return None
    try:
        return msgspec.json.decode(text, type=LifecycleHandler)
    except msgspec.MsgspecError:
        return None


class HookRunner:
    """Performs hooks.

    Args:
        context: what the runtime side shares.
    """

    def __init__(self, context: RuntimeContext) -> None:
        self._context = context

    async def run(self, target: HookTarget, handler: LifecycleHandler) -> None:
        """Perform a hook to its end, or until its container has ended.

        Has no deadline of its own: only the caller's scope bounds it.

        Raises:
            HookError: it failed.
        """
        errors: list[HookError] = []
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._wait_for_end, target, tasks.cancel_scope)
            try:
                await self._perform(target, handler)
            except HookError as error:
                if not (error.cut_off and await self._ends(target)):
                    errors.append(error)
            tasks.cancel_scope.cancel()
        if errors:
            raise errors[0]

    async def _wait_for_end(self, target: HookTarget, hook: anyio.CancelScope) -> None:
        await self._until_ended(target, _LOOK_PERIOD)
        hook.cancel()

    async def _ends(self, target: HookTarget) -> bool:
        """Whether the container ends now: its commands do so before anybody learns of it."""
        with anyio.move_on_after(_SETTLE):
            await self._until_ended(target, _SETTLE_PERIOD)
            return True
        return False

    async def _until_ended(self, target: HookTarget, period: float) -> None:
        ended = self._context.lookups.ended
        while not ended(target.uid, target.id):  # noqa: ASYNC110 - a look at what PLEG last saw
            await anyio.sleep(period)

    async def _perform(self, target: HookTarget, handler: LifecycleHandler) -> None:
        if handler.exec is not None:
            await self._execute(target, handler.exec)
        elif handler.http_get is not None:
            await self._request(target, HookRequest(handler.http_get, target.container))
        elif handler.sleep is not None:
            await _pause(handler.sleep)
        else:
            kind = "tcpSocket" if handler.tcp_socket is not None else "none"
            msg = f"Cannot run handler: invalid handler: {kind}"
            raise HookError(msg)

    async def _execute(self, target: HookTarget, action: ExecAction) -> None:
        what = f"Exec lifecycle hook ([{' '.join(action.command)}])"
        try:
            done = await self._context.runtime.exec_sync(target.id, action.command, 0)
        except RpcError as error:
            trouble = f'{describe(error)}, message: ""'
            raise target.about(what, trouble, cut_off=True) from error
        if done.exit_code == 0:
            return
        command = " ".join(action.command)
        said = _text(done.stderr)
        output = _text((done.stdout + done.stderr)[:MAX_BODY])
        trouble = f"command '{command}' exited with {done.exit_code}: {said}"
        raise target.about(
            what, f'{trouble}, message: "{output}"', cut_off=done.exit_code == _KILLED
        )

    async def _request(self, target: HookTarget, request: HookRequest) -> None:
        try:
            fell_back = await make_request(request, target.address)
        except RequestFailed as error:
            what = f"HTTP lifecycle hook ({request.action.path})"
            raise target.about(what, str(error)) from error
        if fell_back:
            self._context.metrics.hook_fallbacks.inc()
            text = (
                f"request to HTTPS lifecycle hook {fell_back} got HTTP response, "
                "retry with HTTP succeeded"
            )
            self._context.say(
                target.pod, "Warning", "LifecycleHTTPFallback", text, target.container.name
            )


async def _pause(action: SleepAction) -> None:
    await anyio.sleep(max(action.seconds, 0))


def _text(output: bytes) -> str:
    return output[:MAX_BODY].decode(errors="replace")
