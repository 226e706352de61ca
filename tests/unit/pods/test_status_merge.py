"""docs/behaviour/status.md, "Merge" and "Patch"."""

from __future__ import annotations

import copy
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.unit.pods.status_builders import NOW, condition, container_status, running

from nodeagent.api import HostIP, PodCondition, PodIP, PodStatus
from nodeagent.api.codec import convert, to_builtins
from nodeagent.api.status import PodResourceClaimStatus
from nodeagent.kube import PatchKind
from nodeagent.pods.conditions import DISRUPTION_TARGET, OWNED
from nodeagent.pods.phase import TERMINAL
from nodeagent.pods.status_merge import (
    OURS,
    is_part_of,
    merge_status,
    status_patch,
)
from nodeagent.testing.api_patch import apply_patch

PHASES = ("", "Pending", "Running", "Succeeded", "Failed")
TYPES = (*sorted(OURS), DISRUPTION_TARGET, "example.com/gate", "Foreign")


# -- an independent reading of a strategic merge patch -------------------------------------


def applied(status: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    """The patch of a status, as the API's documentation describes it."""
    result = copy.deepcopy(status)
    for name, value in patch.items():
        if name.startswith("$setElementOrder/"):
            continue
        if value is None:
            result.pop(name, None)
        elif name in ("conditions", "podIPs", "hostIPs"):
            key = "type" if name == "conditions" else "ip"
            result[name] = _merged(result.get(name, []), value, key)
        elif isinstance(value, dict):
            result[name] = applied(result.get(name, {}), value)
        else:
            result[name] = value
    for name, order in patch.items():
        if name.startswith("$setElementOrder/"):
            field = name.partition("/")[2]
            places = [entry["type"] for entry in order]
            for entry in patch.get(field, []):
                assert "$patch" in entry or entry["type"] in places, "the server refuses that"
            result[field].sort(
                key=lambda item: places.index(item["type"]) if item["type"] in places else 99
            )
    return result


def _merged(items: list[Any], patch: list[Any], key: str) -> list[Any]:
    if {"$patch": "replace"} in patch:
        return [item for item in patch if "$patch" not in item]
    found = {item[key]: dict(item) for item in items}
    for change in patch:
        if change.get("$patch") == "delete":
            del found[change[key]]
            continue
        item = found.setdefault(change[key], {})
        for field, value in change.items():
            if value is None:
                item.pop(field, None)
            else:
                item[field] = value
    return list(found.values())


# -- strategies ------------------------------------------------------------------------------

moments = st.integers(0, 100).map(lambda seconds: NOW + timedelta(seconds=seconds))
words = st.sampled_from(["", "a", "b"])
conditions = st.lists(
    st.builds(
        PodCondition,
        type=st.sampled_from(TYPES),
        status=st.sampled_from(["True", "False", "Unknown"]),
        reason=words,
        message=words,
        observed_generation=st.integers(0, 2),
        last_transition_time=st.none() | moments,
    ),
    max_size=8,
    unique_by=lambda c: c.type,
).map(tuple)
containers = st.lists(
    st.sampled_from(["a", "b"]).map(lambda name: container_status(name, running())), max_size=2
).map(tuple)
addresses = st.lists(st.sampled_from(["10.0.0.1", "10.0.0.2", "fd00::1"]), max_size=2, unique=True)
statuses = st.builds(
    PodStatus,
    observed_generation=st.integers(0, 3),
    phase=st.sampled_from(PHASES),
    conditions=conditions,
    message=words,
    reason=words,
    nominated_node_name=words,
    host_ip=words,
    host_ips=addresses.map(lambda ips: tuple(HostIP(ip=ip) for ip in ips)),
    pod_ips=addresses.map(lambda ips: tuple(PodIP(ip=ip) for ip in ips)),
    start_time=st.none() | moments,
    container_statuses=containers,
    init_container_statuses=containers,
    qos_class=words,
    resize=words,
    resource_claim_statuses=st.lists(
        st.sampled_from(["x", "y"]).map(lambda name: PodResourceClaimStatus(name=name)),
        max_size=2,
        unique_by=lambda claim: claim.name,
    ).map(tuple),
)


def types(status: PodStatus) -> dict[str, PodCondition]:
    return {c.type: c for c in status.conditions}


# -- merge ---------------------------------------------------------------------------------


@given(statuses, statuses, st.booleans())
def test_sm1_conditions_of_others_stay_as_the_api_has_them(
    api: PodStatus, ours: PodStatus, may_run: bool
) -> None:
    merged = types(merge_status(api, ours, may_run=may_run))
    foreign = {name: c for name, c in types(api).items() if name not in (*OURS, DISRUPTION_TARGET)}
    assert {n: c for n, c in merged.items() if n not in (*OURS, DISRUPTION_TARGET)} == foreign


@given(statuses, statuses, st.booleans())
def test_sm2_our_conditions_are_the_computed_ones(
    api: PodStatus, ours: PodStatus, may_run: bool
) -> None:
    merged = merge_status(api, ours, may_run=may_run)
    ends = {"Ready", "ContainersReady"} if merged.phase in TERMINAL else set()
    computed = {n: c for n, c in types(ours).items() if n in OURS - ends}
    assert {n: c for n, c in types(merged).items() if n in OURS - ends} == computed
    assert {n for n in types(merged) if n in OURS} == {n for n in types(ours) if n in OURS}
    assert len({c.type for c in merged.conditions}) == len(merged.conditions)


def test_sm2_resizing_is_ours_too() -> None:
    assert {"PodResizePending", "PodResizeInProgress"} == OURS - OWNED
    api = PodStatus(conditions=(condition("PodResizePending", "True"),))
    assert merge_status(api, PodStatus(), may_run=False).conditions == ()


@pytest.mark.parametrize(
    ("before", "now", "may_run", "written"),
    [
        ("Running", "Failed", False, True),
        ("Running", "Failed", True, False),
        ("Running", "Running", False, False),
        ("Failed", "Failed", False, False),
    ],
)
def test_sm3_a_disruption_is_told_with_the_end_of_the_pod(
    before: str, now: str, may_run: bool, written: bool
) -> None:
    ours = PodStatus(phase=now, conditions=(condition(DISRUPTION_TARGET, "True", reason="us"),))
    for shown in ((), (condition(DISRUPTION_TARGET, "False", reason="them"),)):
        api = PodStatus(phase=before, conditions=shown)
        merged = merge_status(api, ours, may_run=may_run)
        assert merged.conditions == (ours.conditions if written else shown)


@given(statuses, statuses)
def test_sm4_an_end_is_withheld_while_containers_may_run(api: PodStatus, ours: PodStatus) -> None:
    merged = merge_status(api, ours, may_run=True)
    shown = (merged.phase, merged.reason, merged.message)
    if ours.phase in TERMINAL and api.phase not in TERMINAL:
        assert shown == (api.phase, api.reason, api.message)
        merged = merge_status(api, ours, may_run=False)
        assert (merged.phase, merged.reason, merged.message) == (
            ours.phase,
            ours.reason,
            ours.message,
        )
    elif ours.phase in TERMINAL or api.phase not in TERMINAL:
        assert shown == (ours.phase, ours.reason, ours.message)


@given(statuses, statuses, st.booleans())
def test_sm5_a_pod_that_has_ended_does_not_come_back(
    api: PodStatus, ours: PodStatus, may_run: bool
) -> None:
    merged = merge_status(api, ours, may_run=may_run)
    if api.phase in TERMINAL:
        assert merged.phase in TERMINAL
        if ours.phase not in TERMINAL:
            shown = (merged.phase, merged.reason, merged.message)
            assert shown == (api.phase, api.reason, api.message)


@pytest.mark.parametrize(
    ("phase", "reason"), [("Succeeded", "PodCompleted"), ("Failed", "PodFailed")]
)
@pytest.mark.parametrize("liar", ["Ready", "ContainersReady"])
def test_sm6_nothing_of_a_pod_that_has_ended_is_ready(phase: str, reason: str, liar: str) -> None:
    good = condition("Initialized", "True", reason="x")
    other = {"Ready": "ContainersReady", "ContainersReady": "Ready"}[liar]
    ours = PodStatus(
        phase=phase, conditions=(good, condition(liar, "True"), condition(other, "False"))
    )
    merged = merge_status(PodStatus(phase="Running"), ours, may_run=False)
    assert [(c.type, c.status, c.reason) for c in merged.conditions] == [
        ("Initialized", "True", "x"),
        (liar, "False", reason),
        (other, "False", reason),
    ]


def test_sm6_a_reason_that_was_computed_stays() -> None:
    ours = PodStatus(phase="Failed", conditions=(condition("Ready", "False", reason="why"),))
    assert merge_status(PodStatus(), ours, may_run=False).conditions == ours.conditions


@given(statuses, statuses, st.booleans())
def test_sm7_sm8_what_others_write_stays(api: PodStatus, ours: PodStatus, may_run: bool) -> None:
    merged = merge_status(api, ours, may_run=may_run)
    assert merged.resource_claim_statuses == api.resource_claim_statuses
    assert (merged.nominated_node_name, merged.resize) == (api.nominated_node_name, api.resize)
    assert merged.observed_generation == max(api.observed_generation, ours.observed_generation)
    again = merge_status(merged, ours, may_run=may_run)
    assert status_patch(merged, again) is None


# -- patch ---------------------------------------------------------------------------------


@given(statuses, statuses, st.booleans())
def test_sp1_the_patch_leads_to_the_merged_status(
    api: PodStatus, ours: PodStatus, may_run: bool
) -> None:
    merged = merge_status(api, ours, may_run=may_run)
    patch = status_patch(api, merged)
    before = {**to_builtins(api), "newer": {"field": 1}}
    for after in (
        applied(before, patch or {}),
        apply_patch(PatchKind.STRATEGIC, {"status": before}, {"status": patch or {}})["status"],
    ):
        assert after.pop("newer") == {"field": 1}
        found = convert(after, PodStatus)
        assert replace(found, conditions=()) == replace(merged, conditions=())
        # The order of conditions means nothing; it follows as soon as one of them changes.
        assert types(found) == types(merged)
        if patch is not None and "conditions" in patch:
            assert found.conditions == merged.conditions


def test_sp1_only_differences_are_sent() -> None:
    ready = condition("Ready", "False", reason="ContainersNotReady", since=NOW)
    scheduled = condition("PodScheduled", "True", since=NOW)
    before = PodStatus(phase="Pending", conditions=(scheduled, ready), qos_class="Burstable")
    later = NOW + timedelta(seconds=5)
    now_ready = replace(ready, status="True", reason="", last_transition_time=later)
    after = replace(before, phase="Running", conditions=(scheduled, now_ready))
    assert status_patch(before, after) == {
        "phase": "Running",
        "conditions": [
            {
                "type": "Ready",
                "status": "True",
                "reason": None,
                "lastTransitionTime": "2026-01-02T03:04:10Z",
            }
        ],
        "$setElementOrder/conditions": [{"type": "PodScheduled"}, {"type": "Ready"}],
    }


def test_sp2_conditions_come_and_go_one_by_one() -> None:
    before = PodStatus(conditions=(condition("PodScheduled", "True"),))
    after = PodStatus(conditions=(condition("Ready", "True"), condition("Initialized", "True")))
    assert status_patch(before, after) == {
        "conditions": [
            {"type": "Ready", "status": "True"},
            {"type": "Initialized", "status": "True"},
            {"$patch": "delete", "type": "PodScheduled"},
        ],
        "$setElementOrder/conditions": [{"type": "Ready"}, {"type": "Initialized"}],
    }
    assert status_patch(before, PodStatus()) == {
        "conditions": [{"$patch": "delete", "type": "PodScheduled"}]
    }


def test_sp2_a_condition_that_is_there_twice_is_replaced() -> None:
    twice = condition("Ready", "True")
    before = PodStatus(conditions=(twice, twice))
    after = PodStatus(conditions=(twice,))
    patch = status_patch(before, after)
    assert patch is not None
    assert applied(to_builtins(before), patch) == to_builtins(after)


def test_sp3_the_order_of_addresses_counts() -> None:
    before = PodStatus(pod_ips=(PodIP(ip="10.0.0.1"), PodIP(ip="fd00::1")))
    after = PodStatus(pod_ips=(PodIP(ip="10.0.0.2"), PodIP(ip="fd00::1")))
    assert status_patch(before, after) == {
        "podIPs": [{"$patch": "replace"}, {"ip": "10.0.0.2"}, {"ip": "fd00::1"}]
    }
    assert status_patch(before, PodStatus()) == {"podIPs": None}
    assert status_patch(PodStatus(), after) == {"podIPs": [{"ip": "10.0.0.2"}, {"ip": "fd00::1"}]}


@given(statuses)
def test_sp4_the_same_is_no_patch(status: PodStatus) -> None:
    assert status_patch(status, convert(to_builtins(status), PodStatus)) is None
    upside_down = replace(status, conditions=status.conditions[::-1])
    assert status_patch(status, upside_down) is None


def test_sp5_what_this_version_does_not_know_is_not_touched() -> None:
    raw = {
        "phase": "Pending",
        "shinyNewField": [1],
        "conditions": [{"type": "Foreign", "status": "True", "colour": "red"}],
    }
    api = convert(raw, PodStatus)
    ours = PodStatus(phase="Running", conditions=(condition("Ready", "True"),))
    patch = status_patch(api, merge_status(api, ours, may_run=True))
    assert patch is not None
    after = apply_patch(PatchKind.STRATEGIC, {"status": raw}, {"status": patch})["status"]
    assert after["shinyNewField"] == [1]
    assert after["conditions"][0] == {"type": "Foreign", "status": "True", "colour": "red"}
    assert [c["type"] for c in after["conditions"]] == ["Foreign", "Ready"]


@given(statuses, statuses, statuses)
def test_a_patch_that_was_taken_leaves_no_part_of_it(
    api: PodStatus, ours: PodStatus, other: PodStatus
) -> None:
    patch = status_patch(api, ours)
    assert patch is None or is_part_of(patch, patch)
    assert patch is None or is_part_of({}, patch)
    left = status_patch(other, ours)
    if patch is not None and left is not None and is_part_of(left, patch):
        assert set(left) - {"$setElementOrder/conditions"} <= set(patch)


@pytest.mark.parametrize(
    ("part", "is_part"),
    [
        ({"phase": "Running"}, True),
        ({"phase": "Failed"}, False),
        ({"message": None}, True),
        ({"reason": None}, False),
        ({"conditions": [{"type": "Ready", "observedGeneration": 2}]}, True),
        ({"conditions": [{"type": "Ready", "observedGeneration": 3}]}, False),
        ({"conditions": [{"type": "Ready", "reason": None}]}, False),
        ({"conditions": [{"type": "Initialized", "status": "True"}]}, False),
        ({"phase": "Running", "hostIP": "10.0.0.1"}, False),
    ],
)
def test_sw11_parts_of_a_patch(part: dict[str, Any], is_part: bool) -> None:
    ready = {"type": "Ready", "status": "True", "observedGeneration": 2}
    patch = {"phase": "Running", "message": None, "conditions": [ready]}
    assert is_part_of(part, patch) is is_part


def test_pa_a_condition_without_a_type_is_one_of_others() -> None:
    odd = PodCondition(status="True", message="who says so?")
    api = PodStatus(phase="Pending", conditions=(odd,))
    ours = PodStatus(phase="Running", conditions=(condition("Ready", "True"),))
    merged = merge_status(api, ours, may_run=True)
    assert odd in merged.conditions
    patch = status_patch(api, merged)
    assert patch is not None
    assert [item["type"] for item in patch["conditions"]] == ["Ready"]
    assert status_patch(api, replace(api, conditions=())) == {
        "conditions": [{"$patch": "delete", "type": ""}]
    }
