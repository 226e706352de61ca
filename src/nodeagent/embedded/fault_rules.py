"""Faults as data: what a rule matches, how often it strikes, and what it does. Pure."""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from nodeagent.embedded.shown import SHOWN_BY, Show
from nodeagent.proto.runtime import v1
from nodeagent.rpc import Code, RpcError, error_for

if TYPE_CHECKING:
    from nodeagent.embedded.faults import Call

METHODS: Final = frozenset(
    path.rpartition("/")[2]
    for service in (v1.RuntimeServiceBase(), v1.ImageServiceBase())
    for path in service.__mapping__()
)
"""Names of all CRI methods."""

EVENTS: Final = ("CREATED", "STARTED", "STOPPED", "DELETED")
"""Kinds of container events."""


def _not_negative(**values: float) -> None:
    for name, value in values.items():
        if value < 0:
            msg = f"{name}: must not be negative, is {value:g}"
            raise ValueError(msg)


# -- what happens to calls


@dataclass(frozen=True, slots=True)
class Delay:
    """Wait, then do the work.

    Attributes:
        seconds: how long.
        apart: do the work also when the caller has given up meanwhile.
    """

    seconds: float
    apart: bool = False

    def __post_init__(self) -> None:
        _not_negative(seconds=self.seconds)


@dataclass(frozen=True, slots=True)
class Hang:
    """Wait until the gate is opened, then do the work.

    Attributes:
        gate: its name; faults of one gate are released together. By default the fault has a
            gate of its own.
        apart: do the work also when the caller has given up meanwhile.
    """

    gate: str = ""
    apart: bool = False


@dataclass(frozen=True, slots=True)
class Fail:
    """Answer an error; nothing is done."""

    code: Code = Code.UNAVAILABLE
    message: str = "injected"

    def error(self) -> RpcError:
        """The error."""
        return error_for(self.code, self.message)


@dataclass(frozen=True, slots=True)
class Late:
    """Do the work, and answer after some seconds, or once the gate is opened.

    Attributes:
        seconds: how long the answer takes; None for as long as the gate is closed.
        gate: as in :class:`Hang`.
    """

    seconds: float | None = None
    gate: str = ""

    def __post_init__(self) -> None:
        _not_negative(seconds=self.seconds or 0.0)


@dataclass(frozen=True, slots=True)
class FailAfter:
    """Do the work, and answer an error all the same."""

    code: Code = Code.DEADLINE_EXCEEDED
    message: str = "injected after the work was done"

    def error(self) -> RpcError:
        """The error."""
        return error_for(self.code, self.message)


CallEffect: TypeAlias = Delay | Hang | Fail | Late | FailAfter | Show

# -- what happens to events


@dataclass(frozen=True, slots=True)
class Drop:
    """Lose the event. A rule that drops all leaves the stream open but silent."""


@dataclass(frozen=True, slots=True)
class Duplicate:
    """Deliver the event several times, ``gap`` seconds apart."""

    times: int = 2
    gap: float = 0.0

    def __post_init__(self) -> None:
        _not_negative(gap=self.gap)
        if self.times < 1:
            msg = f"times: must be at least 1, is {self.times}"
            raise ValueError(msg)


@dataclass(frozen=True, slots=True)
class Hold:
    """Deliver the event ``seconds`` late."""

    seconds: float

    def __post_init__(self) -> None:
        _not_negative(seconds=self.seconds)


@dataclass(frozen=True, slots=True)
class Reorder:
    """Deliver the events of each stretch of ``within`` seconds in reverse.

    The first event of a stretch comes last, twice that time after it happened.
    """

    within: float

    def __post_init__(self) -> None:
        if self.within <= 0:
            msg = f"within: must be greater than 0, is {self.within:g}"
            raise ValueError(msg)


@dataclass(frozen=True, slots=True)
class Cut:
    """Do not deliver the event, but end all streams with an error."""

    code: Code = Code.UNAVAILABLE
    message: str = "the stream was cut"

    def error(self) -> RpcError:
        """The error."""
        return error_for(self.code, self.message)


EventEffect: TypeAlias = Drop | Duplicate | Hold | Reorder | Cut
Effect: TypeAlias = CallEffect | EventEffect


