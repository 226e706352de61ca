"""List answers without encoding anew what did not change.

An agent lists everything every second, and encoding hundreds of messages takes longer than
all the rest. The items of a list are the same objects until they change, so their bytes are
kept by identity.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nodeagent.proto.runtime import v1
from nodeagent.rpc import encode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from betterproto2 import Message

_FIRST_FIELD = b"\x0a"
"""Tag of field 1 with a length, which both lists have their items in."""


class _Sandboxes(v1.ListPodSandboxResponse):
    encoded: bytes

    def __bytes__(self) -> bytes:
        return self.encoded


class _Containers(v1.ListContainersResponse):
    encoded: bytes

    def __bytes__(self) -> bytes:
        return self.encoded


def field_bytes(item: Message) -> bytes:
    """The item as a repeated field 1."""
    body = encode(item)
    return _FIRST_FIELD + _varint(len(body)) + body


class WireCache:
    """The bytes of the items of the last whole list."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Message, bytes]] = {}

    def sandboxes(
        self, items: Sequence[v1.PodSandbox], *, whole: bool
    ) -> v1.ListPodSandboxResponse:
        """The answer to ListPodSandbox; ``whole`` when nothing was left out."""
        answer = _Sandboxes(items=list(items))
        answer.encoded = self._encode(items, whole)
        return answer

    def containers(
        self, items: Sequence[v1.Container], *, whole: bool
    ) -> v1.ListContainersResponse:
        """The answer to ListContainers; ``whole`` when nothing was left out."""
        answer = _Containers(containers=list(items))
        answer.encoded = self._encode(items, whole)
        return answer

    def _encode(self, items: Sequence[Message], whole: bool) -> bytes:
        entries = [self._entry(item) for item in items]
        if whole:
            self._known = {id(item): (item, data) for item, data in entries}
        return b"".join([data for _, data in entries])

    def _entry(self, item: Message) -> tuple[Message, bytes]:
        known = self._known.get(id(item))
        # The entry holds on to its item, so an equal id means the same object.
        return known if known is not None else (item, field_bytes(item))


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
