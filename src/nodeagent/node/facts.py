"""Everything that a node's status is made of, looked at in one moment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from nodeagent._version import __version__
from nodeagent.api.node import ContainerImage
from nodeagent.api.quantity import Quantity
from nodeagent.config import NodeOptions
from nodeagent.model import RuntimeFeatures
from nodeagent.node.machine import MachineInfo

KUBELET_VERSION: Final = f"v1.36.0+nodeagent.{__version__}"
"""The kubelet whose behaviour this is, and in the build metadata, which nobody compares, what it
really is (docs/behaviour/node.md, "Status")."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pressure:
    """Whether the machine runs short of something."""

    memory: bool = False
    disk: bool = False
    pid: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtendedResources:
    """What device plugins offer.

    Attributes:
        capacity: all there is of each resource.
        allocatable: what of it can be used.
        inactive: resources whose plugin went away.
    """

    capacity: Mapping[str, Quantity] = field(default_factory=dict)
    allocatable: Mapping[str, Quantity] = field(default_factory=dict)
    inactive: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundAddresses:
    """The node's addresses, or why there are none.

    Attributes:
        ips: the primary one first.
        error: "" when they are good.
    """

    ips: tuple[str, ...] = ()
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFacts:
    """What a node's status is made of.

    Attributes:
        name: the node's name, which is its host name too.
        options: what the configuration says of the node.
        machine: the machine; None when it cannot be looked at.
        addresses: the machine's addresses.
        runtime_name: what the container runtime calls itself.
        runtime_version: its version; "" when it does not say.
        features: what it can do.
        port: where the agent serves its API; 0 when it does not.
        images: what lies on the node; None when that is not known.
        pressure: what it runs short of.
        not_ready: why pods cannot run, in the order runtime, network, storage, shutdown.
        soft_requirements: what an operator should know although pods can run.
        volumes_in_use: attachable volumes; None while that is not known yet.
        extended: what device plugins offer.
    """

    name: str
    options: NodeOptions
    machine: MachineInfo | None = None
    addresses: FoundAddresses = FoundAddresses()
    runtime_name: str = ""
    runtime_version: str = ""
    features: RuntimeFeatures = field(default_factory=RuntimeFeatures)
    port: int = 0
    images: tuple[ContainerImage, ...] | None = None
    pressure: Pressure = Pressure()
    not_ready: tuple[str, ...] = ()
    soft_requirements: str = ""
    volumes_in_use: tuple[str, ...] | None = None
    extended: ExtendedResources = field(default_factory=ExtendedResources)
