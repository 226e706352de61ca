"""Log lines for people (key=value) and for machines (JSON). Only the command line sets this up."""

from __future__ import annotations

import json
import logging
import re
import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, Final, TextIO

from nodeagent.journal import json_line
from nodeagent.log import set_levels, set_verbosity, written

_BARE: Final = re.compile(r"[^\s\"=]+")


def set_up_logging(style: str, verbosity: int, levels: Iterable[tuple[str, int]] = ()) -> None:
    """Send the agent's log to standard error.

    Args:
        style: ``text`` (key=value) or ``json``.
        verbosity: as the kubelet's ``--v``: 0 to 2 informational, 3 and 4 debug, 5 and above trace.
        levels: verbosity of single parts: patterns of names below ``nodeagent``, the first that
            fits counts.
    """
    handler = StandardError(sys.stderr)
    handler.setFormatter(JsonFormatter() if style == "json" else TextFormatter())
    logger = logging.getLogger("nodeagent")
    logger.handlers[:] = [handler]
    logger.propagate = False
    set_verbosity(verbosity)
    set_levels(levels)


class StandardError(logging.StreamHandler[TextIO]):
    """Writes each line at once, and remembers when that fails: nobody could be told there."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line."""
        try:
            self.stream.write(self.format(record) + self.terminator)
            self.stream.flush()
        except Exception as error:  # noqa: BLE001 - a lost line ends nothing
            written.lost(getattr(error, "strerror", "") or type(error).__name__)
        else:
            written.good()


def _stamp(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03d}Z"


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    fields: dict[str, Any] = getattr(record, "fields", {})
    return fields


class TextFormatter(logging.Formatter):
    """``2026-01-31T12:00:00.000Z INFO  pleg relisted pods=3``."""

    def format(self, record: logging.LogRecord) -> str:
        """One line, and a traceback below it when there is one."""
        name = record.name.removeprefix("nodeagent.")
        parts = [f"{_stamp(record)} {record.levelname:<7} {name} {record.getMessage()}"]
        parts += [f"{key}={_text(value)}" for key, value in _fields(record).items()]
        line = " ".join(parts)
        if record.exc_info and record.exc_info[0] is not None:
            line += "\n" + self.formatException(record.exc_info)
        return line


def _text(value: object) -> str:
    text = str(value)
    if _BARE.fullmatch(text) and text.isprintable():
        return text
    # File names and runtime messages may hold anything, and must not steer a terminal.
    return json.dumps(text, ensure_ascii=not text.isprintable())


class JsonFormatter(logging.Formatter):
    """One JSON object a line. A field named like one of ours gets a ``_`` behind its name."""

    def format(self, record: logging.LogRecord) -> str:
        """One line; a traceback is a field of it."""
        entry: dict[str, Any] = {
            "ts": _stamp(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
        }
        for key, value in _fields(record).items():
            entry[f"{key}_" if key in entry else key] = value
        if record.exc_info and record.exc_info[0] is not None:
            entry["traceback"] = self.formatException(record.exc_info)
        return json_line(entry).decode().removesuffix("\n")
