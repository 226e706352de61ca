"""Keeps what cannot be rebuilt from the runtime in a file: back-offs, what ran once, and so on."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final, Protocol

import anyio
import msgspec
from anyio import TASK_STATUS_IGNORED, to_thread
from anyio.abc import TaskStatus

from nodeagent.aio import setting
from nodeagent.clock import boot_id
from nodeagent.journal import Journal
from nodeagent.log import Log
from nodeagent.state_file import StateFile

log = Log("checkpoint")

_GAP: Final = 0.5
"""Seconds between two saves, so that a busy node does not keep its disk busy."""


class Section(Protocol):
    """A part of the agent with something that should survive a restart of the agent.

    Both methods are called on the event loop and must neither block nor await.
    """

    def snapshot(self) -> Any:
        """The present content, JSON-able; equal as long as nothing has changed.

        So moments in it are loop times (:func:`anyio.current_time`), never ages: an age
        changes by itself, and the file would be written again and again.
        """
        ...

    def restore(self, saved: Any, shift: float) -> None:
        """Take over what an earlier agent's :meth:`snapshot` gave.

        Called at most once, before anything runs. Whatever it raises is reported, and the part
        begins anew.

        Args:
            saved: the content, as it came back from JSON (tuples are lists).
            shift: seconds to add to each moment in it to get today's loop time. It is 0 when
                the machine has not booted since, so the time without an agent counts; after a
                boot, ages are what they were when the file was written.
        """
        ...


class Checkpointer:
    """Saves the sections together in one file when one of them has changed.

    A part registers with :meth:`add` under a name of its own before the agent is at work::

        checkpoint.add("runtime", runtime_manager)  # has snapshot() and restore()

    It is saved within ``period`` of a change, at once when a part calls :meth:`changed`, when the
    agent ends, and whenever someone awaits :meth:`save` because it must be on disk before the
    next step.

    Args:
        file: where to.
        journal: told of what was restored, lost, or could not be saved.
        period: seconds between two looks whether something changed.

    Attributes:
        trouble: why the last save failed, "" when it did not.
        trouble_since: loop time of the first save that failed in a row.
    """

    def __init__(
        self, file: StateFile, *, journal: Journal | None = None, period: float = 5.0
    ) -> None:
        self.file = file
        self.trouble = ""
        self.trouble_since: float | None = None
        self._journal = journal or Journal(16)
        self._period = period
        self._sections: dict[str, Section] = {}
        self._broken: set[str] = set()
        self._saved: dict[str, bytes] = {}
        self._lock = anyio.Lock()
        self._wake = anyio.Event()
        self._boot = ""

    def add(self, name: str, section: Section) -> None:
        """Keep a section under this name.

        Raises:
            ValueError: the name is taken.
        """
        if name in self._sections:
            msg = f"the checkpoint has a section {name!r} already"
            raise ValueError(msg)
        self._sections[name] = section

    async def load(self) -> None:
        """Give each section what was saved of it last; what is damaged is done without."""
        self._boot = await to_thread.run_sync(boot_id)
        content = await to_thread.run_sync(self.file.load)
        if self.file.problem:
            self._note("CheckpointDamaged", self.file.problem)
        if content is None:
            return
        try:
            saved = msgspec.convert(content, _Content)
        except msgspec.ValidationError as error:
            self._note("CheckpointIgnored", str(error))
            log.warning("checkpoint_ignored", file=str(self.file.path), cause=str(error))
            return
        shift = self._shift(saved)
        for name, section in self._sections.items():
            if saved.sections.get(name) is not None:
                self._saved[name] = msgspec.json.encode(saved.sections[name])
                self._restore(name, section, saved.sections[name], shift)
        self._note("CheckpointRestored", ", ".join(sorted(saved.sections)))

    def _shift(self, saved: _Content) -> float:
        now = anyio.current_time()
        same_clock = bool(self._boot) and saved.boot == self._boot and saved.at <= now
        return 0.0 if same_clock else now - saved.at

    def _restore(self, name: str, section: Section, saved: Any, shift: float) -> None:
        try:
            section.restore(saved, shift)
        except Exception as error:  # noqa: BLE001 - what it held is a comfort, not a need
            log.warning("checkpoint_section_ignored", section=name, cause=repr(error))
            self._note("CheckpointIgnored", f"{name}: {error!r}")

    def changed(self) -> None:
        """Have it saved soon, without waiting: something has changed that matters."""
        self._wake.set()

    async def save(self) -> None:
        """Save now if something has changed; a disk that refuses is reported, not raised."""
        async with self._lock:
            sections = {name: self._snapshot(name, one) for name, one in self._sections.items()}
            if sections != self._saved:
                content = {"boot": self._boot, "at": anyio.current_time()}
                raw = {name: msgspec.Raw(data) for name, data in sections.items()}
                try:
                    await self.file.in_time(partial(self.file.save, {**content, "sections": raw}))
                except OSError as error:
                    self._refused(error)
                    return
                self._saved = sections
            if cause := self.trouble:
                self.trouble, self.trouble_since = "", None
                log.info("checkpoint_saved_again", file=str(self.file.path))
                self._note("CheckpointSavedAgain", f"after: {cause}")

    def _snapshot(self, name: str, section: Section) -> bytes:
        try:
            data = msgspec.json.encode(section.snapshot())
        except Exception as error:  # noqa: BLE001 - one broken part must not cost the others theirs
            if name not in self._broken:
                log.fault("checkpoint_section_failed", error, section=name)
                self._note("CheckpointIgnored", f"{name}: {error!r}")
            self._broken.add(name)
            return self._saved.get(name, b"null")
        self._broken.discard(name)
        return data

    def _refused(self, error: OSError) -> None:
        cause = error.strerror or str(error)
        if cause != self.trouble:
            log.warning(
                "checkpoint_not_saved",
                file=str(self.file.path),
                cause=cause,
                remedy="pods run on; it is tried again every few seconds",
            )
            self._note("CheckpointNotSaved", cause)
        self.trouble = cause
        if self.trouble_since is None:
            self.trouble_since = anyio.current_time()

    def _note(self, what: str, why: str) -> None:
        self._journal.record("checkpoint", what, "", why, file=self.file.path.name)

    async def run(self, *, task_status: TaskStatus[None] = TASK_STATUS_IGNORED) -> None:
        """Save once a period and after :meth:`changed`, and a last time when cancelled."""
        task_status.started()
        try:
            while True:
                with setting(self._wake, anyio.current_time() + self._period) as due:
                    await self._wake.wait()
                asked = anyio.current_time() < due
                self._wake = anyio.Event()
                await self.save()
                if asked:
                    await anyio.sleep(_GAP)
        finally:
            with anyio.move_on_after(2.0, shield=True):
                await self.save()


class _Content(msgspec.Struct):
    boot: str
    at: float
    sections: Mapping[str, Any]
