"""A node against an API server in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import anyio

from nodeagent.api.codec import convert
from nodeagent.api.node import Node, NodeCondition
from nodeagent.config import AgentConfig
from nodeagent.journal import Journal
from nodeagent.kube import KubeClients
from nodeagent.model import RuntimeFeatures
from nodeagent.node.facts import ExtendedResources, FoundAddresses, NodeFacts, Pressure
from nodeagent.node.gather import NodeGatherer, NodeInputs
from nodeagent.node.lookup import NodeLookup
from nodeagent.node.machine import MachineInfo
from nodeagent.node.manager import NodeManager
from nodeagent.proto.runtime import v1
from nodeagent.testing.api_client import StoreClient
from nodeagent.testing.api_store import ApiStore

NOW = datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=UTC)
MI = 1024**2
GI = 1024**3
MACHINE = MachineInfo(
    cpus=4,
    memory=8 * GI,
    storage=100 * GI,
    machine_id="m",
    system_uuid="s",
    boot_id="b1",
    kernel_version="6.1.0",
    os_image="Some Linux 1",
    architecture="amd64",
)


class LoopClock:
    """Wall time that passes with the loop's."""

    def now(self) -> datetime:
        return NOW + timedelta(seconds=anyio.current_time())

    def time_ns(self) -> int:
        return int(self.now().timestamp() * 1e9)


@dataclass
class Events:
    """What was said of the node."""

    said: list[tuple[str, str, str]] = field(default_factory=list)

    def node_event(self, kind: str, reason: str, message: str) -> None:
        self.said.append((kind, reason, message))

    @property
    def reasons(self) -> list[str]:
        return [reason for _, reason, _ in self.said]


@dataclass
class World:
    """What the inputs of a node say; tests change it."""

    errors: list[str] = field(default_factory=list)
    network: str = ""
    images: list[v1.Image] = field(default_factory=list)
    version: str = "2.0"
    pressure: Pressure = field(default_factory=Pressure)
    addresses: FoundAddresses = field(default_factory=lambda: FoundAddresses(ips=("10.0.0.1",)))
    volumes: Sequence[str] | None = None
    reported: list[tuple[str, ...]] = field(default_factory=list)
    features: RuntimeFeatures = field(default_factory=RuntimeFeatures)
    hangs: bool = False

    async def list_images(self) -> Sequence[v1.Image]:
        if self.hangs:
            await anyio.sleep_forever()
        return self.images

    async def runtime_version(self) -> str:
        if self.hangs:
            await anyio.sleep_forever()
        return self.version

    def inputs(self) -> NodeInputs:
        return NodeInputs(
            runtime_errors=lambda: self.errors,
            network_error=lambda: self.network,
            features=lambda: self.features,
            list_images=self.list_images,
            runtime_version=self.runtime_version,
            pressure=lambda: self.pressure,
            volumes_in_use=lambda: self.volumes,
            volumes_reported=lambda volumes: self.reported.append(tuple(volumes)),
            find_addresses=lambda _given, _name: self.addresses,
        )


class Bed:
    """One node and its API server."""

    def __init__(
        self,
        store: ApiStore | None = None,
        machine: MachineInfo | None = MACHINE,
        changed: Callable[[], anyio.Event] | None = None,
        **options: Any,
    ) -> None:
        self.store = store or ApiStore()
        self.client = StoreClient(self.store)
        self.clients = KubeClients(main=self.client, events=self.client, heartbeat=self.client)
        self.world = World()
        self.events = Events()
        self.journal = Journal()
        self.seen: Node | None = None
        """What a watch sees."""
        self.lookup = NodeLookup(lambda: self.seen)
        self.cidrs: list[str] = []
        config = AgentConfig(node_name="n1", **options)
        gatherer = NodeGatherer("n1", config, machine, "fake", self.world.inputs())
        self.manager = NodeManager(
            self.clients,
            gatherer,
            self.lookup,
            events=self.events,
            clock=LoopClock(),
            journal=self.journal,
            set_pod_cidr=self.set_pod_cidr,
            changed=changed,
        )

    async def set_pod_cidr(self, cidr: str) -> bool:
        new = bool(cidr) and self.cidrs[-1:] != [cidr]
        if new:
            self.cidrs.append(cidr)
        return new

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with anyio.create_task_group() as tasks:
            await tasks.start(self.manager.run)
            yield
            tasks.cancel_scope.cancel()

    async def settled(self) -> None:
        """The node is registered and its first status is out."""
        await anyio.sleep(0.05)

    def node(self) -> Node:
        return convert(self.store.get("nodes", "n1"), Node)

    def condition(self, kind: str) -> NodeCondition:
        return next(c for c in self.node().status.conditions if c.type == kind)

    def count(self, method: str, path: str) -> int:
        return self.store.count(method, path)


def facts(machine: MachineInfo | None = MACHINE, **given: Any) -> NodeFacts:
    """Facts of a node; fields of the configuration and of the facts may be given."""
    names = NodeFacts.__dataclass_fields__
    own = {key: value for key, value in given.items() if key in names}
    options = {key: value for key, value in given.items() if key not in names}
    base: dict[str, Any] = {
        "addresses": FoundAddresses(ips=("10.0.0.1",)),
        "runtime_name": "fake",
        "runtime_version": "2.0",
        "images": (),
        "extended": ExtendedResources(),
    }
    config = AgentConfig(node_name="n1", **options)
    return NodeFacts(name="n1", options=config, machine=machine, **{**base, **own})
