"""Volumes that pods claim: made by whoever serves them.

docs/behaviour/csi.md, "Claims". What is made lies in the directory of that kind, under the name
of the PersistentVolume: an agent that restarts finds it there without asking anybody.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

from msgspec.structs import replace as replace_struct

from nodeagent.api import Volume
from nodeagent.api.node import Node
from nodeagent.api.storage import PersistentVolume
from nodeagent.model import PodUID
from nodeagent.model.node_selector import selects
from nodeagent.model.volumes import MountedVolume
from nodeagent.volumes.claims import Claimed, Claims
from nodeagent.volumes.csi_expand import Expander
from nodeagent.volumes.csi_names import DEVICES, VOLUMES
from nodeagent.volumes.csi_plugin import CsiPlugin
from nodeagent.volumes.csi_volume import CsiVolume, from_persistent, group_of
from nodeagent.volumes.local import LocalPlugin
from nodeagent.volumes.plugin import (
    MeasuresItself,
    PluginRegistry,
    SetUp,
    Stage,
    TearDown,
    VolumeError,
    VolumePlugin,
    directory_name,
)
from nodeagent.volumes.usage import Measure, VolumeUsage

_NO_OPTIONS: Final = "mount options are not supported for this volume type"


class ClaimPlugin:
    """Volumes by claim, and by a claim that is made for the pod.

    Args:
        claims: knows what they stand for.
        csi: those of storage drivers.
        local: directories of this node.
        others: other kinds (hostPath, nfs).
        expander: lets volumes grow.
        node: this node as the API server shows it.
    """

    name = "kubernetes.io/claim"
    refreshes = True

    def __init__(
        self,
        claims: Claims,
        csi: CsiPlugin,
        local: LocalPlugin,
        others: PluginRegistry,
        expander: Expander,
        node: Callable[[], Node | None],
    ) -> None:
        self._claims = claims
        self._csi = csi
        self._local = local
        self._others = others
        self._expander = expander
        self._node = node
        self._made: dict[tuple[PodUID, str], tuple[VolumePlugin, Path]] = {}

    def handles(self, volume: Volume) -> bool:
        """Whether a pod claims it."""
        return volume.persistent_volume_claim is not None or volume.ephemeral is not None

    async def set_up(self, request: SetUp) -> MountedVolume:
        """Find out what it is, and have it made."""
        claimed = await self._claims.resolve(request.pod, request.volume)
        self._check_node(claimed)
        spec = claimed.volume.spec
        if spec.csi is not None:
            return await self._by_driver(request, claimed)
        if spec.mount_options and spec.nfs is None:
            raise VolumeError(_NO_OPTIONS)
        if spec.local is not None:
            inner = self._remember(request, self._local, claimed.volume)
            made = await self._local.set_up_path(
                inner, spec.local.path, read_only=claimed.read_only
            )
        else:
            made = await self._by_other(request, claimed)
        groups = group_of(claimed.volume)
        return replace(made, name=request.volume.name, groups=groups)

    async def _by_driver(self, request: SetUp, claimed: Claimed) -> MountedVolume:
        volume = from_persistent(claimed.volume, read_only=claimed.read_only)
        inner = self._remember(request, self._csi, claimed.volume, block=volume.block)
        made = await self._csi.set_up_volume(inner, volume)
        await self._expander.expand(request, claimed, volume)
        return made

    async def _by_other(self, request: SetUp, claimed: Claimed) -> MountedVolume:
        pv = claimed.volume
        volume = Volume(name=request.volume.name, host_path=pv.spec.host_path, nfs=pv.spec.nfs)
        if pv.spec.nfs is not None and claimed.read_only:
            volume = replace_struct(volume, nfs=replace_struct(pv.spec.nfs, read_only=True))
        plugin = self._others.find(volume)
        if plugin is None or (pv.spec.volume_mode or "Filesystem") != "Filesystem":
            text = f"PersistentVolume {pv.metadata.name} is of a kind that is not supported"
            raise VolumeError(text, stage=Stage.PROCESS)
        inner = self._remember(replace(request, volume=volume), plugin, pv)
        made = await plugin.set_up(inner)
        return replace(made, read_only=made.read_only or claimed.read_only)

    def _remember(
        self, request: SetUp, plugin: VolumePlugin, pv: PersistentVolume, *, block: bool = False
    ) -> SetUp:
        kind = DEVICES if block else VOLUMES
        directory = request.pod_dir / kind / directory_name(plugin.name) / pv.metadata.name
        self._made[request.uid, request.volume.name] = plugin, directory
        return replace(request, directory=directory)

    def _check_node(self, claimed: Claimed) -> None:
        affinity = claimed.volume.spec.node_affinity
        if affinity is None or affinity.required is None:
            return
        node = self._node()
        if node is None and not claimed.fresh:
            return  # the pod has had it here before
        if node is None:
            text = "this node is not known yet"
            raise VolumeError(text, stage=Stage.AFFINITY, quiet=True)
        if not selects(affinity.required, node):
            raise VolumeError("no matching NodeSelectorTerms", stage=Stage.AFFINITY)

    async def refresh(self, request: SetUp) -> bool:
        """Have it published again if its driver wants that; let it grow if it may."""
        claimed = await self._claims.resolve(request.pod, request.volume)
        if claimed.volume.spec.csi is None:
            return False
        volume: CsiVolume = from_persistent(claimed.volume, read_only=claimed.read_only)
        await self._csi.refresh_volume(request, volume)
        return await self._expander.expand(request, claimed, volume)

    async def measure(self, request: Measure) -> VolumeUsage | None:
        """What it takes, if who made it can say."""
        made = self._made.get((request.uid, request.name))
        if made is None:
            return None
        plugin, directory = made
        if plugin is self._csi:
            return await self._csi.measure_volume(request, directory.name)
        return await plugin.measure(request) if isinstance(plugin, MeasuresItself) else None

    async def tear_down(self, request: TearDown) -> None:
        """Have it unmade by who made it. What an earlier agent made, that one finds itself."""
        made = self._made.get((request.uid, request.name))
        if made is not None:
            plugin, directory = made
            await plugin.tear_down(replace(request, name=directory.name, directory=directory))
            self._made.pop((request.uid, request.name), None)
