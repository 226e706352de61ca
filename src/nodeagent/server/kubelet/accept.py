"""In which form a page is wanted: for people, or for programs. No I/O.

docs/behaviour/server.md, "Pages".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

GROUP: Final = "config.k8s.io"
VERSION: Final = "v1beta1"
TEXT: Final = "text/plain"
JSON: Final = "application/json"
YAML: Final = "application/yaml"

_TEXTS: Final = ("", "*/*", "text/*", TEXT)


def wanted_form(accept: str, kind: str) -> str:
    """The form that a client takes: TEXT, JSON or YAML; "" when it takes none of them.

    Args:
        accept: the header; "" without one.
        kind: of the object that the page is for programs.
    """
    for part in accept.split(","):
        form, *rest = (text.strip() for text in part.split(";"))
        found = dict(text.partition("=")[::2] for text in rest)
        if found.pop("q", "1").strip("0.") == "":
            continue
        if form.lower() in _TEXTS:
            return TEXT
        if form.lower() in (JSON, YAML) and _names(found, kind):
            return form.lower()
    return ""


def _names(found: Mapping[str, str], kind: str) -> bool:
    """Whether the parameters of a media type, if there are any, name this very object."""
    expected = {"as": kind, "g": GROUP, "v": VERSION}
    return all(found.get(name, value) == value for name, value in expected.items())
