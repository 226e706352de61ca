"""Each rule for the pod as a whole refuses what breaks it, with path and reason."""

from collections.abc import Callable
from typing import Any

import pytest

from nodeagent.api import Pod
from nodeagent.api.validation import FieldError, Reason, validate_pod

Judge = Callable[..., list[str]]

_LABEL = (
    "must consist of lower-case letters, digits and '-', and start and end with a letter or digit"
)
_SUBDOMAIN = (
    "must consist of lower-case letters, digits, '-' and '.', "
    "and each part must start and end with a letter or digit"
)
_QUALIFIED = (
    "its name must consist of letters, digits, '-', '_' and '.', "
    "and start and end with a letter or digit"
)


def test_a_plain_pod_is_valid(judge: Judge) -> None:
    assert judge() == []


def test_an_empty_pod_has_all_its_faults_listed() -> None:
    assert [str(error) for error in validate_pod(Pod())] == [
        "metadata.name: required",
        "metadata.namespace: required",
        "spec.containers: required",
        "spec.restartPolicy: required: supported values: Always, OnFailure, Never",
        (
            "spec.dnsPolicy: required: supported values: "
            "ClusterFirstWithHostNet, ClusterFirst, Default, None"
        ),
    ]


def test_errors_are_data() -> None:
    assert validate_pod(Pod())[0] == FieldError("metadata.name", Reason.REQUIRED)


def test_long_values_are_cut_in_messages(judge: Judge) -> None:
    [message] = judge({"hostname": "x" * 1000})
    assert message.startswith('spec.hostname: invalid value "xxxx')
    assert message.endswith("...: must have at most 63 characters")
    assert len(message) < 200


@pytest.mark.parametrize(
    ("metadata", "errors"),
    [
        ({"name": "a.b-c.9"}, []),
        ({"name": "A"}, [f'metadata.name: invalid value "A": {_SUBDOMAIN}']),
        ({"name": "a\n"}, [f'metadata.name: invalid value "a\\n": {_SUBDOMAIN}']),
        ({"name": "a" * 253}, []),
        ({"namespace": "a.b"}, [f'metadata.namespace: invalid value "a.b": {_LABEL}']),
        ({"labels": {"a.b/c_D.e": "", "x": "V_1.2-3"}}, []),
        ({"labels": {"-": "a"}}, [f'metadata.labels[-]: invalid value "-": {_QUALIFIED}']),
        (
            {"labels": {"/a": "b"}},
            [f'metadata.labels[/a]: invalid value "/a": its prefix {_SUBDOMAIN}'],
        ),
        (
            {"labels": {"a": "b" * 64}},
            [
                f'metadata.labels[a]: invalid value "{"b" * 64}": must have at most 63 characters',
            ],
        ),
        (
            {"labels": {"a": "b c"}},
            [
                (
                    'metadata.labels[a]: invalid value "b c": must be empty or consist of letters, '
                    "digits, '-', '_' and '.', and start and end with a letter or digit"
                )
            ],
        ),
        ({"annotations": {"Example.COM/x": "any text\n"}}, []),
        (
            {"annotations": {"a b": ""}},
            [f'metadata.annotations[a b]: invalid value "a b": {_QUALIFIED}'],
        ),
        ({"annotations": {"a": "x" * (256 * 1024 - 1)}}, []),
        (
            {"annotations": {"a": "x" * 256 * 1024}},
            ["metadata.annotations: too long: must have at most 262144 bytes"],
        ),
        ({"generation": -1}, ["metadata.generation: invalid value -1: must be at least 0"]),
        (
            {"finalizers": ["a.b/c", "?"]},
            [f'metadata.finalizers[1]: invalid value "?": {_QUALIFIED}'],
        ),
        (
            {
                "ownerReferences": [
                    {"apiVersion": "v1", "kind": "A", "name": "a", "uid": "1", "controller": True},
                    {"apiVersion": "v1", "kind": "B", "name": "b", "controller": True},
                ]
            },
            [
                "metadata.ownerReferences[1].uid: required",
                (
                    'metadata.ownerReferences[1].controller: invalid value "b": '
                    "only one owner may be the controller"
                ),
            ],
        ),
    ],
)
def test_metadata(judge: Judge, metadata: dict[str, Any], errors: list[str]) -> None:
    assert judge(metadata=metadata) == errors


