"""Telling the API server how the node is: what has changed soon, the rest now and then.

Rows and their tests: docs/behaviour/node.md, "Reporting".
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

import anyio
from msgspec.structs import replace

from nodeagent.aio import jitter
from nodeagent.api.node import Node, NodeCondition
from nodeagent.clock import Clock
from nodeagent.journal import Journal
from nodeagent.kube import ApiError, KubeClients, KubeError, paths
from nodeagent.kube.errors import may_be_of_connection
from nodeagent.log import Log
from nodeagent.node.conditions import READY, find, flips
from nodeagent.node.gather import NodeGatherer
from nodeagent.node.lookup import NodeLookup
from nodeagent.node.patching import differs, node_patch
from nodeagent.node.setters import compute_node

log = Log("node")

_TRIES: Final = 5
_FIRST_WAIT: Final = 0.1

SetPodCidr = Callable[[str], Awaitable[bool]]


class NodeEvents(Protocol):
    """Where what happens to the node is told."""

    def node_event(self, kind: str, reason: str, message: str) -> None:
        """Say something about the node; never blocks, never fails."""
        ...


class NodeGoneError(Exception):
    """There is no Node object of this machine."""


class Schedule:
    """When an unchanged state is reported again. Times are loop times.

    Args:
        frequency: seconds between two reports while nothing changes.
        random_share: a number in [0, 1), for the delay that keeps many nodes apart.
    """

    def __init__(self, frequency: float, random_share: Callable[[], float] = random.random) -> None:
        self._frequency = frequency
        self._random = random_share
        self._last: float | None = None
        self._delay = 0.0

    def change(self, frequency: float) -> None:
        """Report as often as this from now on, counted from the last report."""
        self._frequency = frequency
        self._delay = min(self._delay, frequency / 2)

    def due(self, changed: bool, now: float) -> bool:
        """Whether a report has to be made now."""
        return changed or self._last is None or now - self._last >= self._frequency + self._delay

    def reported(self, changed: bool, now: float) -> None:
        """Take note of a report that arrived."""
        if changed or self._last is None:
            self._delay = (self._random() - 0.5) * self._frequency
        else:
            self._delay = 0.0
        self._last = now


class StatusReporter:
    """Compares what the node is with what the API server says of it, and mends the latter.

    Args:
        clients: the API server; the heartbeat client, but for the Node that a watch has.
        gatherer: what the node is.
        lookup: what the API server says of it.
        events: told of conditions that flip.
        clock: the time in conditions.
        journal: flight recorder.
        schedule: when an unchanged state is reported.
        set_pod_cidr: told the addresses of pods; whether they are new.
        heartbeat_failed: called when one failure follows another.
        timeout: seconds that a request may take.
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
        schedule: Schedule,
        set_pod_cidr: SetPodCidr,
        heartbeat_failed: Callable[[], None],
        timeout: float,
    ) -> None:
        self._client = clients.heartbeat
        self._gatherer = gatherer
        self._lookup = lookup
        self._clock = clock
        self._journal = journal
        self._schedule = schedule
        self._set_pod_cidr = set_pod_cidr
        self._heartbeat_failed = heartbeat_failed
        self._timeout = timeout
        self._says = Announcer(gatherer.name, events)
        self._trouble = ""
        self._untold: tuple[str, ...] = ()

    def reconfigure(self, frequency: float, timeout: float) -> None:
        """Report an unchanged state as often as this, within so many seconds."""
        self._schedule.change(frequency)
        self._timeout = timeout

    def created(self, node: Node) -> None:
        """The Node was made just now, with its status."""
        self._says.compare(Node(), node)
        self._schedule.reported(changed=True, now=anyio.current_time())

    async def report(self) -> bool:
        """Look, and report what there is to report; whether the API server knows it now.

        Raises:
            NodeGoneError: the API server has no such Node.
        """
        error: KubeError | None = None
        for attempt in range(_TRIES):
            try:
                await self._report_once(attempt)
            except KubeError as problem:
                error = problem
                if attempt and may_be_of_connection(problem):
                    self._heartbeat_failed()
                if isinstance(problem, ApiError) and problem.not_found:
                    self._lookup.forget()
                    raise NodeGoneError from problem
                if attempt < _TRIES - 1:
                    await anyio.sleep(jitter(_FIRST_WAIT * 2**attempt))
            else:
                self._note("")
                return True
        self._note(f"update node status exceeds retry count: {error}")
        return False

    async def _report_once(self, attempt: int) -> None:
        name = self._gatherer.name
        old = self._lookup.node() if attempt == 0 else None
        if old is None:
            old = await self._client.get(paths.node(name), Node, timeout=self._timeout)
            self._lookup.observe(old)
        facts = await self._gatherer.facts()
        computed = compute_node(facts, old, self._clock.now())
        self._tell_problems(computed.errors)
        new = computed.node
        self._lookup.set_local(new)
        self._says.compare(old, new)
        cidr_changed = await self._set_pod_cidr(",".join(old.spec.pod_cidrs or ()))
        changed = cidr_changed or differs(old, new)
        if self._schedule.due(changed, anyio.current_time()):
            path = paths.node(name, "status")
            patch = node_patch(old, new)
            told = await self._client.patch(path, patch, Node, timeout=self._timeout)
            self._lookup.observe(told)
            self._schedule.reported(changed, anyio.current_time())
            ready = find(new.status.conditions, READY)
            self._journal.record(
                "node",
                "StatusReported",
                changed=changed,
                ready=ready.status if ready else "",
                parts=sorted(patch.get("status", {})),
            )
        self._gatherer.inputs.volumes_reported(new.status.volumes_in_use)

    def _tell_problems(self, errors: tuple[str, ...]) -> None:
        if errors != self._untold:
            for error in errors:
                log.warning("node_status_incomplete", cause=error)
        self._untold = errors

    def _note(self, trouble: str) -> None:
        """Say once that reports do not arrive, and once that they do again."""
        if trouble and not self._trouble:
            log.warning("node_status_not_reported", cause=trouble)
            self._journal.record("node", "StatusFailed", why=trouble)
        elif self._trouble and not trouble:
            log.info("node_status_reported")
        self._trouble = trouble


class Announcer:
    """Says each flip of a condition once, however long it takes to tell the API server.

    Args:
        name: the node's name.
        events: where it is said.
    """

    def __init__(self, name: str, events: NodeEvents) -> None:
        self._name = name
        self._events = events
        self._said: dict[str, str] = {}
        self._unschedulable = False
        self._boot = ""

    def compare(self, old: Node, new: Node) -> None:
        """Say what is different in the new Node."""
        boot, known = new.status.node_info.boot_id, old.status.node_info.boot_id
        if boot and known and boot != known and self._boot != boot:
            self._boot = boot
            text = f"Node {self._name} has been rebooted, boot id: {boot}"
            self._events.node_event("Warning", "Rebooted", text)
        before = [
            replace(condition, status=self._said.pop(condition.type, condition.status))
            for condition in old.status.conditions
        ]
        before += [NodeCondition(type=kind, status=said) for kind, said in self._said.items()]
        for flip in flips(before, new.status.conditions):
            self._say(flip.reason)
        self._said = {condition.type: condition.status for condition in new.status.conditions}
        if new.spec.unschedulable != self._unschedulable:
            self._unschedulable = new.spec.unschedulable
            self._say("NodeNotSchedulable" if self._unschedulable else "NodeSchedulable")

    def _say(self, reason: str) -> None:
        text = f"Node {self._name} status is now: {reason}"
        self._events.node_event("Normal", reason, text)
