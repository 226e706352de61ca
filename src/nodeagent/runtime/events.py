"""Saying what happens to a pod: events for people, journal records, hints to PLEG."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, Protocol, TypeAlias

from nodeagent.api import Pod
from nodeagent.model import PodUID, SandboxRuntimeStatus

EventType: TypeAlias = Literal["Normal", "Warning"]

OnAction: TypeAlias = Callable[[PodUID, str], None]
"""Called after something was changed in the runtime for a pod, with what it was."""


OnSandbox: TypeAlias = Callable[[PodUID, SandboxRuntimeStatus], None]
"""Called when a pod has a new sandbox, before anything starts in it."""


class PodEvents(Protocol):
    """Where events about pods go."""

    def event(
        self, pod: Pod, kind: EventType, reason: str, message: str, field_path: str = ""
    ) -> None:
        """Say something about a pod or one of its containers; never blocks, never fails.

        Args:
            pod: the pod.
            kind: ``Normal`` or ``Warning``.
            reason: a CamelCase word.
            message: the text for people.
            field_path: ``spec.containers{web}`` for a container, "" for the pod.
        """
        ...


class NodeEvents(Protocol):
    """Where events about the node go."""

    def node_event(self, kind: EventType, reason: str, message: str) -> None:
        """Say something about the node; never blocks, never fails.

        Args:
            kind: ``Normal`` or ``Warning``.
            reason: a CamelCase word.
            message: the text for people.
        """
        ...


class AllEvents(PodEvents, NodeEvents, Protocol):
    """Where all events go."""


class NoEvents:
    """Drops all events."""

    def node_event(self, kind: EventType, reason: str, message: str) -> None:
        """Do nothing."""

    def event(
        self, pod: Pod, kind: EventType, reason: str, message: str, field_path: str = ""
    ) -> None:
        """Do nothing."""


def no_action(_uid: PodUID, _what: str) -> None:
    """Tell nobody."""


def no_sandbox(_uid: PodUID, _sandbox: SandboxRuntimeStatus) -> None:
    """Tell nobody."""
