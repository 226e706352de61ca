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
from nodeagent.sources.merge import merge_snapshot

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
        self._heard: set[str] = set()
        self._reported: dict[str, frozenset[PodUID]] = {}

    def merge(self, snapshot: Snapshot) -> tuple[PodUpdate, ...]:
        """Merge one snapshot; the updates must be handled in their order."""
        source = snapshot.source
        first = source not in self._heard
        seen_at = rfc3339_nano(self._clock.time_ns())
        result = merge_snapshot(
            source, self._pods.get(source, {}), snapshot.pods, first=first, seen_at=seen_at
        )
        self._pods[source] = result.pods
        self._report_duplicates(source, result.duplicates)
        if not snapshot.remembered:
            self._heard.add(source)
        return _not_heard_before_the_end(result.updates, snapshot) if first else result.updates

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
