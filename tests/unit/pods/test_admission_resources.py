"""Room on the node, and making it (docs/behaviour/admission.md, "Resources", "Preemption")."""

from __future__ import annotations

import itertools

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.pods.admission_builders import (
    amounts,
    as_static,
    asking,
    critical,
    judge,
    make_node,
    needs,
    with_port,
    with_room,
)

from nodeagent.api import Container, Pod, PodCondition, PodStatus, ResourceRequirements
from nodeagent.pods.admission import Preempt
from nodeagent.pods.admission_preemption import (
    NoVictimsError,
    may_preempt,
    preempted,
    victims,
)
from nodeagent.pods.admission_resources import Insufficient, insufficient, requests_of
from nodeagent.pods.rejection import Rejection
from nodeagent.runtime.qos import compute_qos
from nodeagent.testing import make_container, make_pod

replace = msgspec.structs.replace


def too_little(resource: str, requested: int, used: int, capacity: int) -> Rejection:
    text = (
        f"Node didn't have enough resource: {resource}, requested: {requested}, "
        f"used: {used}, capacity: {capacity}"
    )
    return Rejection(f"OutOf{resource}", text)


# -- what a pod requests ---------------------------------------------------------------------


def sidecar(name: str, **requests: str) -> Container:
    return replace(needs(name, **requests), restart_policy="Always")


def test_ar1_containers_and_sidecars_add_up() -> None:
    pod = make_pod(
        "web",
        needs("a", cpu="100m", memory="1Ki"),
        needs("b", cpu="1"),
        init_containers=(sidecar("s", cpu="10m"),),
    )
    assert requests_of(pod) == {"cpu": 1110, "memory": 1024}


def test_ar1_an_init_container_counts_when_it_needs_more() -> None:
    pod = make_pod(
        "web",
        needs("a", cpu="100m"),
        init_containers=(needs("i", cpu="2"), sidecar("s", cpu="1"), needs("j", cpu="1500m")),
    )
    assert requests_of(pod)["cpu"] == 2500, "the second runs beside the sidecar"


def test_ar1_the_pods_own_amounts_stand_in_and_overhead_comes_on_top() -> None:
    level = ResourceRequirements(
        requests=amounts({"cpu": "3", "hugepages-2Mi": "4Mi", "example.com/gpu": "7"})
    )
    pod = make_pod(
        "web",
        needs(cpu="1", memory="1Ki"),
        resources=level,
        overhead=amounts({"cpu": "5m", "memory": "1"}),
    )
    assert requests_of(pod) == {"cpu": 3005, "memory": 1025, "hugepages-2Mi": 4 << 20}


# -- fitting ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("requests", "rejection"),
    [
        ({"cpu": "1500m"}, None),
        ({"cpu": "1501m"}, too_little("cpu", 1501, 500, 2000)),
        ({"memory": "1Gi"}, too_little("memory", 1 << 30, 1024, 1 << 30)),
        (
            {"ephemeral-storage": "11Gi"},
            too_little("ephemeral-storage", 11 << 30, 0, 10 << 30),
        ),
        ({"cpu": "1501m", "memory": "1Gi"}, too_little("cpu", 1501, 500, 2000)),
        (
            {"hugepages-2Mi": "2Mi", "hugepages-1Gi": "0"},
            too_little("hugepages-2Mi", 2 << 20, 0, 0),
        ),
    ],
)
def test_ar2_ar4_ar5_the_first_resource_of_which_there_is_too_little(
    requests: dict[str, str], rejection: Rejection | None
) -> None:
    assert (
        judge(make_pod("web", needs(**requests)), asking("other", cpu="500m", memory="1Ki"))
        == rejection
    )


def test_ar2_who_requests_nothing_fits_also_on_a_node_that_is_overfull() -> None:
    assert judge(make_pod(), asking("other", cpu="100")) is None
    assert judge(asking(cpu="0"), asking("other", cpu="100")) is None


def test_ar3_there_is_room_for_so_many_pods() -> None:
    others = [make_pod(f"p{n}") for n in range(10)]
    assert judge(make_pod(), *others) == too_little("pods", 1, 10, 10)
    assert judge(make_pod(), *others[1:]) is None
    assert judge(asking(cpu="9"), *others) == too_little("pods", 1, 10, 10)


def test_ar5_what_this_node_does_not_have_at_all_is_ignored() -> None:
    gpu = "example.com/gpu"
    pod, other = (make_pod(name, needs(**{gpu: "1"})) for name in ("web", "other"))
    assert judge(pod) is None
    node = with_room(make_node(), **{gpu: "1"})
    assert judge(pod, node=node) is None
    assert judge(pod, other, node=node) == too_little(gpu, 1, 1, 1)
    assert judge(asking(nonsense="1")) is None


