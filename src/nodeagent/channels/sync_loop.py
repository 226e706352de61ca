"""The sync loop: one consumer per channel, one handler, one item at a time.

Handler methods are plain synchronous functions, so items of all channels are handled one
at a time without a lock and a handler cannot block the loop. The loop drains its channels
while the runtime is unhealthy too; it is the pod workers that hold back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeVar

import anyio
from anyio import TASK_STATUS_IGNORED
from anyio.abc import TaskStatus

from nodeagent.api import Pod
from nodeagent.channels.channel import Channel, WhenFull
from nodeagent.channels.ticker import Ticker
from nodeagent.journal import Journal
from nodeagent.log import Log
from nodeagent.model import (
    PodLifecycleEvent,
    PodLifecycleEventType,
    PodOp,
    PodUID,
    PodUpdate,
    ProbeKind,
    ProbeResult,
    ProbeUpdate,
)
from nodeagent.watch import Watch

log = Log("sync_loop")

T_ = TypeVar("T_")

_VERB: Final = {
    PodOp.ADD: "added",
    PodOp.UPDATE: "changed",
    PodOp.DELETE: "deleted",
    PodOp.REMOVE: "removed",
}


class SyncHandler(Protocol):
    """What the loop calls. Every method is synchronous: it decides and hands on.

    The six pod handlers are docs/behaviour/workers.md, "Handlers".
    """

    def handle_pod_additions(self, pods: Sequence[Pod]) -> None:
        """New pods of a source."""

    def handle_pod_updates(self, pods: Sequence[Pod]) -> None:
        """Changed pods, and pods whose graceful deletion was asked for."""

    def handle_pod_removes(self, pods: Sequence[Pod]) -> None:
        """Pods that their source no longer names."""

    def handle_pod_reconcile(self, pods: Sequence[Pod]) -> None:
        """Pods whose status was changed by someone else."""

    def handle_pod_syncs(self, pods: Sequence[Pod]) -> None:
        """Pods to look at again."""

    def handle_pod_cleanups(self) -> None:
        """Housekeeping is due."""

    def source_seen(self, source: str) -> None:
        """One op of this source was handled."""

    def pods_due(self) -> Sequence[Pod]:
        """Pods whose resync is due or whose active deadline has passed."""

    def pod_by_uid(self, uid: PodUID) -> Pod | None:
        """A known pod; never a mirror pod."""

    def is_current(self, uid: PodUID) -> bool:
        """Whether the pod's worker has acted, or acts, on the newest look at it."""

    def unnamed_pod_seen(self, uid: PodUID) -> None:
        """PLEG tells something of a pod that no source names, or not any more."""

    def container_died(self, uid: PodUID, container_id: str) -> None:
        """A container or sandbox of the pod ended; its dead records may be removed."""

    def probe_changed(self, update: ProbeUpdate) -> None:
        """A readiness or startup result changed: note it in the pod's status."""


def _config_channel() -> Channel[PodUpdate]:
    return Channel("config", 50)


def _pleg_channel() -> Channel[PodLifecycleEvent]:
    return Channel("pleg", 1000, WhenFull.COALESCE)


def _probe_channel(name: str) -> Callable[[], Channel[ProbeUpdate]]:
    return lambda: Channel(name, 20)


def _tick_channel(name: str) -> Callable[[], Channel[float]]:
    # One slot: a tick that finds the last one unhandled has nothing to add.
    return lambda: Channel(name, 1, WhenFull.COALESCE)


@dataclass(slots=True)
class SyncChannels:
    """The seven channels that feed the loop."""

    config: Channel[PodUpdate] = field(default_factory=_config_channel)
    sync: Channel[float] = field(default_factory=_tick_channel("sync"))
    housekeeping: Channel[float] = field(default_factory=_tick_channel("housekeeping"))
    pleg: Channel[PodLifecycleEvent] = field(default_factory=_pleg_channel)
    liveness: Channel[ProbeUpdate] = field(default_factory=_probe_channel("liveness"))
    readiness: Channel[ProbeUpdate] = field(default_factory=_probe_channel("readiness"))
    startup: Channel[ProbeUpdate] = field(default_factory=_probe_channel("startup"))

    def all(self) -> tuple[Channel[object], ...]:
        """Every channel, in the order of the ring."""
        return (  # type: ignore[return-value]  # Channel is invariant; readers only count
            self.config,
            self.sync,
            self.housekeeping,
            self.pleg,
            self.liveness,
            self.readiness,
            self.startup,
        )


