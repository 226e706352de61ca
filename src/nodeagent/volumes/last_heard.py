"""What the API server said last of the volumes of this node's pods.

docs/behaviour/csi.md, "Without the API server".
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import msgspec
from msgspec.structs import replace

from nodeagent.api import ObjectMeta
from nodeagent.api.codec import decode, encode
from nodeagent.api.storage import PersistentVolume, PersistentVolumeClaim, VolumeAttachment
from nodeagent.kube.client import KubeClient
from nodeagent.kube.errors import KubeError, is_away
from nodeagent.model import PodUID

T = TypeVar("T", PersistentVolume, PersistentVolumeClaim, VolumeAttachment)


@dataclass(frozen=True, slots=True)
class Heard(Generic[T]):
    """An object.

    Attributes:
        item: the object.
        fresh: whether the server has just given it; else it is what it gave last.
    """

    item: T
    fresh: bool


@dataclass(slots=True)
class _Kept:
    version: str
    text: bytes
    users: set[PodUID] = field(default_factory=set)


class LastHeard:
    """Reads objects, and keeps them for the time without a server: a section of the checkpoint.

    What is kept of an object goes with the last pod that needed it.

    Args:
        client: asks the server.
    """

    def __init__(self, client: KubeClient) -> None:
        self._client = client
        self._kept: dict[str, _Kept] = {}

    async def get(self, path: str, kind: type[T], uid: PodUID) -> Heard[T]:
        """An object as the server gives it; as it gave it last while it does not answer.

        Args:
            path: of the object.
            kind: its type.
            uid: the pod that needs it.

        Raises:
            KubeError: the server refuses it, or does not answer and never gave it to this pod.
        """
        try:
            found = await self._client.get(path, kind)
        except KubeError as error:
            if not is_away(error):
                self._kept.pop(path, None)
                raise
            kept = self._kept.get(path)
            if kept is None or uid not in kept.users:
                raise
            return Heard(decode(kind, kept.text), fresh=False)
        self._keep(path, found, uid)
        return Heard(found, fresh=True)

    def has(self, path: str, uid: PodUID) -> bool:
        """Whether the pod has been given the object once."""
        kept = self._kept.get(path)
        return kept is not None and uid in kept.users

    def _keep(self, path: str, found: T, uid: PodUID) -> None:
        version = found.metadata.resource_version
        kept = self._kept.get(path)
        if kept is None:
            kept = self._kept[path] = _Kept("", b"")
        if not kept.text or not version or kept.version != version:
            kept.version, kept.text = version, encode(_bare(found))
        kept.users.add(uid)

    def forget_pod(self, uid: PodUID) -> None:
        """The pod is gone."""
        for path, kept in list(self._kept.items()):
            kept.users.discard(uid)
            if not kept.users:
                del self._kept[path]

    def remembered(self) -> set[PodUID]:
        """The pods for which something is kept."""
        return {uid for kept in self._kept.values() for uid in kept.users}

    def snapshot(self) -> dict[str, Any]:
        """The objects by path."""
        return {
            path: {
                "version": kept.version,
                "object": msgspec.Raw(kept.text),
                "users": sorted(kept.users),
            }
            for path, kept in sorted(self._kept.items())
        }

    def restore(self, saved: Any, shift: float) -> None:
        """Take over what an earlier agent had heard."""
        del shift
        for path, one in msgspec.convert(saved, dict[str, _Saved]).items():
            text = msgspec.json.encode(one.object)
            self._kept[path] = _Kept(one.version, text, {PodUID(uid) for uid in one.users})


class _Saved(msgspec.Struct):
    version: str
    object: dict[str, Any]
    users: list[str]


def _bare(found: T) -> T:
    """The object without what only other programs read."""
    meta = found.metadata
    notes = {k: v for k, v in meta.annotations.items() if not k.startswith("kubectl.")}
    slim: ObjectMeta = replace(meta, managed_fields=(), annotations=notes)
    return replace(found, metadata=slim)
