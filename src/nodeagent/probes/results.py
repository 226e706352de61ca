"""The results of all probes, by container id, and how changes reach the sync loop."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeAlias

import anyio

from nodeagent.channels import Channel
from nodeagent.model import PodUID, ProbeKind, ProbeResult, ProbeUpdate
from nodeagent.model.probes import ProbeResults
from nodeagent.probes.decision import INITIAL

Subject: TypeAlias = tuple[PodUID, str, ProbeKind]
"""Whose result: pod, name of the container, kind of probe."""

_FIELDS: Final = {kind.value: kind for kind in ProbeKind}


class ResultStore:
    """Keeps one result for each probed container; says when one changes.

    A container without a result counts as having the initial one of the kind, so nothing is
    said when a container is new, and nothing when it gets what it had anyway.

    Args:
        changed: told of each change.
    """

    def __init__(self, changed: Callable[[ProbeUpdate], None]) -> None:
        self._changed = changed
        self._by_id: dict[ProbeKind, dict[str, ProbeResult]] = {kind: {} for kind in ProbeKind}
        self._ids: dict[Subject, str] = {}
        self.view = ProbeResults(
            self._by_id[ProbeKind.LIVENESS],
            self._by_id[ProbeKind.STARTUP],
            self._by_id[ProbeKind.READINESS],
        )

    def get(self, kind: ProbeKind, container_id: str) -> ProbeResult | None:
        """The result noted for a container, None when there is none."""
        return self._by_id[kind].get(container_id)

    def note(self, subject: Subject, container_id: str, result: ProbeResult) -> bool:
        """Note a result; True when it changed something."""
        uid, _, kind = subject
        self.begin(subject, container_id)
        before = self._by_id[kind].get(container_id, INITIAL[kind])
        self._by_id[kind][container_id] = result
        if before is result:
            return False
        self._changed(ProbeUpdate(uid, container_id, kind, result))
        return True

    def begin(self, subject: Subject, container_id: str) -> None:
        """The probe is about this container from now on; what it said of another is dropped."""
        before = self._ids.get(subject)
        if before == container_id:
            return
        if before is not None:
            self._by_id[subject[2]].pop(before, None)
        self._ids[subject] = container_id

    def forget_pod(self, uid: PodUID) -> None:
        """Drop all results of a pod."""
        for subject in [s for s in self._ids if s[0] == uid]:
            self._by_id[subject[2]].pop(self._ids.pop(subject), None)

    def pods(self) -> frozenset[PodUID]:
        """The pods that have results."""
        return frozenset(uid for uid, _, _ in self._ids)

    def snapshot(self) -> dict[str, Any]:
        """All results, JSON-able: by pod, container and kind, the id and the result."""
        saved: dict[str, Any] = {}
        for (uid, name, kind), container_id in self._ids.items():
            result = self._by_id[kind].get(container_id)
            if result is not None:
                by_kind = saved.setdefault(uid, {}).setdefault(name, {})
                by_kind[kind.value] = [container_id, result.value]
        return saved

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Take over what :meth:`snapshot` gave; nobody is told of it."""
        for subject, container_id, result in list(_read(saved)):
            self._ids[subject] = container_id
            self._by_id[subject[2]][container_id] = result


def _read(saved: Mapping[str, Any]) -> Iterator[tuple[Subject, str, ProbeResult]]:
    for uid, containers in saved.items():
        for name, kinds in containers.items():
            for field, (container_id, result) in kinds.items():
                yield (PodUID(uid), name, _FIELDS[field]), str(container_id), ProbeResult(result)


class Outbox:
    """Brings changes to a channel without making the probes wait for its consumer.

    While the channel is full, the newest result of each container waits its turn here: there
    are never more than there are probes.

    Args:
        channel: where to.
    """

    def __init__(self, channel: Channel[ProbeUpdate]) -> None:
        self._channel = channel
        self._waiting: dict[str, ProbeUpdate] = {}
        self._filled = anyio.Event()

    def post(self, update: ProbeUpdate) -> None:
        """Have the update delivered; never waits."""
        # A newer result goes to the end of the line: the one before it is no longer true.
        self._waiting.pop(update.container_id, None)
        self._waiting[update.container_id] = update
        self._filled.set()

    async def run(self) -> None:
        """Deliver until cancelled."""
        while True:
            await self._filled.wait()
            self._filled = anyio.Event()
            while self._waiting:
                await self._channel.send(self._waiting.pop(next(iter(self._waiting))))
