"""A node's status is a pure function of what was looked at. docs/behaviour/node.md."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.unit.node.node_bed import GI, MACHINE, MI, NOW, facts

from nodeagent.api.codec import convert, to_builtins
from nodeagent.api.node import (
    ContainerImage,
    Node,
    NodeAddress,
    NodeCondition,
    NodeStatus,
    Taint,
)
from nodeagent.api.quantity import Quantity
from nodeagent.config import AgentConfig
from nodeagent.model import HandlerFeatures, RuntimeFeatures
from nodeagent.node.capacity import reservation_problem
from nodeagent.node.conditions import find, flips, joined, set_pressures, set_ready
from nodeagent.node.facts import ExtendedResources, FoundAddresses, Pressure
from nodeagent.node.gather import told_image
from nodeagent.node.machine import MachineInfo
from nodeagent.node.patching import differs, node_patch
from nodeagent.node.registering import initial_node, reconcile_node
from nodeagent.node.setters import (
    PROVIDED_IP,
    SETTERS,
    SetterError,
    compute_node,
    set_addresses,
    set_features,
    set_handlers,
    set_images,
    set_machine,
    set_ready_condition,
    set_version,
    set_volumes,
)
from nodeagent.proto.runtime import v1
from nodeagent.testing.api_patch import strategic_patch

LATER = NOW + timedelta(minutes=1)
EMPTY = NodeStatus()


def amounts(given: dict[str, Quantity]) -> dict[str, str]:
    return {name: str(amount) for name, amount in given.items()}


class TestCapacity:
    def test_nc1_what_a_machine_has(self) -> None:
        pages = replace_machine(huge_pages=((2 * MI, 512), (GI, 0)))
        status = set_machine(facts(pages), EMPTY, NOW)
        assert amounts(status.capacity) == {
            "cpu": "4",
            "memory": "8Gi",
            "pods": "110",
            "ephemeral-storage": "100Gi",
            "hugepages-2Mi": "1Gi",
            "hugepages-1Gi": "0",
        }
        assert status.node_info.machine_id == "m"
        assert status.node_info.swap is None

    @pytest.mark.parametrize(
        ("options", "pods"),
        [
            ({"pods_per_core": 10}, 40),
            ({"pods_per_core": 100}, 110),
            ({"max_pods": 5, "pods_per_core": 10}, 5),
            ({"max_pods": 250}, 250),
        ],
    )
    def test_nc1_pods(self, options: dict[str, Any], pods: int) -> None:
        capacity = set_machine(facts(**options), EMPTY, NOW).capacity
        assert capacity["pods"] == Quantity(pods)

    def test_nc1_without_isolation_there_is_no_storage(self) -> None:
        old = NodeStatus(capacity={"ephemeral-storage": Quantity("1Gi")})
        status = set_machine(facts(local_storage_capacity_isolation=False), old, NOW)
        assert "ephemeral-storage" not in status.capacity

    def test_nc2_what_pods_may_have(self) -> None:
        given = facts(
            replace_machine(huge_pages=((2 * MI, 512),)),
            kube_reserved={"cpu": "500m", "memory": "1Gi", "ephemeral-storage": "1Gi"},
            system_reserved={"memory": "512Mi", "pid": "100"},
            eviction_hard={"memory.available": "100Mi", "nodefs.available": "10%"},
        )
        assert amounts(set_machine(given, EMPTY, NOW).allocatable) == {
            "cpu": "3500m",
            "memory": "5532Mi",
            "pods": "110",
            "ephemeral-storage": "89Gi",
            "hugepages-2Mi": "1Gi",
        }

    @given(
        memory=st.integers(0, 2**40),
        pages=st.integers(0, 2**20),
        reserved=st.integers(0, 2**41),
        share=st.integers(0, 100),
    )
    def test_nc3_it_is_never_negative_nor_more_than_there_is(
        self, memory: int, pages: int, reserved: int, share: int
    ) -> None:
        machine = replace_machine(memory=memory, huge_pages=((2 * MI, pages),))
        given = facts(
            machine,
            kube_reserved={"memory": str(reserved), "cpu": "100"},
            eviction_hard={"memory.available": f"{share}%"},
        )
        status = set_machine(given, EMPTY, NOW)
        for name, amount in status.allocatable.items():
            assert Quantity(0) <= amount <= status.capacity[name]

    def test_nc3_a_reservation_that_cannot_be_is_said(self) -> None:
        config = AgentConfig(kube_reserved={"memory": "9Gi"})
        problem = reservation_problem(config, MACHINE)
        assert 'Resource "memory" has a reservation of 9316Mi but capacity of 8Gi' in problem
        assert reservation_problem(AgentConfig(kube_reserved={"memory": "7Gi"}), MACHINE) == ""

    def test_nc4_resources_of_others_stay_and_are_allocatable(self) -> None:
        old = NodeStatus(capacity={"example.com/dongle": Quantity(4)})
        status = set_machine(facts(), old, NOW)
        assert status.allocatable["example.com/dongle"] == Quantity(4)
        gone = NodeStatus(allocatable={"example.com/dongle": Quantity(4)})
        assert "example.com/dongle" not in set_machine(facts(), gone, NOW).allocatable

    def test_nc5_device_plugins(self) -> None:
        extended = ExtendedResources(
            capacity={"a.com/gpu": Quantity(4)},
            allocatable={"a.com/gpu": Quantity(3)},
            inactive=("a.com/old",),
        )
        old = NodeStatus(capacity={"a.com/old": Quantity(2)})
        status = set_machine(facts(extended=extended), old, NOW)
        assert status.capacity["a.com/gpu"] == Quantity(4)
        assert status.allocatable["a.com/gpu"] == Quantity(3)
        assert status.capacity["a.com/old"] == status.allocatable["a.com/old"] == Quantity(0)

    def test_nc6_a_machine_that_cannot_be_looked_at(self) -> None:
        status = set_machine(facts(machine=None), EMPTY, NOW)
        assert amounts(status.capacity) == {"cpu": "0", "memory": "0", "pods": "110"}


def replace_machine(**given: Any) -> MachineInfo:
    base = {name: getattr(MACHINE, name) for name in MachineInfo.__dataclass_fields__}
    return MachineInfo(**{**base, **given})


def addresses(status: NodeStatus) -> list[tuple[str, str]]:
    return [(a.type, a.address) for a in status.addresses]


class TestAddresses:
    def test_na1_ns1_two_addresses_and_the_host_name(self) -> None:
        found = FoundAddresses(ips=("10.0.0.1", "fd00::1"))
        status = set_addresses(facts(addresses=found), EMPTY, NOW)
        assert addresses(status) == [
            ("InternalIP", "10.0.0.1"),
            ("InternalIP", "fd00::1"),
            ("Hostname", "n1"),
        ]

    def test_na3_without_an_address_the_rest_goes_on(self) -> None:
        old = Node(status=NodeStatus(addresses=(NodeAddress(type="Hostname", address="x"),)))
        computed = compute_node(facts(addresses=FoundAddresses(error="no route")), old, NOW)
        assert computed.errors == ("no route",)
        assert addresses(computed.node.status) == [("Hostname", "x")]
        assert computed.node.status.capacity

    def test_na4_a_cloud_tells_its_addresses(self) -> None:
        cloud: dict[str, Any] = {"cloud_provider": "external"}
        theirs = NodeStatus(addresses=(NodeAddress(type="ExternalIP", address="1.2.3.4"),))
        given = facts(addresses=FoundAddresses(error="none"), **cloud)
        assert set_addresses(given, theirs, NOW) == theirs
        assert addresses(set_addresses(given, EMPTY, NOW)) == [("Hostname", "n1")]
        fixed = facts(node_ip="10.0.0.1", **cloud)
        assert addresses(set_addresses(fixed, EMPTY, NOW))[0] == ("InternalIP", "10.0.0.1")
        noted = compute_node(fixed, Node(), NOW).node
        assert noted.metadata.annotations == {PROVIDED_IP: "10.0.0.1"}
        for other in (facts(node_ip="10.0.0.1"), facts(node_ip="::", **cloud)):
            assert compute_node(other, noted, NOW).node.metadata.annotations == {}


class TestStatus:
    def test_ns2_the_machine(self) -> None:
        info = set_machine(facts(replace_machine(swap=GI)), EMPTY, NOW).node_info
        assert (info.system_uuid, info.boot_id, info.kernel_version) == ("s", "b1", "6.1.0")
        assert info.os_image == "Some Linux 1"
        assert info.swap is not None
        assert info.swap.capacity == GI

    def test_ns3_versions(self) -> None:
        info = set_version(facts(), EMPTY, NOW).node_info
        assert info.container_runtime_version == "fake://2.0"
        assert info.kubelet_version.startswith("v1.36.0+nodeagent.")
        assert info.kube_proxy_version == ""
        silent = set_version(facts(runtime_version=""), EMPTY, NOW).node_info
        assert silent.container_runtime_version == "fake://Unknown"

    def test_ns4_the_port(self) -> None:
        node = compute_node(facts(port=10250), Node(), NOW).node
        assert node.status.daemon_endpoints.kubelet_endpoint.port == 10250

    def test_ns5_images(self) -> None:
        images = tuple(
            ContainerImage(names=(name,), size_bytes=size)
            for name, size in (("a", 1), ("b", 3), ("c", 2), ("d", 3))
        )
        few = set_images(facts(images=images, node_status_max_images=3), EMPTY, NOW)
        assert [i.names[0] for i in few.images] == ["b", "d", "c"]
        every = set_images(facts(images=images, node_status_max_images=-1), EMPTY, NOW)
        assert len(every.images) == 4
        assert set_images(facts(images=images, node_status_max_images=0), few, NOW).images == ()
        with pytest.raises(SetterError):
            set_images(facts(images=None), EMPTY, NOW)

    def test_ns5_names_of_an_image(self) -> None:
        image = v1.Image(
            repo_digests=["a@sha256:1", "b@sha256:1"],
            repo_tags=["a:1", "a:2", "a:3", "a:4"],
            size=7,
        )
        told = told_image(image)
        assert told.names == ("a@sha256:1", "b@sha256:1", "a:1", "a:2", "a:3")
        assert told.size_bytes == 7

    def test_ns6_labels_of_the_platform_are_put_right(self) -> None:
        node = initial_node(facts(), NOW).node
        labels = {**node.metadata.labels, "kubernetes.io/arch": "vax", "mine": "1"}
        edited = replace(node, metadata=replace(node.metadata, labels=labels))
        fixed = compute_node(facts(), edited, NOW).node
        assert fixed.metadata.labels == {**node.metadata.labels, "mine": "1"}
        assert fixed.status.node_info.operating_system == "linux"
        assert fixed.status.node_info.architecture == "amd64"

    def test_ns7_handlers_and_features(self) -> None:
        features = RuntimeFeatures(
            (
                HandlerFeatures("runc", recursive_read_only_mounts=True, user_namespaces=True),
                HandlerFeatures(""),
            ),
            supplemental_groups_policy=True,
        )
        status = set_features(
            facts(features=features), set_handlers(facts(features=features), EMPTY, NOW), NOW
        )
        assert [h.name for h in status.runtime_handlers] == ["", "runc"]
        runc = status.runtime_handlers[1].features
        assert runc is not None
        assert (runc.recursive_read_only_mounts, runc.user_namespaces) == (True, True)
        assert status.features is not None
        assert status.features.supplemental_groups_policy is True
        assert set_features(facts(), status, NOW).features is None

    def test_ns9_volumes_in_use(self) -> None:
        old = NodeStatus(volumes_in_use=("x",))
        assert set_volumes(facts(volumes_in_use=None), old, NOW) == old
        status = set_volumes(facts(volumes_in_use=("b", "a", "b")), old, NOW)
        assert status.volumes_in_use == ("a", "b")

    def test_the_setters_are_in_the_order_of_the_page(self) -> None:
        assert [setter.__name__ for setter in SETTERS] == [
            "set_addresses",
            "set_machine",
            "set_version",
            "set_endpoints",
            "set_images",
            "set_platform",
            "set_handlers",
            "set_features",
            "set_pressure_conditions",
            "set_ready_condition",
            "set_volumes",
        ]

    def test_the_same_facts_give_the_same_status(self) -> None:
        once = compute_node(facts(), Node(), NOW).node
        assert compute_node(facts(), once, NOW).node == once


class TestConditions:
    def test_nk1_ns8_times(self) -> None:
        status = compute_node(facts(), Node(), NOW).node.status
        assert {c.type for c in status.conditions} == {
            "MemoryPressure", "DiskPressure", "PIDPressure", "Ready",
        }  # fmt: skip
        again = compute_node(facts(), Node(status=status), LATER).node.status
        for condition in again.conditions:
            assert condition.last_transition_time == NOW.replace(microsecond=0)
            assert condition.last_heartbeat_time == LATER.replace(microsecond=0)
        flipped = compute_node(facts(not_ready=("x",)), Node(status=again), LATER).node.status
        ready = find(flipped.conditions, "Ready")
        assert ready is not None
        assert ready.last_transition_time == LATER.replace(microsecond=0)

    @pytest.mark.parametrize(
        ("pressure", "kind", "reason", "message"),
        [
            (Pressure(memory=True), "MemoryPressure", "KubeletHasInsufficientMemory",
             "kubelet has insufficient memory available"),
            (Pressure(), "MemoryPressure", "KubeletHasSufficientMemory",
             "kubelet has sufficient memory available"),
            (Pressure(disk=True), "DiskPressure", "KubeletHasDiskPressure",
             "kubelet has disk pressure"),
            (Pressure(), "DiskPressure", "KubeletHasNoDiskPressure",
             "kubelet has no disk pressure"),
            (Pressure(pid=True), "PIDPressure", "KubeletHasInsufficientPID",
             "kubelet has insufficient PID available"),
            (Pressure(), "PIDPressure", "KubeletHasSufficientPID",
             "kubelet has sufficient PID available"),
        ],
    )  # fmt: skip
    def test_nk2_words_of_shortages(
        self, pressure: Pressure, kind: str, reason: str, message: str
    ) -> None:
        found = find(set_pressures((), pressure, NOW), kind)
        assert found is not None
        assert (found.reason, found.message) == (reason, message)
        assert found.status == str(pressure != Pressure())

    def test_nk2_words_of_others_for_the_same_state_stay(self) -> None:
        theirs = NodeCondition(type="DiskPressure", status="False", reason="Theirs", message="m")
        kept = find(set_pressures((theirs,), Pressure(), NOW), "DiskPressure")
        assert kept is not None
        assert (kept.reason, kept.message) == ("Theirs", "m")
        unknown = replace(theirs, status="Unknown")
        fresh = find(set_pressures((unknown,), Pressure(), NOW), "DiskPressure")
        assert fresh is not None
        assert fresh.reason == "KubeletHasNoDiskPressure"

    @pytest.mark.parametrize(
        ("errors", "soft", "status", "message"),
        [
            ((), "", "True", "kubelet is posting ready status"),
            (("a",), "", "False", "a"),
            (("a", "b", "a"), "", "False", "[a, b]"),
            ((), "tune it", "True", "kubelet is posting ready status. WARNING: tune it"),
            (("a",), "tune it", "False", "a. WARNING: tune it"),
        ],
    )
    def test_nk3_ready(self, errors: tuple[str, ...], soft: str, status: str, message: str) -> None:
        found = find(set_ready((), errors, soft, NOW), "Ready")
        assert found is not None
        assert (found.status, found.message) == (status, message)
        assert found.reason == ("KubeletNotReady" if errors else "KubeletReady")

    def test_nk3_one_error_is_told_as_it_is(self) -> None:
        assert joined(["a", "a"]) == "a"

    def test_nk4_capacity_that_is_missing(self) -> None:
        found = find(set_ready_condition(facts(), EMPTY, NOW).conditions, "Ready")
        assert found is not None
        assert found.message == (
            "missing node capacity for resources: cpu, memory, pods, ephemeral-storage"
        )
        without = facts(local_storage_capacity_isolation=False, not_ready=("down",))
        found = find(set_ready_condition(without, EMPTY, NOW).conditions, "Ready")
        assert found is not None
        assert found.message == "[down, missing node capacity for resources: cpu, memory, pods]"

    def test_nk5_others_stay_where_they_are(self) -> None:
        theirs = NodeCondition(type="KernelDeadlock", status="False")
        conditions = set_ready(set_pressures((theirs,), Pressure(), NOW), (), "", NOW)
        assert [c.type for c in conditions] == [
            "KernelDeadlock", "MemoryPressure", "DiskPressure", "PIDPressure", "Ready",
        ]  # fmt: skip
        assert conditions[0] is theirs

    def test_nk6_what_is_said_of_flips(self) -> None:
        first = set_ready(set_pressures((), Pressure(), NOW), (), "", NOW)
        assert [f.reason for f in flips((), first)] == [
            "NodeHasSufficientMemory", "NodeHasNoDiskPressure", "NodeHasSufficientPID",
        ]  # fmt: skip
        worse = set_ready(
            set_pressures(first, Pressure(memory=True, disk=True, pid=True), NOW), ("x",), "", NOW
        )
        assert [f.reason for f in flips(first, worse)] == [
            "NodeHasInsufficientMemory", "NodeHasDiskPressure", "NodeHasInsufficientPID",
            "NodeNotReady",
        ]  # fmt: skip
        assert [f.reason for f in flips(worse, first)][-1] == "NodeReady"
        assert list(flips(first, first)) == []


class TestRegistration:
    def test_nr2_a_new_node(self) -> None:
        taint = Taint(key="k", effect="NoExecute")
        given = facts(
            node_labels={"kubernetes.io/hostname": "h", "team": "a"},
            register_with_taints=(taint,),
            provider_id="p",
        )
        node = initial_node(given, NOW).node
        assert node.metadata.labels["kubernetes.io/hostname"] == "h"
        assert node.metadata.labels["team"] == "a"
        assert (node.spec.taints, node.spec.provider_id) == ((taint,), "p")
        assert list(node.metadata.annotations.values()) == ["true"]
        off = initial_node(facts(enable_controller_attach_detach=False), NOW).node
        assert off.metadata.annotations == {}
        assert find(node.status.conditions, "Ready") is not None

    def test_nr3_a_node_of_a_cloud_waits_for_its_controller(self) -> None:
        node = initial_node(facts(cloud_provider="external"), NOW).node
        assert [(t.key, t.effect) for t in node.spec.taints] == [
            ("node.cloudprovider.kubernetes.io/uninitialized", "NoSchedule")
        ]

    def test_nr4_what_is_mended(self) -> None:
        initial = initial_node(
            facts(
                replace_machine(huge_pages=((2 * MI, 4),)),
                node_labels={"topology.kubernetes.io/zone": "", "team": "a"},
            ),
            NOW,
        ).node
        old = Node(
            metadata=replace(
                initial.metadata, labels={"topology.kubernetes.io/zone": "z", "people": "1"}
            ),
            status=NodeStatus(capacity={"hugepages-1Gi": Quantity("1Gi"), "cpu": Quantity(1)}),
        )
        mended = reconcile_node(initial, old)
        assert "topology.kubernetes.io/zone" not in mended.metadata.labels
        assert mended.metadata.labels["people"] == "1"
        assert "team" not in mended.metadata.labels
        assert amounts(mended.status.capacity) == {"cpu": "1", "hugepages-2Mi": "8Mi"}

    def test_nr4_what_is_as_it_should_be_is_left_alone(self) -> None:
        initial = initial_node(facts(), NOW).node
        assert reconcile_node(initial, initial) == initial


STATUSES = st.sampled_from(["True", "False", "Unknown"])


@st.composite
def nodes(draw: st.DrawFn) -> Node:
    kinds = draw(st.lists(st.sampled_from(["Ready", "DiskPressure", "Theirs"]), unique=True))
    conditions = tuple(
        NodeCondition(type=kind, status=draw(STATUSES), message=draw(st.sampled_from(["", "m"])))
        for kind in kinds
    )
    found = draw(st.lists(st.sampled_from(["10.0.0.1", "10.0.0.2", "fd00::1"]), max_size=3))
    texts = st.dictionaries(st.sampled_from("abc"), st.sampled_from(["1", "2"]), max_size=3)
    capacity = draw(st.dictionaries(st.sampled_from(["cpu", "x.com/y"]), st.integers(0, 3)))
    return Node(
        metadata=replace(Node().metadata, labels=draw(texts), annotations=draw(texts)),
        status=NodeStatus(
            conditions=conditions,
            addresses=tuple(NodeAddress(type="InternalIP", address=a) for a in found),
            capacity={name: Quantity(amount) for name, amount in capacity.items()},
            volumes_in_use=tuple(draw(st.lists(st.sampled_from("vw"), max_size=2))),
        ),
    )


class TestPatches:
    @given(old=nodes(), new=nodes())
    def test_np3_a_patch_turns_one_node_into_the_other(self, old: Node, new: Node) -> None:
        patch = node_patch(old, new)
        patched = convert(strategic_patch(to_builtins(old), patch), Node)
        assert patched.metadata == new.metadata
        assert patched.status.addresses == new.status.addresses
        assert patched.status.capacity == new.status.capacity
        assert patched.status.volumes_in_use == new.status.volumes_in_use
        for condition in new.status.conditions:
            assert find(patched.status.conditions, condition.type) == condition
        theirs = {c.type for c in old.status.conditions} - {c.type for c in new.status.conditions}
        for kind in theirs:
            assert find(patched.status.conditions, kind) == find(old.status.conditions, kind)

    @given(node=nodes())
    def test_np3_nothing_differs_nothing_is_sent(self, node: Node) -> None:
        assert node_patch(node, node) == {}
        assert not differs(node, node)

    def test_np3_a_condition_without_a_type_is_one_of_others(self) -> None:
        odd = NodeCondition(status="True")
        old = replace(Node(), status=NodeStatus(conditions=(odd,)))
        new = compute_node(facts(), old, NOW).node
        patch = node_patch(old, new)
        assert [c["type"] for c in patch["status"]["conditions"]] == [
            "MemoryPressure",
            "DiskPressure",
            "PIDPressure",
            "Ready",
        ]

    def test_np3_the_spec_is_never_sent(self) -> None:
        new = Node(spec=replace(Node().spec, unschedulable=True))
        assert node_patch(Node(), new) == {}

    def test_np1_a_heartbeat_alone_is_no_difference(self) -> None:
        old = compute_node(facts(), Node(), NOW).node
        new = compute_node(facts(), old, LATER).node
        assert not differs(old, new)
        patch = node_patch(old, new)
        beat = {"lastHeartbeatTime": "2026-01-02T03:05:05Z"}
        assert patch == {
            "status": {
                "conditions": [
                    {"type": kind, **beat}
                    for kind in ("MemoryPressure", "DiskPressure", "PIDPressure", "Ready")
                ]
            }
        }
        assert differs(old, compute_node(facts(not_ready=("x",)), old, LATER).node)

    def test_np3_addresses_of_one_type_are_replaced_as_a_whole(self) -> None:
        first, second = (
            tuple(NodeAddress(type="InternalIP", address=a) for a in found)
            for found in (("10.0.0.1", "10.0.0.2"), ("10.0.0.2",))
        )
        old = Node(status=NodeStatus(addresses=first))
        new = Node(status=NodeStatus(addresses=second))
        assert node_patch(old, new)["status"]["addresses"] == [
            {"type": "InternalIP", "address": "10.0.0.2"},
            {"$patch": "replace"},
        ]


def test_times_of_nodes_have_whole_seconds() -> None:
    """NK1."""
    assert datetime(2026, 1, 1, tzinfo=UTC).microsecond == 0
    assert all(
        c.last_heartbeat_time is not None and c.last_heartbeat_time.microsecond == 0
        for c in compute_node(facts(), Node(), NOW).node.status.conditions
    )
