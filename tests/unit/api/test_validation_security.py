"""Each rule for security contexts refuses what breaks it, with path and reason."""

from collections.abc import Callable
from typing import Any

import pytest

Judge = Callable[..., list[str]]

_APP_ARMOR = "appArmorProfile.localhostProfile"
_PROFILES = 'supported values: "Unconfined", "RuntimeDefault", "Localhost"'


@pytest.mark.parametrize(
    ("context", "errors"),
    [
        ({"runAsUser": 0, "fsGroup": 2**31 - 1, "supplementalGroups": [1]}, []),
        (
            {"runAsUser": -1, "runAsGroup": 2**31, "fsGroup": -1, "supplementalGroups": [0, -1]},
            [
                "runAsUser: invalid value -1: must be between 0 and 2147483647",
                "runAsGroup: invalid value 2147483648: must be between 0 and 2147483647",
                "fsGroup: invalid value -1: must be between 0 and 2147483647",
                "supplementalGroups[1]: invalid value -1: must be between 0 and 2147483647",
            ],
        ),
        (
            {
                "fsGroupChangePolicy": "x",
                "supplementalGroupsPolicy": "y",
                "seLinuxChangePolicy": "z",
            },
            [
                (
                    'fsGroupChangePolicy: unsupported value "x": '
                    'supported values: "OnRootMismatch", "Always"'
                ),
                (
                    'supplementalGroupsPolicy: unsupported value "y": '
                    'supported values: "Merge", "Strict"'
                ),
                (
                    'seLinuxChangePolicy: unsupported value "z": '
                    'supported values: "Recursive", "MountOption"'
                ),
            ],
        ),
        (
            {"sysctls": [{"name": "net.ipv4.ip_forward"}, {"name": "net/ipv4/ip_forward"}, {}]},
            [
                'sysctls[1].name: duplicate value "net/ipv4/ip_forward"',
                "sysctls[2].name: required",
            ],
        ),
        (
            {"sysctls": [{"name": "a..b"}]},
            [
                (
                    'sysctls[0].name: invalid value "a..b": must be parts of lower-case letters, '
                    "digits, '-' and '_', joined by '.' or '/'"
                )
            ],
        ),
    ],
)
def test_pods(judge: Judge, context: dict[str, Any], errors: list[str]) -> None:
    expected = [f"spec.securityContext.{error}" for error in errors]
    assert judge({"securityContext": context}) == expected


def test_sysctls_of_a_host_namespace_are_refused(judge: Judge) -> None:
    names = ["net.core.somaxconn", "kernel.shmmax", "kernel.msgmax", "kernel.sem", "fs.mqueue.x"]
    names.append("kernel.domainname")
    context = {"sysctls": [{"name": name, "value": "1"} for name in names]}
    path = "spec.securityContext.sysctls"
    assert judge({"securityContext": context, "hostNetwork": True, "hostIPC": True}) == [
        f'{path}[0].name: invalid value "{names[0]}": may not be set with hostNetwork',
        *(
            f'{path}[{index}].name: invalid value "{names[index]}": may not be set with hostIPC'
            for index in range(1, 5)
        ),
    ]


@pytest.mark.parametrize(
    ("context", "errors"),
    [
        ({"seccompProfile": {"type": "RuntimeDefault"}}, []),
        ({"seccompProfile": {"type": "Localhost", "localhostProfile": "a/b.json"}}, []),
        ({"seccompProfile": {"type": "Localhost"}}, ["seccompProfile.localhostProfile: required"]),
        (
            {"seccompProfile": {"type": "Localhost", "localhostProfile": "../b"}},
            ["seccompProfile.localhostProfile: invalid value \"../b\": must not contain '..'"],
        ),
        (
            {"seccompProfile": {"type": "Unconfined", "localhostProfile": "b"}},
            ['seccompProfile.localhostProfile: invalid value "b": needs the type Localhost'],
        ),
        (
            {"seccompProfile": {"type": "x"}},
            [f'seccompProfile.type: unsupported value "x": {_PROFILES}'],
        ),
        (
            {"appArmorProfile": {"type": "x"}},
            [f'appArmorProfile.type: unsupported value "x": {_PROFILES}'],
        ),
        ({"appArmorProfile": {"type": "Localhost", "localhostProfile": "a"}}, []),
        (
            {"appArmorProfile": {"type": "RuntimeDefault", "localhostProfile": "b"}},
            ['appArmorProfile.localhostProfile: invalid value "b": needs the type Localhost'],
        ),
        (
            {"appArmorProfile": {"type": "Localhost", "localhostProfile": " "}},
            ["appArmorProfile.localhostProfile: required: the type Localhost needs it"],
        ),
        (
            {"appArmorProfile": {"type": "Localhost", "localhostProfile": "a "}},
            [f'{_APP_ARMOR}: invalid value "a ": must not have blanks around it'],
        ),
        (
            {"appArmorProfile": {"type": "Localhost", "localhostProfile": "a" * 4096}},
            ["appArmorProfile.localhostProfile: too long: must have at most 4095 bytes"],
        ),
    ],
)
@pytest.mark.parametrize("level", ["pod", "container"])
def test_profiles(judge: Judge, level: str, context: dict[str, Any], errors: list[str]) -> None:
    given = {"securityContext": context}
    found = judge(given) if level == "pod" else judge(container=given)
    path = "spec" if level == "pod" else "spec.containers[0]"
    assert found == [f"{path}.securityContext.{error}" for error in errors]


@pytest.mark.parametrize(
    ("context", "errors"),
    [
        ({"allowPrivilegeEscalation": False, "capabilities": {"add": ["NET_ADMIN"]}}, []),
        ({"allowPrivilegeEscalation": True, "privileged": True}, []),
        (
            {
                "allowPrivilegeEscalation": False,
                "privileged": True,
                "capabilities": {"add": ["CAP_SYS_ADMIN"]},
            },
            [
                (
                    "allowPrivilegeEscalation: invalid value false: "
                    "may not be false for a privileged container"
                ),
                (
                    "allowPrivilegeEscalation: invalid value false: "
                    "may not be false with CAP_SYS_ADMIN added"
                ),
            ],
        ),
        ({"runAsUser": -1}, ["runAsUser: invalid value -1: must be between 0 and 2147483647"]),
        (
            {"procMount": "x"},
            ['procMount: unsupported value "x": supported values: "Default", "Unmasked"'],
        ),
        (
            {"procMount": "Unmasked"},
            ['procMount: invalid value "Unmasked": needs spec.hostUsers to be false'],
        ),
    ],
)
def test_containers(judge: Judge, context: dict[str, Any], errors: list[str]) -> None:
    expected = [f"spec.containers[0].securityContext.{error}" for error in errors]
    assert judge(container={"securityContext": context}) == expected


def test_own_user_namespaces_allow_unmasked_proc_but_no_host_namespaces(judge: Judge) -> None:
    container = {"securityContext": {"procMount": "Unmasked"}}
    assert judge({"hostUsers": False}, container) == []
    device = {"name": "c", "devicePath": "/d"}
    spec = {
        **dict.fromkeys(("hostNetwork", "hostPID", "hostIPC"), True),
        "hostUsers": False,
        "volumes": [{"name": "c", "persistentVolumeClaim": {"claimName": "c"}}],
    }
    names = ("hostNetwork", "hostPID", "hostIPC", "containers[0].volumeDevices")
    assert judge(spec, {"volumeDevices": [device]}) == [
        f"spec.{name}: forbidden: may not be set when hostUsers is false" for name in names
    ]
