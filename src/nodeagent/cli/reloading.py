"""The configuration of ``nodeagent run``: files below flags, read again while the agent runs."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import anyio
from anyio import TASK_STATUS_IGNORED
from anyio.abc import TaskStatus

from nodeagent.config import AgentConfig
from nodeagent.config.kubelet_file import LoadedFile
from nodeagent.log import Log
from nodeagent.reload.last_good import LastGood
from nodeagent.reload.loading import FileLoader, First, Loaded, first_configuration

if TYPE_CHECKING:
    from nodeagent.agent import NodeAgent
    from nodeagent.cli.systemd import Notifier

log = Log("config")

_OF_THE_LOG: Final = ("logging_format", "verbosity", "vmodule")


class Hangups:
    """SIGHUP: have everything read again. One that comes too early is not lost."""

    def __init__(self) -> None:
        self._told: list[Callable[[], None]] = []
        self._heard = False

    def tell(self, ask: Callable[[], None]) -> None:
        """Have ``ask`` called at each signal, and now if there was one."""
        self._told.append(ask)
        if self._heard:
            ask()

    async def listen(self, *, task_status: TaskStatus[None] = TASK_STATUS_IGNORED) -> None:
        """Wait for signals until cancelled."""
        with anyio.open_signal_receiver(signal.SIGHUP) as signals:
            task_status.started()
            async for _ in signals:
                self._heard = True
                log.info("reloading", signal="SIGHUP")
                for ask in self._told:
                    ask()


@dataclass(frozen=True, slots=True)
class Reloading:
    """How the configuration is kept.

    Attributes:
        loader: reads it.
        first: what the agent starts with.
        last_good: where the last known good one is kept.
        trial: seconds that a change is on trial.
    """

    loader: FileLoader
    first: First
    last_good: LastGood
    trial: float

    async def run(self, agent: NodeAgent, manager: Notifier, hangups: Hangups) -> None:
        """Watch the files until cancelled."""
        from nodeagent.reload.reloader import Reloader, ReloadHooks
        from nodeagent.reload.watching import ConfigWatch

        files = [path for path in (self.loader.file, self.loader.directory) if path is not None]
        watch = ConfigWatch(files)
        hooks = ReloadHooks(
            set_logging=set_logging,
            tell=partial(tell_manager, manager),
        )
        reloader = Reloader(
            agent, self.loader, self.first, self.last_good, watch, trial=self.trial, hooks=hooks
        )
        hangups.tell(reloader.ask)
        try:
            await reloader.run()
        finally:
            watch.close()


def tell_manager(manager: Notifier, state: str) -> None:
    """Tell the service manager, as a service of ``Type=notify-reload`` does."""
    if state == "reloading":
        microseconds = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
        manager.tell(f"RELOADING=1\nMONOTONIC_USEC={microseconds}")
    else:
        manager.tell("READY=1")


def set_logging(logging: Mapping[str, Any]) -> None:
    """Log as these settings say: ``logging_format``, ``verbosity``, ``vmodule``."""
    from nodeagent.cli.log_setup import set_up_logging

    style, verbosity = str(logging["logging_format"]), int(logging["verbosity"])
    set_up_logging(style, verbosity, logging.get("vmodule", ()))


@dataclass(frozen=True, slots=True)
class Flags:
    """The flags of the command.

    Attributes:
        all: those that are settings, with the defaults of what was not given.
        given: of these, what was given: it counts more than the files.
        fields: flags of further fields of the file, with their values as text.
    """

    all: Mapping[str, Any]
    given: Mapping[str, Any]
    fields: Sequence[tuple[str, str]] = ()

    def over(self, loaded: LoadedFile) -> tuple[AgentConfig, Mapping[str, Any]]:
        """The settings of files below these flags, and those of the log.

        Raises:
            ConfigError: a value is not allowed.
        """
        settings = {**self.all, **loaded.settings, **self.given}
        logging: dict[str, Any] = {
            name: settings.pop(name) for name in _OF_THE_LOG if name in settings
        }
        return AgentConfig(**settings), logging


def configuration(
    config_file: str, config_dir: str, flags: Flags, trial: float
) -> tuple[Loaded, Reloading | None]:
    """What an agent starts with, and how it keeps it; None when no files are named. Blocks.

    Raises:
        ConfigError: it cannot be used.
    """
    file, directory = (Path(text) if text else None for text in (config_file, config_dir))
    loader = FileLoader(file, directory, flags.over, flags.fields)
    if file is None and directory is None:
        return loader.read(), None
    last_good = LastGood(Path(flags.all["root_dir"]))
    first = first_configuration(loader, last_good)
    return first.loaded, Reloading(loader, first, last_good, trial)
