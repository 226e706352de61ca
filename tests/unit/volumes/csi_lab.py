"""A storage driver on a socket, and the plugin that calls it, without the rest of the agent."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio
from prometheus_client import CollectorRegistry

from nodeagent.aio import background
from nodeagent.api import Pod, Volume
from nodeagent.api.node import AttachedVolume, Node, NodeStatus
from nodeagent.api.storage import CSIDriver, CSIDriverSpec
from nodeagent.csi.client import DriverClient
from nodeagent.csi.metrics import CsiMetrics
from nodeagent.csi.registry import DriverRegistry
from nodeagent.journal import Journal
from nodeagent.model import PodUID
from nodeagent.model.volumes import ServiceAccountToken
from nodeagent.rpc import serve_unix
from nodeagent.testing import ApiStore, RecordedMounter, StoreClient, make_pod
from nodeagent.testing.csi_driver import CsiDriver
from nodeagent.volumes.csi_attach import Attachments
from nodeagent.volumes.csi_calls import CallMaker
from nodeagent.volumes.csi_expand import Expander
from nodeagent.volumes.csi_names import PLUGIN
from nodeagent.volumes.csi_plugin import CsiParts, CsiPlugin
from nodeagent.volumes.csi_stages import Stages
from nodeagent.volumes.csi_volume import CsiVolume
from nodeagent.volumes.last_heard import LastHeard
from nodeagent.volumes.objects import NoObjects
from nodeagent.volumes.plugin import Ownership, SetUp, TearDown, directory_name
from nodeagent.volumes.threads import DiskThreads

NAME = "d.io"
LIFE = ["NodeStageVolume", "NodePublishVolume", "NodeUnpublishVolume", "NodeUnstageVolume"]


class Tokens(NoObjects):
    """Tokens that name their audience."""

    async def token(self, pod: Pod, audience: str, expiration: int | None) -> ServiceAccountToken:
        del expiration
        ends = datetime(2026, 1, 1, tzinfo=UTC)
        return ServiceAccountToken(f"{pod.metadata.name} for {audience}", ends)


class HeldDevices:
    """Devices that are kept open, by path."""

    def __init__(self) -> None:
        self.held: set[Path] = set()

    def hold(self, path: Path) -> None:
        self.held.add(path)

    def let_go(self, path: Path) -> None:
        self.held.discard(path)


class Lab:
    """The parts around one driver.

    Attributes:
        wishes: the CSIDriver; nothing has to be attached unless a test says so.
        node: the Node as the API server shows it.
    """

    def __init__(self, root: Path, store: ApiStore | None = None) -> None:
        self.root = root
        self.store = store or ApiStore()
        self.client = StoreClient(self.store)
        self.mounter = RecordedMounter()
        self.devices = HeldDevices()
        self.metrics = CollectorRegistry()
        self.journal = Journal()
        self.registry = DriverRegistry()
        self.wishes: CSIDriver | None = CSIDriver(spec=CSIDriverSpec(attach_required=False))
        self.node: Node | None = Node()
        self.notes: list[str] = []
        self.retried: list[str] = []
        counted = CsiMetrics(self.metrics)
        self.attachments = Attachments(LastHeard(self.client), "n1", lambda: self.node)
        self.stages = Stages(
            root, self.registry, self.attachments, counted, self.journal, self.mounter
        )
        calls = CallMaker(self.client, Tokens())
        self.plugin = CsiPlugin(
            CsiParts(
                root=root,
                node_name="n1",
                registry=self.registry,
                find_driver=lambda _name: self.wishes,
                calls=calls,
                attachments=self.attachments,
                stages=self.stages,
                metrics=counted,
                locks=self.devices,
            )
        )
        self.plugin.try_again = self.retried.append
        self.expander = Expander(root, self.registry, calls, self.client, "n1")
        self._counted = counted

    def wish(self, **spec: Any) -> None:
        """What the driver's CSIDriver says."""
        self.wishes = CSIDriver(spec=CSIDriverSpec(**{"attach_required": False, **spec}))

    def attached(self, *names: str) -> None:
        """The Node says that these volumes are attached."""
        volumes = tuple(AttachedVolume(name=name) for name in names)
        self.node = Node(status=NodeStatus(volumes_attached=volumes))

    @asynccontextmanager
    async def driver(self, **fields: Any) -> AsyncIterator[CsiDriver]:
        """A driver that is registered."""
        driver = CsiDriver(NAME, self.root / "data", self.mounter, **fields)
        socket = self.root / "d.sock"
        async with serve_unix((driver.node(),), socket):
            client = DriverClient(NAME, str(socket), self._counted)
            await self.registry.put(client)
            try:
                yield driver
            finally:
                await self.registry.remove(client)

    def request(self, pod: Pod, ownership: Ownership | None = None) -> SetUp:
        """The set-up of a pod's only volume."""
        volume = pod.spec.volumes[0]
        where = self.root / "pods" / pod.metadata.uid / "volumes"
        return SetUp(
            pod=pod,
            volume=volume,
            root_dir=self.root,
            directory=where / directory_name(PLUGIN) / volume.name,
            mounter=self.mounter,
            threads=DiskThreads(),
            ownership=ownership or Ownership(),
            note=lambda kind, reason, text: self.notes.append(f"{kind} {reason} {text}"),
        )

    def end(self, pod: str = "web", volume: str = "pv", *, block: bool = False) -> TearDown:
        """The tear-down of a volume."""
        kind = "volumeDevices" if block else "volumes"
        directory = self.root / "pods" / f"uid-{pod}" / kind / directory_name(PLUGIN) / volume
        return TearDown(
            uid=PodUID(f"uid-{pod}"),
            name=volume,
            root_dir=self.root,
            directory=directory,
            mounter=self.mounter,
            threads=DiskThreads(),
        )

    def count(self, name: str, **labels: str) -> float:
        """The count of a histogram."""
        return self.metrics.get_sample_value(f"{name}_count", labels) or 0.0


def pod(name: str = "web") -> Pod:
    """A pod with one volume."""
    return make_pod(name, volumes=(Volume(name="v"),))


def persistent(**fields: Any) -> CsiVolume:
    """A persistent volume of the driver."""
    return CsiVolume(**{"name": "pv", "driver": NAME, "handle": "h", "persistent": True, **fields})


@asynccontextmanager
async def working(root: Path, store: ApiStore | None = None) -> AsyncIterator[Lab]:
    """The parts, at work."""
    lab = Lab(root, store)
    async with background() as tasks:
        await tasks.start(lab.stages.run)
        yield lab


async def until(true: Callable[[], object], seconds: float = 300.0) -> None:
    """Wait until something is true."""
    with anyio.fail_after(seconds):
        while not true():
            await anyio.sleep(0.01)
