"""Structured logging: an event name and fields, over the standard library.

Every logger lives below ``nodeagent``; nothing is configured at import, so an embedding
application keeps its own handlers. Fields bound with :func:`log_context` follow into
child tasks, because context variables do.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from fnmatch import fnmatchcase
from typing import Any, Final

_context: ContextVar[Mapping[str, Any]] = ContextVar("nodeagent_log_context", default={})  # noqa: B039

# Without a handler of the application the logging module would print bare event names.
logging.getLogger("nodeagent").addHandler(logging.NullHandler())


class Written:
    """Whether lines get to where they are to go. Whoever sets up handlers keeps it true.

    Attributes:
        failing_since: monotonic seconds of the first line in a row that was lost; None for none.
        cause: why it was.
    """

    def __init__(self) -> None:
        self.failing_since: float | None = None
        self.cause = ""

    def lost(self, cause: str) -> None:
        """A line could not be written."""
        if self.failing_since is None:
            self.failing_since = time.monotonic()
        self.cause = cause

    def good(self) -> None:
        """A line was written."""
        self.failing_since = None

    def trouble(self, patience: float) -> str:
        """Why nothing was written for so many seconds; "" when something was."""
        since = self.failing_since
        return "" if since is None or time.monotonic() - since < patience else self.cause


written: Final = Written()
"""Of the handlers of this process."""

TRACE: Final = 5
"""Level of messages that ``--v=5`` and above show."""


_DEBUG_VERBOSITY: Final = 3
_TRACE_VERBOSITY: Final = 5


def set_verbosity(verbosity: int) -> None:
    """Say how much is logged.

    Args:
        verbosity: as the kubelet's ``--v``: 0 to 2 informational, 3 and 4 debug, 5 and above trace.
    """
    logging.getLogger("nodeagent").setLevel(_level(verbosity))


def _level(verbosity: int) -> int:
    level = logging.DEBUG if verbosity >= _DEBUG_VERBOSITY else logging.INFO
    return TRACE if verbosity >= _TRACE_VERBOSITY else level


_levels: list[tuple[str, int]] = []


def set_levels(levels: Iterable[tuple[str, int]]) -> None:
    """Say how much single parts log, whatever :func:`set_verbosity` says.

    Args:
        levels: shell patterns of names below ``nodeagent`` (``pleg``, ``source.*``) and their
            verbosity. Of several that fit the first counts. A name stands for all below it.
    """
    _levels[:] = [(pattern, _level(verbosity)) for pattern, verbosity in levels]
    for name, logger in list(logging.root.manager.loggerDict.items()):
        if name.startswith("nodeagent.") and isinstance(logger, logging.Logger):
            _give_level(logger)


def _give_level(logger: logging.Logger) -> None:
    name = logger.name.removeprefix("nodeagent.")
    fitting = (level for pattern, level in _levels if fnmatchcase(name, pattern))
    logger.setLevel(next(fitting, logging.NOTSET))


@contextmanager
def log_context(**fields: Any) -> Iterator[None]:
    """Add ``fields`` to every log line of this task and of the tasks it starts."""
    token = _context.set({**_context.get(), **fields})
    try:
        yield
    finally:
        _context.reset(token)


class Log:
    """A logger whose calls take an event name and keyword fields.

    Args:
        name: dotted name; ``nodeagent.`` is put before it when missing.
        fields: fields that every line of this logger carries.
    """

    __slots__ = ("_fields", "_logger")

    def __init__(self, name: str, fields: Mapping[str, Any] | None = None) -> None:
        full = name if name.split(".", 1)[0] == "nodeagent" else f"nodeagent.{name}"
        self._logger = logging.getLogger(full)
        if _levels:
            _give_level(self._logger)
        self._fields: Mapping[str, Any] = fields or {}

    def bind(self, **fields: Any) -> Log:
        """The same logger with more fields on every line."""
        return Log(self._logger.name, {**self._fields, **fields})

    def debug(self, event: str, /, **fields: Any) -> None:
        """Log detail that helps while looking for a fault."""
        self._emit(logging.DEBUG, event, fields)

    def info(self, event: str, /, **fields: Any) -> None:
        """Log something that an operator wants to know once."""
        self._emit(logging.INFO, event, fields)

    def warning(self, event: str, /, **fields: Any) -> None:
        """Log something that an operator should look at."""
        self._emit(logging.WARNING, event, fields)

    def error(self, event: str, /, **fields: Any) -> None:
        """Log a failure, where it is handled."""
        self._emit(logging.ERROR, event, fields)

    def fault(self, event: str, error: BaseException, /, **fields: Any) -> None:
        """Log a fault of our own with its traceback."""
        self._emit(logging.ERROR, event, {**fields, "error": repr(error)}, error)

    def _emit(
        self, level: int, event: str, fields: Mapping[str, Any], error: BaseException | None = None
    ) -> None:
        if self._logger.isEnabledFor(level):
            merged = {**_context.get(), **self._fields, **fields}
            self._logger.log(level, event, extra={"fields": merged}, exc_info=error)
