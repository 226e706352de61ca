"""Each rule for probes and hooks refuses what breaks it."""

from collections.abc import Callable
from typing import Any

import pytest

Judge = Callable[..., list[str]]


def _at(errors: list[str]) -> list[str]:
    """Prefix the path of the only container."""
    return [f"spec.containers[0].{error}" for error in errors]


@pytest.mark.parametrize(
    ("probe", "errors"),
    [
        ({"exec": {"command": ["true"]}}, []),
        ({"httpGet": {"port": "web", "httpHeaders": [{"name": "X-A"}]}}, []),
        ({"grpc": {"port": 1}}, []),
        ({}, [": required: one of exec, httpGet, tcpSocket, grpc"]),
        (
            {"exec": {}, "tcpSocket": {"port": 0}},
            [
                ".tcpSocket: forbidden: may not have more than one handler",
                ".exec.command: required",
                ".tcpSocket.port: invalid value 0: must be between 1 and 65535",
            ],
        ),
        (
            {"httpGet": {"port": "", "scheme": "ftp", "httpHeaders": [{"name": "a b"}]}},
            [
                ".httpGet.port: required",
                '.httpGet.scheme: unsupported value "ftp": supported values: "HTTP", "HTTPS"',
                (
                    '.httpGet.httpHeaders[0].name: invalid value "a b": '
                    "must be a valid HTTP header name"
                ),
            ],
        ),
        (
            {"grpc": {"port": 1}, "initialDelaySeconds": -1, "failureThreshold": -1},
            [
                ".initialDelaySeconds: invalid value -1: must be at least 0",
                ".failureThreshold: invalid value -1: must be at least 0",
            ],
        ),
    ],
)
@pytest.mark.parametrize("kind", ["livenessProbe", "readinessProbe", "startupProbe"])
def test_probes(judge: Judge, kind: str, probe: dict[str, Any], errors: list[str]) -> None:
    assert judge(container={kind: probe}) == [
        f"spec.containers[0].{kind}{error}" for error in errors
    ]


def test_only_readiness_counts_successes_and_never_stops_the_container(judge: Judge) -> None:
    probe = {"grpc": {"port": 1}, "successThreshold": 2, "terminationGracePeriodSeconds": 0}
    assert judge(container={"readinessProbe": probe, "livenessProbe": probe}) == _at(
        [
            "livenessProbe.successThreshold: invalid value 2: must be 1",
            "livenessProbe.terminationGracePeriodSeconds: invalid value 0: must be at least 1",
            (
                "readinessProbe.terminationGracePeriodSeconds: forbidden: "
                "a readiness probe stops nothing"
            ),
        ]
    )


@pytest.mark.parametrize(
    ("lifecycle", "errors"),
    [
        ({"preStop": {"sleep": {"seconds": 0}}, "postStart": {"sleep": {"seconds": 30}}}, []),
        (
            {"preStop": {"sleep": {"seconds": 31}}},
            ["preStop.sleep.seconds: invalid value 31: must be between 0 and 30"],
        ),
        ({"preStop": {}}, ["preStop: required: one of exec, httpGet, tcpSocket, sleep"]),
        (
            {"postStart": {"exec": {"command": ["a"]}, "sleep": {"seconds": 1}}},
            ["postStart.sleep: forbidden: may not have more than one handler"],
        ),
        (
            {"stopSignal": "SIGUSR1"},
            ["stopSignal: forbidden: needs spec.os.name to be linux or windows"],
        ),
    ],
)
def test_hooks(judge: Judge, lifecycle: dict[str, Any], errors: list[str]) -> None:
    assert judge(container={"lifecycle": lifecycle}) == _at(
        [f"lifecycle.{error}" for error in errors]
    )


def test_stop_signals_are_those_of_the_operating_system(judge: Judge) -> None:
    container = {"lifecycle": {"stopSignal": "SIGRTMIN+3"}}
    assert judge({"os": {"name": "linux"}}, container) == []
    assert judge({"os": {"name": "windows"}}, container) == _at(
        [
            (
                'lifecycle.stopSignal: unsupported value "SIGRTMIN+3": '
                'supported values: "SIGKILL", "SIGTERM"'
            )
        ]
    )
