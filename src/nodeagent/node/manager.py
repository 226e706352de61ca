"""The Node object of this machine: made, kept true, and kept alive.

Rows and their tests: docs/behaviour/node.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import anyio
from anyio import TASK_STATUS_IGNORED
from anyio.abc import TaskStatus

from nodeagent.aio import jitter
from nodeagent.api.node import Node
from nodeagent.clock import Clock
from nodeagent.config import NodeOptions
from nodeagent.journal import Journal
from nodeagent.kube import ApiError, KubeClients, KubeError, paths
from nodeagent.log import Log
from nodeagent.node.conditions import is_ready
from nodeagent.node.gather import NodeGatherer
from nodeagent.node.lease import LeaseKeeper
from nodeagent.node.lookup import NodeLookup
from nodeagent.node.metrics import NodeMetrics
from nodeagent.node.patching import node_patch
from nodeagent.node.registering import initial_node, reconcile_node
from nodeagent.node.status_reporter import (
    NodeEvents,
    NodeGoneError,
    Schedule,
    SetPodCidr,
    StatusReporter,
)

log = Log("node")

_FIRST_WAIT: Final = 0.1
_LONGEST_WAIT: Final = 7.0
_JITTER: Final = 0.04
_FAST_PERIOD: Final = 0.1
_FAST_PHASE: Final = 120.0


async def no_pod_cidr(_cidr: str) -> bool:
    """Nobody wants to know."""
    return False


class NodeManager:
    """Registers this machine as a Node, reports its status, and renews its Lease.

    Args:
        clients: the API server.
        gatherer: what the node is; its options say how often that is reported.
        lookup: what the API server says of the node; given every answer.
        events: told of what happens to the node.
        clock: the time that is written.
        journal: flight recorder.
        metrics: told of registration; None for none.
        set_pod_cidr: told the addresses of pods (``PodCidr(runtime, journal).set``).
        changed: gives an event that is set when readiness may have flipped, and a new one the
            next time (``lambda: runtime_state.changed``); None for none.
    """

    def __init__(
        self,
        clients: KubeClients,
        gatherer: NodeGatherer,
        lookup: NodeLookup,
        *,
        events: NodeEvents,
        clock: Clock,
        journal: Journal,
        metrics: NodeMetrics | None = None,
        set_pod_cidr: SetPodCidr = no_pod_cidr,
        changed: Callable[[], anyio.Event] | None = None,
    ) -> None:
        options = gatherer.options
        self._clients = clients
        self._gatherer = gatherer
        self._lookup = lookup
        self._clock = clock
        self._journal = journal
        self._metrics = metrics
        self._changed = changed
        self._period = options.node_status_update_frequency
        self._trouble = ""
        self._woken = anyio.Event()
        self.registered = False
        """Whether the API server has the Node, as far as is known."""
        self.reporter = StatusReporter(
            clients,
            gatherer,
            lookup,
            events=events,
            clock=clock,
            journal=journal,
            schedule=Schedule(options.node_status_report_frequency),
            set_pod_cidr=set_pod_cidr,
            heartbeat_failed=self._heartbeat_failed,
            timeout=options.heartbeat_timeout,
        )
        self.lease = LeaseKeeper(
            clients.heartbeat,
            gatherer.name,
            options.node_lease_duration_seconds,
            lookup.node,
            clock=clock,
            journal=journal,
            heartbeat_failed=self._heartbeat_failed,
            timeout=options.heartbeat_timeout,
        )

    def reconfigure(self, options: NodeOptions) -> None:
        """Report by other settings: at once, and from now on; never blocks."""
        self._gatherer.options = options
        self._period = options.node_status_update_frequency
        self.reporter.reconfigure(options.node_status_report_frequency, options.heartbeat_timeout)
        self.lease.reconfigure(options.node_lease_duration_seconds, options.heartbeat_timeout)
        self.wake()

    def wake(self) -> None:
        """Do now what is done next: a condition has flipped, or the server is back."""
        self._woken.set()

    def node_changed(self) -> None:
        """A watch has seen the Node change, come or go; one that is gone is made again soon."""
        if self.registered and not self._lookup.informed:
            self._lookup.forget()
            self.wake()

    @property
    def trouble(self) -> str:
        """Why the API server does not have the Node; "" when it has."""
        return self._trouble

    async def run(self, *, task_status: TaskStatus[None] = TASK_STATUS_IGNORED) -> None:
        """Register, report and renew until cancelled; failures of the API server never end it."""
        task_status.started()
        began = anyio.current_time()
        async with anyio.create_task_group() as tasks:
            if self._changed is not None:
                tasks.start_soon(self._follow, self._changed)
            await self._exist()
            tasks.start_soon(self.lease.run)
            gone_wait = 0.0
            while True:
                try:
                    told = await self.reporter.report()
                except NodeGoneError:
                    self._lost()
                    # Only a server that contradicts itself says so again and again.
                    await anyio.sleep(jitter(gone_wait))
                    gone_wait = min(max(gone_wait * 2, _FIRST_WAIT), _LONGEST_WAIT)
                    await self._exist()
                    continue
                gone_wait = 0.0
                if self._metrics is not None and self._reported_ready():
                    self._metrics.ready()
                # A server that took no report is not asked all the more often.
                await self._pause(began + _FAST_PHASE if told else 0.0)

    async def _follow(self, changed: Callable[[], anyio.Event]) -> None:
        while True:
            await changed().wait()
            self.wake()

    async def _pause(self, fast_until: float) -> None:
        """Wait for the next round; shortly after the start, for readiness above all."""
        due = anyio.current_time() + jitter(self._period, _JITTER)
        while True:
            now = anyio.current_time()
            fast = now < fast_until and not self._reported_ready()
            with anyio.CancelScope(deadline=min(due, now + _FAST_PERIOD) if fast else due):
                await self._woken.wait()
            if self._woken.is_set() or anyio.current_time() >= due:
                self._woken = anyio.Event()
                return
            if not self._gatherer.not_ready():
                return

    def _reported_ready(self) -> bool:
        node = self._lookup.node()
        return node is not None and is_ready(node.status.conditions)

    def _heartbeat_failed(self) -> None:
        log.debug("heartbeat_failed", action="dropping connections")
        for client in (self._clients.heartbeat, self._clients.main, self._clients.events):
            client.drop_connections()

    # -- registration ------------------------------------------------------------------------

    async def _exist(self) -> None:
        """Return when the API server has a Node of this machine."""
        if self._metrics is not None:
            self._metrics.registration_begins()
        wait = _FIRST_WAIT
        while True:
            try:
                node = await self._have_node()
            except KubeError as error:
                self._cannot(error)
            else:
                break
            with anyio.move_on_after(jitter(wait)):
                await self._woken.wait()
            self._woken = anyio.Event()
            wait = min(wait * 2, _LONGEST_WAIT)
        self._lookup.observe(node)
        self._trouble, self.registered = "", True
        log.info("node_registered", node=self._gatherer.name, uid=node.metadata.uid)
        self._journal.record("node", "Registered", node=self._gatherer.name, id=node.metadata.uid)
        if self._metrics is not None:
            self._metrics.registered()

    async def _have_node(self) -> Node:
        """Make the Node, or mend the one that is there. Raises KubeError."""
        facts = await self._gatherer.facts()
        computed = initial_node(facts, self._clock.now())
        self._lookup.set_local(computed.node)
        if not self._gatherer.options.register_node:
            return await self._find()
        try:
            node = await self._clients.main.post(paths.NODES, computed.node, Node)
        except ApiError as error:
            if not error.already_exists and not error.forbidden:
                raise
            try:
                existing = await self._find()
            except ApiError as other:
                # That it may not be made says more than that there is none.
                raise (error if other.not_found else other) from other
        else:
            self.reporter.created(node)
            return node
        wanted = reconcile_node(computed.node, existing)
        patch = node_patch(existing, wanted)
        if not patch:
            return existing
        path = paths.node(self._gatherer.name, "status")
        return await self._clients.main.patch(path, patch, Node)

    async def _find(self) -> Node:
        return await self._clients.main.get(paths.node(self._gatherer.name), Node)

    def _cannot(self, error: KubeError) -> None:
        text = self._explain(error)
        if text != self._trouble:
            log.warning("node_not_registered", node=self._gatherer.name, cause=text)
            self._journal.record("node", "RegistrationFailed", why=text)
        self._trouble = text

    def _explain(self, error: KubeError) -> str:
        name = self._gatherer.name
        if not isinstance(error, ApiError):
            return str(error)
        if error.forbidden:
            return (
                f"{error}: allow this user to get, create and patch nodes and nodes/status, "
                "or let somebody else make the Node and use --register-node=false"
            )
        if error.not_found and not self._gatherer.options.register_node:
            return f'there is no Node "{name}" yet, and --register-node=false leaves it to others'
        return str(error)

    def _lost(self) -> None:
        """The Node has been deleted by somebody."""
        self.registered = False
        log.warning("node_deleted", node=self._gatherer.name, action="registering again")
        self._journal.record("node", "NodeDeleted", node=self._gatherer.name)
