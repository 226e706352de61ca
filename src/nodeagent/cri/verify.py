"""What a runtime's answers must hold before anyone relies on them.

docs/behaviour/runtime.md, "CRI calls". Each function returns what it was given or raises
:class:`nodeagent.rpc.Internal` with the names of what is missing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from nodeagent.rpc import FailedPrecondition, Internal

if TYPE_CHECKING:
    from collections.abc import Iterable

    from nodeagent.proto.runtime import v1

Part = TypeVar("Part")

CLIENT_VERSION: Final = "0.1.0"
"""The version of the node agent's side of the interface, asked for and expected back."""

_CONDITIONS: Final = 2
_OF_SANDBOX: Final = ("id", "metadata.name", "metadata.namespace", "metadata.uid")
_OF_CONTAINER: Final = ("id", "metadata.name", "image.image", "image_ref")


def _require(subject: str, **present: object) -> None:
    missing = [name.replace("__", ".") for name, value in present.items() if not value]
    if missing:
        msg = f"the runtime's answer on {subject} lacks {', '.join(missing)}"
        raise Internal(msg)


def _require_parts(subject: str, message: object, parts: Iterable[str]) -> None:
    """Each part is a path of fields, ``metadata.name``."""
    missing = [part for part in parts if not _follow(message, part)]
    if missing:
        msg = f"the runtime's answer on {subject} lacks {', '.join(missing)}"
        raise Internal(msg)


def _follow(message: object, path: str) -> object:
    # Compared with None: whether a message is empty takes far longer to find out.
    value = message
    for name in path.split("."):
        value = None if value is None else getattr(value, name)
    return value


def text(value: str, name: str) -> str:
    """An id, a reference or a URL: not empty."""
    _require("the request", **{name: value})
    return value


def present(value: Part | None, subject: str) -> Part:
    """A part of an answer that must be there."""
    if value is None:
        msg = f"the runtime's answer on {subject} has no figures"
        raise Internal(msg)
    return value


def version(reply: v1.VersionResponse) -> v1.VersionResponse:
    """Version: the interface we speak, and no field empty.

    Raises:
        FailedPrecondition: the runtime speaks another version of the interface.
    """
    _require(
        "its version",
        version=reply.version,
        runtime_name=reply.runtime_name,
        runtime_version=reply.runtime_version,
        runtime_api_version=reply.runtime_api_version,
    )
    if reply.version != CLIENT_VERSION:
        msg = (
            f"{reply.runtime_name} {reply.runtime_version} speaks version {reply.version} of the "
            f"runtime interface, {CLIENT_VERSION} is needed: use a runtime with CRI v1"
        )
        raise FailedPrecondition(msg)
    return reply


def status(reply: v1.StatusResponse) -> v1.StatusResponse:
    """Status: at least RuntimeReady and NetworkReady are there."""
    found = reply.status.conditions if reply.status is not None else []
    if len(found) < _CONDITIONS:
        names = ", ".join(condition.type for condition in found) or "none"
        msg = f"the runtime states the conditions {names}: RuntimeReady and NetworkReady are needed"
        raise Internal(msg)
    return reply


def sandbox(reply: v1.PodSandboxStatusResponse, sandbox_id: str) -> v1.PodSandboxStatusResponse:
    """PodSandboxStatus: whose sandbox it is. When it was made may be wrong, or missing."""
    _require_parts(f"sandbox {sandbox_id}", reply.status, _OF_SANDBOX)
    return reply


def container(reply: v1.ContainerStatusResponse, container_id: str) -> v1.ContainerStatusResponse:
    """ContainerStatus: which container it is, and of which image."""
    _require_parts(f"container {container_id}", reply.status, _OF_CONTAINER)
    return reply


def image(reply: v1.ImageStatusResponse, name: str) -> v1.ImageStatusResponse:
    """ImageStatus: an image that is present has an id and a size."""
    if reply.image is not None:
        _require(f"image {name}", id=reply.image.id, size=reply.image.size)
    return reply
