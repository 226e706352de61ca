"""Each rule for resources refuses what breaks it, with path and reason."""

from collections.abc import Callable
from typing import Any

import pytest

Judge = Callable[..., list[str]]


def _at(errors: list[str]) -> list[str]:
    """Prefix the path of the only container's resources."""
    return [f"spec.containers[0].resources{error}" for error in errors]


@pytest.mark.parametrize(
    ("resources", "errors"),
    [
        ({"requests": {"cpu": "1", "memory": "1"}, "limits": {"cpu": "1.5"}}, []),
        ({"limits": {"example.com/gpu": 2, "ephemeral-storage": "1Gi"}}, []),
        ({"limits": {"hugepages-2Mi": "4Mi", "cpu": 1}}, []),
        (
            {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}},
            ['.requests[cpu]: invalid value "2": must be at most the limit of 1'],
        ),
        ({"requests": {"cpu": "-1"}}, ['.requests[cpu]: invalid value "-1": must not be negative']),
        (
            {"requests": {"gpu": 1}},
            [
                (
                    '.requests[gpu]: invalid value "gpu": must be one of cpu, memory, '
                    "ephemeral-storage, hugepages-<size>, or have a domain: example.com/gpu"
                ),
                ".limits[gpu]: required: gpu cannot be overcommitted",
            ],
        ),
        (
            {"limits": {"sub.kubernetes.io/x": 1}},
            [
                (
                    '.limits[sub.kubernetes.io/x]: invalid value "sub.kubernetes.io/x": must be '
                    "one of cpu, memory, ephemeral-storage, hugepages-<size>, "
                    "or have a domain: example.com/gpu"
                )
            ],
        ),
        (
            {"limits": {"a.b/": 1}},
            [
                (
                    '.limits[a.b/]: invalid value "a.b/": its name must consist of letters, '
                    "digits, '-', '_' and '.', and start and end with a letter or digit"
                )
            ],
        ),
        (
            {"requests": {"example.com/gpu": 1}, "limits": {"example.com/gpu": 2}},
            ['.requests[example.com/gpu]: invalid value "1": must equal the limit of 2'],
        ),
        (
            {"limits": {"example.com/gpu": "1500m"}},
            ['.limits[example.com/gpu]: invalid value "1500m": must be a whole number'],
        ),
        (
            {"limits": {"hugepages-2Mi": "2Mi"}},
            [": forbidden: huge pages need cpu or memory as well"],
        ),
        (
            {"limits": {"hugepages-2Mi": "3Mi", "cpu": 1}},
            ['.limits[hugepages-2Mi]: invalid value "3Mi": must be a multiple of the page size'],
        ),
        (
            {"limits": {"hugepages-big": "3Mi", "cpu": 1}},
            [
                (
                    '.limits[hugepages-big]: invalid value "hugepages-big": '
                    "must name a page size: hugepages-2Mi"
                )
            ],
        ),
    ],
)
def test_containers(judge: Judge, resources: dict[str, Any], errors: list[str]) -> None:
    assert judge(container={"resources": resources}) == _at(errors)


def test_claims_are_declared_once_with_one_source(judge: Judge) -> None:
    claims = [
        {"name": "a", "resourceClaimName": "c"},
        {"name": "a", "resourceClaimTemplateName": "t"},
        {"name": "b"},
        {"name": "c", "resourceClaimName": "c", "resourceClaimTemplateName": "t"},
    ]
    detail = "needs one of resourceClaimName, resourceClaimTemplateName"
    assert judge({"resourceClaims": claims}) == [
        'spec.resourceClaims[1].name: duplicate value "a"',
        f'spec.resourceClaims[2]: invalid value "b": {detail}',
        f'spec.resourceClaims[3]: invalid value "c": {detail}',
    ]


@pytest.mark.parametrize(
    ("uses", "errors"),
    [
        ([{"name": "a", "request": "x"}, {"name": "a", "request": "y"}, {"name": "b"}], []),
        ([{"name": "a"}, {"name": "a", "request": "x"}], ['.claims[1]: duplicate value "a"']),
        ([{"name": "a", "request": "x"}, {"name": "a"}], ['.claims[1]: duplicate value "a"']),
        ([{"name": "a", "request": "x"}] * 2, ['.claims[1]: duplicate value "a"']),
        (
            [{"name": "z"}, {}],
            [
                '.claims[0].name: not found: "z": must be one of spec.resourceClaims',
                ".claims[1].name: required",
            ],
        ),
    ],
)
def test_containers_use_declared_claims(judge: Judge, uses: list[Any], errors: list[str]) -> None:
    declared = [{"name": name, "resourceClaimName": "c"} for name in ("a", "b")]
    spec = {"resourceClaims": declared}
    assert judge(spec, {"resources": {"claims": uses}}) == _at(errors)


@pytest.mark.parametrize(
    ("policies", "errors"),
    [
        ([{"resourceName": "cpu", "restartPolicy": "NotRequired"}], []),
        (
            [{"resourceName": "disk", "restartPolicy": "x"}],
            [
                '[0].resourceName: unsupported value "disk": supported values: "cpu", "memory"',
                (
                    '[0].restartPolicy: unsupported value "x": '
                    'supported values: "NotRequired", "RestartContainer"'
                ),
            ],
        ),
        (
            [{"resourceName": "cpu", "restartPolicy": "NotRequired"}] * 2,
            ['[1].resourceName: duplicate value "cpu"'],
        ),
        (
            [{"resourceName": "cpu", "restartPolicy": "RestartContainer"}],
            [
                (
                    '[0].restartPolicy: unsupported value "RestartContainer": '
                    'supported values: "NotRequired"'
                )
            ],
        ),
    ],
)
def test_resize_policies(judge: Judge, policies: list[Any], errors: list[str]) -> None:
    expected = [f"spec.containers[0].resizePolicy{error}" for error in errors]
    assert judge({"restartPolicy": "Never"}, {"resizePolicy": policies}) == expected


def test_overhead(judge: Judge) -> None:
    assert judge({"overhead": {"cpu": "1m", "memory": "-1"}}) == [
        'spec.overhead[memory]: invalid value "-1": must not be negative'
    ]


@pytest.mark.parametrize(
    ("resources", "errors"),
    [
        ({"limits": {"cpu": "2"}}, []),
        ({"requests": {"cpu": "1", "memory": "1Gi"}}, []),
        (
            {"requests": {"cpu": "500m"}},
            [
                (
                    'spec.resources.requests[cpu]: invalid value "500m": '
                    "must be at least what the containers request together, 1"
                )
            ],
        ),
        (
            {"limits": {"cpu": "1"}},
            [
                (
                    'spec.containers[0].resources.limits[cpu]: invalid value "2": '
                    "must be at most the pod's limit of 1"
                )
            ],
        ),
        (
            {"requests": {"cpu": "3"}, "limits": {"cpu": "2"}},
            ['spec.resources.requests[cpu]: invalid value "3": must be at most the limit of 2'],
        ),
        (
            {"limits": {"cpu": "2", "ephemeral-storage": "1"}, "claims": [{"name": "a"}]},
            [
                (
                    'spec.resources: unsupported value "ephemeral-storage": '
                    'supported values: "cpu", "memory", "hugepages-<size>"'
                ),
                "spec.resources.claims: forbidden: may not be set for pod-level resources",
            ],
        ),
    ],
)
def test_the_pod_as_a_whole(judge: Judge, resources: dict[str, Any], errors: list[str]) -> None:
    container = {"resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "2"}}}
    assert judge({"resources": resources}, container) == errors
