"""Objects of the cluster that pods refer to, as watches have seen them.

Implements what ``nodeagent.runtime.lookups`` asks for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol, TypeVar

import msgspec

from nodeagent.api.runtime_class import RuntimeClass
from nodeagent.api.service import Service

T_co = TypeVar("T_co", covariant=True)


class Seen(Protocol[T_co]):
    """The part of :class:`nodeagent.kube.informer.Informer` that is needed here."""

    @property
    def synced(self) -> bool:
        """Whether all objects have been seen since the start."""
        ...

    @property
    def objects(self) -> Mapping[str, T_co]:
        """All objects by ``namespace/name``, or name."""
        ...

    def get(self, name: str, namespace: str = "") -> T_co | None:
        """An object, or None."""
        ...


class ClusterRuntimeClasses:
    """Where the names of runtime classes lead: a section of the agent's checkpoint.

    So pods can be started again while the API server is away.

    Args:
        seen: the RuntimeClass objects.
    """

    def __init__(self, seen: Seen[RuntimeClass]) -> None:
        self._seen = seen
        self._remembered: dict[str, str] = {}

    def handler(self, name: str) -> str | None:
        """The handler of the runtime class; None when there is no such class."""
        found = self._seen.get(name)
        if found is None and not self._seen.synced:
            return self._remembered.get(name)
        return None if found is None else found.handler

    def snapshot(self) -> dict[str, str]:
        """The handlers, by name."""
        if not self._seen.synced:
            return self._remembered
        return {name: found.handler for name, found in sorted(self._seen.objects.items())}

    def restore(self, saved: Any, shift: float) -> None:
        """Take over what was known when an earlier agent ended."""
        del shift
        self._remembered = msgspec.convert(saved, dict[str, str])


class ClusterServices:
    """The services of the cluster.

    Args:
        seen: the Service objects that have an address.
    """

    def __init__(self, seen: Seen[Service]) -> None:
        self._seen = seen

    @property
    def synced(self) -> bool:
        """Whether they have all been seen."""
        return self._seen.synced

    def in_namespaces(self, namespaces: Iterable[str]) -> Iterable[Service]:
        """Those of some namespaces."""
        wanted = frozenset(namespaces)
        return [s for s in self._seen.objects.values() if s.metadata.namespace in wanted]
