"""Each rule for variables, mounts and devices refuses what breaks it."""

from collections.abc import Callable
from typing import Any

import pytest

Judge = Callable[..., list[str]]


def _at(errors: list[str]) -> list[str]:
    """Prefix the path of the only container."""
    return [f"spec.containers[0].{error}" for error in errors]


_VOLUMES = [
    {"name": "data", "emptyDir": {}},
    {"name": "host", "hostPath": {"path": "/"}},
    {"name": "claim", "persistentVolumeClaim": {"claimName": "c"}},
]


@pytest.mark.parametrize(
    ("env", "errors"),
    [
        ([{"name": "a.b c!"}, {"name": "X", "value": "="}], []),
        ([{}], ["env[0].name: required"]),
        (
            [{"name": "a=b"}],
            ["env[0].name: invalid value \"a=b\": must be printable ASCII without '='"],
        ),
        (
            [{"name": "A", "valueFrom": {}}],
            [
                (
                    'env[0].valueFrom: invalid value "": needs one of '
                    "fieldRef, resourceFieldRef, configMapKeyRef, secretKeyRef, fileKeyRef"
                )
            ],
        ),
        (
            [{"name": "A", "value": "x", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}}],
            ['env[0].valueFrom: invalid value "": may not be set when value is set'],
        ),
        (
            [
                {
                    "name": "A",
                    "valueFrom": {
                        "fieldRef": {"fieldPath": "status.podIPs"},
                        "secretKeyRef": {"name": "s", "key": "k"},
                    },
                }
            ],
            ['env[0].valueFrom: invalid value "": may not have more than one source'],
        ),
        ([{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['a/b']"}}}], []),
        (
            [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.annotations['a']"}}}],
            [],
        ),
        (
            [{"name": "A", "valueFrom": {"fieldRef": {"apiVersion": "v2"}}}],
            [
                (
                    'env[0].valueFrom.fieldRef.apiVersion: unsupported value "v2": '
                    'supported values: "v1"'
                ),
                "env[0].valueFrom.fieldRef.fieldPath: required",
            ],
        ),
        (
            [{"name": "A", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}}],
            [],
        ),
        (
            [
                {
                    "name": "A",
                    "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "divisor": "2"}},
                }
            ],
            [
                (
                    'env[0].valueFrom.resourceFieldRef.divisor: unsupported value "2": '
                    'supported values: "1m", "1"'
                )
            ],
        ),
        (
            [{"name": "A", "valueFrom": {"resourceFieldRef": {}}}],
            ["env[0].valueFrom.resourceFieldRef.resource: required"],
        ),
        (
            [
                {"name": "A", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "..k"}}},
                {"name": "B", "valueFrom": {"secretKeyRef": {"key": "a b"}}},
            ],
            [
                (
                    'env[0].valueFrom.configMapKeyRef.key: invalid value "..k": '
                    "must not be '.' nor start with '..'"
                ),
                "env[1].valueFrom.secretKeyRef.name: required",
                (
                    'env[1].valueFrom.secretKeyRef.key: invalid value "a b": '
                    "must consist of letters, digits, '-', '_' and '.'"
                ),
            ],
        ),
        (
            [
                {
                    "name": "A",
                    "valueFrom": {"fileKeyRef": {"volumeName": "data", "path": "e", "key": "K"}},
                }
            ],
            [],
        ),
        (
            [{"name": "A", "valueFrom": {"fileKeyRef": {"volumeName": "host", "path": "/e"}}}],
            [
                "env[0].valueFrom.fileKeyRef.key: required",
                'env[0].valueFrom.fileKeyRef.path: invalid value "/e": must be a relative path',
                (
                    'env[0].valueFrom.fileKeyRef.volumeName: invalid value "host": '
                    "must be an emptyDir volume"
                ),
            ],
        ),
        (
            [
                {
                    "name": "A",
                    "valueFrom": {"fileKeyRef": {"volumeName": "no", "path": "..", "key": "k"}},
                }
            ],
            [
                "env[0].valueFrom.fileKeyRef.path: invalid value \"..\": must not contain '..'",
                (
                    'env[0].valueFrom.fileKeyRef.volumeName: not found: "no": '
                    "must be one of spec.volumes"
                ),
            ],
        ),
    ],
)
def test_env(judge: Judge, env: list[Any], errors: list[str]) -> None:
    assert judge({"volumes": _VOLUMES}, {"env": env}) == _at(errors)


