"""Keeps an agent's configuration: reads it again, tries it, and takes it back.

The rules are in ``config.trial``; this does what they say (docs/reload-and-rollback.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

import anyio
from anyio import TASK_STATUS_IGNORED, to_thread
from anyio.abc import TaskStatus

from nodeagent.agent import NodeAgent
from nodeagent.config import ConfigError
from nodeagent.config.reload import Changes
from nodeagent.config.trial import ConfigState, Do, Trial, bad_change, good_change, looked
from nodeagent.duration import format_duration
from nodeagent.log import Log
from nodeagent.reload.last_good import LastGood, Saved
from nodeagent.reload.loading import First, Loaded, Loader, problems_of
from nodeagent.reload.metrics import ConfigMetrics

log = Log("config")

TRIAL: Final = 600.0
"""Seconds that a change is on trial."""
LOOK_PERIOD: Final = 1.0
"""Seconds between two looks at how the node is while a change is on trial."""
TELLING: Final = ("runtime", "pleg", "sources")
"""The health checks that tell whether a change has made the node unwell."""
_AGAIN: Final = 60.0
"""Seconds between two warnings about the same errors."""


class Watch(Protocol):
    """Says when there may be something new to read."""

    async def arm(self) -> None:
        """Take note of what is there now."""
        ...

    async def wait(self) -> None:
        """Return when something has changed since then, and is written."""
        ...

    def stirred(self) -> bool:
        """Whether something is happening right now."""
        ...


def _no_logging(_settings: Mapping[str, Any]) -> None:
    """Leave the log as it is."""


def _tell_nobody(_state: str) -> None:
    """There is no service manager."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReloadHooks:
    """What else is told.

    Attributes:
        set_logging: how to log from now on.
        tell: what the service manager hears: ``reloading``, and then ``ready``.
    """

    set_logging: Callable[[Mapping[str, Any]], None] = _no_logging
    tell: Callable[[str], None] = _tell_nobody


