"""The last known good configuration on the disk."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

from nodeagent.state_file import StateFile

NAME: Final = "config.json"


@dataclass(frozen=True, slots=True)
class Saved:
    """What is kept.

    Attributes:
        digest: of the last known good configuration; "" for none.
        since: when it was found good, as people read it.
        files: its content, for :meth:`nodeagent.reload.Loader.restore`.
        refused: the digest of what was rolled back; "" for nothing.
        why: why it was.
    """

    digest: str = ""
    since: str = ""
    files: Mapping[str, Any] = field(default_factory=dict)
    refused: str = ""
    why: str = ""


class LastGood:
    """Reads and writes it, below the agent's directory.

    Args:
        root: the agent's directory.
    """

    def __init__(self, root: Path) -> None:
        self._file = StateFile(root / "checkpoints" / NAME)

    @property
    def path(self) -> Path:
        """Where it lies."""
        return self._file.path

    @property
    def problem(self) -> str:
        """What was wrong with the file at the last load; "" for nothing."""
        return self._file.problem

    def load(self) -> Saved:
        """What is there; nothing when it is damaged. Blocks."""
        found = self._file.load()
        if not isinstance(found, Mapping):
            return Saved()
        texts = {name: str(found.get(name, "")) for name in ("digest", "since", "refused", "why")}
        files = found.get("files")
        return Saved(**texts, files=files if isinstance(files, Mapping) else {})

    async def save(self, saved: Saved) -> None:
        """Write it.

        Raises:
            OSError: it could not be written, or not in time.
        """
        content = {
            "digest": saved.digest,
            "since": saved.since,
            "files": dict(saved.files),
            "refused": saved.refused,
            "why": saved.why,
        }
        await self._file.in_time(partial(self._file.save, content))
