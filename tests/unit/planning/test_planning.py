"""What a change of manifests would do: docs/configuration.md, "Plan"."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.api.documents import OBJECTS, Identity, decode_manifest
from nodeagent.api.references import STANDALONE
from nodeagent.cli.plan_state import status_of
from nodeagent.model import PodRuntimeStatus, PodUID
from nodeagent.planning import (
    Change,
    Outcome,
    PodPlan,
    Step,
    differences,
    plan_objects,
    plan_pods,
)
from nodeagent.sources.keeping import FileVerdicts
from nodeagent.sources.object_selection import select_objects
from nodeagent.sources.selection import InForce, Selection, select

NODE = "n1"


def document(name: str, *, uid: str = "", image: str = "busybox:1", **spec: Any) -> str:
    containers = spec.pop("containers", [{"name": "main", "image": image}])
    metadata = {"name": name, "labels": spec.pop("labels", {}), **({"uid": uid} if uid else {})}
    body = {"containers": containers, **spec}
    return str({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": body})


def verdicts(files: Mapping[str, str]) -> list[FileVerdicts]:
    return [
        FileVerdicts(Path("/m", name), tuple(decode_manifest(text.encode(), name, kinds=OBJECTS)))
        for name, text in sorted(files.items())
    ]


def selected(files: Mapping[str, str], before: Mapping[Identity, InForce]) -> Selection:
    return select(verdicts(files), before, NODE, allowed=STANDALONE)


def planned(
    old: Mapping[str, str],
    new: Mapping[str, str],
    *,
    running: bool = True,
    ran: Mapping[str, Mapping[str, str]] | None = None,
    waits: tuple[str, ...] = (),
) -> dict[str, PodPlan]:
    before = selected(old, {}).pods
    statuses: dict[PodUID, PodRuntimeStatus] = {}
    if running:
        statuses = {PodUID(d.uid): status_of(d.pod) for d in before.values()}
    plans = plan_pods(before, selected(new, before), statuses, ran or {}, lambda _pod: waits)
    assert len({plan.name for plan in plans}) == len(plans)
    return {plan.name.removesuffix("-n1"): plan for plan in plans}


def steps(plan: PodPlan) -> dict[str, Step]:
    return {step.name: step.step for step in plan.containers}


def test_a_new_pod_is_created_and_its_containers_start() -> None:
    init = [{"name": "first", "image": "busybox:1"}]
    plan = planned({}, {"a": document("web", initContainers=init)})["web"]
    assert plan.outcome is Outcome.CREATE
    assert steps(plan) == {"first": Step.START, "main": Step.START}


def test_a_pod_that_nothing_gives_any_more_goes_with_its_containers() -> None:
    plan = planned({"a": document("web")}, {})["web"]
    assert (plan.outcome, plan.origin, plan.pod) == (Outcome.REMOVE, "a", None)
    assert steps(plan) == {"main": Step.STOP}


def test_the_same_document_changes_nothing_wherever_it_lies() -> None:
    plan = planned({"a": document("web")}, {"b": document("web")})["web"]
    assert (plan.outcome, plan.changes, plan.containers) == (Outcome.NOTHING, (), ())


def test_another_content_is_another_pod() -> None:
    two = [{"name": "main", "image": "busybox:2"}, {"name": "side", "image": "busybox:1"}]
    plan = planned({"a": document("web")}, {"a": document("web", containers=two)})["web"]
    assert plan.outcome is Outcome.REPLACE
    assert steps(plan) == {"main": Step.RESTART, "side": Step.START}
    assert Change("spec.containers[main].image", "busybox:1", "busybox:2") in plan.changes


def test_a_written_default_is_another_content_too_and_that_is_said() -> None:
    plan = planned({"a": document("web")}, {"a": document("web", restartPolicy="Always")})["web"]
    assert (plan.outcome, plan.changes) == (Outcome.REPLACE, ())
    assert plan.why.endswith("the content is written in another way")


def test_of_a_pod_with_a_uid_only_changed_containers_restart() -> None:
    two = [{"name": n, "image": "busybox:1"} for n in ("main", "side")]
    new = [{"name": "main", "image": "busybox:2"}, two[1]]
    plan = planned(
        {"a": document("web", uid="u1", containers=two)},
        {"a": document("web", uid="u1", containers=new)},
    )["web"]
    assert (plan.outcome, plan.uid) == (Outcome.RESTART, "u1")
    assert plan.why == "Container main definition changed, will be restarted"
    assert steps(plan) == {"main": Step.RESTART, "side": Step.RUN_ON}


def test_labels_of_a_pod_with_a_uid_change_in_place() -> None:
    plan = planned(
        {"a": document("web", uid="u1")}, {"a": document("web", uid="u1", labels={"a": "b"})}
    )["web"]
    assert (plan.outcome, plan.changes) == (
        Outcome.UPDATE,
        (Change("metadata.labels.a", None, "b"),),
    )
    assert steps(plan) == {"main": Step.RUN_ON}


def test_the_host_network_takes_a_new_sandbox() -> None:
    plan = planned(
        {"a": document("web", uid="u1")}, {"a": document("web", uid="u1", hostNetwork=True)}
    )["web"]
    assert (plan.outcome, plan.why) == (
        Outcome.RESTART,
        "all containers: the pod wants the host's network",
    )
    assert steps(plan) == {"main": Step.RESTART}


def test_a_container_that_leaves_the_spec_is_stopped() -> None:
    two = [{"name": n, "image": "busybox:1"} for n in ("main", "side")]
    plan = planned(
        {"a": document("web", uid="u1", containers=two)}, {"a": document("web", uid="u1")}
    )["web"]
    assert steps(plan) == {"main": Step.RUN_ON, "side": Step.STOP}


def test_another_name_under_the_same_uid_is_another_pod() -> None:
    plans = planned({"a": document("web", uid="u1")}, {"a": document("www", uid="u1")})
    assert {name: plan.outcome for name, plan in plans.items()} == {
        "web": Outcome.REMOVE,
        "www": Outcome.CREATE,
    }


def test_a_bad_file_keeps_what_it_gave() -> None:
    plan = planned({"a": document("web")}, {"a": document("web").replace("image", "imago")})["web"]
    assert (plan.outcome, plan.why) == (Outcome.KEEP, "a is bad: the pod runs on as it was")


def test_what_ran_once_does_not_run_again() -> None:
    old = document("web", uid="u1", restartPolicy="Never")
    new = document("web", uid="u1", restartPolicy="Never", labels={"a": "b"})
    plan = planned({"a": old}, {"a": new}, running=False, ran={"u1": {"main": "id"}})["web"]
    assert Step.START not in steps(plan).values()


def test_a_pod_that_cannot_be_honoured_would_wait() -> None:
    plan = planned({}, {"a": document("web")}, waits=("spec.x",))["web"]
    assert (plan.outcome, plan.waits) == (Outcome.CREATE, ("spec.x",))
    assert steps(plan) == {"main": Step.NOTHING}


@given(st.data())
def test_each_pod_has_one_outcome_as_the_documents_say(data: st.DataObject) -> None:
    """An independent statement: by name, by document and by UID."""
    shape = st.tuples(st.sampled_from(["1", "2"]), st.sampled_from(["", "u"]))
    nodes = st.dictionaries(st.sampled_from("abcd"), shape)
    old, new = data.draw(nodes), data.draw(nodes)

    def files(pods: Mapping[str, tuple[str, str]]) -> dict[str, str]:
        return {
            name: document(name, uid=uid and f"{uid}-{name}", image=f"busybox:{tag}")
            for name, (tag, uid) in pods.items()
        }

    expected = {}
    for name in {*old, *new}:
        if name not in new:
            expected[name] = Outcome.REMOVE
        elif name not in old:
            expected[name] = Outcome.CREATE
        elif old[name] == new[name]:
            expected[name] = Outcome.NOTHING
        elif old[name][1] and new[name][1]:
            expected[name] = Outcome.RESTART
        else:
            expected[name] = Outcome.REPLACE
    plans = planned(files(old), files(new))
    assert {name: plan.outcome for name, plan in plans.items()} == expected


CONFIG = "{apiVersion: v1, kind: ConfigMap, metadata: {name: c}, data: {%s}}"
SECRET = "{apiVersion: v1, kind: Secret, metadata: {name: s}, stringData: {a: x}}"


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        ({}, {"c": CONFIG % "a: x"}, "create"),
        ({"c": CONFIG % "a: p, b: q"}, {"c": CONFIG % "b: r, d: s"}, "update: a, b, d"),
        ({"c": CONFIG % "a: x"}, {}, "remove"),
        ({"c": CONFIG % "a: x"}, {"d": CONFIG % "a: x"}, None),
        ({}, {"s": SECRET}, None),
    ],
)
def test_objects_come_change_and_go(
    old: Mapping[str, str], new: Mapping[str, str], what: str | None
) -> None:
    user = document("web", volumes=[{"name": "v", "configMap": {"name": "c"}}])
    before = select_objects(verdicts(old), {}, NODE).objects
    after = select_objects(verdicts(new), before, NODE)
    plans = plan_objects(before, after, selected({"p": user}, {}).pods)
    assert [plan.what for plan in plans] == ([] if what is None else [what])
    assert all(plan.used_by == ("default/web-n1",) for plan in plans)


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["name", "a", "b.c"]), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(plain, plain)
def test_values_differ_when_a_difference_is_told(before: Any, after: Any) -> None:
    told = list(differences({"x": before}, {"x": after}))
    assert all(change.before != change.after for change in told)
    assert not list(differences({"x": before}, {"x": before}))
    if not told:
        assert _without_nulls(before) == _without_nulls(after)


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        inner = {k: _without_nulls(v) for k, v in value.items()}
        return {k: v for k, v in inner.items() if v not in (None, {})}
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]
    return value


def test_items_of_lists_are_told_apart_by_name_and_their_order_counts() -> None:
    old = {"c": [{"name": "a", "x": 1}, {"name": "b"}]}
    new = {"c": [{"name": "b"}, {"name": "a", "x": 2}]}
    assert list(differences(old, new)) == [
        Change("c[a].x", 1, 2),
        Change("c (order)", ["a", "b"], ["b", "a"]),
    ]