class Reloader:
    """Watches the configuration of an agent that runs.

    Args:
        agent: the agent; runs already.
        loader: reads its configuration.
        first: what it has started with.
        last_good: where the last known good one is kept.
        watch: says when to read.
        trial: seconds that a change is on trial.
        hooks: what else is told.
    """

    def __init__(
        self,
        agent: NodeAgent,
        loader: Loader,
        first: First,
        last_good: LastGood,
        watch: Watch,
        *,
        trial: float = TRIAL,
        hooks: ReloadHooks | None = None,
    ) -> None:
        self._agent = agent
        self._loader = loader
        self._last_good = last_good
        self._watch = watch
        self._trial = trial
        self._hooks = hooks or ReloadHooks()
        self._active = first.loaded
        self._good = first.good
        self._saved = first.saved
        self._state = first.state
        self._report = agent.config_report
        self._report.errors = first.errors
        self._report.kept = "; ".join(first.errors)
        self._lock = anyio.Lock()
        self._asked = anyio.Event()
        self._warned: dict[str, float] = {}
        self._metrics = ConfigMetrics(agent.registry)
        self._show()

    @property
    def state(self) -> ConfigState:
        """Which configurations there are."""
        return self._state

    def ask(self) -> None:
        """Have everything read again now, also what was rolled back; never waits."""
        self._asked.set()

    async def run(self, *, task_status: TaskStatus[None] = TASK_STATUS_IGNORED) -> None:
        """Watch until cancelled."""
        if (trial := self._state.trial) is not None:
            until = anyio.current_time() + self._trial
            self._set(replace(self._state, trial=Trial(until, trial.sound)))
        self._say_first()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._look_after_node)
            await self._watch.arm()
            task_status.started()
            # What has changed between the first reading and the watch is found here.
            await self.reload()
            while True:
                asked = await self._next()
                await self.reload(asked=asked)

    async def _next(self) -> bool:
        """Wait for something to read; whether somebody has asked for it."""
        async with anyio.create_task_group() as tasks:

            async def wait(until: Callable[[], Any]) -> None:
                await until()
                tasks.cancel_scope.cancel()

            tasks.start_soon(wait, self._watch.wait)
            tasks.start_soon(wait, self._asked.wait)
        asked = self._asked.is_set()
        if asked:
            self._asked = anyio.Event()
        return asked

    async def reload(self, *, asked: bool = False) -> Changes:
        """Read the configuration, and put in force what can be.

        Args:
            asked: somebody asks for it: also what was rolled back is tried again.

        Returns:
            What was applied now, and what waits for a restart.
        """
        async with self._lock:
            if not asked:
                return await self._reload(asked=False)
            with self._told():
                return await self._reload(asked=True)

    async def _reload(self, *, asked: bool) -> Changes:
        await self._watch.arm()
        try:
            loaded = await to_thread.run_sync(self._loader.read)
        except ConfigError as error:
            self._refuse(problems_of(error))
            return Changes()
        if self._watch.stirred() and not asked:
            return Changes()  # it is being written; the watch says when that has ended
        return await self._take(loaded, asked=asked)

    @contextmanager
    def _told(self) -> Iterator[None]:
        """The service manager hears that something is changing, and when that has ended."""
        self._hooks.tell("reloading")
        try:
            yield
        finally:
            self._hooks.tell("ready")

    # -- changes -----------------------------------------------------------------------------

    async def _take(self, loaded: Loaded, *, asked: bool) -> Changes:
        until = anyio.current_time() + self._trial
        before = self._state
        state, do = good_change(
            before, loaded.digest, well=not self._trouble(), until=until, asked=asked
        )
        if do is Do.NOTHING:
            if before.error and not state.error:
                self._report.errors, self._report.kept = (), ""
                log.info("config_good_again", digest=loaded.digest)
                self._record("GoodAgain", "", digest=loaded.digest)
            self._count("unchanged")
            self._set(state)
            return Changes()
        try:
            changes = await self._apply(loaded)
        except ConfigError as error:
            self._refuse(problems_of(error))
            return Changes()
        self._report.errors, self._report.kept = (), ""
        self._set(state)
        self._count("applied")
        for note in loaded.warnings:
            log.warning("config_file", note=note)
        fields = ", ".join(change.field for change in changes.applied)
        trial = "" if state.trial is None else format_duration(self._trial)
        log.info("config_applied", digest=loaded.digest, fields=fields, trial=trial)
        self._record("Reloaded", fields, digest=loaded.digest, trial=trial)
        self._event("Normal", "ConfigurationReloaded", _summary(changes, trial))
        return changes

    async def _apply(self, loaded: Loaded) -> Changes:
        """Put a configuration in force. Raises ConfigError: nothing has changed then."""
        changes = await self._agent.reconfigure(loaded.config)
        self._hooks.set_logging(loaded.logging)
        self._active = loaded
        if changes.needs_restart:
            fields = ", ".join(change.field for change in changes.needs_restart)
            remedy = "restart the agent; pods run on meanwhile"
            log.warning("config_needs_restart", fields=fields, remedy=remedy)
        return changes

    def _refuse(self, errors: tuple[str, ...]) -> None:
        """What the files say cannot be used: say so, and leave everything as it is."""
        text = "; ".join(errors)
        self._report.errors = errors
        self._set(bad_change(self._state, text))
        self._count("refused")
        self._record("Refused", text, errors=list(errors))
        now = anyio.current_time()
        if now - self._warned.get(text, -_AGAIN) < _AGAIN:
            return
        self._warned = {known: at for known, at in self._warned.items() if now - at < _AGAIN}
        self._warned[text] = now
        for error in errors:
            log.error("config_refused", problem=error, now="what was good stays in force")
        self._event("Warning", "ConfigurationRefused", f"what was good stays in force: {text}")

    # -- the trial ---------------------------------------------------------------------------

    async def _look_after_node(self) -> None:
        while True:
            await anyio.sleep(LOOK_PERIOD)
            if self._state.trial is not None:
                async with self._lock:
                    await self._look()

    async def _look(self) -> None:
        state, do = looked(self._state, anyio.current_time(), self._trouble())
        match do:
            case Do.REMEMBER:
                self._set(state)
                await self._remember()
            case Do.ROLL_BACK:
                await self._roll_back(state)
            case _:
                self._set(state)

    async def _roll_back(self, state: ConfigState) -> None:
        good = self._good
        assert good is not None
        refused = self._state.active
        try:
            with self._told():
                await self._apply(good)
        except ConfigError as error:  # it was in force before: this is a fault of ours
            log.fault("rollback_failed", error)
            self._set(replace(self._state, trial=None))
            return
        self._report.errors = (state.error,)
        self._set(state)
        self._count("rolled_back")
        log.error("config_rolled_back", digest=refused, cause=state.error)
        self._record("RolledBack", state.error, digest=refused, active=good.digest)
        self._event("Warning", "ConfigurationRolledBack", state.error)
        await self._save(replace(self._saved, refused=refused, why=state.error))

    async def _remember(self) -> None:
        """What is in force is the last known good one now."""
        self._good = good = self._active
        log.info("config_good", digest=good.digest)
        self._record("LastKnownGood", "", digest=good.digest)
        since = self._agent.wall_time()
        await self._save(Saved(good.digest, f"{since:%Y-%m-%dT%H:%M:%SZ}", good.saved))

    async def _save(self, saved: Saved) -> None:
        self._saved = saved
        try:
            await self._last_good.save(saved)
        except OSError as error:
            self._report.unsaved = error.strerror or str(error)
            log.warning("config_not_saved", file=str(self._last_good.path), cause=error.strerror)
        else:
            self._report.unsaved = ""

    def _trouble(self) -> str:
        """What makes the node unwell; "" when it is well."""
        return self._agent.parts.checks.trouble(TELLING)

    # -- telling -----------------------------------------------------------------------------

    def _say_first(self) -> None:
        if not self._report.kept:
            return
        for error in self._report.errors:
            log.error("config_refused", problem=error, now="started with the last known good one")
        self._warned["; ".join(self._report.errors)] = anyio.current_time()
        text = f"started with the last known good configuration: {self._report.kept}"
        self._record("StartedOnLastKnownGood", text, active=self._state.active)
        self._event("Warning", "ConfigurationRefused", text)

    def _set(self, state: ConfigState) -> None:
        self._state = state
        self._show()

    def _show(self) -> None:
        self._report.state = self._state
        self._metrics.show(self._state, len(self._report.needs_restart))

    def _count(self, result: str) -> None:
        self._metrics.reloads.labels(result).inc()

    def _record(self, what: str, why: str, **facts: Any) -> None:
        self._agent.journal.record("config", what, "", why, **facts)

    def _event(self, kind: str, reason: str, text: str) -> None:
        self._agent.parts.node_event(kind, reason, text)


def _summary(changes: Changes, trial: str) -> str:
    parts = []
    if changes.applied:
        parts.append(f"applied {', '.join(change.field for change in changes.applied)}")
    if changes.needs_restart:
        fields = ", ".join(change.field for change in changes.needs_restart)
        parts.append(f"waits for a restart: {fields}")
    if trial:
        parts.append(f"on trial for {trial}")
    return "; ".join(parts) or "nothing that the agent acts on has changed"
