"""Each rule for containers refuses what breaks it, with path and reason."""

from collections.abc import Callable
from typing import Any

import pytest

Judge = Callable[..., list[str]]

_APP = {"name": "app", "image": "busybox:1"}
_LABEL = (
    "must consist of lower-case letters, digits and '-', and start and end with a letter or digit"
)


def _at(errors: list[str]) -> list[str]:
    """Prefix the path of the only container."""
    return [f"spec.containers[0].{error}" for error in errors]


@pytest.mark.parametrize(
    ("container", "errors"),
    [
        ({"name": ""}, ["name: required"]),
        ({"name": "App"}, [f'name: invalid value "App": {_LABEL}']),
        ({"image": ""}, ["image: required"]),
        ({"image": " a"}, ['image: invalid value " a": must not have blanks around it']),
        (
            {"imagePullPolicy": "Maybe"},
            [
                (
                    'imagePullPolicy: unsupported value "Maybe": '
                    'supported values: "Always", "IfNotPresent", "Never"'
                )
            ],
        ),
        (
            {"terminationMessagePolicy": "x"},
            [
                (
                    'terminationMessagePolicy: unsupported value "x": '
                    'supported values: "File", "FallbackToLogsOnError"'
                )
            ],
        ),
        (
            {"restartPolicy": "x"},
            [
                (
                    'restartPolicy: unsupported value "x": '
                    'supported values: "Always", "OnFailure", "Never"'
                )
            ],
        ),
    ],
)
def test_basics(judge: Judge, container: dict[str, Any], errors: list[str]) -> None:
    assert judge(container=container) == _at(errors)


def test_names_are_unique_over_regular_and_init_containers(judge: Judge) -> None:
    spec = {"containers": [_APP, _APP], "initContainers": [_APP, {**_APP, "name": "b"}]}
    assert judge(spec) == [
        'spec.containers[1].name: duplicate value "app"',
        'spec.initContainers[0].name: duplicate value "app"',
    ]


@pytest.mark.parametrize(
    ("ports", "errors"),
    [
        ([{"containerPort": 1}, {"containerPort": 65535, "hostPort": 65535}], []),
        ([{}], ["ports[0].containerPort: required"]),
        (
            [{"containerPort": 65536, "hostPort": -1}],
            [
                "ports[0].containerPort: invalid value 65536: must be between 1 and 65535",
                "ports[0].hostPort: invalid value -1: must be between 0 and 65535",
            ],
        ),
        (
            [{"containerPort": 1, "protocol": "tcp"}],
            ['ports[0].protocol: unsupported value "tcp": supported values: "TCP", "UDP", "SCTP"'],
        ),
        (
            [{"containerPort": 1, "hostIP": "::1"}, {"containerPort": 2, "hostIP": "localhost"}],
            [
                (
                    'ports[1].hostIP: invalid value "localhost": '
                    "must be an IP address (for example 10.9.8.7 or 2001:db8::ffff)"
                )
            ],
        ),
        (
            [{"containerPort": 1, "name": "a"}, {"containerPort": 2, "name": "a"}],
            ['ports[1].name: duplicate value "a"'],
        ),
        (
            [{"containerPort": 1, "name": "1234567890123456"}],
            ['ports[0].name: invalid value "1234567890123456": must have at most 15 characters'],
        ),
        (
            [{"containerPort": 1, "name": "80"}],
            ['ports[0].name: invalid value "80": must have at least one letter'],
        ),
        (
            [{"containerPort": 1, "name": "A"}],
            [
                (
                    'ports[0].name: invalid value "A": '
                    "must consist of lower-case letters, digits and '-'"
                )
            ],
        ),
        (
            [{"containerPort": 1, "name": "a--b"}],
            [
                (
                    'ports[0].name: invalid value "a--b": '
                    "must not start or end with '-', nor have two in a row"
                )
            ],
        ),
    ],
)
def test_ports(judge: Judge, ports: list[Any], errors: list[str]) -> None:
    assert judge(container={"ports": ports}) == _at(errors)


def test_host_ports_are_unique_over_regular_containers(judge: Judge) -> None:
    first = {"containerPort": 1, "hostPort": 80}
    other = [{**first, "protocol": "UDP"}, {**first, "hostIP": "127.0.0.1"}, first]
    containers = [
        {**_APP, "ports": [first]},
        {**_APP, "name": "b", "ports": other},
    ]
    inits = [{**_APP, "name": name, "ports": [first]} for name in ("c", "d")]
    assert judge({"containers": containers, "initContainers": inits}) == [
        'spec.containers[1].ports[2].hostPort: duplicate value "TCP/80"'
    ]
    inits[1]["ports"] = [first, first]
    assert judge({"initContainers": inits}) == [
        'spec.initContainers[1].ports[1].hostPort: duplicate value "TCP/80"'
    ]


def test_in_the_host_network_host_port_and_container_port_are_one(judge: Judge) -> None:
    ports = [{"containerPort": 80}, {"containerPort": 81, "hostPort": 82}]
    assert judge({"hostNetwork": True}, {"ports": ports}) == _at(
        ["ports[1].hostPort: invalid value 82: must equal containerPort when hostNetwork is true"]
    )


_RULE = {"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}}


@pytest.mark.parametrize(
    ("container", "errors"),
    [
        ({"restartPolicy": "Never", "restartPolicyRules": [_RULE]}, []),
        ({"restartPolicyRules": [_RULE]}, ["restartPolicy: required: restart rules need it"]),
        (
            {"restartPolicy": "Never", "restartPolicyRules": [_RULE] * 21},
            ["restartPolicyRules: too many: 21: must have at most 20 items"],
        ),
        (
            {"restartPolicy": "Never", "restartPolicyRules": [{"action": "Restart"}]},
            ["restartPolicyRules[0].exitCodes: required"],
        ),
        (
            {
                "restartPolicy": "Never",
                "restartPolicyRules": [
                    {"action": "x", "exitCodes": {"operator": "x", "values": [1] * 256}}
                ],
            },
            [
                (
                    'restartPolicyRules[0].action: unsupported value "x": '
                    'supported values: "Restart", "RestartAllContainers"'
                ),
                (
                    'restartPolicyRules[0].exitCodes.operator: unsupported value "x": '
                    'supported values: "In", "NotIn"'
                ),
                (
                    "restartPolicyRules[0].exitCodes.values: too many: 256: "
                    "must have at most 255 items"
                ),
            ],
        ),
    ],
)
def test_restart_rules(judge: Judge, container: dict[str, Any], errors: list[str]) -> None:
    assert judge(container=container) == _at(errors)


def test_only_sidecars_among_init_containers_have_probes_and_hooks(judge: Judge) -> None:
    probe = {"tcpSocket": {"port": 80}}
    init = {**_APP, "name": "i", "startupProbe": probe, "lifecycle": {}}
    why = "an init container needs restartPolicy Always for it"
    assert judge({"initContainers": [init]}) == [
        f"spec.initContainers[0].lifecycle: forbidden: {why}",
        f"spec.initContainers[0].startupProbe: forbidden: {why}",
    ]
    assert judge({"initContainers": [{**init, "restartPolicy": "Always"}]}) == []
