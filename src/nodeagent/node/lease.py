"""The node's sign of life: a Lease that is renewed four times before it would run out.

Rows and their tests: docs/behaviour/node.md, "Lease".
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

import anyio
from anyio import TASK_STATUS_IGNORED
from anyio.abc import TaskStatus
from msgspec.structs import replace

from nodeagent.aio import Interval, jitter
from nodeagent.api.lease import Lease
from nodeagent.api.meta import ObjectMeta, OwnerReference
from nodeagent.api.node import Node
from nodeagent.api.times import format_micro_time
from nodeagent.clock import Clock
from nodeagent.journal import Journal
from nodeagent.kube import ApiError, KubeClient, KubeError, paths
from nodeagent.kube.errors import may_be_of_connection
from nodeagent.log import Log

log = Log("node")

_TRIES: Final = 5
_JITTER: Final = 0.04
_UPDATE_WAIT: Final = 0.05
_FIRST_WAIT: Final = 0.2
_LONGEST_WAIT: Final = 7.0


class LeaseKeeper:
    """Keeps the node's Lease.

    Args:
        client: the client for heartbeats.
        name: the node's name.
        duration: seconds after which a node without a sign of life counts as lost.
        owner: the Node object; None while it is not known.
        clock: the time that is written.
        journal: flight recorder.
        heartbeat_failed: called when one failure follows another: a connection may be dead.
        timeout: seconds that a request may take.
    """

    def __init__(
        self,
        client: KubeClient,
        name: str,
        duration: int,
        owner: Callable[[], Node | None],
        *,
        clock: Clock,
        journal: Journal,
        heartbeat_failed: Callable[[], None],
        timeout: float,
    ) -> None:
        self._client = client
        self._name = name
        self._duration = duration
        self._pause = Interval(duration / 4)
        self._owner = owner
        self._clock = clock
        self._journal = journal
        self._heartbeat_failed = heartbeat_failed
        self._timeout = timeout
        self._lease: Lease | None = None
        self._trouble = ""

    async def run(self, *, task_status: TaskStatus[None] = TASK_STATUS_IGNORED) -> None:
        """Renew until cancelled; failures of the API server never end it."""
        task_status.started()
        while True:
            await self._renew()
            await self._pause.sleep(partial(jitter, factor=_JITTER))

    def reconfigure(self, duration: int, timeout: float) -> None:
        """Write another duration from the next renewal on, which comes as soon as it has to."""
        self._duration, self._timeout = duration, timeout
        self._pause.change(duration / 4)

    async def _renew(self) -> None:
        if self._lease is not None and await self._update(self._lease):
            return
        lease = await self._ensure()
        if lease is not None:
            await self._update(lease)

    async def _update(self, lease: Lease) -> bool:
        """Write the present time; whether that went well."""
        for attempt in range(_TRIES):
            try:
                path = paths.lease(self._name)
                wanted = self._renewed(lease)
                self._lease = await self._client.put(path, wanted, Lease, timeout=self._timeout)
            except KubeError as error:
                self._note(error)
                if attempt and may_be_of_connection(error):
                    self._heartbeat_failed()
                if isinstance(error, ApiError) and error.conflict:
                    fresh = await self._ensure()
                    if fresh is None:
                        return True
                    lease = fresh
                elif attempt < _TRIES - 1:
                    await anyio.sleep(jitter(_UPDATE_WAIT * 2**attempt))
            else:
                self._note(None)
                return True
        return False

    async def _ensure(self) -> Lease | None:
        """The Lease as it is on the server, made when there is none; None without a Node."""
        wait = _FIRST_WAIT
        while True:
            try:
                return await self._get_or_create()
            except KubeError as error:
                self._note(error)
            await anyio.sleep(jitter(wait))
            wait = min(wait * 2, _LONGEST_WAIT)

    async def _get_or_create(self) -> Lease | None:
        try:
            return await self._client.get(paths.lease(self._name), Lease, timeout=self._timeout)
        except ApiError as error:
            if not error.not_found:
                raise
        fresh = self._renewed(None)
        if not fresh.metadata.owner_references:
            log.debug("lease_waits", cause="there is no Node yet")
            return None
        self._lease = await self._client.post(paths.lease(), fresh, Lease, timeout=self._timeout)
        self._journal.record("node", "LeaseCreated", lease=self._name)
        self._note(None)
        return None

    def _renewed(self, lease: Lease | None) -> Lease:
        base = lease or Lease(metadata=ObjectMeta(name=self._name, namespace=paths.LEASE_NAMESPACE))
        spec = base.spec
        node = self._owner()
        uid = "" if node is None else node.metadata.uid
        spec = replace(
            spec,
            holder_identity=self._name,
            lease_duration_seconds=self._duration,
            renew_time=format_micro_time(self._clock.now()),
        )
        return replace(base, metadata=owned(base.metadata, self._name, uid), spec=spec)

    def _note(self, error: KubeError | None) -> None:
        """Say once that it does not work, and once that it does again."""
        text = str(error) if error is not None else ""
        if text and not self._trouble:
            log.warning("lease_not_renewed", cause=text)
            self._journal.record("node", "LeaseFailed", why=text)
        elif self._trouble and not text:
            log.info("lease_renewed")
            self._journal.record("node", "LeaseRenewed")
        self._trouble = text


def owned(metadata: ObjectMeta, name: str, uid: str) -> ObjectMeta:
    """The metadata with the Node as owner; unchanged as long as it is not known.

    A Node that was made anew has another UID, and the garbage collector would remove what still
    belongs to the old one.
    """
    owners = metadata.owner_references
    if not uid or any(owner.kind == "Node" and owner.uid == uid for owner in owners):
        return metadata
    others = (owner for owner in owners if owner.kind != "Node")
    owner = OwnerReference(api_version="v1", kind="Node", name=name, uid=uid)
    return replace(metadata, owner_references=(owner, *others))
