"""Asks drivers again and again how many volumes the node can have, if they want that.

docs/behaviour/csi.md, "Node objects".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Final

import anyio
from anyio import TASK_STATUS_IGNORED
from anyio.abc import TaskStatus

from nodeagent.csi.client import NodeInfo
from nodeagent.csi.node_objects import TopologyError
from nodeagent.csi.node_storage import NodeStorage
from nodeagent.csi.registry import DriverMissingError, DriverRegistry
from nodeagent.kube.errors import KubeError
from nodeagent.log import Log
from nodeagent.rpc import RpcError

log = Log("csi")

_SHORTEST: Final = 10.0


class DriverLimits:
    """Keeps the limits in the CSINode true.

    Args:
        registry: the drivers that are there.
        period: seconds between two questions, as a driver wants it; None for none.
        storage: shows what they say.
    """

    def __init__(
        self,
        registry: DriverRegistry,
        period: Callable[[str], float | None],
        storage: NodeStorage,
    ) -> None:
        self._registry = registry
        self._period = period
        self._storage = storage
        self._due: dict[str, float] = {}
        self._shown: dict[str, NodeInfo] = {}
        self._woken = anyio.Event()

    def wake(self) -> None:
        """A driver has come or gone, or wants something else."""
        self._woken.set()

    def ask_now(self, driver: str) -> None:
        """There was no room for a volume: what the driver said may be wrong."""
        if driver in self._due:
            self._due[driver] = 0.0
            self._woken.set()

    async def run(self, *, task_status: TaskStatus[None] = TASK_STATUS_IGNORED) -> None:
        """Ask until cancelled."""
        task_status.started()
        while True:
            self._woken = anyio.Event()
            self._plan()
            with anyio.CancelScope(deadline=min(self._due.values(), default=math.inf)):
                await self._woken.wait()
            now = anyio.current_time()
            for driver in [name for name, due in self._due.items() if due <= now]:
                del self._due[driver]
                await self._ask(driver)

    def _plan(self) -> None:
        wanted = {driver: self._period(driver) for driver in self._registry.names()}
        periods = {driver: period for driver, period in wanted.items() if period is not None}
        self._due = planned(self._due, periods, anyio.current_time())
        self._shown = {name: info for name, info in self._shown.items() if name in periods}

    async def _ask(self, driver: str) -> None:
        try:
            info = await self._registry.find(driver).info()
            if info != self._shown.get(driver):
                await self._storage.install(driver, info)
                self._shown[driver] = info
        except (RpcError, KubeError, DriverMissingError, TopologyError) as error:
            log.info("driver_limit_not_read", driver=driver, cause=str(error))


def planned(due: Mapping[str, float], periods: Mapping[str, float], now: float) -> dict[str, float]:
    """When each driver is to be asked: as planned, or sooner if it wants that by now.

    Args:
        due: what was planned.
        periods: seconds between two questions, for each driver that wants any.
        now: the same time as that of ``due``.
    """
    return {
        driver: min(due.get(driver, math.inf), now + max(period, _SHORTEST))
        for driver, period in periods.items()
    }
