"""Looking at everything that a node's status is made of.

What is asked of the runtime and the system is remembered, so that a status never waits long for
any of them: a node whose runtime hangs says so in time.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Generic, TypeAlias, TypeVar

import anyio
from anyio import to_thread

from nodeagent.api.node import ContainerImage
from nodeagent.config import NodeOptions
from nodeagent.log import Log
from nodeagent.model import RuntimeFeatures
from nodeagent.node.addresses import find_addresses
from nodeagent.node.facts import ExtendedResources, FoundAddresses, NodeFacts, Pressure
from nodeagent.node.machine import MachineInfo
from nodeagent.proto.runtime import v1

T = TypeVar("T")

log = Log("node")

_NAMES: Final = 5
"""Names of one image that are told."""
_PATIENCE: Final = 2.0
_IMAGES_AGE: Final = 30.0
_ADDRESSES_AGE: Final = 60.0
_VERSION_AGE: Final = 60.0

ListImages: TypeAlias = Callable[[], Awaitable[Sequence[v1.Image]]]


async def _no_images() -> Sequence[v1.Image]:
    return ()


async def _no_version() -> str:
    return ""


def _nothing() -> str:
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeInputs:
    """Who is asked for what a node's status tells.

    Attributes:
        runtime_errors: why the container runtime, or looking at it, does not work. Texts without
            ages: a text that changes is reported anew.
        network_error: why its network does not work; "" when it does.
        storage_error: why storage is not there yet; "" when it is.
        shutdown_error: ``node is shutting down``, or "".
        soft_requirements: what an operator should know although pods can run; "" for nothing.
        features: what the runtime can do.
        list_images: asks the runtime for its images.
        runtime_version: asks the runtime for its version.
        pressure: what the machine runs short of.
        volumes_in_use: attachable volumes in use; None while that is not known.
        volumes_reported: told which of them the API server knows now.
        extended: what device plugins offer.
        find_addresses: finds the node's addresses, given those of the configuration and the host
            name. Blocking, called in a thread.
    """

    runtime_errors: Callable[[], Sequence[str]] = tuple
    network_error: Callable[[], str] = _nothing
    storage_error: Callable[[], str] = _nothing
    shutdown_error: Callable[[], str] = _nothing
    soft_requirements: Callable[[], str] = _nothing
    features: Callable[[], RuntimeFeatures] = RuntimeFeatures
    list_images: ListImages = _no_images
    runtime_version: Callable[[], Awaitable[str]] = _no_version
    pressure: Callable[[], Pressure] = Pressure
    volumes_in_use: Callable[[], Sequence[str] | None] = field(default=lambda: None)
    volumes_reported: Callable[[Sequence[str]], None] = field(default=lambda _volumes: None)
    extended: Callable[[], ExtendedResources] = ExtendedResources
    find_addresses: Callable[[Sequence[str], str], FoundAddresses] = find_addresses


class _Remembered(Generic[T]):
    """An answer that is good for a while; the last one stands in for one that does not come."""

    def __init__(self, what: str, ask: Callable[[], Awaitable[T]], first: T, age: float) -> None:
        self._what = what
        self._ask = ask
        self._age = age
        self._asked: float | None = None
        self.value = first

    async def get(self) -> T:
        now = anyio.current_time()
        if self._asked is None or now - self._asked >= self._age:
            with anyio.move_on_after(_PATIENCE) as scope:
                try:
                    self.value = await self._ask()
                    self._asked = now
                except Exception as error:  # noqa: BLE001 - whatever it is, there is no answer
                    log.debug("not_answered", what=self._what, cause=str(error))
            if scope.cancelled_caught:
                log.debug("not_answered", what=self._what, cause="it takes too long")
        return self.value


class NodeGatherer:
    """Looks at the machine, the runtime and the configuration.

    Args:
        name: the node's name.
        options: what the configuration says of it.
        machine: the machine; None when it could not be looked at.
        runtime_name: what the runtime calls itself.
        inputs: who is asked for the rest.
        port: where the agent serves its API; 0 when it does not.
    """

    def __init__(
        self,
        name: str,
        options: NodeOptions,
        machine: MachineInfo | None,
        runtime_name: str,
        inputs: NodeInputs,
        *,
        port: int = 0,
    ) -> None:
        self.name = name
        self.options = options
        self.inputs = inputs
        self._machine = machine
        self._runtime_name = runtime_name
        self._port = port
        find = partial(inputs.find_addresses, options.node_ips, name)
        self._images: _Remembered[tuple[ContainerImage, ...] | None] = _Remembered(
            "images", self._list_images, None, _IMAGES_AGE
        )
        self._version = _Remembered("version", inputs.runtime_version, "", _VERSION_AGE)
        self._addresses = _Remembered(
            "addresses",
            partial(to_thread.run_sync, find, abandon_on_cancel=True),
            FoundAddresses(error="the machine's addresses have not been found yet"),
            _ADDRESSES_AGE,
        )

    async def facts(self) -> NodeFacts:
        """Everything, as it is now; waits a few seconds at most."""
        for remembered in (self._images, self._version, self._addresses):
            await remembered.get()
        return self.known()

    def known(self) -> NodeFacts:
        """What is known without asking anybody."""
        inputs = self.inputs
        volumes = inputs.volumes_in_use()
        return NodeFacts(
            name=self.name,
            options=self.options,
            machine=self._machine,
            addresses=self._addresses.value,
            runtime_name=self._runtime_name,
            runtime_version=self._version.value,
            features=inputs.features(),
            port=self._port,
            images=self._images.value,
            pressure=inputs.pressure(),
            not_ready=self.not_ready(),
            soft_requirements=inputs.soft_requirements(),
            volumes_in_use=None if volumes is None else tuple(volumes),
            extended=inputs.extended(),
        )

    def not_ready(self) -> tuple[str, ...]:
        """Why pods cannot run on the node; empty when they can."""
        inputs = self.inputs
        others = (inputs.network_error(), inputs.storage_error(), inputs.shutdown_error())
        return (*inputs.runtime_errors(), *filter(None, others))

    async def _list_images(self) -> tuple[ContainerImage, ...] | None:
        return tuple(told_image(image) for image in await self.inputs.list_images())


def told_image(image: v1.Image) -> ContainerImage:
    """An image as a node tells of it: digests first, a few names of each."""
    names = (*image.repo_digests, *image.repo_tags)[:_NAMES]
    return ContainerImage(names=names, size_bytes=image.size)
