"""Telling the runtime which addresses pods have on this node."""

from __future__ import annotations

from typing import Final, Protocol

import anyio
from anyio import TASK_STATUS_IGNORED
from anyio.abc import TaskStatus

from nodeagent.aio import jitter
from nodeagent.journal import Journal
from nodeagent.log import Log
from nodeagent.proto.runtime import v1
from nodeagent.rpc import RpcError

log = Log("node")

_RETRY: Final = 10.0


class ConfigurableRuntime(Protocol):
    """The part of :class:`nodeagent.cri.RuntimeService` that is needed here."""

    async def update_runtime_config(self, config: v1.RuntimeConfig) -> None:
        """Tell the runtime. Raises :class:`nodeagent.rpc.RpcError`."""
        ...


class PodCidr:
    """The addresses of pods, as the runtime knows them.

    Args:
        runtime: is told of changes.
        journal: flight recorder.
    """

    def __init__(self, runtime: ConfigurableRuntime, journal: Journal) -> None:
        self._runtime = runtime
        self._journal = journal
        self._trouble = ""
        self.value = ""
        """Networks with commas between; "" before any is known."""

    async def set(self, cidr: str) -> bool:
        """Tell the runtime when the addresses are new to it; whether they were.

        One that cannot be told now is told again the next time.
        """
        if not cidr or cidr == self.value:
            return False
        network = v1.NetworkConfig(pod_cidr=cidr)
        try:
            await self._runtime.update_runtime_config(v1.RuntimeConfig(network_config=network))
        except RpcError as error:
            text = error.message or str(error)
            if text != self._trouble:
                log.warning("pod_cidr_not_set", cidr=cidr, cause=text)
            self._trouble = text
            return False
        log.info("pod_cidr_set", cidr=cidr)
        self._journal.record("node", "PodCIDRChanged", cidr=cidr)
        self._trouble, self.value = "", cidr
        return True


class StandalonePodCidr:
    """Tells the runtime the addresses of pods that the configuration gives.

    Args:
        cidr: tells the runtime.
        wanted: the addresses.
    """

    def __init__(self, cidr: PodCidr, wanted: str) -> None:
        self._cidr = cidr
        self._wanted = wanted

    async def run(self, *, task_status: TaskStatus[None] = TASK_STATUS_IGNORED) -> None:
        """Try until the runtime has taken them; then wait for the end."""
        task_status.started()
        while True:
            told = await self._cidr.set(self._wanted)
            await (anyio.sleep_forever() if told else anyio.sleep(jitter(_RETRY)))
