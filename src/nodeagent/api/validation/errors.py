"""What is wrong with a field, and why."""

import enum
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

_MAX_SHOWN: Final = 80
"""Longer values are cut in messages, so a pasted file does not flood the log."""


class Reason(enum.Enum):
    """The kind of fault, as the Kubernetes API distinguishes them."""

    REQUIRED = "required"
    INVALID = "invalid"
    DUPLICATE = "duplicate"
    UNSUPPORTED = "unsupported"
    FORBIDDEN = "forbidden"
    NOT_FOUND = "not found"
    TOO_LONG = "too long"
    TOO_MANY = "too many"


_BEFORE_VALUE: Final = dict.fromkeys(
    (Reason.INVALID, Reason.DUPLICATE, Reason.UNSUPPORTED), " value"
)


@dataclass(frozen=True, slots=True)
class FieldError:
    """One fault of one field.

    Attributes:
        path: The field in JSON names: ``spec.containers[0].image``.
        reason: The kind of fault.
        value: The value at fault; None when it is missing, or says nothing.
        detail: What would be right, or which rule is broken; may be empty.
    """

    path: str
    reason: Reason
    value: object = None
    detail: str = ""

    def __str__(self) -> str:
        text = f"{self.path}: {self.reason.value}"
        if self.value is not None:
            text += f"{_BEFORE_VALUE.get(self.reason, ':')} {show(self.value)}"
        return f"{text}: {self.detail}" if self.detail else text


def required(path: str, detail: str = "") -> FieldError:
    """Say that a field must be set."""
    return FieldError(path, Reason.REQUIRED, detail=detail)


def invalid(path: str, value: object, detail: str) -> FieldError:
    """Say that a value breaks a rule."""
    return FieldError(path, Reason.INVALID, value, detail)


def duplicate(path: str, value: object) -> FieldError:
    """Say that a value that must be unique was there before."""
    return FieldError(path, Reason.DUPLICATE, value)


def unsupported(path: str, value: object, allowed: Iterable[str]) -> FieldError:
    """Say that a value is none of those allowed."""
    listed = ", ".join(show(each) for each in allowed)
    return FieldError(path, Reason.UNSUPPORTED, value, f"supported values: {listed}")


def forbidden(path: str, detail: str) -> FieldError:
    """Say that a field must not be set here."""
    return FieldError(path, Reason.FORBIDDEN, detail=detail)


def not_found(path: str, value: object, detail: str = "") -> FieldError:
    """Say that what a value names does not exist."""
    return FieldError(path, Reason.NOT_FOUND, value, detail)


def too_long(path: str, limit: int, unit: str = "bytes") -> FieldError:
    """Say that a text is too long; the text itself is left out."""
    return FieldError(path, Reason.TOO_LONG, detail=f"must have at most {limit} {unit}")


def too_many(path: str, count: int, limit: int) -> FieldError:
    """Say that a list is too long."""
    return FieldError(path, Reason.TOO_MANY, count, f"must have at most {limit} items")


def show(value: object) -> str:
    """Return the value as JSON would have it, or as text, cut when long."""
    shown = json.dumps(value) if isinstance(value, str | int | float | bool) else f'"{value}"'
    return shown if len(shown) <= _MAX_SHOWN else f"{shown[: _MAX_SHOWN - 3]}..."
