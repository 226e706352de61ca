"""Events about pods and the node: to the journal and the log, and to the API server, if any.

Rows and their tests: docs/behaviour/events.md, "Objects".
"""

from __future__ import annotations

import re
import uuid
from typing import Final, Protocol

from nodeagent.api import ObjectMeta, Pod
from nodeagent.api.event import Event, EventSource, ObjectReference
from nodeagent.api.times import whole_seconds
from nodeagent.clock import Clock
from nodeagent.node.events import JournalEvents

COMPONENT: Final = "kubelet"
"""Who says so. People and tools look for this name."""

_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_NAME_LENGTH: Final = 253


class EventSink(Protocol):
    """The way to the API server."""

    def send(self, event: Event) -> None:
        """Take an event; never blocks, never fails."""
        ...


class EventRecorder:
    """What parts of the agent call when there is something to say.

    Args:
        journal: keeps and logs every event, with an API server and without.
        node_name: this machine.
        clock: what time it is.
        sender: the way to the API server; None without one.
    """

    def __init__(
        self,
        journal: JournalEvents,
        node_name: str,
        clock: Clock,
        sender: EventSink | None = None,
    ) -> None:
        self._journal = journal
        self._clock = clock
        self._sender = sender
        self._source = EventSource(component=COMPONENT, host=node_name)
        self._node = ObjectReference(api_version="v1", kind="Node", name=node_name, uid=node_name)
        self._last_ns = 0

    def event(self, pod: Pod, kind: str, reason: str, message: str, field_path: str = "") -> None:
        """Say something about a pod or one of its containers; never blocks, never fails."""
        self._journal.event(pod, kind, reason, message, field_path)
        if self._sender is not None:
            self._sender.send(self._made(pod_reference(pod, field_path), kind, reason, message))

    def node_event(self, kind: str, reason: str, message: str) -> None:
        """Say something about the node; never blocks, never fails."""
        self._journal.node_event(kind, reason, message)
        if self._sender is not None:
            self._sender.send(self._made(self._node, kind, reason, message))

    def __call__(self, pod: Pod, kind: str, reason: str, message: str) -> None:
        """The same, about the pod as a whole."""
        self.event(pod, kind, reason, message)

    def forget_pod(self, uid: str) -> None:
        """Drop what is remembered of a pod that is gone."""
        self._journal.forget_pod(uid)

    def _made(self, about: ObjectReference, kind: str, reason: str, message: str) -> Event:
        now = whole_seconds(self._clock.now())
        return Event(
            metadata=ObjectMeta(
                name=event_name(about.name, self._nanoseconds()),
                namespace=about.namespace or "default",
            ),
            involved_object=about,
            reason=reason,
            message=message,
            source=self._source,
            first_timestamp=now,
            last_timestamp=now,
            count=1,
            type=kind,
            reporting_component=COMPONENT,
            reporting_instance=self._source.host,
        )

    def _nanoseconds(self) -> int:
        """The time, a different one for each event, also when the clock goes back."""
        self._last_ns = max(self._last_ns + 1, self._clock.time_ns())
        return self._last_ns


def pod_reference(pod: Pod, field_path: str = "") -> ObjectReference:
    """Name a pod, or with a path one of its containers.

    Args:
        pod: the pod; of a static pod its own UID counts, under which its mirror is known too.
        field_path: such as ``spec.containers{web}``.
    """
    meta = pod.metadata
    return ObjectReference(
        api_version="v1",
        kind="Pod",
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        resource_version=meta.resource_version,
        field_path=field_path,
    )


def event_name(about: str, nanoseconds: int) -> str:
    """A name for an event; random where the object's name leaves no room for the time."""
    name = f"{about}.{nanoseconds:x}"
    if len(name) <= _NAME_LENGTH and _NAME.fullmatch(name):
        return name
    return str(uuid.uuid4())