@dataclass(frozen=True, slots=True)
class Fault:
    """A rule: what strikes which calls or events, and how often.

    ``pod``, ``container`` and ``image`` are shell patterns (``web-*``); empty matches all.

    Attributes:
        on: CRI methods, or kinds of events (``CREATED``, ``STARTED``, ``STOPPED``,
            ``DELETED``) where the effect is one on events; empty for all of them.
        effect: what happens.
        pod: the pod's UID, name, or ``namespace/name``.
        container: the container's name.
        image: the image in the request, as it was asked for.
        skip: leave this many matches out first.
        every: then strike every so manieth match.
        count: strike so many times; None for no limit.
        probability: strike with this probability; dice of the plan's seed.
        after: seconds of loop time from the moment the fault was added to when it begins.
        lasts: seconds that it lasts; None for no end.
        name: for people, ``remove`` and ``release``; one is made when it is empty.
    """

    on: str | Sequence[str]
    effect: Effect
    pod: str = ""
    container: str = ""
    image: str = ""
    skip: int = 0
    every: int = 1
    count: int | None = None
    probability: float = 1.0
    after: float = 0.0
    lasts: float | None = None
    name: str = ""

    def __post_init__(self) -> None:
        names = (self.on,) if isinstance(self.on, str) else tuple(self.on)
        object.__setattr__(self, "on", tuple(name for name in names if name))
        known = EVENTS if self.strikes_events else SHOWN_BY if self.shows else METHODS
        for name in self.on:
            if name not in known:
                what = "a CRI method"
                if known is not METHODS:
                    kind = "an event" if known is EVENTS else "a method that shows things"
                    what = f"{kind} ({', '.join(sorted(known))})"
                msg = f"on: {name!r} is not the name of {what}"
                raise ValueError(msg)
        _not_negative(skip=self.skip, after=self.after, lasts=self.lasts or 0.0)
        for label, value in (
            ("every", self.every),
            ("count", 1 if self.count is None else self.count),
        ):
            if value < 1:
                msg = f"{label}: must be at least 1, is {value}"
                raise ValueError(msg)
        if not 0.0 <= self.probability <= 1.0:
            msg = f"probability: must be between 0 and 1, is {self.probability:g}"
            raise ValueError(msg)

    @property
    def strikes_events(self) -> bool:
        """Whether it is about events, not about calls."""
        return isinstance(self.effect, EventEffect)

    @property
    def shows(self) -> bool:
        """Whether it is about what answers and events say."""
        return isinstance(self.effect, Show)

    def matches(self, call: Call) -> bool:
        """Whether the rule is about this call; whom it is about is not asked where it shows."""
        if self.shows:
            return call.method in (self.on or SHOWN_BY)
        return (
            (not self.on or call.method in self.on)
            and self.matches_pod(call.pod_uid, call.namespace, call.pod_name)
            and self.matches_container(call.container)
            and like(call.subject, self.image)
        )

    def matches_event(self, event: v1.ContainerEventResponse) -> bool:
        """Whether the rule is about this event."""
        if self.on and kind_of(event) not in self.on:
            return False
        status = event.pod_sandbox_status
        pod = (status.metadata if status else None) or v1.PodSandboxMetadata()
        return self.matches_pod(pod.uid, pod.namespace, pod.name) and self.matches_container(
            container_of(event)
        )

    def matches_pod(self, uid: str, namespace: str, name: str) -> bool:
        """Whether the rule is about this pod."""
        return names_pod(self.pod, uid, namespace, name)

    def matches_container(self, name: str) -> bool:
        """Whether the rule is about a container of this name."""
        return like(name, self.container)


def kind_of(event: v1.ContainerEventResponse) -> str:
    """``CREATED``, ``STARTED``, ``STOPPED`` or ``DELETED``."""
    return EVENTS[event.container_event_type.value]


def container_of(event: v1.ContainerEventResponse) -> str:
    """Name of the container that an event is about; empty for a sandbox, or one that is gone."""
    for status in event.containers_statuses:
        if status.id == event.container_id and status.metadata is not None:
            return status.metadata.name
    return ""


def like(text: str, pattern: str) -> bool:
    """Whether a shell pattern matches; an empty one does always."""
    return not pattern or fnmatch.fnmatchcase(text, pattern)


def names_pod(pattern: str, uid: str, namespace: str, name: str) -> bool:
    """Whether a shell pattern matches a pod's UID, name or ``namespace/name``; empty for all."""
    if not pattern:
        return True
    known = (uid, name, f"{namespace}/{name}" if name else "")
    return any(text and fnmatch.fnmatchcase(text, pattern) for text in known)
