"""Pods from manifest files: a look at once, after every change, and once a period.

A change on disk is only a hint to look again; every snapshot comes from a full look. Bad files
change nothing that runs (docs/behaviour/sources.md).
"""

from __future__ import annotations

import stat
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Final

import anyio
from anyio import TASK_STATUS_IGNORED, to_thread
from anyio.abc import TaskStatus
from prometheus_client import CollectorRegistry

from nodeagent.aio import leaves
from nodeagent.api.documents import Identity, decode_manifest
from nodeagent.journal import Journal
from nodeagent.log import Log
from nodeagent.model import FILE_SOURCE, Snapshot
from nodeagent.sources.checkpoint import ManifestCheckpoint
from nodeagent.sources.manifest_scan import FileSeen, PathSeen, is_leftover, scan
from nodeagent.sources.selection import FileVerdicts, InForce, Selection, Unsupported, select
from nodeagent.sources.source import Publish
from nodeagent.sources.verdict_report import VerdictReport

log = Log("source.file")

_WATCH_STEP_MS: Final = 50
_WATCH_DEBOUNCE_MS: Final = 400
_REWATCH_SECONDS: Final = 1.0
_CLOSE_SECONDS: Final = 5.0


class FileSource:
    """Static pods from directories and single files.

    Args:
        paths: manifest directories and files; of two that give one pod the earlier counts.
        node_name: name of the node.
        period: seconds between full rescans.
        checkpoint: where the last good documents are kept, or None.
        journal: flight recorder.
        registry: for the verdict metric, or None.
        watch: react to changes at once; False leaves the periodic rescan.
        unsupported: fields of a pod that this version cannot honour.
    """

    name = FILE_SOURCE

    def __init__(
        self,
        paths: Sequence[Path],
        node_name: str,
        *,
        period: float = 20.0,
        checkpoint: ManifestCheckpoint | None = None,
        journal: Journal | None = None,
        registry: CollectorRegistry | None = None,
        watch: bool = True,
        unsupported: Unsupported = lambda _pod: (),
    ) -> None:
        self._paths = tuple(paths)
        self._node_name = node_name
        self._period = period
        self._checkpoint = checkpoint
        self._journal = journal or Journal()
        self._watch = watch
        self._unsupported = unsupported
        self._stamps: dict[Path, tuple[int, ...]] = {}
        self._decoded: dict[Path, FileVerdicts] = {}
        self._in_force: Mapping[Identity, InForce] = {}
        self._sent: tuple[InForce, ...] | None = None
        self._saved: tuple[tuple[Path, bytes], ...] | None = None
        self._report = VerdictReport(self._journal, registry)
        self._refused_save = ""
        self._looking = anyio.Lock()
        self.selection = Selection({}, (), {})
        """What the last look found: pods in force and the verdict of every file."""

    async def run(
        self, publish: Publish, *, task_status: TaskStatus[None] = TASK_STATUS_IGNORED
    ) -> None:
        """Publish a snapshot at once and after every change, until cancelled."""
        if self._checkpoint is not None:
            self._in_force = await to_thread.run_sync(self._checkpoint.load)
        stop = anyio.Event()
        try:
            async with anyio.create_task_group() as tg:
                if self._watch:
                    tg.start_soon(self._watch_all, stop, publish)
                await self.look(publish)
                task_status.started()
                while True:
                    await anyio.sleep(self._period)
                    await self.look(publish)
        finally:
            # The watcher's thread looks at this between its steps; without it, ending takes long.
            stop.set()

    async def _watch_all(self, stop: anyio.Event, publish: Publish) -> None:
        """Look again after every change below the paths; survives their going and coming."""
        said = ""
        while True:
            present = await to_thread.run_sync(_watchable, self._paths)
            if present:
                try:
                    await self._watch_once(present, stop, publish)
                except* (OSError, RuntimeError) as group:
                    # Nothing can be watched just now: the periodic rescan still looks. (The
                    # watcher fails in a task of its own, so its errors come in groups.)
                    cause = str(next(leaves(group)))
                    if cause != said:
                        log.warning("watch_failed", paths=len(present), cause=cause)
                    said = cause
            await anyio.sleep(_REWATCH_SECONDS)
            if await to_thread.run_sync(_watchable, self._paths) != present:
                await self.look(publish)

    async def _watch_once(
        self, present: Mapping[Path, tuple[int, int]], stop: anyio.Event, publish: Publish
    ) -> None:
        from watchfiles import awatch

        changes = awatch(
            *present,
            watch_filter=lambda _change, path: _may_matter(Path(path).name),
            debounce=_WATCH_DEBOUNCE_MS,
            step=_WATCH_STEP_MS,
            rust_timeout=1000,
            yield_on_timeout=True,
            stop_event=stop,
            recursive=False,
        )
        looked = False
        async with aclosing(changes):
            async for change in changes:
                if change or not looked:
                    # The first turn also finds what changed while the watch was being set up.
                    looked = True
                    await self.look(publish)
                if await to_thread.run_sync(_watchable, self._paths) != present:
                    return

    def problems(self) -> dict[str, str]:
        """The first error of every file that has one."""
        return self._report.problems()

    async def look(self, publish: Publish) -> None:
        """Look at all files; publish a snapshot unless it equals the last one."""
        async with self._looking:
            seen = await to_thread.run_sync(scan, self._paths, self._stamps)
            files = await to_thread.run_sync(self._judge_files, seen)
            selection = select(files, self._in_force, self._node_name, self._unsupported)
            self._report.report(seen, selection)
            self._in_force = selection.pods
            self._forget_lines(selection)
            self.selection = selection
            documents = tuple(selection.pods.values())
            await self._save(documents)
            if self._sent is not None and _same(self._sent, documents):
                return
            await publish(Snapshot(self.name, tuple(d.pod for d in documents)))
            self._sent = documents

    def _judge_files(self, seen: Sequence[PathSeen]) -> list[FileVerdicts]:
        """Verdicts of all files in order; only changed ones are decoded again."""
        judged: list[FileVerdicts] = []
        present: set[Path] = set()
        for path in seen:
            if path.problem and not path.missing:
                # The path cannot be read at all: what it gave stays in force.
                judged.extend(self._remembered_below(path, present))
                continue
            for file in path.files:
                if file.path not in present:
                    present.add(file.path)
                    judged.append(self._judge_file(file))
        for gone in [p for p in self._decoded if p not in present]:
            del self._decoded[gone]
            self._stamps.pop(gone, None)
        return judged

    def _remembered_below(self, path: PathSeen, present: set[Path]) -> list[FileVerdicts]:
        supplied = {d.path for d in self._in_force.values()}
        below = [p for p in supplied if p == path.path or p.parent == path.path]
        present.update(below)
        return [FileVerdicts(p, problem=path.problem) for p in sorted(below)]

    def _judge_file(self, file: FileSeen) -> FileVerdicts:
        if file.problem:
            self._stamps.pop(file.path, None)
            judged = FileVerdicts(file.path, problem=file.problem)
        elif file.data is None:
            return self._decoded[file.path]
        else:
            judged = FileVerdicts(file.path, tuple(decode_manifest(file.data, file.path.name)))
            assert file.stamp is not None
            self._stamps[file.path] = file.stamp
        self._decoded[file.path] = judged
        return judged

    def _forget_lines(self, selection: Selection) -> None:
        """Drop what only error messages need, of files that are good in every document."""
        for file in selection.verdicts:
            if not file.problem and not any(v.errors for v in file.verdicts):
                lean = tuple(v.without_lines() for v in file.verdicts)
                self._decoded[file.path] = FileVerdicts(file.path, lean)

    async def _save(self, documents: Sequence[InForce]) -> None:
        state = tuple((d.path, d.written) for d in documents)
        if self._checkpoint is None or state == self._saved:
            return
        try:
            await to_thread.run_sync(self._checkpoint.save, documents)
            self._saved, self._refused_save = state, ""
        except OSError as error:
            if self._refused_save != str(error):
                log.warning("checkpoint_not_saved", what="last good manifests", cause=str(error))
            self._refused_save = str(error)


def _same(before: Sequence[InForce], after: Sequence[InForce]) -> bool:
    return len(before) == len(after) and all(
        a.pod is b.pod for a, b in zip(before, after, strict=True)
    )


def _may_matter(name: str) -> bool:
    """Whether a change of that name is a reason to look: ``..data`` leads links elsewhere."""
    return name == "..data" or not is_leftover(name)


def _watchable(paths: Sequence[Path]) -> dict[Path, tuple[int, int]]:
    """What to watch: directories themselves, and of single files the directory they lie in.

    With device and inode: a watch stays with the directory, not with the path, when another one
    is made, moved or mounted there.
    """
    found: dict[Path, tuple[int, int]] = {}
    for path in paths:
        directory = path if path.is_dir() else path.parent
        try:
            facts = directory.stat()
        except OSError:
            continue
        if stat.S_ISDIR(facts.st_mode):
            found[directory] = (facts.st_dev, facts.st_ino)
    return found
