"""What all parts of the runtime side share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeAlias

from nodeagent.api import Pod
from nodeagent.clock import Clock
from nodeagent.journal import Journal
from nodeagent.limiter import AdaptiveLimiter
from nodeagent.log import Log
from nodeagent.model import PodUID
from nodeagent.runtime.events import AllEvents, EventType, OnAction, OnSandbox, no_sandbox
from nodeagent.runtime.lookups import Lookups
from nodeagent.runtime.metrics import RuntimeMetrics
from nodeagent.runtime.names import field_path
from nodeagent.runtime.records import Records
from nodeagent.runtime.services import ContainerRuntime
from nodeagent.runtime.settings import HostFacts, RuntimeSettings
from nodeagent.runtime.user_namespaces import UserNamespaces

LINGER: Final = 5.0
"""Seconds that a creation or start may go on after its worker was cancelled. A runtime whose
caller goes away in the middle leaves things behind that it does not know of itself."""

Persist: TypeAlias = Callable[[], Awaitable[None]]
"""Brings what must survive the agent to disk; returns when it is there."""


async def no_persist() -> None:
    """Keep everything in memory only."""


def nobody_cares() -> None:
    """Nothing that changes has to be saved soon."""


@dataclass(slots=True)
class RuntimeContext:
    """The runtime, how pods are made, and who is told about it.

    Only ``settings`` is ever replaced; read it when it is used.
    """

    runtime: ContainerRuntime
    settings: RuntimeSettings
    host: HostFacts
    events: AllEvents
    journal: Journal
    metrics: RuntimeMetrics
    clock: Clock
    on_action: OnAction
    limiter: AdaptiveLimiter
    userns: UserNamespaces
    on_sandbox: OnSandbox = no_sandbox
    lookups: Lookups = field(default_factory=Lookups)
    persist: Persist = no_persist
    changed: Callable[[], None] = nobody_cares
    records: Records = field(default_factory=Records)
    log: Log = field(default_factory=lambda: Log("runtime"))

    def say(
        self, pod: Pod | None, kind: EventType, reason: str, message: str, container: str = ""
    ) -> None:
        """Emit an event about a pod or one of its containers; without a spec there is none."""
        if pod is not None:
            path = field_path(pod, container) if container else ""
            self.events.event(pod, kind, reason, message, path)

    def note(
        self, what: str, uid: str, why: str = "", duration: float | None = None, **fields: object
    ) -> None:
        """Write a step to the journal."""
        self.journal.record("runtime", what, uid, why, duration, **fields)

    def acted(self, uid: str, what: str) -> None:
        """Say that something was changed in the runtime, so that the pod is inspected anew."""
        self.on_action(PodUID(uid), what)

    def pod_dir(self, uid: str) -> Path:
        """The pod's directory."""
        return self.settings.root_dir / "pods" / uid
