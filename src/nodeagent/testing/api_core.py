"""How the in-memory API server answers requests. ``ApiStore`` adds what tests do with it."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from nodeagent.api.times import format_time
from nodeagent.clock import Clock, SystemClock
from nodeagent.kube import ApiError, PatchKind
from nodeagent.testing.api_patch import apply_patch
from nodeagent.testing.api_resources import (
    RESOURCES,
    Resource,
    Selection,
    Target,
    not_found,
    parse_path,
    selection,
)
from nodeagent.testing.api_rules import (
    check_change,
    check_versions,
    complete,
    deletion,
    invalid,
    may_go,
    token_answer,
    updated,
)
from nodeagent.testing.api_watch import (
    INITIAL_EVENTS_END,
    ApiWatch,
    Change,
    History,
)


@dataclass(frozen=True, slots=True)
class Request:
    """A request as it came.

    Attributes:
        method: GET, POST, PUT, PATCH, DELETE, or WATCH.
        path: without the query.
        query: its parameters.
        body: decoded from JSON; None without one.
        patch: how the body of a PATCH is meant.
    """

    method: str
    path: str
    query: Mapping[str, str]
    body: Any = None
    patch: PatchKind | None = None


@dataclass(slots=True)
class Refusal:
    """Requests that are refused."""

    method: str
    path: re.Pattern[str]
    error: ApiError
    times: int


class ApiCore:
    """The objects of a cluster.

    Args:
        clock: wall clock, for timestamps.
        start: resource version before the first write.
        history: how many writes a watch may lie behind.
        watch_list: whether it serves ``sendInitialEvents``.

    Attributes:
        requests: all requests so far.
        reviews: what answers token and access reviews, by the resource's name: a function from
            the review to its ``status``.
        mutators: called with the resource's name and each new object; may change it.
        watch_list: see Args.
        expire_in_stream: a watch from a version that is forgotten is opened and then told 410;
            False refuses to open it.
        paging: False ignores ``limit``, as servers do that answer from their cache.
    """

    def __init__(
        self,
        clock: Clock | None = None,
        *,
        start: int = 1000,
        history: int = 1000,
        watch_list: bool = True,
    ) -> None:
        self._clock = clock or SystemClock()
        self._history = History(start, history)
        self._objects: dict[Resource, dict[tuple[str, str], dict[str, Any]]] = {
            r: {} for r in RESOURCES
        }
        self._watches: set[ApiWatch] = set()
        self._pages: dict[str, tuple[str, list[dict[str, Any]]]] = {}
        self._made = 0
        self._refusals: list[Refusal] = []
        self.requests: list[Request] = []
        self.reviews: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {}
        self.mutators: list[Callable[[str, dict[str, Any]], None]] = []
        self.watch_list = watch_list
        self.expire_in_stream = True
        self.paging = True

    @property
    def version(self) -> int:
        """The present resource version."""
        return self._history.version

    def admit(self, request: Request) -> None:
        """Note a request; raise the error that it is to be refused with."""
        self.requests.append(request)
        for refusal in self._refusals:
            if refusal.times and refusal.method in ("*", request.method):
                if not refusal.path.search(request.path):
                    continue
                refusal.times -= 1
                raise refusal.error

    def handle(self, request: Request) -> dict[str, Any]:
        """The answer to any request but a watch. It must not be changed.

        Raises:
            ApiError: the request is refused.
        """
        target = parse_path(request.path)
        if not target.resource.stored:
            return self._review(target, request)
        match request.method:
            case "GET" if target.name:
                return self._existing(target)
            case "GET":
                return self._list(target, request.query)
            case "POST" if target.subresource == "token":
                now = self._clock.now()
                where = (target.namespace, target.name)
                return token_answer(request.body, self._find, *where, self._next(), now)
            case "POST" if not target.name:
                return self._create(target, request.body)
            case "PUT" if target.name:
                return self._replace(target, request.body)
            case "PATCH" if target.name:
                return self._patch(target, request.patch or PatchKind.STRATEGIC, request.body)
            case "DELETE" if target.name:
                return self._asked_to_delete(target, request)
        msg = "the server does not allow this method on the requested resource"
        raise ApiError(405, "MethodNotAllowed", msg)

    def watch(self, path: str, query: Mapping[str, str]) -> ApiWatch:
        """Open a watch; close it with :meth:`close`.

        Raises:
            ApiError: it is refused.
        """
        target = parse_path(path)
        chosen = selection(target, query)
        version = query.get("resourceVersion", "")
        initial = query.get("sendInitialEvents") == "true"
        if initial and not self.watch_list:
            cause = "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden for watch"
            raise invalid(target.resource, "", cause)
        number = _number(version)
        if initial:
            self._check_reached(number)
        elif number and not self.expire_in_stream:
            self._history.since(min(number, self.version))
        synthetic = initial or not number
        watch = ApiWatch(
            self._history,
            target.resource,
            chosen,
            after=self.version if synthetic else number,
            bookmarks=query.get("allowWatchBookmarks") == "true",
            seconds=float(query["timeoutSeconds"]) if "timeoutSeconds" in query else None,
        )
        self._watches.add(watch)
        for item in self._chosen(target.resource, chosen) if synthetic else ():
            watch.tell("ADDED", item)
        if initial:
            watch.bookmark({INITIAL_EVENTS_END: "true"})
        return watch

    def close(self, watch: ApiWatch) -> None:
        """The client has gone."""
        self._watches.discard(watch)

    # How it is done.

    def _next(self) -> int:
        self._made += 1
        return self._made

    def _find(self, plural: str, namespace: str, name: str) -> Mapping[str, Any] | None:
        return self._objects[named(plural)].get((namespace, name))

    def _existing(self, target: Target) -> dict[str, Any]:
        found = self._objects[target.resource].get((target.namespace, target.name))
        if found is None:
            msg = f'{target.resource.qualified} "{target.name}" not found'
            raise not_found(msg)
        return found

    def _chosen(self, resource: Resource, chosen: Selection) -> list[dict[str, Any]]:
        objects = self._objects[resource]
        return [objects[key] for key in sorted(objects) if chosen.takes(objects[key])]

    def _write(self, resource: Resource, before: dict[str, Any] | None, item: Any) -> Any:
        """Store an object; ``item`` None removes it."""
        removed = item is None
        base: dict[str, Any] = before if removed and before is not None else item
        meta = {**base["metadata"], "resourceVersion": str(self.version + 1)}
        after = {**base, "metadata": meta}
        key = (meta.get("namespace", ""), meta["name"])
        if removed:
            del self._objects[resource][key]
        else:
            self._objects[resource][key] = after
        self._history.add(Change(resource, before, after, removed))
        for watch in self._watches:
            watch.wake()
        return after

    def _check_reached(self, version: int) -> None:
        if version > self.version:
            message = f"Too large resource version: {version}, current: {self.version}"
            raise ApiError(504, "Timeout", message, 1.0)

    def _list(self, target: Target, query: Mapping[str, str]) -> dict[str, Any]:
        version = str(self.version)
        if token := query.get("continue"):
            if token not in self._pages:
                message = (
                    "The provided continue parameter is too old to display a consistent list "
                    "result."
                )
                raise ApiError(410, "Expired", message)
            version, items = self._pages[token]
        else:
            self._check_reached(_number(query.get("resourceVersion", "")))
            items = self._chosen(target.resource, selection(target, query))
        meta: dict[str, Any] = {"resourceVersion": version}
        limit = int(query.get("limit") or 0) if self.paging else 0
        if limit and len(items) > limit:
            meta["continue"] = f"page-{self._next()}"
            meta["remainingItemCount"] = len(items) - limit
            self._pages[meta["continue"]] = (version, items[limit:])
            items = items[:limit]
        # A server leaves out in the items what the list says already.
        bare = [{k: v for k, v in i.items() if k not in ("apiVersion", "kind")} for i in items]
        kind = f"{target.resource.kind}List"
        return {
            "kind": kind,
            "apiVersion": target.resource.version,
            "metadata": meta,
            "items": bare,
        }

    def _create(self, target: Target, body: Any) -> dict[str, Any]:
        resource = target.resource
        item = self._identified(target, body)
        meta = item["metadata"]
        if (target.namespace, meta["name"]) in self._objects[resource]:
            message = f'{resource.qualified} "{meta["name"]}" already exists'
            raise ApiError(409, "AlreadyExists", message)
        number = self._next()
        for gone in ("deletionTimestamp", "deletionGracePeriodSeconds"):
            meta.pop(gone, None)
        meta["uid"] = f"{number:08x}-0000-4000-8000-{number:012x}"
        meta["creationTimestamp"] = format_time(self._clock.now())
        if resource.generations:
            meta["generation"] = 1
        complete(resource, item, self._find, number)
        for mutate in self.mutators:
            mutate(resource.plural, item)
        made: dict[str, Any] = self._write(resource, None, item)
        return made

    def _identified(self, target: Target, body: Any) -> dict[str, Any]:
        """A copy of a new object with its name and namespace."""
        resource = target.resource
        kind = body.get("kind") if isinstance(body, dict) else None
        if not isinstance(body, dict) or kind not in (None, resource.kind):
            message = f"the object provided is unrecognized: {kind} instead of {resource.kind}"
            raise ApiError(400, "BadRequest", message)
        item = copy.deepcopy(body)
        item |= {"kind": resource.kind, "apiVersion": resource.version}
        meta = item.setdefault("metadata", {})
        if meta.get("resourceVersion"):
            message = "resourceVersion should not be set on objects to be created"
            raise ApiError(500, "InternalError", message)
        if resource.namespaced:
            if meta.setdefault("namespace", target.namespace) != target.namespace:
                message = "the namespace of the provided object does not match the request"
                raise ApiError(400, "BadRequest", message)
        else:
            meta.pop("namespace", None)
        if not meta.get("name"):
            if not meta.get("generateName"):
                cause = "metadata.name: Required value: name or generateName is required"
                raise invalid(resource, "", cause)
            meta["name"] = f"{meta['generateName']}{self._next():05d}"
        return item

    def _replace(self, target: Target, body: Any) -> dict[str, Any]:
        key = (target.namespace, target.name)
        if target.resource.upsert and key not in self._objects[target.resource]:
            return self._create(target, body)
        return self._update(target, body)

    def _patch(self, target: Target, kind: PatchKind, patch: Any) -> dict[str, Any]:
        before = self._existing(target)
        new = apply_patch(kind, before, patch)
        uid = (new.get("metadata") or {}).get("uid")
        if uid and uid != before["metadata"]["uid"]:
            # Unlike a PUT, for which it is a precondition.
            cause = f'metadata.uid: Invalid value: "{uid}": field is immutable'
            raise invalid(target.resource, target.name, cause)
        return self._update(target, new)

    def _update(self, target: Target, new: dict[str, Any]) -> dict[str, Any]:
        resource, before = target.resource, self._existing(target)
        given = new.get("metadata") or {}
        check_versions(resource, before, given.get("uid"), given.get("resourceVersion"))
        after = updated(target, before, new)
        check_change(resource, before, after)
        if after == before:
            return before
        if resource.generations and after.get("spec") != before.get("spec"):
            after["metadata"]["generation"] += 1
        if may_go(after["metadata"]):
            gone: dict[str, Any] = self._write(resource, after, None)
            return gone
        written: dict[str, Any] = self._write(resource, before, after)
        return written

    def _asked_to_delete(self, target: Target, request: Request) -> dict[str, Any]:
        options = request.body or {}
        grace = options.get("gracePeriodSeconds", request.query.get("gracePeriodSeconds"))
        seconds = None if grace is None else int(grace)
        return self._delete(target, seconds, options.get("preconditions") or {})

    def _delete(
        self, target: Target, grace: int | None, preconditions: Mapping[str, Any]
    ) -> dict[str, Any]:
        resource, before = target.resource, self._existing(target)
        wanted = preconditions.get("uid"), preconditions.get("resourceVersion")
        check_versions(resource, before, *wanted)
        meta = deletion(resource, before, grace, self._clock.now())
        if meta is not None:
            if meta == before["metadata"]:
                return before
            going: dict[str, Any] = self._write(resource, before, {**before, "metadata": meta})
            return going
        gone: dict[str, Any] = self._write(resource, before, None)
        if resource.kind == "Pod":
            return gone
        return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}

    def _review(self, target: Target, request: Request) -> dict[str, Any]:
        if request.method != "POST":
            raise ApiError(405, "MethodNotAllowed", "reviews are only created")
        answer = self.reviews.get(target.resource.plural)
        return {**request.body, "status": answer(request.body) if answer else {}}


def named(plural: str) -> Resource:
    """The resource of that name; of several the core one."""
    return next(r for r in RESOURCES if r.plural == plural)


def _number(version: str) -> int:
    if version and not version.isdecimal():
        raise ApiError(400, "BadRequest", f"invalid resource version {version!r}")
    return int(version or 0)
