"""How the collecting of figures is wired."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from nodeagent.api import Pod
from nodeagent.clock import Clock
from nodeagent.config import AgentConfig
from nodeagent.cri import ImageService, RuntimeService
from nodeagent.model import PodRuntimeStatus, PodUID, RuntimePod
from nodeagent.runtime.logs import container_log, plain_names
from nodeagent.runtime.names import PodNames
from nodeagent.stats import Places, StatsCollector, StatsSides
from nodeagent.stats.log_usage import LogPlace

if TYPE_CHECKING:
    from nodeagent.stats.records import VolumeFigures

_UNIX: Final = "unix://"
_CREDENTIALS: Final = struct.Struct("3i")
_CONNECT_S: Final = 1.0


def make_stats(
    config: AgentConfig,
    *,
    runtime: RuntimeService,
    images: ImageService,
    list_pods: Callable[[], Awaitable[Sequence[RuntimePod]]],
    details: Callable[[PodUID], PodRuntimeStatus],
    volumes: Callable[[PodUID], Awaitable[Sequence[VolumeFigures]]] | None,
    clock: Clock,
) -> StatsCollector:
    """The collector of one agent; it does nothing until somebody asks."""
    endpoint = "" if config.embedded else config.container_runtime_endpoint
    places = Places(
        node=config.effective_node_name,
        root_dir=Path(config.root_dir).absolute(),
        logs_dir=Path(config.pod_logs_dir).absolute(),
        runtime_pid=partial(peer_of, endpoint),
    )
    sides = StatsSides(
        runtime=runtime,
        images=images,
        list_pods=list_pods,
        details=details,
        volumes=volumes,
        places=places,
        clock=clock,
    )
    return StatsCollector(sides)


def peer_of(endpoint: str) -> int | None:
    """The process that serves a unix socket; None when nobody else does. Blocking, not for long."""
    if not endpoint.startswith(_UNIX):
        return None
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(_CONNECT_S)
        try:
            client.connect(endpoint.removeprefix(_UNIX))
            told = client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        except OSError:
            return None
    pid: int = _CREDENTIALS.unpack(told)[0]
    return pid if pid not in (0, os.getpid()) else None


def log_places(
    logs_dir: Path, pods: Sequence[Pod], details: Callable[[PodUID], PodRuntimeStatus]
) -> list[LogPlace]:
    """Where the logs of the containers are that the runtime has of some pods."""
    found = []
    for pod in pods:
        names = PodNames.of(pod)
        known = details(PodUID(names.uid)).containers
        for container in dict.fromkeys(one.name for one in known):
            if plain_names(names, container):
                directory = str(container_log(logs_dir, names, container, 0).parent)
                place = LogPlace(names.uid, names.namespace, names.name, container, directory)
                found.append(place)
    return found
