"""Where manifests come from: a file or a URL."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias
from urllib.parse import urlsplit, urlunsplit


@dataclass(frozen=True, slots=True)
class UrlOrigin:
    """A manifest URL. Shows itself without what may be secret in it."""

    url: str

    @property
    def name(self) -> str:
        """What to call it in messages: without user, password and query."""
        parts = urlsplit(self.url)
        host = parts.netloc.rpartition("@")[2]
        query = "..." if parts.query else ""
        return urlunsplit((parts.scheme, host, parts.path, query, ""))

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"UrlOrigin({self.name})"


Origin: TypeAlias = Path | UrlOrigin


def origin_text(origin: Origin) -> str:
    """What the UIDs of its pods depend on: ``file:/path`` or ``url:http...``."""
    return f"url:{origin.url}" if isinstance(origin, UrlOrigin) else f"file:{origin}"
