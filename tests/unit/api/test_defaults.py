"""Each default of the table is filled in, and what is written stays."""

from typing import Any

import msgspec
import pytest

from nodeagent.api import Pod
from nodeagent.api.codec import convert, enc_hook
from nodeagent.api.defaults import set_defaults
from nodeagent.api.images import ImageName, default_pull_policy, parse_image


def _defaulted(spec: dict[str, Any]) -> dict[str, Any]:
    result = msgspec.to_builtins(set_defaults(convert({"spec": spec}, Pod)), enc_hook=enc_hook)[
        "spec"
    ]
    assert isinstance(result, dict)
    return result


def _container(**fields: Any) -> dict[str, Any]:
    """Default one regular container, given and returned in JSON names."""
    result = _defaulted({"containers": [{"name": "c", **fields}]})["containers"][0]
    assert isinstance(result, dict)
    return result


def _volume(**source: Any) -> dict[str, Any]:
    result = _defaulted({"volumes": [{"name": "v", **source}]})["volumes"][0]
    assert isinstance(result, dict)
    return {name: value for name, value in result.items() if name != "name"}


def test_an_empty_pod_gets_the_defaults_of_its_spec() -> None:
    assert _defaulted({}) == {
        "restartPolicy": "Always",
        "dnsPolicy": "ClusterFirst",
        "schedulerName": "default-scheduler",
        "terminationGracePeriodSeconds": 30,
        "enableServiceLinks": True,
        "securityContext": {},
    }


def test_what_is_written_stays() -> None:
    written = {
        "restartPolicy": "Never",
        "dnsPolicy": "Default",
        "schedulerName": "mine",
        "terminationGracePeriodSeconds": 0,
        "enableServiceLinks": False,
        "securityContext": {"runAsUser": 0},
        "serviceAccountName": "a",
        "serviceAccount": "b",
    }
    assert _defaulted(written) == written


def test_the_old_service_account_field_fills_the_new_one() -> None:
    assert _defaulted({"serviceAccount": "old"})["serviceAccountName"] == "old"


@pytest.mark.parametrize("kind", ["containers", "initContainers", "ephemeralContainers"])
def test_containers_of_every_kind_get_policies_and_message_path(kind: str) -> None:
    assert _defaulted({kind: [{"name": "c", "image": "a"}]})[kind] == (
        {
            "name": "c",
            "image": "a",
            "imagePullPolicy": "Always",
            "terminationMessagePath": "/dev/termination-log",
            "terminationMessagePolicy": "File",
        },
    )


@pytest.mark.parametrize(
    ("image", "policy"),
    [
        ("busybox", "Always"),
        ("busybox:latest", "Always"),
        ("busybox:1.36", "IfNotPresent"),
        ("localhost:5000/a/b", "Always"),
        ("localhost:5000/a/b:v1", "IfNotPresent"),
        ("a@sha256:" + "0" * 64, "IfNotPresent"),
        ("a:latest@sha256:" + "0" * 64, "Always"),
        ("a:v1@sha256:" + "0" * 64, "IfNotPresent"),
        ("Not/Valid:latest:x", "IfNotPresent"),
        ("UPPER", "IfNotPresent"),
        ("", "IfNotPresent"),
    ],
)
def test_the_pull_policy_follows_the_tag(image: str, policy: str) -> None:
    assert default_pull_policy(image) == policy
    assert _container(image=image)["imagePullPolicy"] == policy
    assert _volume(image={"reference": image})["image"]["pullPolicy"] == policy


@pytest.mark.parametrize(
    ("reference", "parsed"),
    [
        ("a", ImageName("a")),
        ("a/b:1", ImageName("a/b", "1")),
        ("Host/a", ImageName("Host/a")),
        ("localhost/a", ImageName("localhost/a")),
        ("r.io:80/a_b/c__d/e--f:T.x-1", ImageName("r.io:80/a_b/c__d/e--f", "T.x-1")),
        ("[::1]:5000/a", ImageName("[::1]:5000/a")),
        ("a@sha256:" + "f" * 32, ImageName("a", "", "sha256:" + "f" * 32)),
        ("a@sha256:" + "f" * 31, None),
        ("a/B", None),
        ("a:", None),
        ("a:" + "t" * 129, None),
        ("a b", None),
        ("-a", None),
        ("a//b", None),
        ("r.io/", None),
        ("0" * 64, None),
        ("x/" + "a" * 254, None),
        ("https://r.io/a", None),
    ],
)
def test_image_references_are_split_or_refused(reference: str, parsed: ImageName | None) -> None:
    assert parse_image(reference) == parsed