CPU = st.integers(0, 3000)
SPECS = st.builds(
    lambda regular, init, level, overhead: make_pod(
        "p",
        *(needs(f"c{n}", cpu=f"{cpu}m") for n, cpu in enumerate(regular)),
        init_containers=tuple(
            (sidecar if side else needs)(f"i{n}", cpu=f"{cpu}m")
            for n, (side, cpu) in enumerate(init)
        ),
        resources=None
        if level is None
        else ResourceRequirements(requests=amounts({"cpu": f"{level}m"})),
        overhead=amounts({"cpu": f"{overhead}m"}) if overhead else {},
    ),
    st.lists(CPU, min_size=1, max_size=3),
    st.lists(st.tuples(st.booleans(), CPU), max_size=4),
    st.none() | CPU,
    st.integers(0, 200),
)


def milli(container: Container) -> int:
    return container.resources.requests["cpu"].milli_value()


def peak(pod: Pod) -> int:
    """What the pod takes at the worst moment of its life, played through step by step."""
    if pod.spec.resources is not None:
        most = pod.spec.resources.requests["cpu"].milli_value()
    else:
        beside, most = 0, 0
        for init in pod.spec.init_containers:
            now = beside + milli(init)
            most = max(most, now)
            if init.restart_policy == "Always":
                beside = now
        most = max(most, beside + sum(map(milli, pod.spec.containers)))
    extra = pod.spec.overhead.get("cpu")
    return most + (extra.milli_value() if extra is not None else 0)


@settings(max_examples=200)
@given(SPECS, st.lists(SPECS, max_size=4), st.integers(0, 12_000), st.integers(0, 6))
def test_ar1_ar2_ar3_a_pod_fits_if_and_only_if_all_peaks_fit_together(
    pod: Pod, others: list[Pod], cpu: int, limit: int
) -> None:
    others = [
        replace(other, metadata=replace(other.metadata, uid=f"o{n}"))
        for n, other in enumerate(others)
    ]
    lacking = insufficient(pod, others, make_node(cpu=f"{cpu}m", pods=str(limit)))
    used = sum(map(peak, others))
    expected = []
    if len(others) + 1 > limit:
        expected.append(Insufficient("pods", 1, len(others), limit))
    if peak(pod) and peak(pod) + used > cpu:
        expected.append(Insufficient("cpu", peak(pod), used, cpu))
    assert list(lacking) == expected
    assert all(each.missing > 0 for each in lacking)


# -- preemption ------------------------------------------------------------------------------


def guaranteed(name: str, cpu: str) -> Pod:
    both = amounts({"cpu": cpu, "memory": "1Mi"})
    resources = ResourceRequirements(requests=both, limits=both)
    return make_pod(name, make_container(resources=resources))


def qos(pod: Pod) -> str:
    return compute_qos(pod).value


def names(pods: tuple[Pod, ...]) -> list[str]:
    return [pod.metadata.name for pod in pods]


def test_av1_room_is_made_only_for_a_critical_pod_that_nothing_else_keeps_out() -> None:
    other = asking("other", cpu="2")
    assert judge(asking(cpu="1"), other) == too_little("cpu", 1000, 2000, 2000)
    assert judge(critical(asking(cpu="1")), other) == Preempt((other,), "cpu")
    assert judge(asking(static=True, cpu="1"), other) == Preempt((other,), "cpu")
    port = with_port("other", (80, "TCP", ""))
    busy = with_port("web", (80, "TCP", ""))
    pod = critical(replace(busy, spec=replace(busy.spec, overhead=amounts({"cpu": "3"}))))
    verdict = judge(pod, port)
    assert isinstance(verdict, Rejection)
    assert verdict.reason == "NodePorts"


def test_av2_only_pods_that_matter_less_may_go() -> None:
    low, high = critical(make_pod(), 5), critical(make_pod(), 7)
    assert may_preempt(make_pod(), True, make_pod(), False)
    assert not may_preempt(make_pod(), True, make_pod(), True)
    assert may_preempt(high, True, low, True)
    assert not may_preempt(low, True, high, True)
    assert not may_preempt(high, True, high, True)
    assert not may_preempt(high, True, make_pod(), True)
    other = as_static(asking("other", cpu="2"))
    verdict = judge(critical(asking(cpu="1")), other)
    assert isinstance(verdict, Rejection)


