"""The sandboxes and containers there are, and the rules of the CRI about them. No I/O."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Final, TypeVar

from nodeagent.embedded.records import ContainerRecord, RunState, SandboxRecord
from nodeagent.model import ContainerID, SandboxID
from nodeagent.rpc import (
    AlreadyExists,
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    ResourceExhausted,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from nodeagent.proto.runtime import v1

Record = TypeVar("Record", SandboxRecord, ContainerRecord)

HOST_IP: Final = "127.0.0.1"
_PREFIX: Final = "127.88"
_PER_BLOCK: Final = 254
_ADDRESSES: Final = 256 * _PER_BLOCK


def sandbox_name(meta: v1.PodSandboxMetadata) -> str:
    """The name that a sandbox reserves."""
    return f"{meta.name}_{meta.namespace}_{meta.uid}_{meta.attempt}"


def container_name(meta: v1.ContainerMetadata, pod: v1.PodSandboxMetadata) -> str:
    """The name that a container reserves."""
    return f"{meta.name}_{pod.name}_{pod.namespace}_{pod.uid}_{meta.attempt}"


def new_id() -> str:
    """64 random hexadecimal digits."""
    return secrets.token_hex(32)


class State:
    """Sandboxes and containers by id, and the names they reserve.

    Attributes:
        sandboxes: in order of creation.
        containers: in order of creation.
    """

    def __init__(self) -> None:
        self.sandboxes: dict[str, SandboxRecord] = {}
        self.containers: dict[str, ContainerRecord] = {}
        self._owners: dict[str, str] = {}
        self._names: dict[str, str] = {}
        self._members: dict[str, dict[str, ContainerRecord]] = {}
        self._next_address = 0

    # -- looking up

    def find_sandbox(self, sandbox_id: str) -> SandboxRecord | None:
        """The sandbox with that id or unambiguous beginning of an id."""
        return _find(self.sandboxes, sandbox_id)

    def find_container(self, container_id: str) -> ContainerRecord | None:
        """The container with that id or unambiguous beginning of an id."""
        return _find(self.containers, container_id)

    def sandbox(self, sandbox_id: str) -> SandboxRecord:
        """The sandbox. Raises NotFound."""
        found = self.find_sandbox(sandbox_id)
        if found is None:
            msg = f'an error occurred when try to find sandbox "{sandbox_id}": not found'
            raise NotFound(msg)
        return found

    def container(self, container_id: str) -> ContainerRecord:
        """The container. Raises NotFound."""
        found = self.find_container(container_id)
        if found is None:
            msg = f'an error occurred when try to find container "{container_id}": not found'
            raise NotFound(msg)
        return found

    def running(self, container_id: str) -> ContainerRecord:
        """The container, which runs. Raises NotFound or FailedPrecondition."""
        found = self.container(container_id)
        if found.state is not RunState.RUNNING:
            msg = f"container is in {found.state.value.name} state"
            raise FailedPrecondition(msg)
        return found

    def of_sandbox(self, sandbox_id: str) -> list[ContainerRecord]:
        """The containers of one sandbox, in order of creation."""
        return list(self._members.get(sandbox_id, {}).values())

    # -- adding and removing

    def reserve_sandbox(self, config: v1.PodSandboxConfig) -> SandboxID:
        """Take the sandbox's name; returns the id to be.

        Raises:
            InvalidArgument: it has no metadata.
            AlreadyExists: the name is taken.
        """
        if config.metadata is None or not config.metadata.name:
            raise InvalidArgument("sandbox config must include metadata with a name")
        sandbox_id = SandboxID(new_id())
        self._reserve("sandbox", sandbox_name(config.metadata), sandbox_id)
        return sandbox_id

    def reserve_container(self, config: v1.ContainerConfig, sandbox: SandboxRecord) -> ContainerID:
        """Take the container's name; returns the id to be.

        Raises:
            InvalidArgument: it has no metadata.
            AlreadyExists: the name is taken.
        """
        if config.metadata is None or not config.metadata.name:
            raise InvalidArgument("container config must include metadata with a name")
        container_id = ContainerID(new_id())
        name = container_name(config.metadata, sandbox.metadata)
        self._reserve("container", name, container_id)
        return container_id

    def add_sandbox(self, sandbox: SandboxRecord) -> None:
        """A sandbox is there; its name is reserved if it was not yet."""
        self._claim(sandbox_name(sandbox.metadata), sandbox.id)
        self.sandboxes[sandbox.id] = sandbox

    def add_container(self, container: ContainerRecord, sandbox: SandboxRecord) -> None:
        """A container is there; its name is reserved if it was not yet."""
        name = container_name(container.metadata, sandbox.metadata)
        self._claim(name, container.id)
        self.containers[container.id] = container
        self._members.setdefault(sandbox.id, {})[container.id] = container

    def drop(self, record_id: str) -> None:
        """Forget a sandbox, a container or a reservation, and free the name."""
        self.sandboxes.pop(record_id, None)
        if container := self.containers.pop(record_id, None):
            members = self._members[container.sandbox_id]
            del members[record_id]
            if not members:
                del self._members[container.sandbox_id]
        if name := self._names.pop(record_id, ""):
            del self._owners[name]

    def new_address(self) -> str:
        """An address of the loopback range that no sandbox has.

        Raises:
            ResourceExhausted: there is none left.
        """
        taken = {sandbox.ip for sandbox in self.sandboxes.values()}
        for _ in range(_ADDRESSES):
            block, host = divmod(self._next_address, _PER_BLOCK)
            self._next_address = (self._next_address + 1) % _ADDRESSES
            address = f"{_PREFIX}.{block}.{host + 1}"
            if address not in taken:
                return address
        msg = f"all addresses of {_PREFIX}.0.0/16 are taken"
        raise ResourceExhausted(msg)

    def _reserve(self, kind: str, name: str, owner: str) -> None:
        holder = self._owners.get(name)
        if holder is not None:
            msg = (
                f'failed to reserve {kind} name "{name}": name "{name}" is reserved for "{holder}"'
            )
            raise AlreadyExists(msg)
        self._claim(name, owner)

    def _claim(self, name: str, owner: str) -> None:
        if name not in self._owners:
            self._owners[name] = owner
            self._names[owner] = name


def _find(records: Mapping[str, Record], record_id: str) -> Record | None:
    if found := records.get(record_id):
        return found
    if not record_id:
        return None
    matches = _beginning_with(records.values(), record_id)
    return matches[0] if len(matches) == 1 else None


def _beginning_with(records: Iterable[Record], beginning: str) -> list[Record]:
    return [record for record in records if record.id.startswith(beginning)]
