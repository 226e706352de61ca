"""What several parts need to know of URLs. Pure."""

from __future__ import annotations

from urllib.parse import urlsplit, urlunsplit


def shown_url(url: str) -> str:
    """A URL for people: without user, password, query and fragment, which may be secret."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "(not a URL)"
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, host, parts.path, "..." if parts.query else "", ""))


def url_fault(url: str) -> str:
    """Why a URL cannot be fetched from, "" when it can."""
    wanted = "must be a URL such as https://example.com/pods.yaml"
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return wanted
    if parts.scheme not in ("http", "https") or not host:
        return wanted
    if not url.isascii() or not url.isprintable() or " " in url:
        return f"{wanted}, without spaces and with special characters escaped (%20)"
    return ""