def test_av3_the_least_guaranteed_pods_go() -> None:
    best, some, sure = make_pod("best"), asking("some", cpu="1"), guaranteed("sure", "1")
    pods = [sure, some, best]
    assert names(victims({"pods": 1}, pods, qos)) == ["best"]
    assert names(victims({"cpu": 1000}, pods, qos)) == ["some"]
    assert names(victims({"cpu": 1500}, pods, qos)) == ["some", "sure"]
    assert names(victims({"pods": 2}, pods, qos)) == ["best", "some"]


def test_av3_of_one_class_the_nearest_and_then_the_smaller_one_goes() -> None:
    pods = [asking(f"c{cpu}", cpu=f"{cpu}m") for cpu in (100, 600, 1000, 4000)]
    assert names(victims({"cpu": 900}, pods, qos)) == ["c1000"]
    assert names(victims({"cpu": 550}, pods, qos)) == ["c600"]
    assert names(victims({"cpu": 4100}, pods, qos)) == ["c4000", "c100"]
    heavy = asking("heavy", cpu="1", memory="2Ki")
    light = asking("light", cpu="1", memory="1Ki")
    assert names(victims({"cpu": 1000}, [heavy, light], qos)) == ["light"]


def test_av4_when_all_together_are_not_enough_the_pod_is_rejected() -> None:
    verdict = judge(asking(static=True, cpu="2500m"), asking("other", cpu="1"))
    assert verdict == Rejection(
        "UnexpectedAdmissionError",
        "Unexpected error while attempting to recover from admission failure: preemption: error "
        "finding a set of pods to preempt: no set of running pods found to reclaim resources: "
        "[(res: cpu, q: 500), ]",
    )


def test_av5_a_victim_has_failed_and_says_for_what() -> None:
    ready = PodCondition(type="Ready", status="True")
    shown = preempted(PodStatus(phase="Running", conditions=(ready,), observed_generation=3))
    assert (shown.phase, shown.reason) == ("Failed", "Preempting")
    assert shown.message == "Preempted in order to admit critical pod"
    assert shown.conditions[0] == ready
    target = shown.conditions[1]
    assert (target.type, target.status) == ("DisruptionTarget", "True")
    assert (target.reason, target.observed_generation) == ("TerminationByKubelet", 3)
    assert target.message == "Pod was preempted by Kubelet to accommodate a critical pod."
    assert len(preempted(shown).conditions) == 2


def test_av6_room_that_was_made_is_not_asked_for_again() -> None:
    assert judge(critical(asking(cpu="9")), room_was_made=True) is None


CANDIDATES = st.lists(
    st.tuples(st.sampled_from(("BestEffort", "Burstable", "Guaranteed")), st.integers(0, 1500)),
    max_size=6,
)


@settings(max_examples=200)
@given(
    CANDIDATES,
    st.dictionaries(st.sampled_from(("cpu", "pods")), st.integers(1, 3000), min_size=1),
)
def test_av3_av4_victims_are_enough_and_higher_classes_go_only_when_they_must(
    candidates: list[tuple[str, int]], wanted: dict[str, int]
) -> None:
    wanted = {**wanted, **({"pods": wanted["pods"] % 8 + 1} if "pods" in wanted else {})}
    pods = [asking(f"p{n}", cpu=f"{cpu}m") for n, (_, cpu) in enumerate(candidates)]
    classes = {f"p{n}": name for n, (name, _) in enumerate(candidates)}

    def held(chosen: tuple[Pod, ...], resource: str) -> int:
        if resource == "pods":
            return len(chosen)
        return sum(requests_of(pod).get("cpu", 0) for pod in chosen)

    def enough(chosen: tuple[Pod, ...]) -> bool:
        return all(held(chosen, name) >= amount for name, amount in wanted.items())

    def of(*names: str) -> tuple[Pod, ...]:
        return tuple(pod for pod in pods if classes[pod.metadata.name] in names)

    try:
        chosen = victims(wanted, pods, lambda pod: classes[pod.metadata.name])
    except NoVictimsError:
        assert not enough(tuple(pods))
        return
    assert enough(chosen)
    assert len(set(names(chosen))) == len(chosen)
    guaranteed_ones = [pod for pod in chosen if classes[pod.metadata.name] == "Guaranteed"]
    assert bool(guaranteed_ones) == (not enough(of("BestEffort", "Burstable")))
    for count in range(len(guaranteed_ones)):
        for fewer in itertools.combinations(guaranteed_ones, count):
            if wanted.keys() == {"pods"}:
                assert not enough((*of("BestEffort", "Burstable"), *fewer))
