"""What volumes of pods take, for who shows it, and for who ends pods that take too much.

docs/behaviour/volumes.md, "Usage".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import anyio

from nodeagent.api import Volume
from nodeagent.model import PodUID
from nodeagent.volumes.claims import claim_name
from nodeagent.volumes.plugin import MeasuresItself
from nodeagent.volumes.pod_volumes import OneVolume, PodVolumes
from nodeagent.volumes.usage import Measure, Meter, VolumeUsage, VolumeUsages, measure


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeStats:
    """A volume of a pod, as it was last measured.

    Attributes:
        name: in the pod.
        usage: what it takes and what there is (bytes, inodes; None where nobody says), when
            that was, and whether its driver says that something is wrong with it.
        claim: namespace and name of its claim; None when it has none.
        local: whether it takes from the node's own storage that pods share.
    """

    name: str
    usage: VolumeUsage
    claim: tuple[str, str] | None = None
    local: bool = False


def meters(
    held: PodVolumes, pod_dir: Path, usages: VolumeUsages, which: Callable[[Volume], bool]
) -> dict[str, Meter]:
    """How to measure the volumes of a pod that are ready, by name.

    Args:
        held: the pod.
        pod_dir: its directory. What lies elsewhere does not belong to the pod.
        usages: does blocking work.
        which: which of them.
    """
    return {
        volume.name: meter
        for volume, meter in _meters(held, pod_dir, usages)
        if volume.spec is not None and which(volume.spec)
    }


def _meters(
    held: PodVolumes, pod_dir: Path, usages: VolumeUsages
) -> Iterator[tuple[OneVolume, Meter]]:
    for volume in held.wanted():
        mounted = volume.mounted
        if mounted is None or not mounted.host_path:
            continue
        path = Path(mounted.host_path)
        if isinstance(volume.plugin, MeasuresItself):
            request = Measure(uid=held.uid, name=volume.name, path=path, usages=usages)
            yield volume, partial(volume.plugin.measure, request)
        elif not mounted.block and path.is_relative_to(pod_dir):
            yield volume, partial(usages.in_thread, path, measure)


def stats_of(held: PodVolumes, usages: Mapping[str, VolumeUsage]) -> tuple[VolumeStats, ...]:
    """What was measured, with what is known of the volumes. Pure.

    Args:
        held: the pod.
        usages: by name.
    """
    return tuple(
        VolumeStats(
            name=volume.name,
            usage=usages[volume.name],
            claim=_claim(held, volume.spec),
            local=volume.spec is not None and is_local(volume.spec),
        )
        for volume in held.wanted()
        if volume.name in usages
    )


def is_any(_volume: Volume) -> bool:
    """All of them."""
    return True


def is_claimed(volume: Volume) -> bool:
    """Whether a pod has a volume by a claim. Pure."""
    return volume.persistent_volume_claim is not None or volume.ephemeral is not None


def is_local(volume: Volume) -> bool:
    """Whether a volume takes from the storage of the node that pods share. Pure."""
    source = volume.empty_dir
    return volume.config_map is not None or (source is not None and not source.medium)


def _claim(held: PodVolumes, spec: Volume | None) -> tuple[str, str] | None:
    if held.pod is None or spec is None or not is_claimed(spec):
        return None
    return held.pod.metadata.namespace, claim_name(held.pod, spec)


class StatsService:
    """Measures the volumes of pods when somebody asks.

    Args:
        pods: what the volume manager keeps of them; not changed here.
        pods_dir: where their directories are.
        usages: measures, and remembers.
    """

    def __init__(
        self, pods: Mapping[PodUID, PodVolumes], pods_dir: Path, usages: VolumeUsages
    ) -> None:
        self._pods = pods
        self._pods_dir = pods_dir
        self._usages = usages

    async def of_pod(self, uid: PodUID, *, only_local: bool = False) -> tuple[VolumeStats, ...]:
        """What the pod's volumes take; at most a minute old.

        Volumes that do not belong to the pod alone (host paths, images) have none, nor have those
        whose disk or driver does not answer and never has.

        Args:
            uid: the pod.
            only_local: whether only those count that take from the node's own storage.
        """
        held = self._pods.get(uid)
        if held is None or held.pod is None:
            return ()
        wanted = self._meters(held, is_local if only_local else is_any)
        return stats_of(held, await self._usages.of_pod(uid, wanted))

    def known(self) -> list[VolumeStats]:
        """What was last measured of all volumes; nothing is measured now."""
        every = self._pods.values()
        return [one for held in every for one in stats_of(held, self._usages.known(held.uid))]

    async def measure_claims(self) -> None:
        """Measure all claimed volumes that were not measured for a while."""
        async with anyio.create_task_group() as tasks:
            for uid, held in self._pods.items():
                if wanted := self._meters(held, is_claimed):
                    tasks.start_soon(self._usages.of_pod, uid, wanted, name="usage")

    def forget(self, uid: PodUID) -> None:
        """The pod is gone."""
        self._usages.forget(uid)

    def _meters(self, held: PodVolumes, which: Callable[[Volume], bool]) -> dict[str, Meter]:
        return meters(held, self._pods_dir / held.uid, self._usages, which)
