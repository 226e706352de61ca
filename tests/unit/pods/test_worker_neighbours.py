"""What the workers ask of their neighbours is what those offer; the type checker proves it."""

from __future__ import annotations

from nodeagent.cri.pods import PodLister
from nodeagent.node.runtime_state import RuntimeState
from nodeagent.pleg.cache import PodCache
from nodeagent.pods.protocols import (
    PodCacheReader,
    PodStatusStore,
    PodSyncer,
    RuntimeGate,
    RuntimePodLister,
)
from nodeagent.pods.status_manager import StatusManager
from nodeagent.pods.sync import PodSync


def test_the_neighbours_of_the_workers_fit() -> None:
    syncer: type[PodSyncer] = PodSync
    cache: type[PodCacheReader] = PodCache
    statuses: type[PodStatusStore] = StatusManager
    gate: type[RuntimeGate] = RuntimeState
    lister: type[RuntimePodLister] = PodLister
    for neighbour in (syncer, cache, statuses, gate, lister):
        assert isinstance(neighbour, type)