class SyncLoop:
    """Drains the seven channels into a handler.

    Args:
        handler: what to call.
        channels: the seven channels.
        sync_period: seconds between two looks for due pods.
        housekeeping_period: seconds between two housekeepings.
        health_limit: seconds without a turn of the loop after which it counts as stuck.
        journal: flight recorder.
    """

    def __init__(
        self,
        handler: SyncHandler,
        channels: SyncChannels,
        *,
        sync_period: float = 1.0,
        housekeeping_period: float = 2.0,
        health_limit: float = 300.0,
        journal: Journal | None = None,
    ) -> None:
        self._handler = handler
        self._channels = channels
        self._sync = Ticker(sync_period)
        self._housekeeping = Ticker(housekeeping_period)
        self._health_limit = health_limit
        self._journal = journal or Journal()
        self._watch = Watch(self._journal)
        self._handler_name = type(handler).__qualname__
        self.last_turn: float | None = None
        """Loop time at which the last item was handled."""

    async def run(self, *, task_status: TaskStatus[None] = TASK_STATUS_IGNORED) -> None:
        """Handle items until cancelled, or until the config channel is closed."""
        ch = self._channels
        async with anyio.create_task_group() as tg:
            tg.start_soon(self._tick, ch.sync, self._sync)
            tg.start_soon(self._tick, ch.housekeeping, self._housekeeping)
            tg.start_soon(self._drain, ch.sync, self._on_sync)
            tg.start_soon(self._drain, ch.housekeeping, self._on_housekeeping)
            tg.start_soon(self._drain, ch.pleg, self._on_pleg)
            tg.start_soon(self._drain, ch.liveness, self._on_probe)
            tg.start_soon(self._drain, ch.readiness, self._on_probe)
            tg.start_soon(self._drain, ch.startup, self._on_probe)
            task_status.started()
            await self._drain(ch.config, self._on_config)
            tg.cancel_scope.cancel()

    def reconfigure(self, *, housekeeping_period: float, health_limit: float) -> None:
        """Keep to another rhythm and limit from now on; never blocks."""
        self._housekeeping.change(housekeeping_period)
        self._health_limit = health_limit

    async def _tick(self, channel: Channel[float], ticker: Ticker) -> None:
        async for due in ticker:
            channel.send_nowait(due)

    async def _drain(self, channel: Channel[T_], handle: Callable[[T_], None]) -> None:
        async for item in channel:
            try:
                with self._watch.call(f"{self._handler_name} for the channel {channel.name}"):
                    handle(item)
            except Exception as error:  # noqa: BLE001 - one bad item must not stop the ring
                log.fault("handler_failed", error, channel=channel.name, item=_brief(item))
                self._journal.record("loop", "HandlerFailed", why=repr(error), channel=channel.name)
            self.last_turn = anyio.current_time()
            # A full channel must not starve the other six of their turn.
            await anyio.lowlevel.checkpoint()

    def healthy(self, now: float) -> str | None:
        """None when the loop turns, else what is wrong (``now`` is loop time)."""
        if self.last_turn is None or now - self.last_turn <= self._health_limit:
            return None
        return "sync Loop took longer than expected"

    def _on_config(self, update: PodUpdate) -> None:
        handlers = {
            PodOp.ADD: self._handler.handle_pod_additions,
            PodOp.UPDATE: self._handler.handle_pod_updates,
            PodOp.DELETE: self._handler.handle_pod_updates,
            PodOp.REMOVE: self._handler.handle_pod_removes,
            PodOp.RECONCILE: self._handler.handle_pod_reconcile,
        }
        for pod in update.pods:
            uid = pod.metadata.uid
            name = f"{pod.metadata.namespace}/{pod.metadata.name}"
            self._journal.name_pod(uid, name)
            self._journal.record("config", update.op.value, uid, source=update.source)
            if update.op is not PodOp.RECONCILE:
                log.info(f"pod_{_VERB[update.op]}", pod=name, uid=uid, source=update.source)  # noqa: G004
        handlers[update.op](update.pods)
        if update.heard:
            self._handler.source_seen(update.source)

    def _on_sync(self, _due: float) -> None:
        if pods := self._handler.pods_due():
            self._handler.handle_pod_syncs(pods)

    def _on_housekeeping(self, _due: float) -> None:
        # Also while a source is silent: housekeeping knows what is safe to do then.
        self._handler.handle_pod_cleanups()

    def _on_pleg(self, event: PodLifecycleEvent) -> None:
        if event.type is not PodLifecycleEventType.CONTAINER_REMOVED:
            pod = self._handler.pod_by_uid(event.pod_uid)
            if pod is None:
                self._handler.unnamed_pod_seen(event.pod_uid)
            elif event.type is PodLifecycleEventType.POD_SYNC or not self._handler.is_current(
                event.pod_uid
            ):
                self._handler.handle_pod_syncs((pod,))
        if event.type is PodLifecycleEventType.CONTAINER_DIED:
            self._handler.container_died(event.pod_uid, event.container_id)

    def _on_probe(self, update: ProbeUpdate) -> None:
        if update.kind is ProbeKind.LIVENESS:
            if update.result is not ProbeResult.FAILURE:
                return
        else:
            self._handler.probe_changed(update)
        pod = self._handler.pod_by_uid(update.pod_uid)
        if pod is not None:
            self._handler.handle_pod_syncs((pod,))


def _brief(item: object) -> str:
    text = repr(item)
    return text if len(text) <= 200 else text[:197] + "..."
