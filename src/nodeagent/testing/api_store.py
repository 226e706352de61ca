"""An API server in memory: objects of any kind, versions, patches, deletion with grace, watches.

It answers as the real one does where the agent could notice a difference. Objects are plain
dicts; one that was stored is never changed, only replaced. ``StoreClient`` speaks to it without
HTTP, ``FakeApiServer`` serves it.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Mapping
from typing import Any

from nodeagent.api.codec import to_builtins
from nodeagent.kube import ApiError
from nodeagent.testing.api_core import ApiCore, Refusal, Request, named
from nodeagent.testing.api_resources import Target, resource_of
from nodeagent.testing.api_watch import status_object

__all__ = ["ApiStore", "Request"]


class ApiStore(ApiCore):
    """The objects of a cluster, and what a test does with them (see ``ApiCore`` for settings)."""

    def create(self, item: object, *, status: object = None) -> dict[str, Any]:
        """Create an object, given as an API type or a dict; with ``status`` set it as well."""
        body = to_builtins(item)
        resource = resource_of(body)
        namespace = body["metadata"].get("namespace") or "default"
        target = Target(resource, namespace if resource.namespaced else "")
        made = self._create(target, body)
        if status is None:
            return copy.deepcopy(made)
        where = Target(resource, target.namespace, made["metadata"]["name"], "status")
        return copy.deepcopy(self._update(where, {**made, "status": to_builtins(status)}))

    def get(self, plural: str, name: str, namespace: str = "default") -> dict[str, Any]:
        """An object. Raises ApiError 404."""
        return copy.deepcopy(self._existing(self._target(plural, name, namespace)))

    def all(self, plural: str) -> list[dict[str, Any]]:
        """All objects of a resource."""
        return copy.deepcopy(list(self._objects[named(plural)].values()))

    def edit(
        self,
        plural: str,
        name: str,
        change: Callable[[dict[str, Any]], None],
        *,
        namespace: str = "default",
        status: bool = False,
    ) -> dict[str, Any]:
        """Update an object, or its status, with what ``change`` makes of a copy of it."""
        target = self._target(plural, name, namespace, "status" if status else "")
        item = copy.deepcopy(self._existing(target))
        change(item)
        return copy.deepcopy(self._update(target, item))

    def put(self, plural: str, key: tuple[str, str], item: Mapping[str, Any]) -> None:
        """Store an object as it is, whatever is in it, as a server of another version might.

        Args:
            plural: its resource.
            key: namespace and name.
            item: the object; its resourceVersion is set.
        """
        resource = named(plural)
        before = self._objects[resource].get(key)
        meta = {**item["metadata"], "namespace": key[0], "name": key[1]}
        self._write(resource, before, {**item, "metadata": meta})

    def delete(
        self, plural: str, name: str, *, namespace: str = "default", grace: int | None = None
    ) -> None:
        """Delete an object as a client does; grace 0 removes a pod at once."""
        self._delete(self._target(plural, name, namespace), grace, {})

    def refuse(self, method: str, path: str, error: ApiError, times: int = 1) -> None:
        """Answer the next ``times`` requests with an error; ``path`` is a regular expression."""
        self._refusals.append(Refusal(method, re.compile(path), error, times))

    def count(self, method: str, path: str = "") -> int:
        """How many requests there were of a method and a path (a regular expression)."""
        return sum(r.method == method and bool(re.search(path, r.path)) for r in self.requests)

    def expire(self) -> None:
        """Forget all history: whoever watches from an older version, or pages on, gets 410."""
        self._history.expire()
        self._pages.clear()

    def bookmark(self) -> None:
        """Send a bookmark to every watch that wants any."""
        for watch in self._watches:
            if watch.bookmarks:
                watch.bookmark()

    def end_watches(self, error: ApiError | None = None) -> None:
        """End every watch, after an ERROR event if an error is given."""
        for watch in self._watches:
            if error is not None:
                watch.tell("ERROR", status_object(error))
            watch.finish()

    @property
    def watching(self) -> int:
        """How many watches are open."""
        return len(self._watches)

    def _target(self, plural: str, name: str, namespace: str, sub: str = "") -> Target:
        resource = named(plural)
        return Target(resource, namespace if resource.namespaced else "", name, sub)
