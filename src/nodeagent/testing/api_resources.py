"""The resources that the in-memory API server knows, their paths, and selectors."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import unquote

from nodeagent.kube import ApiError


@dataclass(frozen=True, slots=True)
class Resource:
    """One resource of the API.

    Attributes:
        version: its apiVersion, such as ``v1`` or ``coordination.k8s.io/v1``.
        plural: its name in paths.
        kind: of its objects.
        namespaced: whether its objects belong to a namespace.
        status: whether there is a ``status`` subresource, so that nobody else changes it.
        subresources: further ones.
        stored: False for what is only asked (reviews).
        upsert: a PUT of what does not exist creates it.
        generations: ``metadata.generation`` counts changes of the spec.
        selectable: fields that a field selector may name, besides name and namespace; what all
            servers since Kubernetes 1.20 have.
    """

    version: str
    plural: str
    kind: str
    namespaced: bool = True
    status: bool = False
    subresources: tuple[str, ...] = ()
    stored: bool = True
    upsert: bool = False
    generations: bool = False
    selectable: tuple[str, ...] = ()

    @property
    def group(self) -> str:
        """Its API group, "" for the core one."""
        return self.version.rpartition("/")[0]

    @property
    def qualified(self) -> str:
        """How messages name it: ``pods``, ``leases.coordination.k8s.io``."""
        return f"{self.plural}.{self.group}" if self.group else self.plural


RESOURCES: Final = (
    Resource(
        "v1",
        "pods",
        "Pod",
        status=True,
        subresources=("ephemeralcontainers",),
        generations=True,
        selectable=("spec.nodeName", "spec.restartPolicy", "status.phase", "status.podIP"),
    ),
    Resource("v1", "nodes", "Node", namespaced=False, status=True),
    Resource("v1", "namespaces", "Namespace", namespaced=False, status=True),
    Resource("v1", "services", "Service", status=True),
    Resource("v1", "endpoints", "Endpoints"),
    Resource("v1", "configmaps", "ConfigMap"),
    Resource("v1", "secrets", "Secret"),
    Resource("v1", "events", "Event", upsert=True),
    Resource("v1", "serviceaccounts", "ServiceAccount", subresources=("token",)),
    Resource("v1", "persistentvolumes", "PersistentVolume", namespaced=False, status=True),
    Resource("v1", "persistentvolumeclaims", "PersistentVolumeClaim", status=True),
    Resource("coordination.k8s.io/v1", "leases", "Lease", upsert=True),
    Resource("events.k8s.io/v1", "events", "Event", upsert=True),
    Resource("node.k8s.io/v1", "runtimeclasses", "RuntimeClass", namespaced=False),
    Resource("storage.k8s.io/v1", "csinodes", "CSINode", namespaced=False),
    Resource("storage.k8s.io/v1", "csidrivers", "CSIDriver", namespaced=False),
    Resource(
        "storage.k8s.io/v1",
        "volumeattachments",
        "VolumeAttachment",
        namespaced=False,
        status=True,
    ),
    Resource(
        "certificates.k8s.io/v1",
        "certificatesigningrequests",
        "CertificateSigningRequest",
        namespaced=False,
        status=True,
        subresources=("approval",),
    ),
    Resource(
        "certificates.k8s.io/v1beta1", "clustertrustbundles", "ClusterTrustBundle", namespaced=False
    ),
    Resource(
        "certificates.k8s.io/v1beta1",
        "podcertificaterequests",
        "PodCertificateRequest",
        status=True,
    ),
    Resource(
        "authentication.k8s.io/v1", "tokenreviews", "TokenReview", namespaced=False, stored=False
    ),
    Resource(
        "authorization.k8s.io/v1",
        "subjectaccessreviews",
        "SubjectAccessReview",
        namespaced=False,
        stored=False,
    ),
)

_BY_PATH: Final = {(r.version, r.plural): r for r in RESOURCES}
_BY_KIND: Final = {(r.version, r.kind): r for r in RESOURCES}


@dataclass(frozen=True, slots=True)
class Target:
    """What a path names.

    Attributes:
        resource: the resource.
        namespace: "" for all of them, and for what belongs to none.
        name: "" for a collection.
        subresource: "" for the object itself.
    """

    resource: Resource
    namespace: str = ""
    name: str = ""
    subresource: str = ""


def not_found(message: str = "the server could not find the requested resource") -> ApiError:
    """The error 404."""
    return ApiError(404, "NotFound", message)


def parse_path(path: str) -> Target:
    """What a path names.

    Raises:
        ApiError: 404, there is no such resource.
    """
    parts = [unquote(part) for part in path.strip("/").split("/")]
    if parts[0] == "api" and len(parts) > 2:
        version, rest = parts[1], parts[2:]
    elif parts[0] == "apis" and len(parts) > 3:
        version, rest = "/".join(parts[1:3]), parts[3:]
    else:
        raise not_found()
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2 and (version, rest[2]) in _BY_PATH:
        namespace, rest = rest[1], rest[2:]
    resource = _BY_PATH.get((version, rest[0]))
    name, subresource = (*rest[1:], "", "")[:2]
    if resource is None or len(rest) > 3 or (name and resource.namespaced and not namespace):
        raise not_found()
    known = (*(("status",) if resource.status else ()), *resource.subresources)
    if subresource and subresource not in known:
        raise not_found()
    return Target(resource, namespace, name, subresource)


def resource_of(item: Mapping[str, Any]) -> Resource:
    """The resource of an object, by its apiVersion and kind.

    Raises:
        KeyError: it has none that is known.
    """
    return _BY_KIND[str(item.get("apiVersion", "v1")), str(item.get("kind"))]


@dataclass(frozen=True, slots=True)
class Selection:
    """Which objects of a collection a request is about."""

    namespace: str = ""
    fields: tuple[tuple[str, str, str], ...] = ()
    labels: tuple[tuple[str, str, tuple[str, ...]], ...] = ()

    def takes(self, item: Mapping[str, Any]) -> bool:
        """Whether an object is one of them."""
        meta = item["metadata"]
        if self.namespace and meta.get("namespace") != self.namespace:
            return False
        return all(
            (_field(item, path) == value) is (operator != "!=")
            for path, operator, value in self.fields
        ) and all(_label_holds(meta.get("labels") or {}, *rule) for rule in self.labels)


def selection(target: Target, query: Mapping[str, str]) -> Selection:
    """What a list or watch selects.

    Raises:
        ApiError: 400, the selector cannot be read.
    """
    name = ((("metadata.name", "=", target.name),)) if target.name else ()
    return Selection(
        target.namespace,
        (*name, *_fields(query.get("fieldSelector", ""), target.resource)),
        tuple(_labels(query.get("labelSelector", ""))),
    )


def _fields(text: str, resource: Resource) -> tuple[tuple[str, str, str], ...]:
    found = []
    for term in filter(None, text.split(",")):
        match = re.fullmatch(r"([^=!]+)(==|=|!=)(.*)", term)
        if match is None:
            raise ApiError(400, "BadRequest", f"invalid field selector {term!r}")
        if match[1] not in ("metadata.name", "metadata.namespace", *resource.selectable):
            raise ApiError(400, "BadRequest", f"field label not supported: {match[1]}")
        found.append((match[1], match[2], match[3]))
    return tuple(found)


def _field(item: Mapping[str, Any], path: str) -> str:
    value: Any = item
    for part in path.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return "" if value is None else str(value)


def _labels(text: str) -> list[tuple[str, str, tuple[str, ...]]]:
    found = []
    for term in re.findall(r"(?:[^,(]|\([^)]*\))+", text):
        in_set = re.fullmatch(r"\s*(\S+)\s+(in|notin)\s+\(([^)]*)\)\s*", term)
        equal = re.fullmatch(r"\s*([^=!\s]+)\s*(==|=|!=)\s*(\S*)\s*", term)
        if in_set:
            values = tuple(v.strip() for v in in_set[3].split(","))
            found.append((in_set[1], in_set[2], values))
        elif equal:
            found.append((equal[1], "notin" if equal[2] == "!=" else "in", (equal[3],)))
        else:
            key = term.strip()
            found.append((key.lstrip("!"), "absent" if key.startswith("!") else "exists", ()))
    return found


def _label_holds(
    labels: Mapping[str, str], key: str, operator: str, values: tuple[str, ...]
) -> bool:
    match operator:
        case "in":
            return key in labels and labels[key] in values
        case "notin":
            return labels.get(key) not in values
        case "exists":
            return key in labels
        case _:
            return key not in labels
