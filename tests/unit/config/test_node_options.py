"""The settings about the Node object. docs/behaviour/node.md, "Registration"."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from nodeagent.api.node import Taint
from nodeagent.api.quantity import Quantity
from nodeagent.cli.app import cli
from nodeagent.config import AgentConfig, ConfigError, load_kubelet_file
from nodeagent.config.node_options import (
    DEFAULT_EVICTION_HARD,
    label_fault,
    parse_pairs,
    parse_taints,
    reservations,
    show_taint,
    threshold_amount,
)


@pytest.mark.parametrize(
    "key",
    [
        "kubernetes.io/hostname",
        "topology.kubernetes.io/zone",
        "node.kubernetes.io/anything",
        "kubelet.kubernetes.io/x",
        "sub.node.kubernetes.io/x",
        "team",
        "example.com/team",
        "notkubernetes.io/team",
    ],
)
def test_nr1_labels_a_node_may_have(key: str) -> None:
    assert label_fault(key, "v") is None


@pytest.mark.parametrize(
    "key", ["kubernetes.io/x", "k8s.io/x", "node-role.kubernetes.io/master", "a.k8s.io/x"]
)
def test_labels_of_kubernetes_that_it_may_not_give_itself(key: str) -> None:
    with pytest.raises(ConfigError, match=r"below kubelet.kubernetes.io and node.kubernetes.io"):
        AgentConfig(node_labels={key: "v"})


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("node_labels", {"a b": "v"}, "as a label key"),
        ("node_labels", {"a": "-"}, "as a label's value"),
        ("register_with_taints", (Taint(key="a", effect="Never"),), "effect must be one of"),
        ("register_with_taints", (Taint(key="a b", effect="NoSchedule"),), "as a taint's key"),
        (
            "register_with_taints",
            (Taint(key="a", value="1", effect="NoExecute"), Taint(key="a", effect="NoExecute")),
            "given twice",
        ),
        ("kube_reserved", {"disk": "1"}, "only cpu, memory"),
        ("kube_reserved", {"cpu": "-1"}, "must not be negative"),
        ("system_reserved", {"memory": "lots"}, "is not a quantity"),
        ("eviction_hard", {"disk.free": "1"}, "the signals are"),
        ("eviction_hard", {"memory.available": "101%"}, "between 0% and 100%"),
        ("eviction_hard", {"memory.available": "x%"}, "between 0% and 100%"),
        ("eviction_hard", {"memory.available": "-1Mi"}, "must not be negative"),
        ("cloud_provider", "aws", "external"),
        ("node_ip", "10.0.0.300", "must be an IP address"),
        ("node_ip", "10.0.0.1,10.0.0.2", "one of each family"),
        ("node_ip", "10.0.0.1,::", "neither of them unspecified"),
        ("node_ip", "10.0.0.1,fd00::1,fd00::2", "one of each family"),
        ("pod_cidr", "10.0.0.0/33", "must be a network"),
        ("max_pods", -1, "must not be negative"),
        ("pods_per_core", -1, "must not be negative"),
        ("node_status_max_images", -2, "-1 for all"),
    ],
)
def test_what_is_not_allowed(field: str, value: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        AgentConfig(**{field: value})
    assert caught.value.field == field


def test_addresses_are_one_or_one_of_each_family() -> None:
    assert AgentConfig().node_ips == ()
    assert AgentConfig(node_ip="10.0.0.1, fd00::1").node_ips == ("10.0.0.1", "fd00::1")
    assert AgentConfig(node_ip="::").node_ips == ("::",)


def test_flags_as_people_write_them() -> None:
    assert parse_pairs("a=1, b=x=y,") == {"a": "1", "b": "x=y"}
    assert parse_pairs("memory.available<100Mi", "<") == {"memory.available": "100Mi"}
    with pytest.raises(ValueError, match="name<value"):
        parse_pairs("a=1", "<")
    with pytest.raises(ValueError, match="'=1' is not written name=value"):
        parse_pairs("a=1,=1")
    taints = parse_taints("a=b:NoSchedule,c:NoExecute")
    assert taints == (
        Taint(key="a", value="b", effect="NoSchedule"),
        Taint(key="c", effect="NoExecute"),
    )
    assert [show_taint(t) for t in taints] == ["a=b:NoSchedule", "c:NoExecute"]
    with pytest.raises(ValueError, match="key=value:effect"):
        parse_taints("a=b")


@pytest.mark.parametrize(
    ("amount", "expected"),
    [("100Mi", "100Mi"), ("10%", "100Mi"), ("0%", "0"), ("100%", "0"), ("0.5%", "5Mi")],
)
def test_a_threshold_is_an_amount_or_a_share(amount: str, expected: str) -> None:
    assert threshold_amount(amount, Quantity("1000Mi")) == Quantity(expected)


def test_both_reservations_count() -> None:
    config = AgentConfig(kube_reserved={"cpu": "100m"}, system_reserved={"cpu": "1"})
    assert list(reservations(config)) == [("cpu", Quantity("100m")), ("cpu", Quantity("1"))]


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--node-labels=kubernetes.io/x=1"], "--node-labels=kubernetes.io/x=1: a node may give"),
        (["--node-labels=x"], "'x' is not written name=value"),
        (["--register-with-taints=a:b"], "--register-with-taints=a:b: a taint's effect"),
        (["--register-with-taints=a"], "'a' is not written key=value:effect"),
        (["--eviction-hard=a<1"], "--eviction-hard=a<1: the signals are"),
        (["--kube-reserved=gpu=1"], "--kube-reserved=gpu=1: only cpu"),
        (["--max-pods=-1"], "--max-pods=-1: must not be negative"),
    ],
)
def test_flags_that_are_refused(flags: list[str], said: str) -> None:
    result = CliRunner().invoke(cli, ["run", *flags])
    assert result.exit_code == 2
    assert said in result.output


def written(path: Path, text: str) -> Path:
    head = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
    path.write_text(head + text)
    return path


def test_a_file_replaces_the_thresholds_unless_it_merges_them(tmp_path: Path) -> None:
    own = "evictionHard: {memory.available: 1Gi}\n"
    loaded = load_kubelet_file(written(tmp_path / "a", own)).settings
    assert loaded == {"eviction_hard": {"memory.available": "1Gi"}}
    loaded = load_kubelet_file(
        written(tmp_path / "b", own + "mergeDefaultEvictionSettings: true\n")
    ).settings
    assert loaded == {"eviction_hard": {**DEFAULT_EVICTION_HARD, "memory.available": "1Gi"}}
    loaded = load_kubelet_file(written(tmp_path / "c", "evictionHard: {}\n")).settings
    assert loaded == {"eviction_hard": {}}
    assert load_kubelet_file(written(tmp_path / "d", "maxPods: 0\n")).settings == {}


def test_a_fault_in_a_file_names_its_field(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"kubeReserved: gpu=1 only"):
        load_kubelet_file(written(tmp_path / "b", "kubeReserved: {gpu: '1'}\n"))
