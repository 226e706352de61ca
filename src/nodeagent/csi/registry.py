"""The storage drivers that are there right now."""

from __future__ import annotations

from collections.abc import Callable

import anyio
from anyio import TASK_STATUS_IGNORED
from anyio.abc import TaskStatus

from nodeagent.csi.client import DriverClient


class DriverMissingError(Exception):
    """There is no such driver now; it may come."""

    def __init__(self, name: str) -> None:
        super().__init__(f"driver name {name} not found in the list of registered CSI drivers")


class DriverRegistry:
    """Drivers by name.

    Attributes:
        on_change: called with the name of a driver that has come or gone. Never waits.
    """

    def __init__(self) -> None:
        self._drivers: dict[str, DriverClient] = {}
        self.on_change: list[Callable[[str], None]] = []

    def find(self, name: str) -> DriverClient:
        """Who calls the driver.

        Raises:
            DriverMissingError: it is not registered.
        """
        client = self._drivers.get(name)
        if client is None:
            raise DriverMissingError(name)
        return client

    def has(self, name: str) -> bool:
        """Whether the driver is registered."""
        return name in self._drivers

    def names(self) -> set[str]:
        """The drivers that are registered."""
        return set(self._drivers)

    async def put(self, client: DriverClient) -> None:
        """A driver is there; one of that name that was there before is forgotten."""
        before = self._drivers.get(client.name)
        self._drivers[client.name] = client
        if before is not None and before is not client:
            await before.aclose()
        self._tell(client.name)

    async def remove(self, client: DriverClient) -> None:
        """It is gone, unless another one took its place."""
        if self._drivers.get(client.name) is client:
            del self._drivers[client.name]
            self._tell(client.name)
        await client.aclose()

    async def run(self, *, task_status: TaskStatus[None] = TASK_STATUS_IGNORED) -> None:
        """Keep the connections until cancelled, and close them then."""
        task_status.started()
        try:
            await anyio.sleep_forever()
        finally:
            drivers, self._drivers = self._drivers, {}
            with anyio.CancelScope(shield=True):
                for client in drivers.values():
                    await client.aclose()

    def _tell(self, name: str) -> None:
        for changed in self.on_change:
            changed(name)
