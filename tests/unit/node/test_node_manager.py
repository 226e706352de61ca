"""A node against an API server in memory: registered, reported, kept alive."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import anyio
import pytest
from tests.unit.node.node_bed import MACHINE, Bed, LoopClock

from nodeagent.api.codec import convert
from nodeagent.api.meta import ObjectMeta
from nodeagent.api.node import Node, NodeStatus, Taint
from nodeagent.journal import Journal
from nodeagent.kube import ApiError
from nodeagent.node.lease import LeaseKeeper, owned
from nodeagent.node.lookup import NodeLookup
from nodeagent.node.status_reporter import Schedule
from nodeagent.testing.api_client import StoreClient
from nodeagent.testing.api_store import ApiStore

pytestmark = pytest.mark.anyio


def denied(status: int = 403, reason: str = "Forbidden") -> ApiError:
    return ApiError(status, reason, f"{reason} it is")


async def test_nr2_nl1_a_machine_becomes_a_node() -> None:
    bed = Bed(
        node_labels={"team": "a"},
        register_with_taints=(Taint(key="k", value="v", effect="NoSchedule"),),
        provider_id="cloud://1",
    )
    async with bed.running():
        await anyio.sleep(5)
    node = bed.node()
    assert node.metadata.labels == {
        "kubernetes.io/hostname": "n1",
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        "beta.kubernetes.io/os": "linux",
        "beta.kubernetes.io/arch": "amd64",
        "team": "a",
    }
    assert node.spec.provider_id == "cloud://1"
    assert [t.key for t in node.spec.taints] == ["k"]
    assert bed.condition("Ready").status == "True"
    assert str(node.status.capacity["memory"]) == "8Gi"
    assert [a.address for a in node.status.addresses] == ["10.0.0.1", "n1"]
    lease = bed.store.get("leases", "n1", "kube-node-lease")
    assert lease["spec"]["holderIdentity"] == "n1"
    assert [o["uid"] for o in lease["metadata"]["ownerReferences"]] == [node.metadata.uid]
    assert (bed.count("POST", "nodes$"), bed.count("GET", "nodes")) == (1, 0)
    assert bed.events.reasons == [
        "NodeHasSufficientMemory",
        "NodeHasNoDiskPressure",
        "NodeHasSufficientPID",
    ]


async def test_nr4_a_node_that_is_there_as_it_should_be_is_only_read() -> None:
    store = ApiStore()
    async with Bed(store).running():
        await anyio.sleep(1)
    patches = store.count("PATCH", "nodes")
    bed = Bed(store)
    async with bed.running():
        await bed.settled()
        # One is the sign of life, none is needed to mend anything.
        assert store.count("PATCH", "nodes") == patches + 1
    assert (store.count("POST", "nodes$"), store.count("GET", "nodes/")) == (2, 1)


async def test_nr4_an_existing_node_is_mended_in_one_patch_and_keeps_what_people_gave_it() -> None:
    store = ApiStore()
    labels = {"kubernetes.io/hostname": "other", "people": "yes", "beta.kubernetes.io/os": "bsd"}
    store.create(Node(metadata=ObjectMeta(name="n1", labels=labels, annotations={"mine": "1"})))
    bed = Bed(store, node_labels={"team": "a"}, provider_id="cloud://1")
    async with bed.running():
        await anyio.sleep(0.05)
        node = bed.node()
        assert node.metadata.labels["kubernetes.io/hostname"] == "n1"
        assert node.metadata.labels["beta.kubernetes.io/os"] == "linux"
        assert node.metadata.labels["people"] == "yes"
        assert "team" not in node.metadata.labels
        assert node.metadata.annotations == {
            "mine": "1",
            "volumes.kubernetes.io/controller-managed-attach-detach": "true",
        }
        assert node.spec.provider_id == ""


async def test_nr6_a_server_that_does_not_answer_is_asked_again_ever_more_slowly() -> None:
    bed = Bed()
    bed.client.cut()
    async with bed.running():
        await anyio.sleep(60)
        assert bed.manager.trouble
        assert bed.lookup.any_node() is not None
        assert bed.lookup.node() is None
        bed.client.heal()
        await anyio.sleep(12)
        assert bed.node().metadata.name == "n1"
        assert bed.manager.trouble == ""
    failures = [r for r in bed.journal.select("") if r.what == "RegistrationFailed"]
    assert len(failures) == 1


async def test_nr5_who_may_not_make_a_node_takes_the_one_that_is_there() -> None:
    store = ApiStore()
    store.create(Node(metadata=ObjectMeta(name="n1")))
    store.refuse("POST", "nodes$", denied(), times=100)
    bed = Bed(store)
    async with bed.running():
        await anyio.sleep(1)
        assert bed.manager.registered
    assert store.count("POST", "nodes$") == 1


async def test_nr6_what_is_not_permitted_is_said_with_the_remedy() -> None:
    store = ApiStore()
    store.refuse("POST", "nodes$", denied(), times=100)
    bed = Bed(store)
    async with bed.running():
        await anyio.sleep(1)
        assert "allow this user to get, create and patch nodes" in bed.manager.trouble


async def test_nr7_a_node_that_others_make_is_waited_for() -> None:
    bed = Bed(register_node=False)
    async with bed.running():
        await anyio.sleep(30)
        assert "--register-node=false" in bed.manager.trouble
        assert bed.count("POST", "nodes") == 0
        bed.store.create(Node(metadata=ObjectMeta(name="n1")))
        await anyio.sleep(12)
        assert bed.condition("Ready").status == "True"
        assert bed.node().metadata.labels["kubernetes.io/arch"] == "amd64"


async def test_nr8_nl7_a_node_that_somebody_deletes_is_made_again_with_its_lease() -> None:
    bed = Bed()
    async with bed.running():
        await anyio.sleep(2)
        uid = bed.node().metadata.uid
        bed.store.delete("nodes", "n1")
        bed.world.errors.append("container runtime is down")
        await anyio.sleep(25)
        node = bed.node()
        assert node.metadata.uid != uid
        lease = bed.store.get("leases", "n1", "kube-node-lease")
        assert [o["uid"] for o in lease["metadata"]["ownerReferences"]] == [node.metadata.uid]


async def test_nr8_a_server_that_contradicts_itself_is_not_pressed() -> None:
    """It has the Node, and does not find it when its status is written."""
    bed = Bed()
    bed.store.refuse("PATCH", "/nodes/n1/status", ApiError(404, "NotFound", "no"), 10_000)
    async with bed.running():
        bed.seen = None
        await anyio.sleep(1)
        bed.world.errors.append("container runtime is down")
        await anyio.sleep(120)
        assert bed.count("PATCH", "nodes") < 40
        assert bed.count("POST", "nodes$") < 40
        bed.store._refusals.clear()
        await anyio.sleep(20)
        assert bed.condition("Ready").status == "False"


async def test_np5_a_server_that_takes_no_report_is_not_pressed_after_the_start() -> None:
    bed = Bed()
    bed.world.errors = ["container runtime status check may not have completed yet"]
    bed.store.refuse("PATCH", "/nodes/n1/status", ApiError(500, "InternalError", "no"), 10_000)
    async with bed.running():
        await anyio.sleep(1)
        bed.world.errors = []
        await anyio.sleep(100)
        # Five tries each ten seconds.
        assert bed.count("PATCH", "nodes") <= 60


async def test_np5_readiness_is_reported_soon_after_the_start() -> None:
    bed = Bed()
    bed.world.errors = ["container runtime status check may not have completed yet"]
    async with bed.running():
        await anyio.sleep(1)
        assert bed.condition("Ready").status == "False"
        bed.world.errors = []
        await anyio.sleep(0.2)
        ready = bed.condition("Ready")
        assert (ready.status, ready.reason) == ("True", "KubeletReady")
    assert "NodeReady" in bed.events.reasons


async def test_np2_nl2_at_rest_leases_come_each_ten_seconds_and_patches_each_five_minutes() -> None:
    bed = Bed()
    async with bed.running():
        await anyio.sleep(600)
        leases, patches = bed.count("PUT", "leases"), bed.count("PATCH", "nodes")
        await anyio.sleep(3600)
        assert 340 <= bed.count("PUT", "leases") - leases <= 361
        assert 11 <= bed.count("PATCH", "nodes") - patches <= 13
    assert bed.count("GET", "nodes") == 0
    assert bed.client.drops == 0


async def test_np1_np8_a_flip_is_reported_in_the_next_round_or_when_the_manager_is_woken() -> None:
    bed = Bed()
    async with bed.running():
        await anyio.sleep(200)
        bed.world.errors = ["container runtime is down"]
        await anyio.sleep(11)
        ready = bed.condition("Ready")
        assert (ready.status, ready.message) == ("False", "container runtime is down")
        bed.world.errors = []
        bed.manager.wake()
        await anyio.sleep(0.01)
        assert bed.condition("Ready").status == "True"
    assert bed.events.reasons[-2:] == ["NodeNotReady", "NodeReady"]


async def test_nk7_np4_flips_are_told_once_while_the_server_is_away() -> None:
    bed = Bed()
    async with bed.running():
        await anyio.sleep(200)
        bed.client.cut()
        bed.world.errors = ["container runtime is down"]
        await anyio.sleep(100)
        assert bed.events.reasons.count("NodeNotReady") == 1
        bed.world.errors = []
        await anyio.sleep(100)
        bed.world.errors = ["container runtime is down"]
        await anyio.sleep(100)
        bed.client.heal()
        await anyio.sleep(60)
        assert bed.condition("Ready").status == "False"
    assert bed.events.reasons[-3:] == ["NodeNotReady", "NodeReady", "NodeNotReady"]
    assert bed.client.drops > 0


async def test_ns12_a_hanging_runtime_holds_up_no_status() -> None:
    bed = Bed()
    async with bed.running():
        await anyio.sleep(200)
        bed.world.hangs = True
        bed.world.errors = ["container runtime is down"]
        await anyio.sleep(16)
        assert bed.condition("Ready").status == "False"


async def test_nk5_nc4_conditions_labels_and_resources_of_others_stay() -> None:
    bed = Bed()
    async with bed.running():
        await anyio.sleep(1)

        def annotate(item: dict[str, Any]) -> None:
            item["metadata"]["labels"]["theirs"] = "1"
            theirs = {"type": "KernelDeadlock", "status": "False"}
            item["status"]["conditions"] = [*item["status"]["conditions"], theirs]
            item["status"]["capacity"]["example.com/dongle"] = "4"

        bed.store.edit("nodes", "n1", annotate, status=True)
        await anyio.sleep(700)
        node = bed.node()
        assert "KernelDeadlock" in [c.type for c in node.status.conditions]
        assert str(node.status.capacity["example.com/dongle"]) == "4"
        assert str(node.status.allocatable["example.com/dongle"]) == "4"


async def test_np7_pod_addresses_go_to_the_runtime_and_are_a_change() -> None:
    bed = Bed()
    async with bed.running():
        await anyio.sleep(1)

        def assign(item: dict[str, Any]) -> None:
            item["spec"]["podCIDRs"] = ["10.1.0.0/24", "fd00::/64"]
            item["spec"]["podCIDR"] = "10.1.0.0/24"

        bed.store.edit("nodes", "n1", assign)
        await anyio.sleep(700)
        assert bed.cidrs == ["10.1.0.0/24,fd00::/64"]


async def test_np6_ns9_volumes_in_use_are_reported_even_when_nothing_is_patched() -> None:
    bed = Bed()
    async with bed.running():
        await anyio.sleep(1)
        bed.world.volumes = ["b", "a", "b"]
        await anyio.sleep(30)
        assert bed.node().status.volumes_in_use == ("a", "b")
        patches = bed.count("PATCH", "nodes")
        reported = len(bed.world.reported)
        await anyio.sleep(30)
        assert bed.count("PATCH", "nodes") == patches
        assert len(bed.world.reported) > reported
        assert bed.world.reported[-1] == ("a", "b")


async def test_nl3_a_conflict_over_the_lease_is_settled_with_a_fresh_one() -> None:
    bed = Bed()
    async with bed.running():
        await anyio.sleep(15)

        def take(item: dict[str, Any]) -> None:
            item["spec"]["holderIdentity"] = "somebody"

        bed.store.edit("leases", "n1", take, namespace="kube-node-lease")
        await anyio.sleep(12)
        lease = bed.store.get("leases", "n1", "kube-node-lease")
        assert lease["spec"]["holderIdentity"] == "n1"


async def test_nl4_a_lease_that_somebody_deletes_is_made_again() -> None:
    bed = Bed()
    async with bed.running():
        await anyio.sleep(15)
        bed.store.delete("leases", "n1", namespace="kube-node-lease")
        await anyio.sleep(12)
        assert bed.store.get("leases", "n1", "kube-node-lease")["spec"]["holderIdentity"] == "n1"


async def test_nl6_two_failures_in_a_row_drop_the_connections() -> None:
    bed = Bed()
    async with bed.running():
        await anyio.sleep(15)
        bed.store.refuse("PUT", "leases", denied(500, "InternalError"), times=1)
        await anyio.sleep(12)
        assert bed.client.drops == 0
        bed.store.refuse("PUT", "leases", denied(500, "InternalError"), times=2)
        await anyio.sleep(12)
        assert bed.client.drops == 3


@pytest.mark.parametrize(
    ("method", "path"), [("PUT", "/leases/"), ("GET", "/leases/"), ("PATCH", "/nodes/n1/status")]
)
async def test_nl6_np4_who_is_refused_drops_no_connection(method: str, path: str) -> None:
    """Watches and the writing of statuses go on."""
    bed = Bed()
    bed.store.refuse(method, path, denied(403, "Forbidden"), times=10_000)
    async with bed.running():
        await anyio.sleep(2)
        bed.world.errors.append("container runtime is down")
        await anyio.sleep(120)
        assert bed.client.drops == 0
        assert bed.count(method, path) > 10


async def test_np3_na5_addresses_are_replaced_as_a_whole() -> None:
    bed = Bed()
    async with bed.running():
        await anyio.sleep(1)
        assert isinstance(bed.node().status, NodeStatus)
        bed.world.addresses = type(bed.world.addresses)(ips=("10.0.0.2", "fd00::2"))
        await anyio.sleep(80)
        told = [(a.type, a.address) for a in bed.node().status.addresses]
        assert told == [
            ("InternalIP", "10.0.0.2"),
            ("InternalIP", "fd00::2"),
            ("Hostname", "n1"),
        ]


async def test_a_deletion_that_a_watch_sees_is_made_good_at_once() -> None:
    bed = Bed()
    async with bed.running():
        await anyio.sleep(1)
        bed.seen = bed.node()
        bed.manager.node_changed()
        await anyio.sleep(0.1)
        uid = bed.seen.metadata.uid
        bed.store.delete("nodes", "n1")
        bed.seen = None
        bed.manager.node_changed()
        await anyio.sleep(0.1)
        assert bed.node().metadata.uid != uid


async def test_a_server_that_is_back_is_told_at_once() -> None:
    bed = Bed()
    bed.client.cut()
    async with bed.running():
        await anyio.sleep(60)
        bed.client.heal()
        bed.manager.wake()
        await anyio.sleep(0.1)
        assert bed.manager.registered


async def test_ns6_what_somebody_edits_is_put_right_from_what_a_watch_sees() -> None:
    bed = Bed()
    async with bed.running():
        await anyio.sleep(1)

        def spoil(item: dict[str, Any]) -> None:
            item["metadata"]["labels"]["kubernetes.io/arch"] = "vax"
            item["status"]["capacity"]["cpu"] = "1000"
            item["status"]["addresses"] = []

        bed.store.edit("nodes", "n1", spoil, status=True)
        bed.seen = bed.node()
        bed.manager.wake()
        await anyio.sleep(0.1)
        node = bed.node()
        assert node.metadata.labels["kubernetes.io/arch"] == "amd64"
        assert str(node.status.capacity["cpu"]) == "4"
        assert [a.address for a in node.status.addresses] == ["10.0.0.1", "n1"]


async def test_ns10_ns11_a_reboot_and_a_cordon_are_told_once() -> None:
    store = ApiStore()
    async with Bed(store).running():
        await anyio.sleep(1)
    machine = replace(MACHINE, boot_id="b2")
    bed = Bed(store, machine)

    def cordon(item: dict[str, Any]) -> None:
        item["spec"]["unschedulable"] = True

    store.edit("nodes", "n1", cordon)
    async with bed.running():
        await anyio.sleep(100)
        assert (
            bed.events.said.count(("Warning", "Rebooted", "Node n1 has been rebooted, boot id: b2"))
            == 1
        )
        assert bed.events.reasons.count("NodeNotSchedulable") == 1
        assert bed.node().status.node_info.boot_id == "b2"


async def test_np8_changes_of_the_runtime_are_followed() -> None:
    state = State()
    bed = Bed(changed=lambda: state.changed)
    async with bed.running():
        await anyio.sleep(200)
        bed.world.errors = ["container runtime is down"]
        state.tell()
        await anyio.sleep(0.05)
        assert bed.condition("Ready").status == "False"


class State:
    def __init__(self) -> None:
        self.changed = anyio.Event()

    def tell(self) -> None:
        self.changed.set()
        self.changed = anyio.Event()


def test_np2_when_an_unchanged_state_is_reported_again() -> None:
    shares = iter([0.0, 0.5, 0.9])
    schedule = Schedule(300, lambda: next(shares))
    assert schedule.due(changed=False, now=0)
    schedule.reported(changed=False, now=0)
    assert not schedule.due(changed=False, now=149)
    assert schedule.due(changed=False, now=150)
    schedule.reported(changed=False, now=150)
    assert not schedule.due(changed=False, now=449)
    assert schedule.due(changed=False, now=450)
    assert schedule.due(changed=True, now=200)
    schedule.reported(changed=True, now=450)
    assert schedule.due(changed=False, now=750)
    schedule.reported(changed=True, now=750)
    assert not schedule.due(changed=False, now=1169)
    assert schedule.due(changed=False, now=1170)


def test_the_newest_of_two_nodes_counts_whoever_told_it() -> None:
    def node(version: str, uid: str = "u") -> Node:
        return Node(metadata=ObjectMeta(name="n1", uid=uid, resource_version=version))

    seen: list[Node | None] = [None]
    lookup = NodeLookup(lambda: seen[0])
    assert lookup.node() is lookup.any_node() is None
    lookup.set_local(node(""))
    assert lookup.node() is None
    assert lookup.any_node() == node("")
    lookup.observe(node("5"))
    assert lookup.node() == node("5")
    seen[0] = node("4")
    assert lookup.node() == node("5")
    seen[0] = node("10")
    assert lookup.node() == node("10")
    seen[0] = node("9" * 5000)
    assert lookup.node() == node("9" * 5000)
    seen[0] = node("1", "other")
    assert lookup.node() == node("1", "other")
    lookup.forget()
    seen[0] = None
    assert lookup.node() is None
    alone = NodeLookup(standalone=True)
    alone.set_local(node(""))
    assert alone.node() == alone.any_node() == node("")


def test_the_owner_of_a_lease_is_the_node_of_now() -> None:
    """NL7."""
    bare = owned(ObjectMeta(name="n1"), "n1", "")
    assert bare.owner_references == ()
    first = owned(bare, "n1", "u1")
    assert [(o.kind, o.uid, o.controller) for o in first.owner_references] == [("Node", "u1", None)]
    assert owned(first, "n1", "") is first
    assert owned(first, "n1", "u1") is first
    assert [o.uid for o in owned(first, "n1", "u2").owner_references] == ["u2"]


@pytest.mark.parametrize("failing", ["cut", "fall_silent"])
async def test_nl4_a_lease_is_renewed_again_when_the_server_is_back(failing: str) -> None:
    bed = Bed()
    async with bed.running():
        await anyio.sleep(60)
        getattr(bed.client, failing)()
        await anyio.sleep(90)
        assert bed.client.drops > 0
        bed.client.heal()
        before = bed.store.get("leases", "n1", "kube-node-lease")["spec"]["renewTime"]
        await anyio.sleep(25)
        after = bed.store.get("leases", "n1", "kube-node-lease")["spec"]["renewTime"]
        assert after > before


async def test_nl5_a_lease_waits_for_its_node() -> None:
    store = ApiStore()
    journal = Journal()
    client = StoreClient(store)
    lookup = NodeLookup()
    keeper = LeaseKeeper(
        client,
        "n1",
        40,
        lookup.node,
        clock=LoopClock(),
        journal=journal,
        heartbeat_failed=client.drop_connections,
        timeout=10,
    )
    async with anyio.create_task_group() as tasks:
        await tasks.start(keeper.run)
        await anyio.sleep(50)
        assert store.all("leases") == []
        store.create(Node(metadata=ObjectMeta(name="n1")))
        lookup.observe(convert(store.get("nodes", "n1"), Node))
        await anyio.sleep(11)
        (lease,) = store.all("leases")
        assert lease["spec"]["leaseDurationSeconds"] == 40
        assert lease["spec"]["renewTime"].endswith("Z")
        tasks.cancel_scope.cancel()
