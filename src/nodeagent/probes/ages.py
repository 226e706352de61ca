"""Since when containers run, for initial delays: a section of the agent's checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nodeagent.model import PodUID


class ContainerAges:
    """The loop time at which each container that is probed was first seen running.

    No wall time enters: neither the runtime's stamps nor a clock that jumps change a delay.
    """

    def __init__(self) -> None:
        self._seen: dict[PodUID, dict[str, tuple[str, float]]] = {}

    def age(self, uid: PodUID, name: str, container_id: str, now: float) -> float:
        """Seconds since a container was first seen running: 0 for one that is new."""
        of_pod = self._seen.setdefault(uid, {})
        known = of_pod.get(name)
        if known is None or known[0] != container_id:
            known = of_pod[name] = (container_id, now)
        return now - known[1]

    def forget_pod(self, uid: PodUID) -> None:
        """Drop what is known of a pod that is gone."""
        self._seen.pop(uid, None)

    def pods(self) -> frozenset[PodUID]:
        """The pods of which something is known."""
        return frozenset(self._seen)

    def snapshot(self) -> dict[str, Any]:
        """All of it, JSON-able."""
        return {
            uid: {name: list(seen) for name, seen in of.items()} for uid, of in self._seen.items()
        }

    def restore(self, saved: Mapping[str, Any], shift: float) -> None:
        """Take over what :meth:`snapshot` gave; ``shift`` turns its times into today's."""
        for uid, of_pod in saved.items():
            for name, (container_id, since) in of_pod.items():
                seen = (str(container_id), float(since) + shift)
                self._seen.setdefault(PodUID(uid), {})[name] = seen
