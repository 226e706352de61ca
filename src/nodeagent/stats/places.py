"""Where a collection finds things."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_ROOT: Final = Path("/")


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Where things are.

    Attributes:
        node: name of the node.
        root_dir: the agent's directory.
        logs_dir: of the logs of pods.
        runtime_pid: tells the process of the runtime; None when nobody knows it. May block.
        root: where ``proc`` and ``sys`` are found.
    """

    node: str
    root_dir: Path
    logs_dir: Path
    runtime_pid: Callable[[], int | None] = lambda: None
    root: Path = _ROOT