@pytest.mark.parametrize(
    ("spec", "errors"),
    [
        ({"containers": []}, ["spec.containers: required"]),
        (
            {"ephemeralContainers": [{"name": "e", "image": "a"}]},
            ["spec.ephemeralContainers: forbidden: may only be added to a running pod"],
        ),
        (
            {"schedulingGates": [{"name": "g"}, {"name": "g"}]},
            [
                "spec.schedulingGates: forbidden: the pod has its node already",
                'spec.schedulingGates[1].name: duplicate value "g"',
            ],
        ),
        ({"activeDeadlineSeconds": 1}, []),
        (
            {"activeDeadlineSeconds": 0},
            [
                "spec.activeDeadlineSeconds: invalid value 0: must be between 1 and 2147483647",
            ],
        ),
        (
            {"activeDeadlineSeconds": 2**31},
            [
                (
                    "spec.activeDeadlineSeconds: invalid value 2147483648: "
                    "must be between 1 and 2147483647"
                ),
            ],
        ),
        (
            {"restartPolicy": "Sometimes"},
            [
                (
                    'spec.restartPolicy: unsupported value "Sometimes": '
                    'supported values: "Always", "OnFailure", "Never"'
                )
            ],
        ),
        (
            {"dnsPolicy": "x"},
            [
                (
                    'spec.dnsPolicy: unsupported value "x": supported values: '
                    '"ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"'
                )
            ],
        ),
        (
            {"preemptionPolicy": ""},
            [
                (
                    'spec.preemptionPolicy: unsupported value "": '
                    'supported values: "PreemptLowerPriority", "Never"'
                )
            ],
        ),
        ({"hostname": "a.b"}, [f'spec.hostname: invalid value "a.b": {_LABEL}']),
        ({"subdomain": "a_b"}, [f'spec.subdomain: invalid value "a_b": {_LABEL}']),
        ({"hostnameOverride": "a.b"}, []),
        ({"hostnameOverride": ""}, ["spec.hostnameOverride: required"]),
        (
            {"hostnameOverride": "a" * 65},
            ["spec.hostnameOverride: too long: must have at most 64 bytes"],
        ),
        (
            {"hostnameOverride": "a", "hostNetwork": True, "setHostnameAsFQDN": True},
            [
                "spec.hostnameOverride: forbidden: may not be set with hostNetwork",
                "spec.hostnameOverride: forbidden: may not be set with setHostnameAsFQDN",
            ],
        ),
        ({"nodeName": "_"}, [f'spec.nodeName: invalid value "_": {_SUBDOMAIN}']),
        ({"nodeSelector": {"": "a"}}, ["spec.nodeSelector[]: required"]),
        (
            {"serviceAccountName": "A"},
            [f'spec.serviceAccountName: invalid value "A": {_SUBDOMAIN}'],
        ),
        ({"priorityClassName": "A"}, [f'spec.priorityClassName: invalid value "A": {_SUBDOMAIN}']),
        ({"runtimeClassName": "A"}, [f'spec.runtimeClassName: invalid value "A": {_SUBDOMAIN}']),
        ({"imagePullSecrets": [{}]}, ["spec.imagePullSecrets[0].name: required"]),
        (
            {"readinessGates": [{"conditionType": "a/b"}, {}]},
            ["spec.readinessGates[1].conditionType: required"],
        ),
        (
            {"schedulingGroup": {"podGroupName": "A"}},
            [f'spec.schedulingGroup.podGroupName: invalid value "A": {_SUBDOMAIN}'],
        ),
        (
            {"hostAliases": [{"ip": "1.2.3.4", "hostnames": ["a.b", "B"]}, {"ip": "fe80::1%eth0"}]},
            [
                f'spec.hostAliases[0].hostnames[1]: invalid value "B": {_SUBDOMAIN}',
                (
                    'spec.hostAliases[1].ip: invalid value "fe80::1%eth0": '
                    "must be an IP address without a zone"
                ),
            ],
        ),
        (
            {"shareProcessNamespace": True, "hostPID": True},
            ["spec.shareProcessNamespace: invalid value true: may not be set with hostPID"],
        ),
    ],
)
def test_spec(judge: Judge, spec: dict[str, Any], errors: list[str]) -> None:
    assert judge(spec) == errors


