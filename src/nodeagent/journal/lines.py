"""One JSON object a line, whatever the values are: a record must never fail to be shown."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import msgspec


def json_line(values: Mapping[str, Any]) -> bytes:
    """One line of JSON with its line end.

    Values that JSON does not know are shown as text. Text that is not Unicode (a file name of
    arbitrary bytes) is escaped.
    """
    try:
        return msgspec.json.encode(values, enc_hook=str) + b"\n"
    except (UnicodeEncodeError, TypeError, ValueError, OverflowError, RecursionError):
        shown = {key: _plain(value) for key, value in values.items()}
        return json.dumps(shown).encode() + b"\n"


def _plain(value: Any, depth: int = 0) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, Mapping) and depth < 8:
        return {str(key): _plain(item, depth + 1) for key, item in value.items()}
    if isinstance(value, (list, tuple)) and depth < 8:
        return [_plain(item, depth + 1) for item in value]
    return str(value)
