"""Images of a runtime that has none: any valid name can be pulled, and is then present.

An image says nothing about the file system of a container. Ids and sizes are made from the
name, so that they are the same each time.
"""

from __future__ import annotations

import fnmatch
import hashlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from nodeagent.proto.runtime import v1
from nodeagent.rpc import InvalidArgument, NotFound, RpcError

if TYPE_CHECKING:
    from collections.abc import Iterable

_HOST: Final = r"(?:[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?|\[[0-9a-fA-F:]+\])(?::[0-9]+)?"
_PART: Final = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_REFERENCE: Final = re.compile(
    rf"(?:(?P<host>{_HOST})/)?(?P<path>{_PART}(?:/{_PART})*)"
    r"(?::(?P<tag>[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}))?(?:@(?P<digest>sha256:[0-9a-f]{64}))?"
)
_DIGEST: Final = re.compile(r"(?:sha256:)?[0-9a-f]{64}")
_MAX_NAME: Final = 255


@dataclass(frozen=True, slots=True)
class Reference:
    """A normal form of an image name: ``repository`` with host, and ``tag`` or ``digest``."""

    repository: str
    tag: str = ""
    digest: str = ""

    @property
    def text(self) -> str:
        """The whole name; a digest says more than a tag."""
        return (
            f"{self.repository}@{self.digest}" if self.digest else f"{self.repository}:{self.tag}"
        )


def parse_reference(name: str) -> Reference:
    """Bring an image name to normal form, as docker.io/library/nginx:latest.

    Raises:
        InvalidArgument: it is not a valid name.
    """
    match = _REFERENCE.fullmatch(name)
    if match is None or _DIGEST.fullmatch(name):
        msg = f'failed to parse image reference "{name}": invalid reference format'
        raise InvalidArgument(msg)
    host, path = match["host"], match["path"]
    if host is not None and host != "localhost" and not set(host) & set(".:"):
        host, path = None, f"{host}/{path}"
        if re.fullmatch(rf"{_PART}(?:/{_PART})*", path) is None:
            msg = f'failed to parse image reference "{name}": invalid reference format'
            raise InvalidArgument(msg)
    if host in {None, "docker.io", "index.docker.io"}:
        host, path = "docker.io", path if "/" in path else f"library/{path}"
    repository = f"{host}/{path}"
    if len(repository) > _MAX_NAME:
        msg = f"failed to parse image reference: repository name exceeds {_MAX_NAME} characters"
        raise InvalidArgument(msg)
    digest = match["digest"] or ""
    tag = match["tag"] or ("" if digest else "latest")
    return Reference(repository, "" if digest else tag, digest)


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def make_image(reference: Reference) -> v1.Image:
    """The image that a name stands for."""
    digest = reference.digest or f"sha256:{_sha256('manifest ' + reference.text)}"
    image_id = f"sha256:{_sha256('config ' + reference.repository + '@' + digest)}"
    return v1.Image(
        id=image_id,
        repo_tags=[reference.text] if reference.tag else [],
        repo_digests=[f"{reference.repository}@{digest}"],
        size=2**20 + int(image_id[7:13], 16),
        uid=v1.Int64Value(value=0),
        spec=v1.ImageSpec(image=reference.text),
    )


class ImageStore:
    """Which images are present.

    Args:
        preset: names present from the start.
    """

    def __init__(self, preset: Iterable[str] = ()) -> None:
        self._images: dict[str, v1.Image] = {}
        self._refusals: list[tuple[str, RpcError]] = []
        for name in preset:
            self._add(name)

    @property
    def images(self) -> list[v1.Image]:
        """The images present, in the order in which they came."""
        return list(self._images.values())

    def references(self) -> list[str]:
        """A name of each image, enough to have them again."""
        return [(image.repo_tags or image.repo_digests)[0] for image in self._images.values()]

    def refuse(self, pattern: str, error: RpcError) -> None:
        """Let pulls of images whose normal name matches the shell pattern fail."""
        self._refusals.append((pattern, error))

    def accept(self, pattern: str) -> None:
        """Undo :meth:`refuse` of the same pattern."""
        self._refusals = [entry for entry in self._refusals if entry[0] != pattern]

    def pull(self, name: str) -> str:
        """Have the image from now on; returns its id.

        Raises:
            InvalidArgument: it is not a valid name.
            RpcError: :meth:`refuse` says so.
        """
        text = parse_reference(name).text
        for pattern, error in self._refusals:
            if fnmatch.fnmatchcase(text, pattern):
                raise error
        return self._add(name)

    def find(self, name: str) -> v1.Image | None:
        """The image with that id or name, if present."""
        if _DIGEST.fullmatch(name):
            return self._images.get(name if name.startswith("sha256:") else f"sha256:{name}")
        try:
            reference = parse_reference(name)
        except InvalidArgument:
            return None
        return self._images.get(make_image(reference).id)

    def require(self, name: str) -> v1.Image:
        """The image with that id or name. Raises NotFound."""
        found = self.find(name)
        if found is None:
            msg = f'failed to get image "{name}": not found'
            raise NotFound(msg)
        return found

    def remove(self, name: str) -> bool:
        """Have the image no longer; whether it was there."""
        found = self.find(name)
        return found is not None and self._images.pop(found.id, None) is not None

    def _add(self, name: str) -> str:
        image = make_image(parse_reference(name))
        self._images.setdefault(image.id, image)
        return image.id
