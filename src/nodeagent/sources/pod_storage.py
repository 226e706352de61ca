"""Every source's pods after its last snapshot."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from nodeagent.api import Pod
from nodeagent.api.times import rfc3339_nano
from nodeagent.clock import Clock
from nodeagent.journal import Journal
from nodeagent.log import Log
from nodeagent.model import PodUID, PodUpdate, Snapshot
from nodeagent.sources.merge import MergeResult, merge_modified, merge_snapshot

log = Log("config")


class PodStorage:
    """Holds the pods of each source and merges snapshots into them.

    Args:
        clock: wall clock, for the time a pod was first seen.
        journal: flight recorder.
    """

    def __init__(self, clock: Clock, journal: Journal) -> None:
        self._clock = clock
        self._journal = journal
        self._pods: dict[str, Mapping[PodUID, Pod]] = {}
        self._came: dict[str, Mapping[int, Pod]] = {}
        self._heard: set[str] = set()
        self._reported: dict[str, frozenset[PodUID]] = {}

    def merge(self, snapshot: Snapshot) -> tuple[PodUpdate, ...]:
        """Merge one snapshot; the updates must be handled in their order."""
        source = snapshot.source
        first = source not in self._heard
        result = self._compared(snapshot, first=first)
        self._pods[source] = result.pods
        # As long as they are kept, no other object can have the same id.
        came = dict(zip(map(id, snapshot.pods), snapshot.pods, strict=True))
        self._came[source] = {} if result.duplicates else came
        self._report_duplicates(source, result.duplicates)
        if not snapshot.remembered:
            self._heard.add(source)
        return _not_heard_before_the_end(result.updates, snapshot) if first else result.updates

    def _compared(self, snapshot: Snapshot, *, first: bool) -> MergeResult:
        source, pods = snapshot.source, snapshot.pods
        known = self._pods.get(source, {})
        if not first:
            result = merge_modified(source, known, self._came[source], pods)
            if result is not None:
                return result
        seen_at = rfc3339_nano(self._clock.time_ns())
        return merge_snapshot(source, known, pods, first=first, seen_at=seen_at)

    def _report_duplicates(self, source: str, duplicates: tuple[Pod, ...]) -> None:
        uids = frozenset(PodUID(pod.metadata.uid) for pod in duplicates)
        for pod in duplicates:
            if pod.metadata.uid in self._reported.get(source, frozenset()):
                continue
            meta = pod.metadata
            text = (
                f"Error validating pod {meta.name}_{meta.namespace}({meta.uid}) from {source} "
                f'due to duplicate pod name "{meta.name}", ignoring'
            )
            log.warning("duplicate_pod", source=source, pod=f"{meta.namespace}/{meta.name}")
            self._journal.record("config", "FailedValidation", meta.uid, text)
        self._reported[source] = uids

    def forget(self, source: str) -> None:
        """The source begins anew: its pods stay until it has spoken again."""
        self._heard.discard(source)

    def pods(self, source: str) -> Mapping[PodUID, Pod]:
        """The pods of one source."""
        return self._pods.get(source, {})

    @property
    def seen_sources(self) -> frozenset[str]:
        """Sources of which at least one snapshot was merged that is not from memory."""
        return frozenset(self._heard)


def _not_heard_before_the_end(
    updates: tuple[PodUpdate, ...], snapshot: Snapshot
) -> tuple[PodUpdate, ...]:
    """Of a source's first snapshot only the last update makes it heard, of a memory none."""
    last = len(updates) - (not snapshot.remembered)
    return (*(replace(update, heard=False) for update in updates[:last]), *updates[last:])
