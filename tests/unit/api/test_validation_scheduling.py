"""Each rule for scheduling refuses what breaks it, with path and reason."""

from collections.abc import Callable
from typing import Any

import pytest

Judge = Callable[..., list[str]]


@pytest.mark.parametrize(
    ("toleration", "errors"),
    [
        ({"operator": "Exists", "effect": "NoExecute"}, []),
        ({"key": "a.b/c", "value": "v", "effect": "NoSchedule"}, []),
        ({"key": "a", "operator": "Exists", "tolerationSeconds": 0, "effect": "NoExecute"}, []),
        ({"value": "v"}, ['operator: invalid value "": must be Exists when key is empty']),
        (
            {"key": "a", "operator": "Exists", "value": "v"},
            ['value: invalid value "v": must be empty when operator is Exists'],
        ),
        (
            {"key": "a", "operator": "x", "effect": "y"},
            [
                'operator: unsupported value "x": supported values: "Exists", "Equal"',
                (
                    'effect: unsupported value "y": supported values: '
                    '"NoSchedule", "PreferNoSchedule", "NoExecute"'
                ),
            ],
        ),
        (
            {"key": "a", "tolerationSeconds": 1},
            ['effect: invalid value "": must be NoExecute when tolerationSeconds is set'],
        ),
    ],
)
def test_tolerations(judge: Judge, toleration: dict[str, Any], errors: list[str]) -> None:
    expected = [f"spec.tolerations[0].{error}" for error in errors]
    assert judge({"tolerations": [toleration]}) == expected


_NEED = "requiredDuringSchedulingIgnoredDuringExecution"
_WISH = "preferredDuringSchedulingIgnoredDuringExecution"


@pytest.mark.parametrize(
    ("affinity", "errors"),
    [
        (
            {
                "nodeAffinity": {
                    _NEED: {
                        "nodeSelectorTerms": [
                            {"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["1"]}]},
                            {
                                "matchFields": [
                                    {"key": "metadata.name", "operator": "In", "values": ["n"]}
                                ]
                            },
                        ]
                    }
                },
                "podAffinity": {_NEED: [{"topologyKey": "zone", "labelSelector": {}}]},
            },
            [],
        ),
        (
            {"nodeAffinity": {_NEED: {}, _WISH: [{"weight": 0}]}},
            [
                f"nodeAffinity.{_NEED}.nodeSelectorTerms: required: at least one term",
                f"nodeAffinity.{_WISH}[0].weight: invalid value 0: must be between 1 and 100",
            ],
        ),
        (
            {
                "nodeAffinity": {
                    _NEED: {
                        "nodeSelectorTerms": [
                            {
                                "matchExpressions": [
                                    {"key": "a", "operator": "Lt"},
                                    {"key": "a", "operator": "In"},
                                    {"key": "a", "operator": "Exists", "values": ["b"]},
                                ],
                                "matchFields": [{"key": "metadata.name", "operator": "In"}],
                            }
                        ]
                    }
                }
            },
            [
                f"nodeAffinity.{_NEED}.nodeSelectorTerms[0].{error}"
                for error in (
                    "matchExpressions[0].values: required: exactly one number",
                    "matchExpressions[1].values: required: the operator In needs values",
                    ("matchExpressions[2].values: forbidden: the operator Exists takes no values"),
                    "matchFields[0].values: required: exactly one value",
                )
            ],
        ),
        (
            {
                "podAntiAffinity": {
                    _NEED: [{"namespaces": [""], "matchLabelKeys": ["a"]}],
                    _WISH: [
                        {
                            "weight": 101,
                            "podAffinityTerm": {
                                "topologyKey": "z",
                                "labelSelector": {
                                    "matchExpressions": [{"key": "", "operator": "Gt"}]
                                },
                            },
                        }
                    ],
                }
            },
            [
                f"podAntiAffinity.{_NEED}[0].topologyKey: required",
                f"podAntiAffinity.{_NEED}[0].namespaces[0]: required",
                (
                    f"podAntiAffinity.{_NEED}[0].matchLabelKeys: "
                    'invalid value "a": needs a labelSelector'
                ),
                f"podAntiAffinity.{_WISH}[0].weight: invalid value 101: must be between 1 and 100",
                (
                    f"podAntiAffinity.{_WISH}[0].podAffinityTerm.labelSelector"
                    ".matchExpressions[0].key: required"
                ),
                (
                    f"podAntiAffinity.{_WISH}[0].podAffinityTerm.labelSelector"
                    '.matchExpressions[0].operator: unsupported value "Gt": '
                    'supported values: "In", "NotIn", "Exists", "DoesNotExist"'
                ),
            ],
        ),
    ],
)
def test_affinity(judge: Judge, affinity: dict[str, Any], errors: list[str]) -> None:
    assert judge({"affinity": affinity}) == [f"spec.affinity.{error}" for error in errors]


_SPREAD = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}


@pytest.mark.parametrize(
    ("constraints", "errors"),
    [
        ([_SPREAD, {**_SPREAD, "topologyKey": "host"}], []),
        ([_SPREAD, _SPREAD], ['[1]: duplicate value "{zone, ScheduleAnyway}"']),
        (
            [{}],
            [
                "[0].maxSkew: invalid value 0: must be at least 1",
                "[0].topologyKey: required",
                (
                    "[0].whenUnsatisfiable: required: "
                    "supported values: DoNotSchedule, ScheduleAnyway"
                ),
            ],
        ),
        (
            [{**_SPREAD, "minDomains": 1, "nodeTaintsPolicy": "x", "matchLabelKeys": ["a"]}],
            [
                "[0].minDomains: invalid value 1: needs whenUnsatisfiable to be DoNotSchedule",
                '[0].nodeTaintsPolicy: unsupported value "x": supported values: "Ignore", "Honor"',
                '[0].matchLabelKeys: invalid value "a": needs a labelSelector',
            ],
        ),
    ],
)
def test_spreading(judge: Judge, constraints: list[Any], errors: list[str]) -> None:
    expected = [f"spec.topologySpreadConstraints{error}" for error in errors]
    assert judge({"topologySpreadConstraints": constraints}) == expected
