"""The first API object a pod refers to is named as Kubernetes names it."""

from typing import Any

import pytest

from nodeagent.api import Pod
from nodeagent.api.codec import convert
from nodeagent.api.references import api_reference


def _reference(spec: dict[str, Any]) -> str | None:
    return api_reference(convert({"spec": spec}, Pod))


def _env(**source: Any) -> dict[str, Any]:
    return {"containers": [{"env": [{"name": "A", "valueFrom": source}]}]}


def _volume(**source: Any) -> dict[str, Any]:
    return {"volumes": [{"name": "v", **source}]}


def _projected(**source: Any) -> dict[str, Any]:
    return _volume(projected={"sources": [source]})


@pytest.mark.parametrize(
    ("spec", "reference"),
    [
        ({"serviceAccountName": "a"}, "serviceaccounts"),
        ({"serviceAccount": "a"}, "serviceaccounts"),
        ({"imagePullSecrets": [{"name": "s"}]}, "secrets"),
        (_env(secretKeyRef={"name": "s"}), "secrets"),
        (_env(configMapKeyRef={"name": "c"}), "configmaps"),
        ({"containers": [{"envFrom": [{"secretRef": {"name": "s"}}]}]}, "secrets"),
        ({"initContainers": [{"envFrom": [{"configMapRef": {"name": "c"}}]}]}, "configmaps"),
        (_volume(secret={"secretName": "s"}), "secrets"),
        (_volume(azureFile={"secretName": "s"}), "secrets"),
        (_volume(rbd={"secretRef": {"name": "s"}}), "secrets"),
        (_volume(csi={"driver": "d", "nodePublishSecretRef": {"name": "s"}}), "secrets"),
        (_projected(secret={"name": "s"}), "secrets"),
        (_volume(configMap={"name": "c"}), "configmaps"),
        (_projected(configMap={"name": "c"}), "configmaps"),
        ({"resourceClaims": [{"name": "r"}]}, "resourceclaims"),
        (_volume(csi={"driver": "d"}), "csidrivers (via CSI volumes)"),
        (_volume(glusterfs={"endpoints": "e"}), "endpoints (via glusterFS volumes)"),
        (_volume(persistentVolumeClaim={"claimName": "c"}), "persistentvolumeclaims"),
        (_volume(ephemeral={}), "persistentvolumeclaims (via ephemeral volumes)"),
        (_projected(serviceAccountToken={}), "serviceaccounts (via projected volumes)"),
        (_projected(clusterTrustBundle={}), "clustertrustbundles"),
        (_projected(podCertificate={}), "podcertificates"),
    ],
)
def test_references_are_found(spec: dict[str, Any], reference: str) -> None:
    assert _reference(spec) == reference


@pytest.mark.parametrize(
    "spec",
    [
        {},
        _env(fieldRef={"fieldPath": "metadata.name"}),
        _env(fileKeyRef={"volumeName": "v"}),
        _volume(hostPath={"path": "/"}),
        _volume(rbd={}),
        _volume(downwardAPI={}),
        _projected(downwardAPI={}),
        {"runtimeClassName": "r", "priorityClassName": "p"},
    ],
)
def test_what_comes_from_pod_or_node_is_no_reference(spec: dict[str, Any]) -> None:
    assert _reference(spec) is None


def test_the_first_of_several_is_named() -> None:
    both = {**_volume(configMap={"name": "c"}), "imagePullSecrets": [{"name": "s"}]}
    assert _reference(both) == "secrets"
    assert _reference({**both, "serviceAccountName": "a"}) == "serviceaccounts"
