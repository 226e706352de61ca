"""Pods as a real API server sends them: defaulted, with a status and with managedFields."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from nodeagent.bench.manifests import manifest, pod_name
from nodeagent.kube import paths
from nodeagent.testing import ApiStore
from nodeagent.testing.api_store import Request

NODE: Final = "bench-node"
_STARTED: Final = "2026-01-01T00:00:10Z"
_CONDITIONS: Final = (
    "PodReadyToStartContainers",
    "Initialized",
    "Ready",
    "ContainersReady",
    "PodScheduled",
)


def fill(store: ApiStore, pods: int, containers: int = 2) -> None:
    """Create running pods that are bound to ``NODE``."""
    for number in range(pods):
        body = manifest(number, containers)
        body["spec"] |= {"nodeName": NODE, "volumes": _volumes()}
        body["metadata"]["managedFields"] = _managed_fields(containers)
        for container in body["spec"]["containers"]:
            container["volumeMounts"] = [
                {
                    "name": "kube-api-access-x2x4z",
                    "readOnly": True,
                    "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount",
                }
            ]
            container["env"] = [
                {"name": f"SETTING_{index}", "value": f"value-{index}"} for index in range(5)
            ]
        store.create(body, status=_status(number, containers))


def as_list(store: ApiStore) -> bytes:
    """All pods as one list."""
    return msgspec.json.encode(store.handle(Request("GET", paths.PODS, {})))


def _volumes() -> list[dict[str, Any]]:
    token = {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}}
    item = {"key": "ca.crt", "path": "ca.crt"}
    authority = {"configMap": {"name": "kube-root-ca.crt", "items": [item]}}
    namespace = {"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}
    sources = [token, authority, {"downwardAPI": {"items": [namespace]}}]
    return [{"name": "kube-api-access-x2x4z", "projected": {"sources": sources}}]


def _status(number: int, containers: int) -> dict[str, Any]:
    address = f"10.0.{number // 250}.{number % 250 + 1}"
    return {
        "phase": "Running",
        "conditions": [
            {
                "type": kind,
                "status": "True",
                "lastProbeTime": None,
                "lastTransitionTime": _STARTED,
                "observedGeneration": 1,
            }
            for kind in _CONDITIONS
        ],
        "hostIP": "192.0.2.1",
        "hostIPs": [{"ip": "192.0.2.1"}],
        "podIP": address,
        "podIPs": [{"ip": address}],
        "startTime": "2026-01-01T00:00:00Z",
        "qosClass": "Burstable",
        "containerStatuses": [
            {
                "name": f"container-{index}",
                "state": {"running": {"startedAt": _STARTED}},
                "lastState": {},
                "ready": True,
                "restartCount": 0,
                "image": "example.com/bench:1",
                "imageID": f"example.com/bench@sha256:{'0' * 64}",
                "containerID": f"containerd://{number:032x}{index:032x}",
                "started": True,
            }
            for index in range(containers)
        ],
    }


def _managed_fields(containers: int) -> list[dict[str, Any]]:
    """What the server notes of who wrote which field; about half of a pod."""
    empty: dict[str, Any] = {}
    container = {
        f".{''}": empty,
        **{
            f"f:{name}": empty
            for name in ("command", "image", "imagePullPolicy", "name", "resources")
        },
        "f:terminationMessagePath": empty,
        "f:terminationMessagePolicy": empty,
    }
    spec = {
        "f:containers": {
            f'k:{{"name":"container-{index}"}}': container for index in range(containers)
        },
        "f:dnsPolicy": empty,
        "f:enableServiceLinks": empty,
        "f:nodeName": empty,
        "f:restartPolicy": empty,
        "f:schedulerName": empty,
        "f:securityContext": empty,
        "f:terminationGracePeriodSeconds": empty,
    }
    condition = {
        ".": empty,
        **{f"f:{name}": empty for name in ("lastProbeTime", "status", "type")},
        "f:lastTransitionTime": empty,
    }
    status = {
        "f:conditions": {f'k:{{"type":"{kind}"}}': condition for kind in _CONDITIONS},
        "f:containerStatuses": empty,
        "f:hostIP": empty,
        "f:phase": empty,
        "f:podIP": empty,
        "f:startTime": empty,
    }
    entry = {
        "apiVersion": "v1",
        "fieldsType": "FieldsV1",
        "time": _STARTED,
        "operation": "Update",
    }
    return [
        {**entry, "manager": "kubectl-create", "fieldsV1": {"f:spec": spec}},
        {
            **entry,
            "manager": "kubelet",
            "subresource": "status",
            "fieldsV1": {"f:status": status},
        },
    ]


__all__ = ["NODE", "as_list", "fill", "pod_name"]
