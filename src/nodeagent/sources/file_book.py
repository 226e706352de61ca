"""What was read from manifest files: their verdicts, and how long a file that goes still counts."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Final

from nodeagent.api.documents import PODS, decode_manifest
from nodeagent.sources.keeping import FileVerdicts
from nodeagent.sources.manifest_scan import FileSeen, PathSeen, kept_aside
from nodeagent.sources.origin import Origin, shown_path
from nodeagent.sources.selection import Selection

GONE_SECONDS: Final = 1.0
"""How long a file must be gone before its pods go: some programs save in two steps."""
ASIDE_SECONDS: Final = 3.0
"""The same for a file that was renamed to a backup, and for all files of a path that is gone."""


class FileBook:
    """The verdicts of files. Blocking where it says so.

    Args:
        kinds: kinds of documents that are judged.
    """

    def __init__(self, kinds: tuple[str, ...] = PODS) -> None:
        self._kinds = kinds
        self.stamps: dict[Path, tuple[int, ...]] = {}
        """Of the files whose bytes were read, how they looked."""
        self.next_removal = math.inf
        """Loop time at which the next file that is gone stops to count."""
        self._decoded: dict[Path, FileVerdicts] = {}
        self._inodes: dict[Path, int] = {}
        self._gone: dict[Path, float] = {}

    def judge(
        self, seen: Sequence[PathSeen], supplying: Collection[Origin], now: float
    ) -> list[FileVerdicts]:
        """Verdicts of all files in order; only changed ones are decoded again. Blocking.

        Args:
            seen: what lies at the paths.
            supplying: the files whose documents are in force.
            now: loop time.
        """
        judged: list[FileVerdicts] = []
        present: set[Path] = set()
        for path in seen:
            if path.problem and not path.missing:
                # The path cannot be read at all: what it gave stays in force.
                judged.extend(self._remembered_below(path, supplying, present))
            for file in path.files:
                if file.path not in present:
                    present.add(file.path)
                    judged.append(self._judge_file(file))
        missing = {path.path for path in seen if path.missing}
        return judged + self._going(present, missing, now)

    def slim(self, selection: Selection) -> None:
        """Drop what only error messages need, of files that are good in every document."""
        for file in selection.verdicts:
            path = file.origin
            if file.problem or file.unjudged or not isinstance(path, Path):
                continue
            if path in self._decoded and not any(v.errors for v in file.verdicts):
                lean = tuple(v.without_lines() for v in file.verdicts)
                self._decoded[path] = FileVerdicts(path, lean)

    def _remembered_below(
        self, path: PathSeen, supplying: Collection[Origin], present: set[Path]
    ) -> list[FileVerdicts]:
        known = {p for p in (*supplying, *self._decoded) if isinstance(p, Path)}
        below = [p for p in known if path.path in (p, p.parent)]
        present.update(below)
        return [FileVerdicts(p, problem=path.problem) for p in sorted(below)]

    def _judge_file(self, file: FileSeen) -> FileVerdicts:
        path = file.path
        self._gone.pop(path, None)
        if file.problem:
            self.stamps.pop(path, None)
            judged = FileVerdicts(path, problem=file.problem)
        elif file.data is None:
            # Unchanged, or still being written: then what it was before counts.
            return self._decoded.get(path) or FileVerdicts(path, unjudged=True)
        else:
            assert file.stamp is not None
            name = shown_path(path.name)
            verdicts = decode_manifest(file.data, name, kinds=self._kinds)
            judged = FileVerdicts(path, tuple(verdicts))
            self.stamps[path] = file.stamp
            self._inodes[path] = file.stamp[1]
        self._decoded[path] = judged
        return judged

    def _going(self, present: set[Path], missing: set[Path], now: float) -> list[FileVerdicts]:
        """Files that are gone, as long as they may come back."""
        going = []
        self.next_removal = math.inf
        for path in [p for p in self._decoded if p not in present]:
            if path not in self._gone:
                aside = path.parent in missing or kept_aside(path, self._inodes.get(path, 0))
                self._gone[path] = now + (ASIDE_SECONDS if aside else GONE_SECONDS)
            if now < self._gone[path]:
                going.append(FileVerdicts(path, unjudged=True))
                self.next_removal = min(self.next_removal, self._gone[path])
                continue
            for book in (self._decoded, self.stamps, self._inodes, self._gone):
                book.pop(path, None)
        return going
