"""How the node as a whole is wired: what it tells of itself, and who knows what it is."""

from __future__ import annotations

from dataclasses import dataclass, replace

from prometheus_client import CollectorRegistry

from nodeagent.api.node import Node
from nodeagent.clock import Clock
from nodeagent.cluster import ClusterLink, Service
from nodeagent.config import AgentConfig
from nodeagent.cri import ImageService, RuntimeService
from nodeagent.duration import format_duration
from nodeagent.journal import Journal
from nodeagent.node import EventRecorder, RuntimeState
from nodeagent.node.addresses import find_addresses
from nodeagent.node.facts import NodeFacts
from nodeagent.node.gather import NodeGatherer, NodeInputs
from nodeagent.node.iptables import IptablesKeeper
from nodeagent.node.lookup import NodeLookup
from nodeagent.node.machine import MachineInfo
from nodeagent.node.manager import NodeManager
from nodeagent.node.metrics import NodeMetrics
from nodeagent.node.pod_cidr import PodCidr, StandalonePodCidr
from nodeagent.node.registering import initial_node
from nodeagent.pleg import Pleg
from nodeagent.wiring.server import api_port
from nodeagent.wiring.storage import Storage


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSide:
    """What the node's own parts stand on.

    Attributes:
        config: settings.
        machine: what the machine is.
        runtime: the container runtime.
        images: its images.
        runtime_name: what it calls itself.
        state: whether it can be worked with.
        pleg: whether it can be looked at.
        events: told of what happens to the node.
        clock: wall clock.
        journal: flight recorder.
        registry: where metrics are registered.
        storage: the cluster's volumes; None without an API server.
    """

    config: AgentConfig
    machine: MachineInfo
    runtime: RuntimeService
    images: ImageService
    runtime_name: str
    state: RuntimeState
    pleg: Pleg
    events: EventRecorder
    clock: Clock
    journal: Journal
    registry: CollectorRegistry
    storage: Storage | None = None


def local_node(side: NodeSide) -> Node:
    """The Node as this machine would make it, before anybody has been asked for anything."""
    facts = NodeFacts(
        name=side.config.effective_node_name,
        options=side.config,
        machine=side.machine,
        runtime_name=side.runtime_name,
    )
    return initial_node(facts, side.clock.now()).node


def node_manager(link: ClusterLink, lookup: NodeLookup, side: NodeSide) -> NodeManager:
    """Who registers the node, reports its status and renews its lease."""
    return NodeManager(
        link.clients,
        node_gatherer(link, side),
        lookup,
        events=side.events,
        clock=side.clock,
        journal=side.journal,
        metrics=NodeMetrics(side.registry, side.config.effective_node_name),
        set_pod_cidr=PodCidr(side.runtime, side.journal).set,
        changed=lambda: side.state.changed,
    )


def node_services(link: ClusterLink | None, side: NodeSide) -> tuple[Service, ...]:
    """What runs for the node whether or not the API server answers."""
    config = side.config
    if link is None:
        if not config.pod_cidr:
            return ()
        return (StandalonePodCidr(PodCidr(side.runtime, side.journal), config.pod_cidr),)
    if config.make_iptables_util_chains and not config.embedded:
        return (IptablesKeeper(side.journal),)
    return ()


def node_gatherer(link: ClusterLink, side: NodeSide) -> NodeGatherer:
    """Who looks at all that a node's status is made of."""
    state, pleg = side.state, side.pleg

    def runtime_errors() -> list[str]:
        found = state.lasting_errors()
        if not pleg.healthy().ok:
            # Without an age, which would be news at each look.
            limit = format_duration(side.config.relist_threshold)
            found.append(f"PLEG is not healthy: pods have not been listed for {limit}")
        return found

    async def version() -> str:
        return (await side.runtime.version()).runtime_version

    storage = side.storage
    inputs = NodeInputs(
        runtime_errors=runtime_errors,
        network_error=lambda: state.network_error,
        features=lambda: state.features,
        list_images=side.images.list_images,
        runtime_version=version,
        find_addresses=find_addresses,
    )
    if storage is not None:
        inputs = replace(
            inputs,
            storage_error=lambda: storage.node.error,
            volumes_in_use=storage.attachments.in_use,
            volumes_reported=storage.attachments.reported,
        )
    name = side.config.effective_node_name
    port = api_port(side.config, link)
    return NodeGatherer(name, side.config, side.machine, side.runtime_name, inputs, port=port)
