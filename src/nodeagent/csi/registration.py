"""Plugins that make themselves known by a socket.

docs/behaviour/csi.md, "Registration".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

import anyio
from anyio import TASK_STATUS_IGNORED, to_thread
from anyio.abc import TaskGroup, TaskStatus

from nodeagent.csi.metrics import CsiMetrics
from nodeagent.csi.sockets import Identity, SocketWatch, find_sockets
from nodeagent.journal import Journal
from nodeagent.log import Log
from nodeagent.rpc import RpcChannel, RpcError

if TYPE_CHECKING:
    from nodeagent.proto.pluginregistration import PluginInfo

log = Log("plugins")

CSI_PLUGIN: Final = "CSIPlugin"
DESIRED: Final = "desired_state_of_world"
ACTUAL: Final = "actual_state_of_world"
_PERIOD: Final = 1.0
_WATCHED_PERIOD: Final = 30.0
_SOON: Final = 0.05
_DIAL: Final = 10.0
_INFO: Final = 1.0
_FIRST_BACK_OFF: Final = 0.5
_LONGEST_BACK_OFF: Final = 122.0


class PluginRefusedError(Exception):
    """A plugin cannot be taken; the text says why."""


@dataclass(frozen=True, slots=True)
class Plugin:
    """A plugin that wants to be registered.

    Attributes:
        name: its name.
        endpoint: the socket that it serves on.
        versions: of its interface.
    """

    name: str
    endpoint: str
    versions: tuple[str, ...]


class PluginHandler(Protocol):
    """Takes plugins of one type."""

    def validate(self, plugin: Plugin) -> None:
        """Raise ``PluginRefusedError`` for what can never be taken."""
        ...

    async def register(self, plugin: Plugin) -> None:
        """Take the plugin; one of its name that is there already is replaced.

        Raises:
            PluginRefusedError: it cannot be taken.
        """
        ...

    async def unregister(self, plugin: Plugin) -> None:
        """The plugin is gone."""
        ...


@dataclass(slots=True, eq=False)
class _Known:
    """A socket that was seen."""

    identity: Identity
    handler: PluginHandler | None = None
    plugin: Plugin | None = None
    busy: bool = False
    leaving: bool = False
    failures: int = 0
    retry_at: float = 0.0
    said: str = ""


class PluginWatcher:
    """Registers the plugins whose sockets lie in a directory.

    Args:
        directory: where; made if it is not there.
        handlers: who takes plugins, by their type.
        journal: the flight recorder.
        metrics: where plugins are counted.
    """

    def __init__(
        self,
        directory: Path,
        handlers: Mapping[str, PluginHandler],
        journal: Journal,
        metrics: CsiMetrics,
    ) -> None:
        self._directory = directory
        self._handlers = handlers
        self._journal = journal
        self._metrics = metrics
        self._known: dict[str, _Known] = {}
        self._watch = SocketWatch()

    async def run(self, *, task_status: TaskStatus[None] = TASK_STATUS_IGNORED) -> None:
        """Register what comes, and forget what goes, until cancelled."""
        await to_thread.run_sync(_make, self._directory)
        task_status.started()
        try:
            async with anyio.create_task_group() as tasks:
                while True:
                    await self._look(tasks)
                    await self._watch.wait(self._pause())
        finally:
            self._watch.close()

    def _pause(self) -> float:
        """Seconds until the next look, unless something changes before."""
        now, period = anyio.current_time(), _WATCHED_PERIOD if self._watch.works else _PERIOD
        for known in self._known.values():
            if known.leaving:
                period = _SOON
            elif known.busy:
                period = min(period, _PERIOD)
            elif known.plugin is None:
                period = min(period, max(known.retry_at - now, 0.01))
        return period

    async def _look(self, tasks: TaskGroup) -> None:
        """Compare what lies there with what is known."""

        def look() -> dict[str, Identity]:
            sockets, directories = find_sockets(self._directory)
            while self._watch.watch(directories):
                # What came before there was a watch: no one tells of it.
                sockets, directories = find_sockets(self._directory)
            return sockets

        sockets = await to_thread.run_sync(look)
        for path in [path for path in self._known if path not in sockets]:
            self._metrics.plugin_gone(path, DESIRED)
            self._drop(path, tasks)
        now = anyio.current_time()
        for path, identity in sockets.items():
            known = self._known.get(path)
            if known is not None and known.identity != identity:
                self._drop(path, tasks)
                known = self._known.get(path)
            if known is None:
                known = self._known[path] = _Known(identity)
                self._metrics.plugin_there(path, DESIRED)
            if known.plugin is None and not known.busy and now >= known.retry_at:
                known.busy = True
                tasks.start_soon(self._register, path, known, name="plugin")

    def _drop(self, path: str, tasks: TaskGroup) -> None:
        known = self._known[path]
        if known.busy:
            return  # at the next look
        if known.plugin is not None:
            known.busy = known.leaving = True
            tasks.start_soon(self._unregister, path, known, name="plugin")
            return
        del self._known[path]

    async def _unregister(self, path: str, known: _Known) -> None:
        assert known.plugin is not None
        assert known.handler is not None
        plugin = known.plugin
        try:
            await known.handler.unregister(plugin)
        except Exception as error:  # noqa: BLE001 - the others go on
            log.fault("plugin_not_unregistered", error, plugin=plugin.name, socket=path)
        self._metrics.plugin_gone(path, ACTUAL)
        self._known.pop(path, None)
        log.info("plugin_unregistered", plugin=plugin.name, socket=path)
        self._journal.record("plugins", "PluginUnregistered", why=plugin.name, socket=path)

    async def _register(self, path: str, known: _Known) -> None:
        try:
            async with RpcChannel(path, connect_timeout=_DIAL) as channel:
                trouble = await self._introduce(path, known, channel)
        except (RpcError, ValueError, OSError) as error:
            trouble = str(error)
        except Exception as error:  # noqa: BLE001 - a plugin's fault must not end the others
            log.fault("plugin_broke", error, socket=path)
            trouble = str(error)
        known.busy = False
        if not trouble:
            known.failures, known.said = 0, ""
            return
        known.failures += 1
        wait = min(_FIRST_BACK_OFF * 2 ** min(known.failures - 1, 16), _LONGEST_BACK_OFF)
        known.retry_at = anyio.current_time() + wait
        if trouble != known.said:
            known.said = trouble
            log.warning("plugin_not_registered", socket=path, cause=trouble)
            self._journal.record("plugins", "PluginRefused", why=trouble, socket=path)

    async def _introduce(self, path: str, known: _Known, channel: RpcChannel) -> str:
        """Ask what it is, take it, and tell it so; why not, "" when it is taken."""
        from nodeagent.proto import pluginregistration as v1

        info = await channel.unary(
            "/pluginregistration.Registration/GetInfo",
            v1.InfoRequest(),
            v1.PluginInfo,
            timeout=_INFO,
        )
        plugin = _plugin(info, path)
        trouble = await self._take(path, known, info.type, plugin)
        status = v1.RegistrationStatus(plugin_registered=not trouble, error=trouble)
        try:
            await channel.unary(
                "/pluginregistration.Registration/NotifyRegistrationStatus",
                status,
                v1.RegistrationStatusResponse,
                timeout=_DIAL,
            )
        except RpcError as error:
            if known.plugin is None:
                raise
            # It does its work, whether or not it knows.
            log.warning("plugin_not_told", plugin=plugin.name, socket=path, cause=str(error))
        return trouble

    async def _take(self, path: str, known: _Known, kind: str, plugin: Plugin) -> str:
        handler = self._handlers.get(kind)
        if handler is None:
            text = f"no handler registered for plugin type: {kind} at socket {path}"
            return f"RegisterPlugin error -- {text}"
        try:
            handler.validate(plugin)
        except PluginRefusedError as error:
            return f"RegisterPlugin error -- plugin validation failed with err: {error}"
        try:
            await handler.register(plugin)
        except PluginRefusedError as error:
            return f"RegisterPlugin error -- plugin registration failed with err: {error}"
        known.handler, known.plugin = handler, plugin
        self._metrics.plugin_there(path, ACTUAL)
        log.info("plugin_registered", plugin=plugin.name, type=kind, socket=path)
        self._journal.record("plugins", "PluginRegistered", why=plugin.name, socket=path)
        return ""


def _plugin(info: PluginInfo, path: str) -> Plugin:
    return Plugin(info.name, info.endpoint or path, tuple(info.supported_versions))


def _make(directory: Path) -> None:
    directory.mkdir(mode=0o750, parents=True, exist_ok=True)
