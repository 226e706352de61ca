"""Lives of simulated containers, read from text. Pure."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING, Final

from nodeagent.rpc import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Sequence

_STEP: Final = re.compile(r"(?P<after>\d+(?:\.\d+)?)s:(?P<code>\d{1,3})")
_SHELLS: Final = frozenset({"sh", "bash", "ash", "dash"})
_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def script_from_annotation(text: str) -> tuple[tuple[tuple[float, int], ...], bool]:
    """Read ``5s:1, 0.5s:0, ...``: seconds and exit code of each attempt.

    A final ``...`` means that later attempts do as the last one.

    Raises:
        InvalidArgument: it is something else.
    """
    parts = [part.strip() for part in text.split(",")]
    repeat = parts[-1] == "..."
    exits: list[tuple[float, int]] = []
    for part in parts[:-1] if repeat else parts:
        match = _STEP.fullmatch(part)
        if match is None:
            msg = f'script "{text}": "{part}" is not SECONDSs:EXITCODE, such as 5s:1'
            raise InvalidArgument(msg)
        exits.append((float(match["after"]), int(match["code"])))
    return tuple(exits), repeat


def script_from_command(argv: Sequence[str]) -> tuple[float, int] | None:
    """When and with which code a command ends, None when that cannot be foretold."""
    if len(argv) == 3 and _base(argv[0]) in _SHELLS and argv[1] == "-c":
        return _of_line(argv[2])
    return _of_words(list(argv))


def _of_line(line: str) -> tuple[float, int] | None:
    total = 0.0
    code = 0
    for step in re.split(r"[;\n]|&&", line):
        try:
            words = shlex.split(step)
        except ValueError:
            return None
        if not words:
            continue
        end = _of_words(words)
        if end is None:
            return None
        total, code = total + end[0], end[1]
        if words[0] == "exit":
            break
    return total, code


def _of_words(words: list[str]) -> tuple[float, int] | None:
    match [_base(words[0]) if words else "", *words[1:]]:
        case ["true" | "echo" | ":", *_]:
            return 0.0, 0
        case ["false"]:
            return 0.0, 1
        case ["sleep", length]:
            seconds = _seconds(length)
            return None if seconds is None else (seconds, 0)
        case ["exit", code] if code.isdecimal():
            return 0.0, int(code) & 0xFF
        case _:
            return None


def _base(program: str) -> str:
    return program.rpartition("/")[2]


def _seconds(text: str) -> float | None:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd]?)", text)
    return float(match[1]) * _UNITS[match[2] or "s"] if match else None
