"""Why the last start of a container failed, for its waiting state."""

from __future__ import annotations

from collections import OrderedDict

from nodeagent.model import ContainerError, PodUID


class ReasonCache:
    """The errors of the last starts, by pod and container; the least recently used goes first.

    Only results of starts come in here; a success removes what was there.

    Args:
        size: entries kept.
    """

    def __init__(self, size: int = 1000) -> None:
        self._size = size
        self._entries: OrderedDict[tuple[PodUID, str], ContainerError] = OrderedDict()

    def get(self, uid: PodUID, container: str) -> ContainerError | None:
        """Why the container's last start failed; None when it did not."""
        key = (uid, container)
        error = self._entries.get(key)
        if error is not None:
            self._entries.move_to_end(key)
        return error

    def set(self, uid: PodUID, container: str, error: ContainerError) -> None:
        """Note a failed start."""
        key = (uid, container)
        self._entries[key] = error
        self._entries.move_to_end(key)
        while len(self._entries) > self._size:
            self._entries.popitem(last=False)

    def remove(self, uid: PodUID, container: str) -> None:
        """Note a successful start."""
        self._entries.pop((uid, container), None)

    def forget_pod(self, uid: PodUID) -> None:
        """Drop all that concerns one pod."""
        for key in [k for k in self._entries if k[0] == uid]:
            del self._entries[key]
