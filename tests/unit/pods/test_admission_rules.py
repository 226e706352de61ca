"""Which pods may run here (docs/behaviour/admission.md, "Order", "Platform", "Affinity")."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from tests.unit.pods.admission_builders import (
    RULES,
    as_static,
    asking,
    choosy,
    judge,
    make_node,
    term,
    with_port,
)

from nodeagent.api import (
    AppArmorProfile,
    ContainerRestartRule,
    ContainerRestartRuleOnExitCodes,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    Pod,
    PodOS,
    PodSecurityContext,
    PodStatus,
    SecurityContext,
    Toleration,
)
from nodeagent.api.node import NodeFeatures, Taint
from nodeagent.pods.admission import AskForNode, Case, Rules, decide
from nodeagent.pods.admission_affinity import matches_node
from nodeagent.pods.admission_platform import Support
from nodeagent.pods.rejection import Rejection, counted_as
from nodeagent.testing import make_container, make_pod

replace = msgspec.structs.replace
AFFINITY = Rejection(
    "NodeAffinity",
    "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector",
)
TAINTED = Rejection(
    "TaintToleration",
    "Predicate TaintToleration failed: node(s) had taints that the pod didn't tolerate",
)
PORTS = Rejection(
    "NodePorts",
    "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports",
)


def with_rules(**fields: Any) -> Rules:
    return dataclasses.replace(RULES, **fields)


# -- order -----------------------------------------------------------------------------------


def test_ao3_an_ordinary_pod_may_run() -> None:
    assert judge(make_pod()) is None


def test_ao1_ao3_ao4_the_first_rule_that_objects_counts() -> None:
    """A pod that all rules object to loses one fault after the other."""
    taint = Taint(key="gone", effect="NoExecute")
    node = make_node(taints=(taint,), cpu="1")
    other = with_port("other", (80, "TCP", ""))
    pod = with_port("web", (80, "TCP", ""))
    pod = replace(
        pod,
        metadata=replace(pod.metadata, labels={"kubernetes.io/os": "plan9"}),
        spec=replace(
            pod.spec,
            containers=(*pod.spec.containers, *asking(cpu="3").spec.containers),
            os=PodOS(name="plan9"),
            node_name="node-2",
            node_selector={"disk": "ssd"},
            security_context=PodSecurityContext(
                supplemental_groups_policy="Strict",
                app_armor_profile=AppArmorProfile(type="RuntimeDefault"),
            ),
            host_network=True,
            host_users=False,
        ),
    )
    sysctl = Rejection("SysctlForbidden", "forbidden sysctl: x")
    late = Rejection("NodeShutdown", "x")
    rules = with_rules(first=(lambda _pod: sysctl,), last=(lambda _pod: late,))
    found = []
    cures: dict[str, Callable[[Pod], Pod]] = {
        "SysctlForbidden": lambda p: p,
        "PodOSSelectorNodeLabelDoesNotMatch": lambda p: replace(
            p, metadata=replace(p.metadata, labels={})
        ),
        "PodOSNotSupported": lambda p: _spec(p, os=None),
        "SupplementalGroupsPolicyNotSupported": lambda p: _spec(
            p,
            security_context=PodSecurityContext(
                app_armor_profile=AppArmorProfile(type="RuntimeDefault")
            ),
        ),
        "OutOfcpu": lambda p: _spec(p, containers=p.spec.containers[:1]),
        "NodeAffinity": lambda p: _spec(p, node_selector={}),
        "NodeName": lambda p: _spec(p, node_name=""),
        "NodePorts": lambda p: _spec(p, containers=(make_container(),)),
        "TaintToleration": lambda p: _spec(p, tolerations=(Toleration(operator="Exists"),)),
        "AppArmor": lambda p: _spec(p, security_context=None),
        "PodFeatureUnsupported": lambda p: _spec(p, host_users=None),
        "NodeShutdown": lambda p: p,
    }
    for reason, cure in cures.items():
        verdict = judge(pod, other, node=node, rules=rules, node_is_fresh=True)
        assert isinstance(verdict, Rejection)
        found.append(verdict.reason)
        pod = cure(pod)
        if reason == "SysctlForbidden":
            rules = with_rules(last=rules.last)
    assert found == list(cures)
    assert judge(pod, other, node=node) is None


def _spec(pod: Pod, **fields: Any) -> Pod:
    return replace(pod, spec=replace(pod.spec, **fields))


def test_ao2_nothing_is_decided_while_nothing_is_known_of_the_node() -> None:
    unknown = Rejection("InvalidNodeInfo", "Kubelet cannot get node info.")
    case = Case(pod=make_pod(), others=(), node=None)
    assert decide(case, RULES) == AskForNode(unknown)
    case = Case(pod=make_pod(), others=(), node=None, node_is_fresh=True)
    assert decide(case, RULES) == unknown


@pytest.mark.parametrize(
    ("reason", "counted"),
    [
        ("OutOfcpu", "OutOfcpu"),
        ("OutOfexample.com/gpu", "OutOfExtendedResources"),
        ("NodeAffinity", "Other"),
        ("NodeName", "Other"),
        ("NodePorts", "Other"),
        ("TaintToleration", "Other"),
        ("UnexpectedAdmissionError", "UnexpectedAdmissionError"),
        ("Whatever", "Other"),
    ],
)
def test_ao6_rejections_are_counted_under_few_names(reason: str, counted: str) -> None:
    assert counted_as(reason) == counted


# -- platform --------------------------------------------------------------------------------


@pytest.mark.parametrize(("system", "taken"), [("linux", True), ("windows", False), ("", False)])
def test_ap1_the_label_of_the_pod_names_its_system(system: str, taken: bool) -> None:
    pod = make_pod(labels={"kubernetes.io/os": system})
    text = "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label"
    expected = None if taken else Rejection("PodOSSelectorNodeLabelDoesNotMatch", text)
    assert judge(pod) == expected


def test_ap2_the_spec_names_the_system() -> None:
    assert judge(make_pod(os=PodOS(name="linux"))) is None
    assert judge(make_pod(os=PodOS(name="windows"))) == Rejection(
        "PodOSNotSupported", "Failed to admit pod as the OS field doesn't match node OS"
    )


def test_ap3_strict_groups_need_a_runtime_that_has_them() -> None:
    pod = make_pod(security_context=PodSecurityContext(supplemental_groups_policy="Strict"))
    assert judge(pod) == Rejection(
        "SupplementalGroupsPolicyNotSupported",
        "SupplementalGroupsPolicy=Strict is not supported in this node",
    )
    assert judge(pod, rules=with_rules(support=lambda: Support(strict_groups=True))) is None
    node = make_node()
    told = replace(node.status, features=NodeFeatures(supplemental_groups_policy=True))
    assert judge(pod, node=replace(node, status=told)) is None
    merge = make_pod(security_context=PodSecurityContext(supplemental_groups_policy="Merge"))
    assert judge(merge) is None


PROFILE = AppArmorProfile(type="RuntimeDefault")
ANNOTATION = "container.apparmor.security.beta.kubernetes.io/main"


@pytest.mark.parametrize(
    "pod",
    [
        make_pod(security_context=PodSecurityContext(app_armor_profile=PROFILE)),
        make_pod(
            "web", make_container(security_context=SecurityContext(app_armor_profile=PROFILE))
        ),
        make_pod(annotations={ANNOTATION: "localhost/mine"}),
    ],
    ids=["pod", "container", "annotation"],
)
def test_ap4_a_profile_needs_a_host_with_app_armor(pod: Pod) -> None:
    assert judge(pod) == Rejection(
        "AppArmor", "Cannot enforce AppArmor: AppArmor is not enabled on the host"
    )
    assert judge(pod, rules=with_rules(support=lambda: Support(app_armor=True))) is None
    assert judge(replace(pod, status=PodStatus(phase="Running"))) is None


def test_ap4_no_profile_needs_nothing() -> None:
    unconfined = PodSecurityContext(app_armor_profile=AppArmorProfile(type="Unconfined"))
    assert judge(make_pod(security_context=unconfined)) is None
    assert judge(make_pod(annotations={ANNOTATION: "unconfined"})) is None


def test_ap5_a_feature_that_this_node_has_not() -> None:
    codes = ContainerRestartRuleOnExitCodes(operator="In", values=(3,))
    rule = ContainerRestartRule(action="RestartAllContainers", exit_codes=codes)
    pod = make_pod("web", make_container(restart_policy="Never", restart_policy_rules=(rule,)))
    assert judge(pod) is None
    assert judge(pod, rules=with_rules(support=lambda: Support(features=frozenset()))) == Rejection(
        "PodFeatureUnsupported",
        "Pod requires node features that are not available: RestartAllContainersOnContainerExits",
    )


def test_ap6_a_pod_that_is_bound_to_another_node() -> None:
    assert judge(make_pod(node_name="node-1")) is None
    assert judge(make_pod(node_name="node-2")) == Rejection(
        "NodeName", "Predicate NodeName failed: node(s) didn't match the requested node name"
    )


# -- affinity --------------------------------------------------------------------------------

LABELS = {"disk": "ssd", "cores": "8", "zone": "a"}


def test_aa1_the_selector_needs_every_label() -> None:
    node = make_node(LABELS)
    assert judge(make_pod(node_selector={"disk": "ssd", "zone": "a"}), node=node) is None
    for selector in ({"disk": "hdd"}, {"disk": "ssd", "other": ""}):
        pod = make_pod(node_selector=selector)
        assert judge(pod, node=node) == AskForNode(AFFINITY)
        assert judge(pod, node=node, node_is_fresh=True) == AFFINITY


def test_aa2_one_term_must_match_with_all_it_has() -> None:
    node = make_node(LABELS)
    good, bad = ("disk", "Exists", ()), ("disk", "DoesNotExist", ())
    assert matches_node(choosy(term(bad), term(good)), node)
    assert not matches_node(choosy(term(good, bad)), node)
    assert not matches_node(choosy(term()), node)
    assert not matches_node(choosy(), node)
    assert matches_node(choosy(term(), term(good)), node)
    assert not matches_node(choosy(term(good), node_selector={"disk": "hdd"}), node)


@pytest.mark.parametrize(
    ("key", "operator", "values", "matches"),
    [
        ("disk", "In", ("hdd", "ssd"), True),
        ("disk", "In", ("hdd",), False),
        ("none", "In", ("ssd",), False),
        ("disk", "NotIn", ("hdd",), True),
        ("disk", "NotIn", ("hdd", "ssd"), False),
        ("none", "NotIn", ("ssd",), True),
        ("disk", "Exists", (), True),
        ("none", "Exists", (), False),
        ("disk", "DoesNotExist", (), False),
        ("none", "DoesNotExist", (), True),
    ],
)
def test_aa3_what_operators_mean(
    key: str, operator: str, values: tuple[str, ...], matches: bool
) -> None:
    assert matches_node(choosy(term((key, operator, values))), make_node(LABELS)) is matches


@pytest.mark.parametrize(
    ("value", "bound", "greater", "less"),
    [
        ("8", "7", True, False),
        ("8", "8", False, False),
        ("-8", "7", False, True),
        ("+8", "08", False, False),
        ("8.5", "7", False, False),
        ("8", "seven", False, False),
        ("", "7", False, False),
        ("9223372036854775807", "-9223372036854775808", True, False),
        ("9223372036854775808", "7", False, False),
        ("1" * 100, "7", False, False),
        ("٨", "7", False, False),
    ],
)
def test_aa4_numbers_are_compared_as_numbers(
    value: str, bound: str, greater: bool, less: bool
) -> None:
    node = make_node({"cores": value})
    assert matches_node(choosy(term(("cores", "Gt", (bound,)))), node) is greater
    assert matches_node(choosy(term(("cores", "Lt", (bound,)))), node) is less
    assert not matches_node(choosy(term(("cores", "Gt", (bound,)))), make_node())


@pytest.mark.parametrize(
    ("key", "operator", "values", "matches"),
    [
        ("metadata.name", "In", ("node-1",), True),
        ("metadata.name", "In", ("node-2",), False),
        ("metadata.name", "NotIn", ("node-2",), True),
        ("metadata.name", "NotIn", ("node-1",), False),
        ("metadata.name", "In", ("node-1", "node-2"), False),
        ("metadata.name", "Exists", (), False),
        ("spec.other", "In", ("node-1",), False),
    ],
)
def test_aa5_the_name_of_the_node_is_a_field(
    key: str, operator: str, values: tuple[str, ...], matches: bool
) -> None:
    fields = (NodeSelectorRequirement(key=key, operator=operator, values=values),)
    by_name = NodeSelectorTerm(match_fields=fields)
    assert matches_node(choosy(by_name), make_node()) is matches
    both = term(("disk", "Exists", ()), match_fields=fields)
    assert matches_node(choosy(both), make_node(LABELS)) is matches
    assert not matches_node(choosy(both), make_node())


@pytest.mark.parametrize(
    ("operator", "values"),
    [
        ("In", ()),
        ("NotIn", ()),
        ("Exists", ("x",)),
        ("DoesNotExist", ("x",)),
        ("Gt", ()),
        ("Gt", ("1", "2")),
        ("Like", ("ssd",)),
        ("", ("ssd",)),
    ],
)
def test_aa6_what_is_malformed_does_not_match(operator: str, values: tuple[str, ...]) -> None:
    for key in ("disk", "cores", "none"):
        assert not matches_node(choosy(term((key, operator, values))), make_node(LABELS))


def test_aa7_a_pod_that_runs_here_stays_whatever_the_labels_are() -> None:
    pod = make_pod(node_selector={"disk": "ssd"})
    assert judge(pod, runs_here=True) is None


def test_ar6_a_pod_that_runs_here_stays_whatever_the_resources_are() -> None:
    node = make_node(cpu="1")
    assert judge(asking(cpu="3"), node=node) is not None
    assert judge(asking(cpu="3"), node=node, runs_here=True) is None


# -- ports and taints ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wanted", "used", "free"),
    [
        ((80, "TCP", ""), (80, "TCP", ""), False),
        ((80, "TCP", ""), (81, "TCP", ""), True),
        ((80, "TCP", ""), (80, "UDP", ""), True),
        ((80, "", ""), (80, "TCP", ""), False),
        ((80, "TCP", "10.0.0.1"), (80, "TCP", "10.0.0.2"), True),
        ((80, "TCP", "10.0.0.1"), (80, "TCP", "10.0.0.1"), False),
        ((80, "TCP", "10.0.0.1"), (80, "TCP", "0.0.0.0"), False),
        ((80, "TCP", "0.0.0.0"), (80, "TCP", "10.0.0.1"), False),
        ((80, "TCP", "10.0.0.1"), (80, "TCP", ""), False),
    ],
)
def test_ah1_ah2_a_port_belongs_to_one_pod(
    wanted: tuple[int, str, str], used: tuple[int, str, str], free: bool
) -> None:
    verdict = judge(with_port("web", wanted), make_pod("idle"), with_port("other", used))
    assert verdict == (None if free else PORTS)


def test_ah3_who_runs_as_long_as_the_pod_has_ports() -> None:
    other = with_port("other", (80, "TCP", ""))
    container = other.spec.containers[0]
    init = make_pod("web", init_containers=(replace(container, name="init"),))
    assert judge(init, other) is None
    sidecar = replace(container, name="side", restart_policy="Always")
    assert judge(make_pod("web", init_containers=(sidecar,)), other) == PORTS
    twice = make_pod("web", container, replace(container, name="two"))
    assert judge(twice) is None


KEY = Taint(key="maintenance", value="disk", effect="NoExecute")


@pytest.mark.parametrize(
    ("toleration", "tolerated"),
    [
        (Toleration(key="maintenance", value="disk", effect="NoExecute"), True),
        (Toleration(key="maintenance", operator="Equal", value="disk"), True),
        (Toleration(key="maintenance", operator="Equal", value="net"), False),
        (Toleration(key="maintenance", operator="Exists", effect="NoExecute"), True),
        (Toleration(key="maintenance", operator="Exists", effect="NoSchedule"), False),
        (Toleration(key="other", operator="Exists"), False),
        (Toleration(operator="Exists"), True),
        (Toleration(operator="Exists", effect="NoExecute"), True),
        (Toleration(key="maintenance", operator="Gt", value="disk"), False),
    ],
)
def test_at2_what_a_toleration_is_good_for(toleration: Toleration, tolerated: bool) -> None:
    node = make_node(taints=(KEY,))
    pod = make_pod(tolerations=(toleration,))
    assert judge(pod, node=node) == (None if tolerated else TAINTED)


def test_at1_only_taints_that_drive_pods_away_count_and_each_of_them() -> None:
    mild = [Taint(key="x", effect=effect) for effect in ("NoSchedule", "PreferNoSchedule")]
    assert judge(make_pod(), node=make_node(taints=tuple(mild))) is None
    tolerant = make_pod(tolerations=(Toleration(key="maintenance", operator="Exists"),))
    assert judge(tolerant, node=make_node(taints=(KEY, *mild))) is None
    second = Taint(key="also", effect="NoExecute")
    assert judge(tolerant, node=make_node(taints=(KEY, second))) == TAINTED


def test_at4_a_pod_that_runs_here_stays_whatever_the_taints_are() -> None:
    assert judge(make_pod(), node=make_node(taints=(KEY,)), runs_here=True) is None


def test_at3_static_pods_tolerate_everything() -> None:
    assert judge(as_static(make_pod()), node=make_node(taints=(KEY,))) is None
