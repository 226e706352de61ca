"""Image references: repository, tag and digest."""

import re
from dataclasses import dataclass
from typing import Final

_COMPONENT: Final = r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"
_HOST_PART: Final = r"(?:[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9])"
_DOMAIN: Final = re.compile(
    rf"(?:{_HOST_PART}(?:\.{_HOST_PART})*|\[[a-fA-F0-9:]+\])(?::[0-9]+)?", re.ASCII
)
_REFERENCE: Final = re.compile(
    rf"(?P<path>{_COMPONENT}(?:/{_COMPONENT})*)"
    r"(?::(?P<tag>\w[\w.-]{0,127}))?"
    r"(?:@(?P<digest>[A-Za-z][A-Za-z0-9]*(?:[-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,}))?",
    re.ASCII,
)
_HEX_ID: Final = re.compile(r"[a-f0-9]{64}")
_MAX_NAME: Final = 255


@dataclass(frozen=True, slots=True)
class ImageName:
    """The parts of an image reference; tag and digest are empty when not written."""

    repository: str
    """Registry and path as written (``busybox``, ``ghcr.io/a/b``)."""

    tag: str = ""
    digest: str = ""


def parse_image(reference: str) -> ImageName | None:
    """Split an image reference, or return None when it is not a valid one.

    The first path component is a registry when it has a dot, a colon or a capital letter, or is
    ``localhost``. A bare 64-digit hexadecimal id is no reference.
    """
    domain, slash, rest = reference.partition("/")
    is_registry = any(mark in domain for mark in ".:") or domain == "localhost"
    if not slash or not (is_registry or domain != domain.lower()):
        domain, rest = "", reference
    if domain and not _DOMAIN.fullmatch(domain):
        return None
    match = _REFERENCE.fullmatch(rest)
    if match is None or _HEX_ID.fullmatch(reference):
        return None
    repository = f"{domain}/{match['path']}" if domain else match["path"]
    if len(repository) > _MAX_NAME:
        return None
    return ImageName(repository, match["tag"] or "", match["digest"] or "")


def default_pull_policy(reference: str) -> str:
    """Return the pull policy an image has when none is given.

    Always for the tag ``latest``, written or implied; IfNotPresent for any other tag, for a
    digest, and for a reference that cannot be parsed.
    """
    image = parse_image(reference)
    if image is None:
        return "IfNotPresent"
    latest = image.tag == "latest" or not (image.tag or image.digest)
    return "Always" if latest else "IfNotPresent"
