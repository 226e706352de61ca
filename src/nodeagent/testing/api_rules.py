"""What the in-memory API server does for some kinds of objects when they come, change and go."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from nodeagent.api import Pod
from nodeagent.api.codec import convert, to_builtins
from nodeagent.api.defaults import set_defaults
from nodeagent.api.times import format_time, parse_time
from nodeagent.kube import ApiError
from nodeagent.testing.api_resources import Resource, Target

MIRROR: Final = "kubernetes.io/config.mirror"
_PRIORITIES: Final = {
    "system-node-critical": 2_000_001_000,
    "system-cluster-critical": 2_000_000_000,
}
_KEPT: Final = (
    "name",
    "namespace",
    "uid",
    "creationTimestamp",
    "generation",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "resourceVersion",
)
"""Metadata that no update changes."""
_NOT_READY: Final = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")

Find = Callable[[str, str, str], Mapping[str, Any] | None]
"""Finds an object by plural, namespace and name."""


def invalid(resource: Resource, name: str, cause: str) -> ApiError:
    """The error 422."""
    message = f'{resource.kind} "{name}" is invalid: {cause}'
    return ApiError(422, "Invalid", message)


def conflict(resource: Resource, name: str, cause: str) -> ApiError:
    """The error 409 of a write that is based on something else than what there is."""
    message = f'Operation cannot be fulfilled on {resource.qualified} "{name}": {cause}'
    return ApiError(409, "Conflict", message)


def check_versions(
    resource: Resource, existing: Mapping[str, Any], uid: object, version: object
) -> None:
    """Refuse a write that was meant for another object, or for another version of it.

    Raises:
        ApiError: 409.
    """
    meta = existing["metadata"]
    if uid and uid != meta["uid"]:
        cause = (
            f"Precondition failed: UID in precondition: {uid}, UID in object meta: {meta['uid']}"
        )
        raise conflict(resource, meta["name"], cause)
    if version and version != meta["resourceVersion"]:
        cause = (
            "the object has been modified; please apply your changes to the latest version "
            "and try again"
        )
        raise conflict(resource, meta["name"], cause)


def complete(resource: Resource, item: dict[str, Any], find: Find, number: int) -> None:
    """Fill in what the server fills in when an object is created; changes ``item``.

    Args:
        resource: of the object.
        item: the object; its metadata is complete.
        find: finds other objects.
        number: differs from one object to the next.

    Raises:
        ApiError: it is not allowed.
    """
    if resource.kind in ("CertificateSigningRequest", "PersistentVolumeClaim"):
        item["status"] = {}
    if resource.status:
        item.setdefault("status", {})
    if resource.kind == "Pod":
        _complete_pod(resource, item, find)
    elif resource.kind == "Service":
        spec = item.setdefault("spec", {})
        if spec.get("type") != "ExternalName" and not spec.get("clusterIP"):
            spec["clusterIP"] = f"10.96.{number // 250 % 250}.{number % 250 + 1}"
        if spec.get("clusterIP"):
            spec.setdefault("clusterIPs", [spec["clusterIP"]])
    elif resource.kind == "CertificateSigningRequest":
        item["spec"].setdefault("username", "system:bootstrap:test")
        item["spec"].setdefault("groups", ["system:bootstrappers", "system:authenticated"])


def _complete_pod(resource: Resource, item: dict[str, Any], find: Find) -> None:
    spec = item.setdefault("spec", {})
    if not spec.get("containers"):
        raise invalid(resource, item["metadata"]["name"], "spec.containers: Required value")
    mirror = MIRROR in (item["metadata"].get("annotations") or {})
    if mirror:
        _check_mirror(item, find)
    _fill_in(item, to_builtins(set_defaults(convert(item, Pod))))
    if not mirror:
        spec.setdefault("serviceAccountName", "default")
    spec.setdefault("priority", _PRIORITIES.get(spec.get("priorityClassName", ""), 0))
    spec.setdefault("preemptionPolicy", "PreemptLowerPriority")
    _tolerate_a_while(spec)
    item["status"] = {"phase": "Pending", "qosClass": _qos_class(spec)}


def _fill_in(item: dict[str, Any], defaults: Mapping[str, Any]) -> None:
    """Take over what is missing, however deep; nothing that is there changes."""
    for key, value in defaults.items():
        mine = item.setdefault(key, value)
        if isinstance(mine, dict) and isinstance(value, Mapping):
            _fill_in(mine, value)
        elif isinstance(mine, list) and isinstance(value, list | tuple):
            for one, other in zip(mine, value, strict=False):
                if isinstance(one, dict):
                    _fill_in(one, other)


def _check_mirror(item: Mapping[str, Any], find: Find) -> None:
    """What a node may say of itself: a mirror pod belongs to its node."""
    node = find("nodes", "", item["spec"].get("nodeName", ""))
    uid = node["metadata"]["uid"] if node is not None else ""
    owners = item["metadata"].get("ownerReferences") or []
    good = len(owners) == 1 and owners[0].get("kind") == "Node" and owners[0].get("controller")
    if not good or not uid or owners[0].get("uid") != uid:
        message = (
            f'pods "{item["metadata"]["name"]}" is forbidden: a mirror pod must have one owner '
            "reference, to its node"
        )
        raise ApiError(403, "Forbidden", message)


def _tolerate_a_while(spec: dict[str, Any]) -> None:
    tolerations = spec.get("tolerations") or []
    for key in _NOT_READY:
        if not any(
            t.get("key", key) == key and t.get("effect", "NoExecute") == "NoExecute"
            for t in tolerations
        ):
            tolerations = [
                *tolerations,
                {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
            ]
    spec["tolerations"] = tolerations


def _qos_class(spec: Mapping[str, Any]) -> str:
    containers = [*spec.get("containers", ()), *spec.get("initContainers", ())]
    resources = [c.get("resources") or {} for c in containers]
    if not any(r.get("requests") or r.get("limits") for r in resources):
        return "BestEffort"
    guaranteed = all(
        {"cpu", "memory"} <= (r.get("limits") or {}).keys()
        and (r.get("requests") or r["limits"]) == r["limits"]
        for r in resources
    )
    return "Guaranteed" if guaranteed else "Burstable"


def check_change(resource: Resource, before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
    """Refuse a change that is not allowed.

    Raises:
        ApiError: 422.
    """
    if resource.kind != "Pod":
        return
    name = before["metadata"]["name"]
    old = (before["metadata"].get("annotations") or {}).get(MIRROR)
    new = (after["metadata"].get("annotations") or {}).get(MIRROR)
    if old != new:
        cause = "metadata.annotations[kubernetes.io/config.mirror]: Forbidden: may not change"
        raise invalid(resource, name, cause)
    if before["spec"].get("nodeName") and before["spec"]["nodeName"] != after["spec"].get(
        "nodeName"
    ):
        cause = "spec: Forbidden: pod updates may not change fields other than some"
        raise invalid(resource, name, cause)


def updated(target: Target, before: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """A copy of what an object becomes by an update through a path, which may not change all."""
    given, had = new.get("metadata") or {}, before["metadata"]
    meta = {
        **{k: v for k, v in given.items() if k not in _KEPT},
        **{k: had[k] for k in _KEPT if k in had},
    }
    return copy.deepcopy({**_merged(target, before, new), "metadata": meta})


def _merged(target: Target, before: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """The same but for its metadata."""
    if target.subresource in ("status", "approval"):
        return {**before, "status": new.get("status") or {}}
    if target.subresource == "ephemeralcontainers":
        added = (new.get("spec") or {}).get("ephemeralContainers", [])
        return {**before, "spec": {**before["spec"], "ephemeralContainers": added}}
    same = {"kind": before["kind"], "apiVersion": before["apiVersion"]}
    status = {"status": before.get("status", {})} if target.resource.status else {}
    return {**new, **same, **status}


def may_go(meta: Mapping[str, Any]) -> bool:
    """Whether nothing holds back the end of an object any more."""
    held = meta.get("finalizers") or meta.get("deletionGracePeriodSeconds")
    return "deletionTimestamp" in meta and not held


def deletion(
    resource: Resource, item: Mapping[str, Any], grace: int | None, now: datetime
) -> dict[str, Any] | None:
    """The metadata of an object that is asked to go, or None when it goes at once.

    Only a shorter grace changes what goes already.
    """
    meta: Mapping[str, Any] = item["metadata"]
    seconds = _grace(resource, item, grace)
    if "deletionTimestamp" in meta:
        before = int(meta.get("deletionGracePeriodSeconds") or 0)
        if grace is None or (seconds >= before and (seconds > 0 or meta.get("finalizers"))):
            return dict(meta)
        begun = parse_time(meta["deletionTimestamp"]) - timedelta(seconds=before)
        end = max(begun + timedelta(seconds=seconds), now)
    else:
        end = now + timedelta(seconds=seconds)
    if not seconds and not meta.get("finalizers"):
        return None
    changed = {
        **meta,
        "deletionTimestamp": format_time(end),
        "deletionGracePeriodSeconds": seconds,
    }
    if meta.get("generation"):
        changed["generation"] = meta["generation"] + 1
    return changed


def _grace(resource: Resource, item: Mapping[str, Any], grace: int | None) -> int:
    if resource.kind != "Pod":
        return 0
    spec, status = item["spec"], item.get("status") or {}
    if not spec.get("nodeName") or status.get("phase") in ("Succeeded", "Failed"):
        return 0
    seconds = spec.get("terminationGracePeriodSeconds", 30) if grace is None else grace
    return 1 if seconds < 0 else int(seconds)


def token_answer(
    body: Mapping[str, Any], find: Find, namespace: str, account: str, number: int, now: datetime
) -> dict[str, Any]:
    """The answer to a request for a token of a service account.

    Raises:
        ApiError: the account, or the object that the token is bound to, is not there.
    """
    if find("serviceaccounts", namespace, account) is None:
        raise ApiError(404, "NotFound", f'serviceaccounts "{account}" not found')
    spec = dict(body.get("spec") or {})
    bound = spec.get("boundObjectRef")
    if bound is not None:
        plural = f"{bound['kind'].lower()}s"
        holder = find(plural, namespace if plural != "nodes" else "", bound["name"])
        if holder is None:
            raise ApiError(404, "NotFound", f'{plural} "{bound["name"]}" not found')
        if bound.get("uid") and bound["uid"] != holder["metadata"]["uid"]:
            cause = (
                f"the UID in the bound object reference ({bound['uid']}) does not match the UID "
                f"in record ({holder['metadata']['uid']}). The object might have been deleted "
                "and then recreated"
            )
            raise ApiError(409, "Conflict", cause)
    seconds = int(spec.setdefault("expirationSeconds", 3600))
    spec.setdefault("audiences", ["https://kubernetes.default.svc"])
    status = {
        "token": f"token-{number}",
        "expirationTimestamp": format_time(now + timedelta(seconds=seconds)),
    }
    return {**body, "spec": spec, "status": status}
