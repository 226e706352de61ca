"""Objects of the cluster that pods refer to, as watches have seen them.

Implements what ``nodeagent.runtime.lookups`` asks for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol, TypeVar

import msgspec

from nodeagent.api import ObjectMeta
from nodeagent.api.codec import convert, to_builtins
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
    """The services of the cluster: a section of the agent's checkpoint.

    Of the namespaces that pods have asked for they are remembered, so that a container that starts
    while the API server is away has their variables.

    Args:
        seen: the Service objects that have an address.
    """

    def __init__(self, seen: Seen[Service]) -> None:
        self._seen = seen
        self._asked: set[str] = set()
        self._remembered: tuple[Service, ...] = ()

    @property
    def synced(self) -> bool:
        """Whether they have all been seen."""
        return self._seen.synced

    def in_namespaces(self, namespaces: Iterable[str]) -> Iterable[Service]:
        """Those of some namespaces."""
        wanted = frozenset(namespaces)
        self._asked |= wanted
        return [s for s in self._known() if s.metadata.namespace in wanted]

    def _known(self) -> Iterable[Service]:
        if self._seen.synced or self._seen.objects:
            return self._seen.objects.values()
        return self._remembered

    def snapshot(self) -> list[dict[str, Any]]:
        """Names, addresses and ports of those that pods have asked for."""
        found = [s for s in self._known() if s.metadata.namespace in self._asked]
        found.sort(key=lambda s: (s.metadata.namespace, s.metadata.name))
        return [_bare(service) for service in found]

    def restore(self, saved: Any, shift: float) -> None:
        """Take over what was known when an earlier agent ended."""
        del shift
        self._remembered = tuple(convert(saved, list[Service]))
        self._asked |= {s.metadata.namespace for s in self._remembered}


def _bare(service: Service) -> dict[str, Any]:
    meta = ObjectMeta(name=service.metadata.name, namespace=service.metadata.namespace)
    found: dict[str, Any] = to_builtins(Service(metadata=meta, spec=service.spec))
    return found
