"""What is wrong with a document, each problem with its path and line."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Final, TypeAlias

MAX_PROBLEMS: Final = 100
"""Most errors, and most warnings, kept for one document; a last one counts the rest."""

_PLAIN_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*\Z")
_PLAIN_KEY: Final = re.compile(r"[A-Za-z0-9_./-]+\Z")


@dataclass(frozen=True, slots=True)
class FieldProblem:
    """One error or warning.

    Attributes:
        path: Where, from the object's root: ``spec.containers[0].image``; "" for the whole.
        message: What is wrong and, if it can be said, what would be right.
        line: Line in the file, from 1; 0 if unknown.
        column: Column from 1 for errors of syntax; 0 otherwise.
    """

    path: str
    message: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        text = f"{self.path}: {self.message}" if self.path else self.message
        if self.column:
            return f"{text} (line {self.line}, column {self.column})"
        return f"{text} (line {self.line})" if self.line else text


@dataclass(frozen=True, slots=True)
class MapKey:
    """A path step into a map whose keys the user chooses, such as labels."""

    key: str


Step: TypeAlias = "str | int | MapKey"
Path: TypeAlias = "tuple[Path, Step] | None"
"""A path as linked steps, last step outermost; text is made only for a problem."""


def path_text(path: Path) -> str:
    """The path as people write it: ``spec.ports[0]``, ``metadata.labels[app]``."""
    steps: list[str] = []
    while path is not None:
        path, step = path
        if isinstance(step, int):
            steps.append(f"[{step}]")
        elif isinstance(step, MapKey):
            key = step.key if _PLAIN_KEY.match(step.key) else shown(step.key)
            steps.append(f"[{key}]")
        else:
            steps.append("." + (step if _PLAIN_NAME.match(step) else shown(step)))
    return "".join(reversed(steps)).removeprefix(".")


def shown(text: str, limit: int = 60) -> str:
    """Text in double quotes, on one line and not too long."""
    if len(text) > limit:
        text = text[: limit - 3] + "..."
    return json.dumps(text, ensure_ascii=not text.isprintable())


class Findings:
    """Collects the problems of one document up to ``MAX_PROBLEMS`` of each sort.

    Args:
        secret: whether no value may be repeated in a message.
    """

    def __init__(self, *, secret: bool = False) -> None:
        self.secret = secret
        self._errors: list[FieldProblem] = []
        self._warnings: list[FieldProblem] = []
        self._more_errors = 0
        self._more_warnings = 0

    @property
    def failed(self) -> bool:
        """Whether there was an error."""
        return bool(self._errors)

    @property
    def warnings_full(self) -> bool:
        """Whether more warnings are only counted, so their text need not be worked out."""
        return len(self._warnings) >= MAX_PROBLEMS

    def error(self, path: Path, message: str, line: int) -> None:
        """Note an error."""
        if len(self._errors) < MAX_PROBLEMS:
            self._errors.append(FieldProblem(path_text(path), message, line))
        else:
            self._more_errors += 1

    def warning(self, path: Path, message: str, line: int) -> None:
        """Note a warning."""
        if len(self._warnings) < MAX_PROBLEMS:
            self._warnings.append(FieldProblem(path_text(path), message, line))
        else:
            self._more_warnings += 1

    @property
    def errors(self) -> tuple[FieldProblem, ...]:
        """All errors, in the order of the document."""
        return _with_rest(self._errors, self._more_errors)

    @property
    def warnings(self) -> tuple[FieldProblem, ...]:
        """All warnings, in the order of the document."""
        return _with_rest(self._warnings, self._more_warnings)


def _with_rest(problems: list[FieldProblem], more: int) -> tuple[FieldProblem, ...]:
    rest = (FieldProblem("", f"and {more} more"),) if more else ()
    return (*problems, *rest)