def test_unknown_fields_of_the_pod_are_refused_in_the_environment(judge: Judge) -> None:
    refs = [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels"}}}]
    [message] = judge(container={"env": refs})
    assert 'fieldPath: unsupported value "metadata.labels": supported values: "meta' in message
    refs = [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['?']"}}}]
    [message] = judge(container={"env": refs})
    assert "invalid value \"metadata.labels['?']\": its key its name must" in message
    sizes = [{"name": "A", "valueFrom": {"resourceFieldRef": {"resource": "status.cpu"}}}]
    [message] = judge(container={"env": sizes})
    assert 'resource: unsupported value "status.cpu": supported values: "limits.cpu"' in message


@pytest.mark.parametrize(
    ("sources", "errors"),
    [
        ([{"prefix": "P_", "configMapRef": {"name": "c"}}], []),
        ([{}], ['envFrom[0]: invalid value "": needs one of configMapRef, secretRef']),
        (
            [{"prefix": "=", "configMapRef": {}, "secretRef": {"name": "s"}}],
            [
                "envFrom[0].prefix: invalid value \"=\": must be printable ASCII without '='",
                "envFrom[0].configMapRef.name: required",
                "envFrom[0].secretRef: forbidden: may not have more than one source",
            ],
        ),
    ],
)
def test_env_from(judge: Judge, sources: list[Any], errors: list[str]) -> None:
    assert judge(container={"envFrom": sources}) == _at(errors)


@pytest.mark.parametrize(
    ("mounts", "errors"),
    [
        ([{"name": "data", "mountPath": "/d", "subPath": "a/..b"}], []),
        ([{}], ["volumeMounts[0].name: required", "volumeMounts[0].mountPath: required"]),
        (
            [{"name": "no", "mountPath": "/d"}],
            ['volumeMounts[0].name: not found: "no": must be one of spec.volumes'],
        ),
        (
            [{"name": "data", "mountPath": "/d"}, {"name": "host", "mountPath": "/d"}],
            ['volumeMounts[1].mountPath: invalid value "/d": must be unique'],
        ),
        (
            [{"name": "data", "mountPath": "/d", "subPath": "/a", "subPathExpr": "a/../b"}],
            [
                'volumeMounts[0].subPath: invalid value "/a": must be a relative path',
                "volumeMounts[0].subPathExpr: invalid value \"a/../b\": must not contain '..'",
                'volumeMounts[0].subPathExpr: invalid value "a/../b": may not be set with subPath',
            ],
        ),
        (
            [{"name": "data", "mountPath": "/d", "mountPropagation": "x"}],
            [
                (
                    'volumeMounts[0].mountPropagation: unsupported value "x": '
                    'supported values: "None", "HostToContainer", "Bidirectional"'
                )
            ],
        ),
        (
            [{"name": "data", "mountPath": "/d", "mountPropagation": "Bidirectional"}],
            [
                (
                    "volumeMounts[0].mountPropagation: forbidden: "
                    "Bidirectional needs a privileged container"
                )
            ],
        ),
        (
            [{"name": "data", "mountPath": "/d", "readOnly": True, "recursiveReadOnly": "Enabled"}],
            [],
        ),
        ([{"name": "data", "mountPath": "/d", "recursiveReadOnly": "Disabled"}], []),
        (
            [
                {
                    "name": "data",
                    "mountPath": "/d",
                    "recursiveReadOnly": "IfPossible",
                    "mountPropagation": "HostToContainer",
                }
            ],
            [
                "volumeMounts[0].recursiveReadOnly: forbidden: needs readOnly to be true",
                "volumeMounts[0].recursiveReadOnly: forbidden: needs mountPropagation to be None",
            ],
        ),
        (
            [{"name": "data", "mountPath": "/d", "recursiveReadOnly": ""}],
            [
                (
                    'volumeMounts[0].recursiveReadOnly: unsupported value "": '
                    'supported values: "Disabled", "IfPossible", "Enabled"'
                )
            ],
        ),
    ],
)
def test_mounts(judge: Judge, mounts: list[Any], errors: list[str]) -> None:
    assert judge({"volumes": _VOLUMES}, {"volumeMounts": mounts}) == _at(errors)


def test_a_privileged_container_may_propagate_mounts_both_ways(judge: Judge) -> None:
    mount = {"name": "data", "mountPath": "/d", "mountPropagation": "Bidirectional"}
    container = {"volumeMounts": [mount], "securityContext": {"privileged": True}}
    assert judge({"volumes": _VOLUMES}, container) == []


@pytest.mark.parametrize(
    ("devices", "errors"),
    [
        ([{"name": "claim", "devicePath": "/dev/x"}], []),
        ([{"name": "claim"}], ["volumeDevices[0].devicePath: required"]),
        (
            [{"name": "host", "devicePath": "/dev/../x"}],
            [
                (
                    'volumeDevices[0].name: invalid value "host": '
                    "must be a persistentVolumeClaim or ephemeral volume"
                ),
                "volumeDevices[0].devicePath: invalid value \"/dev/../x\": must not contain '..'",
            ],
        ),
        (
            [{"name": "claim", "devicePath": "/dev/x"}] * 2,
            [
                'volumeDevices[1].name: duplicate value "claim"',
                'volumeDevices[1].devicePath: invalid value "/dev/x": must be unique',
            ],
        ),
    ],
)
def test_devices(judge: Judge, devices: list[Any], errors: list[str]) -> None:
    assert judge({"volumes": _VOLUMES}, {"volumeDevices": devices}) == _at(errors)


def test_a_volume_is_a_mount_or_a_device_at_a_path_of_its_own(judge: Judge) -> None:
    container = {
        "volumeMounts": [{"name": "claim", "mountPath": "/x"}],
        "volumeDevices": [{"name": "claim", "devicePath": "/x"}],
    }
    assert judge({"volumes": _VOLUMES}, container) == _at(
        [
            'volumeMounts[0].mountPath: invalid value "/x": is the path of a volume device',
            'volumeDevices[0].name: invalid value "claim": is mounted as a file system, too',
        ]
    )
