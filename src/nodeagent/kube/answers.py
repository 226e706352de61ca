"""What an answer of the API server says: errors in one line, whatever has answered. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import msgspec

from nodeagent.api.codec import decode
from nodeagent.kube.errors import ApiError, UndecodableError
from nodeagent.kube.requests import Wanted

T = TypeVar("T")

_LONGEST: Final = 500
_TAGS: Final = re.compile(r"<(script|style)\b.*?</\1\s*>|<!--.*?-->|<[^>]*>", re.DOTALL)
_TITLE: Final = re.compile(r"<title[^>]*>(.*?)</title", re.DOTALL | re.IGNORECASE)
_HTML: Final = re.compile(rb"\s*<(?:!doctype|html|head|body|\?xml)\b", re.IGNORECASE)
_LONGEST_WAIT: Final = 3600.0


class _Details(msgspec.Struct):
    retry_after: Any = msgspec.field(name="retryAfterSeconds", default=None)


class _Status(msgspec.Struct):
    kind: str = ""
    status: str = ""
    message: str | None = None
    reason: str | None = None
    code: Any = None
    details: _Details | None = None


def error_of(
    status: int, headers: Mapping[str, str], body: bytes, asked: Wanted, whose: str = ""
) -> ApiError:
    """The error that an answer is.

    Args:
        status: of the answer; not a good one.
        headers: of the answer; names in any case.
        body: of the answer, or its beginning.
        asked: what was asked for; it is named where the server does not say it.
        whose: where the credentials came from.
    """
    found = _status(body)
    reason = (found.reason or "") if found else ""
    message = one_line(found.message or "") if found else _words(body)
    if status in (401, 403):
        message = message[:300]
    if status == 401:
        message = _join(message or "Unauthorized", f"the server does not know who wants to {asked}")
        message += f"; check the credentials of {whose}" if whose else ""
    elif status == 403 and not _names(message, asked):
        message = _join(message, f"there is no permission to {asked}")
    elif 300 <= status < 400:
        message = f"redirected, which is not followed, when asked to {asked}"
    elif not message:
        message = f"HTTP {status} when asked to {asked}"
    return ApiError(status, reason, message[:_LONGEST], _retry_after(headers, found))


def object_of(wanted: type[T], body: bytes, asked: Callable[[], Wanted]) -> T:
    """The object that an answer is.

    Args:
        wanted: its type.
        body: of the answer.
        asked: what was asked for; only called when it has to be told.

    Raises:
        UndecodableError: it is none of the wanted type.
    """
    try:
        return decode(wanted, body)
    except (msgspec.DecodeError, RecursionError) as error:
        what = f"{len(body)} bytes that are not what was asked for: {error}"
        if _HTML.match(body):
            what = f"an HTML page: {_words(body)!r}"
        elif not body.strip():
            what = "nothing"
        msg = f"asked to {asked()}, the server answered {what}"
        raise UndecodableError(msg[:_LONGEST]) from error


def one_line(text: str) -> str:
    """A text on one line, without control characters, of bounded length."""
    words = "".join(char if char.isprintable() else " " for char in text[: 4 * _LONGEST]).split()
    return " ".join(words)[:_LONGEST]


def _status(body: bytes) -> _Status | None:
    try:
        found = msgspec.json.decode(body, type=_Status)
    except (msgspec.DecodeError, RecursionError):
        return None
    return found if found.kind == "Status" or found.message else None


def _words(body: bytes) -> str:
    """What a body that is no Status says; of an HTML page its title, if it has one."""
    text = body[: 16 * 1024].decode(errors="replace")
    if not _HTML.match(body):
        return one_line(text)[:200]
    title = _TITLE.search(text)
    return one_line(_TAGS.sub(" ", title[1] if title else text))[:200]


def _names(message: str, asked: Wanted) -> bool:
    """Whether a message of the server names the missing permission itself."""
    resource = asked.resource.partition(".")[0]
    return asked.verb in message and resource in message


def _join(message: str, more: str) -> str:
    return f"{message}: {more}" if message else more


def _retry_after(headers: Mapping[str, str], found: _Status | None) -> float | None:
    values: list[Any] = [headers.get("Retry-After")]
    if found is not None and found.details is not None:
        values.append(found.details.retry_after)
    for value in values:
        try:
            seconds = float(value)
        except (TypeError, ValueError, OverflowError):
            continue
        if 0 <= seconds < float("inf"):
            return min(seconds, _LONGEST_WAIT)
    return None
