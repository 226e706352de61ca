"""What a request asks for, in the words of permissions. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import unquote

_VERBS = {
    "POST": "create",
    "PUT": "update",
    "PATCH": "patch",
    "DELETE": "delete",
}


@dataclass(frozen=True, slots=True)
class Wanted:
    """What has to be allowed for a request.

    Attributes:
        verb: such as ``get``, ``list``, ``watch``, ``create``.
        resource: with its subresource and group, such as ``pods/status`` or
            ``leases.coordination.k8s.io``; the path when it is none of a resource.
        name: of the object; "" for a collection.
        namespace: "" for none.
    """

    verb: str
    resource: str
    name: str
    namespace: str

    def __str__(self) -> str:
        name = f" {self.name}" if self.name else ""
        place = f" in namespace {self.namespace}" if self.namespace else ""
        return f"{self.verb} {self.resource}{name}{place}"


def wanted(method: str, path: str, query: Mapping[str, str] | None = None) -> Wanted:
    """What has to be allowed for a request of this method and path."""
    parts = [unquote(part) for part in path.split("/") if part]
    group, rest = "", []
    if parts[:1] == ["api"] and len(parts) > 2:
        rest = parts[2:]
    elif parts[:1] == ["apis"] and len(parts) > 3:
        group, rest = parts[1], parts[3:]
    if not rest:
        return Wanted(_VERBS.get(method, method.lower()), path, "", "")
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2:
        namespace, rest = rest[1], rest[2:]
    resource, name, *more = [*rest, ""] if len(rest) == 1 else rest
    if more:
        resource = "/".join([resource, *more])
    if group:
        resource = f"{resource}.{group}"
    return Wanted(_verb(method, name, query or {}), resource, name, namespace)


def _verb(method: str, name: str, query: Mapping[str, str]) -> str:
    if method in _VERBS:
        return _VERBS[method]
    if query.get("watch") in ("1", "true"):
        return "watch"
    return "get" if name else "list"
