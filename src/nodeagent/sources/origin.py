"""Where manifests come from: a file or a URL."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from nodeagent.urls import shown_url


@dataclass(frozen=True, slots=True)
class UrlOrigin:
    """A manifest URL. Shows itself without what may be secret in it."""

    url: str

    @property
    def name(self) -> str:
        """What to call it in messages: without user, password and query."""
        return shown_url(self.url)

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"UrlOrigin({self.name})"


Origin: TypeAlias = Path | UrlOrigin


def origin_text(origin: Origin) -> str:
    """What the UIDs of its pods depend on: ``file:/path`` or ``url:http...``."""
    return f"url:{origin.url}" if isinstance(origin, UrlOrigin) else f"file:{origin}"


def origin_name(origin: Origin) -> str:
    """What to call it in messages: of a file its name."""
    return origin.name if isinstance(origin, UrlOrigin) else shown_path(origin.name)


def shown_path(text: str) -> str:
    """A path or file name so that two that differ also look so.

    Names may be any bytes; and one accented name may be written in two ways, which are two files.
    """
    if text.isprintable() and unicodedata.is_normalized("NFC", text):
        return text
    return ascii(text)[1:-1]