def test_ports_speak_tcp() -> None:
    ports = _container(ports=[{"containerPort": 80}, {"containerPort": 53, "protocol": "UDP"}])
    assert [port["protocol"] for port in ports["ports"]] == ["TCP", "UDP"]
    assert "hostPort" not in ports["ports"][0]


def test_in_the_host_network_ports_are_host_ports() -> None:
    container = {"name": "c", "ports": [{"containerPort": 80}]}
    kinds = ("containers", "initContainers", "ephemeralContainers")
    spec = _defaulted({"hostNetwork": True, **{kind: [container] for kind in kinds}})
    host_ports = [spec[kind][0]["ports"][0].get("hostPort") for kind in kinds]
    assert host_ports == [80, 80, None]


@pytest.mark.parametrize("kind", ["livenessProbe", "readinessProbe", "startupProbe"])
def test_probes_get_their_numbers_and_handlers_their_details(kind: str) -> None:
    numbers = {"timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1}
    numbers["failureThreshold"] = 3
    http = {"port": 80, "path": "/", "scheme": "HTTP"}
    assert _container(**{kind: {"httpGet": {"port": 80}}})[kind] == {"httpGet": http, **numbers}
    grpc = {"port": 80, "service": ""}
    assert _container(**{kind: {"grpc": {"port": 80}}})[kind] == {"grpc": grpc, **numbers}
    own = {"exec": {"command": ("x",)}, **dict.fromkeys(numbers, 7)}
    assert _container(**{kind: own})[kind] == own


def test_hooks_get_path_and_scheme() -> None:
    hook = {"httpGet": {"port": "web"}}
    lifecycle = _container(lifecycle={"postStart": hook, "preStop": hook})["lifecycle"]
    complete = {"httpGet": {"port": "web", "path": "/", "scheme": "HTTP"}}
    assert lifecycle == {"postStart": complete, "preStop": complete}


def test_references_in_the_environment_are_completed() -> None:
    env = [
        {"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "B", "valueFrom": {"fileKeyRef": {"volumeName": "v", "path": "p", "key": "k"}}},
        {"name": "C", "valueFrom": {"configMapKeyRef": {"name": "m", "key": "k"}}},
        {"name": "D", "value": "d"},
    ]
    first, second, *rest = _container(env=env)["env"]
    assert first["valueFrom"]["fieldRef"]["apiVersion"] == "v1"
    assert second["valueFrom"]["fileKeyRef"]["optional"] is False
    assert rest == env[2:]


@pytest.mark.parametrize("kind", ["containers", "initContainers"])
def test_requests_follow_limits_and_round_up_to_milli(kind: str) -> None:
    resources = {
        "limits": {"cpu": "1", "memory": "100.0001", "example.com/a": 2},
        "requests": {"cpu": "100u"},
    }
    result = _defaulted({kind: [{"name": "c", "resources": resources}]})[kind][0]["resources"]
    assert result == {
        "limits": {"cpu": "1", "memory": "100001m", "example.com/a": "2"},
        "requests": {"cpu": "1m", "memory": "100001m", "example.com/a": "2"},
    }


def test_ephemeral_containers_get_no_requests() -> None:
    container = {"name": "c", "resources": {"limits": {"cpu": "1u"}}}
    spec = _defaulted({"ephemeralContainers": [container]})
    assert spec["ephemeralContainers"][0]["resources"] == {"limits": {"cpu": "1m"}}


def test_overhead_rounds_up_to_milli() -> None:
    assert _defaulted({"overhead": {"cpu": "1n"}})["overhead"] == {"cpu": "1m"}


def _pod_resources(given: dict[str, Any], *containers: dict[str, Any]) -> dict[str, Any]:
    spec = {
        "resources": given,
        "containers": [{"name": "c", "resources": each} for each in containers],
        "initContainers": [
            {"name": "s", "restartPolicy": "Always", "resources": {"requests": {"cpu": "1"}}},
            {"name": "i", "resources": {"requests": {"cpu": "10"}}},
        ],
    }
    result = _defaulted(spec)["resources"]
    assert isinstance(result, dict)
    return result


def test_pod_requests_are_what_the_containers_need_at_their_peak() -> None:
    # The init container needs 10 next to the sidecar's 1, later all together 1 + 2 + 3.
    containers = [{"requests": {"cpu": "2", "memory": "1Gi"}}, {"requests": {"cpu": "3"}}]
    assert _pod_resources({"limits": {"cpu": "20"}}, *containers) == {
        "limits": {"cpu": "20"},
        "requests": {"cpu": "11", "memory": "1Gi"},
    }


def test_pod_requests_are_the_limits_where_containers_ask_for_nothing() -> None:
    given = {"limits": {"memory": "1Gi", "hugepages-2Mi": "4Mi"}, "requests": {"cpu": "12"}}
    assert _pod_resources(given)["requests"] == {
        "cpu": "12",
        "memory": "1Gi",
        "hugepages-2Mi": "4Mi",
    }


def test_pod_requests_alone_stay_as_they_are() -> None:
    assert _pod_resources({"requests": {"cpu": "12.0001"}}) == {"requests": {"cpu": "12001m"}}
    assert _pod_resources({}) == {}


def test_pod_huge_page_limits_are_the_sum_of_the_containers() -> None:
    pages = {"limits": {"hugepages-2Mi": "2Mi", "cpu": "1"}}
    assert _pod_resources({}, pages, pages) == {
        "limits": {"hugepages-2Mi": "4Mi"},
        "requests": {"hugepages-2Mi": "4Mi", "cpu": "11"},
    }
    asked = {"requests": {"hugepages-2Mi": "8Mi"}}
    assert _pod_resources(asked, pages, pages) == asked


@pytest.mark.parametrize(
    ("source", "completed"),
    [
        ({}, {"emptyDir": {}}),
        ({"hostPath": {"path": "/p"}}, {"hostPath": {"path": "/p", "type": ""}}),
        ({"secret": {"secretName": "s"}}, {"secret": {"secretName": "s", "defaultMode": 0o644}}),
        (
            {"configMap": {"name": "m", "defaultMode": 0}},
            {"configMap": {"name": "m", "defaultMode": 0}},
        ),
        ({"configMap": {"name": "m"}}, {"configMap": {"name": "m", "defaultMode": 0o644}}),
        (
            {"downwardAPI": {"items": [{"path": "p", "fieldRef": {"fieldPath": "f"}}]}},
            {
                "downwardAPI": {
                    "items": ({"path": "p", "fieldRef": {"apiVersion": "v1", "fieldPath": "f"}},),
                    "defaultMode": 0o644,
                }
            },
        ),
        (
            {
                "projected": {
                    "sources": [
                        {"serviceAccountToken": {"path": "t"}},
                        {"downwardAPI": {"items": [{"fieldRef": {"fieldPath": "f"}}]}},
                        {"secret": {"name": "s"}},
                    ]
                }
            },
            {
                "projected": {
                    "sources": (
                        {"serviceAccountToken": {"path": "t", "expirationSeconds": 3600}},
                        {
                            "downwardAPI": {
                                "items": ({"fieldRef": {"apiVersion": "v1", "fieldPath": "f"}},)
                            }
                        },
                        {"secret": {"name": "s"}},
                    ),
                    "defaultMode": 0o644,
                }
            },
        ),
        (
            {"iscsi": {"iqn": "q"}},
            {"iscsi": {"iqn": "q", "lun": 0, "iscsiInterface": "default"}},
        ),
        (
            {"rbd": {"image": "i"}},
            {"rbd": {"image": "i", "pool": "rbd", "user": "admin", "keyring": "/etc/ceph/keyring"}},
        ),
        (
            {"azureDisk": {"diskName": "d"}},
            {
                "azureDisk": {
                    "diskName": "d",
                    "cachingMode": "ReadWrite",
                    "fsType": "ext4",
                    "readOnly": False,
                    "kind": "Shared",
                }
            },
        ),
        (
            {"scaleIO": {"system": "s"}},
            {"scaleIO": {"system": "s", "storageMode": "ThinProvisioned", "fsType": "xfs"}},
        ),
        (
            {"ephemeral": {"volumeClaimTemplate": {"spec": {"accessModes": ["a"]}}}},
            {
                "ephemeral": {
                    "volumeClaimTemplate": {
                        "spec": {
                            "accessModes": ("a",),
                            "volumeMode": "Filesystem",
                        }
                    }
                }
            },
        ),
        ({"ephemeral": {}}, {"ephemeral": {}}),
        ({"nfs": {"server": "s"}}, {"nfs": {"server": "s"}}),
    ],
)
def test_volume_sources_are_completed(source: dict[str, Any], completed: dict[str, Any]) -> None:
    assert _volume(**source) == completed