@pytest.mark.parametrize(
    ("config", "policy", "errors"),
    [
        ({"nameservers": ["1.1.1.1", "::1"]}, "None", []),
        (
            {},
            "None",
            ["spec.dnsConfig.nameservers: required: dnsPolicy None needs at least one"],
        ),
        (
            {"nameservers": ["a", "1.1.1.1", "1.1.1.2", "1.1.1.3"]},
            "ClusterFirst",
            [
                "spec.dnsConfig.nameservers: too many: 4: must have at most 3 items",
                (
                    'spec.dnsConfig.nameservers[0]: invalid value "a": '
                    "must be an IP address (for example 10.9.8.7 or 2001:db8::ffff)"
                ),
            ],
        ),
        ({"searches": [".", "a.b.", "_srv.a"]}, "Default", []),
        (
            {"searches": ["a"] * 33},
            "Default",
            ["spec.dnsConfig.searches: too many: 33: must have at most 32 items"],
        ),
        (
            {"searches": [".".join(["x" * 60] * 4)] * 9},
            "Default",
            ["spec.dnsConfig.searches: too long: must have at most 2048 characters together"],
        ),
        (
            {"searches": ["A"], "options": [{"name": "ndots"}, {"value": "1"}]},
            "Default",
            [
                f'spec.dnsConfig.searches[0]: invalid value "A": {_SUBDOMAIN}',
                "spec.dnsConfig.options[1].name: required",
            ],
        ),
    ],
)
def test_dns(judge: Judge, config: dict[str, Any], policy: str, errors: list[str]) -> None:
    assert judge({"dnsPolicy": policy, "dnsConfig": config}) == errors


_WINDOWS = {
    "name": "app",
    "image": "a",
    "securityContext": {"runAsUser": 0, "privileged": False, "windowsOptions": {}},
}


@pytest.mark.parametrize(
    ("spec", "errors"),
    [
        ({"os": {"name": "linux"}, "securityContext": {"runAsUser": 0}}, []),
        (
            {"os": {"name": "plan9"}},
            ['spec.os.name: unsupported value "plan9": supported values: "linux", "windows"'],
        ),
        ({"os": {}}, ["spec.os.name: required: supported values: linux, windows"]),
        (
            {"os": {"name": "linux"}, "securityContext": {"windowsOptions": {}}},
            [
                "spec.securityContext.windowsOptions: forbidden: may not be set for linux pods",
            ],
        ),
        (
            {
                "os": {"name": "windows"},
                "hostPID": True,
                "hostUsers": True,
                "securityContext": {"fsGroup": 0, "windowsOptions": {}},
                "containers": [_WINDOWS],
            },
            [
                f"spec.{name}: forbidden: may not be set for windows pods"
                for name in (
                    "securityContext.fsGroup",
                    "hostPID",
                    "hostUsers",
                    "containers[0].securityContext.privileged",
                    "containers[0].securityContext.runAsUser",
                )
            ],
        ),
    ],
)
def test_an_operating_system_bans_what_it_lacks(
    judge: Judge, spec: dict[str, Any], errors: list[str]
) -> None:
    assert judge(spec) == errors
