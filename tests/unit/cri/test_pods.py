"""docs/behaviour/pleg.md, "What a look sees": two lists put together, and one pod's details."""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.cri import RuntimeService
from nodeagent.cri.inspection import (
    HASH_ANNOTATION,
    RESTART_COUNT_ANNOTATION,
    container_status,
    sandbox_status,
)
from nodeagent.cri.pods import (
    CONTAINER_NAME_LABEL,
    POD_NAME_LABEL,
    POD_NAMESPACE_LABEL,
    POD_UID_LABEL,
    PodLister,
    PodRuntime,
    newest_first,
    runtime_container,
    runtime_sandbox,
)
from nodeagent.model import (
    ContainerID,
    ContainerState,
    PodUID,
    RuntimeContainer,
    RuntimePod,
    RuntimeSandbox,
    SandboxID,
    SandboxState,
)
from nodeagent.proto.runtime import v1
from nodeagent.rpc import Internal, NotFound, Unavailable

pytestmark = pytest.mark.anyio

READY = v1.PodSandboxState.SANDBOX_READY
RUNNING, EXITED = v1.ContainerState.CONTAINER_RUNNING, v1.ContainerState.CONTAINER_EXITED


def labels(uid: str, container: str = "") -> dict[str, str]:
    made = {POD_UID_LABEL: uid, POD_NAME_LABEL: f"pod-{uid}", POD_NAMESPACE_LABEL: "default"}
    return {**made, CONTAINER_NAME_LABEL: container} if container else made


def listed_sandbox(id_: str, uid: str = "u", attempt: int = 0, **changes: Any) -> v1.PodSandbox:
    values: dict[str, Any] = {
        "id": id_,
        "metadata": v1.PodSandboxMetadata(f"pod-{uid}", uid, "default", attempt),
        "labels": labels(uid),
        "state": READY,
        "created_at": 5,
    }
    return v1.PodSandbox(**{**values, **changes})


def listed_container(id_: str, uid: str = "u", attempt: int = 0, **changes: Any) -> v1.Container:
    values: dict[str, Any] = {
        "id": id_,
        "pod_sandbox_id": "s",
        "metadata": v1.ContainerMetadata(name="web", attempt=attempt),
        "image": v1.ImageSpec(image="nginx:1"),
        "image_ref": "sha256:1",
        "labels": labels(uid, "web"),
        "annotations": {HASH_ANNOTATION: "abc", RESTART_COUNT_ANNOTATION: str(attempt)},
        "state": RUNNING,
        "created_at": 6,
    }
    return v1.Container(**{**values, **changes})


class Runtime:
    """A runtime in two lists. Items are handed out as they are, in random order."""

    def __init__(self, sandboxes: Sequence[v1.PodSandbox], containers: Sequence[v1.Container]):
        self.sandboxes = list(sandboxes)
        self.containers = list(containers)
        self.interned = True
        self.gone: set[str] = set()
        self.statusless: set[str] = set()
        self.failing: Exception | None = None

    def _items(self, items: Sequence[Any], selector: dict[str, str] | None) -> list[Any]:
        found = [i for i in items if selector is None or selector.items() <= i.labels.items()]
        random.shuffle(found)
        return found if self.interned else [type(item).parse(bytes(item)) for item in found]

    async def list_pod_sandbox(
        self, where: v1.PodSandboxFilter | None = None
    ) -> Sequence[v1.PodSandbox]:
        return self._items(self.sandboxes, where.label_selector if where else None)

    async def list_containers(
        self, where: v1.ContainerFilter | None = None
    ) -> Sequence[v1.Container]:
        return self._items(self.containers, where.label_selector if where else None)

    def _check(self, id_: str) -> None:
        if self.failing is not None:
            raise self.failing
        if id_ in self.gone:
            raise NotFound(f"no such thing: {id_}")

    async def pod_sandbox_status(self, pod_sandbox_id: str) -> v1.PodSandboxStatusResponse:
        self._check(pod_sandbox_id)
        if pod_sandbox_id in self.statusless:
            return v1.PodSandboxStatusResponse()
        item = next(s for s in self.sandboxes if s.id == pod_sandbox_id)
        status = v1.PodSandboxStatus(
            id=item.id,
            metadata=item.metadata,
            state=item.state,
            network=v1.PodSandboxNetworkStatus(ip=f"10.0.0.{item.id[-1]}"),
        )
        return v1.PodSandboxStatusResponse(status=status)

    async def container_status(self, container_id: str) -> v1.ContainerStatusResponse:
        self._check(container_id)
        if container_id in self.statusless:
            return v1.ContainerStatusResponse()
        item = next(c for c in self.containers if c.id == container_id)
        status = v1.ContainerStatus(
            id=item.id, metadata=item.metadata, state=item.state, annotations=item.annotations
        )
        return v1.ContainerStatusResponse(status=status)


U, V = PodUID("u"), PodUID("v")


async def test_a_pod_is_its_sandboxes_and_containers_newest_first() -> None:
    """docs/behaviour/pleg.md, "What a look sees", a pod; order."""
    runtime = Runtime(
        [listed_sandbox("s0"), listed_sandbox("s1", attempt=1, created_at=1)],
        [
            listed_container("c0"),
            listed_container("c2", attempt=2),
            listed_container("c1", attempt=1),
        ],
    )
    pod = (await PodLister(runtime).list_pods())[U]
    assert (pod.uid, pod.name, pod.namespace) == ("u", "pod-u", "default")
    assert [sandbox.id for sandbox in pod.sandboxes] == ["s1", "s0"]
    assert [container.id for container in pod.containers] == ["c2", "c1", "c0"]


async def test_what_is_not_ours_is_passed_over() -> None:
    """docs/behaviour/pleg.md, "What a look sees", foreign."""
    runtime = Runtime(
        [listed_sandbox("x", labels={}), listed_sandbox("y", labels={POD_UID_LABEL: ""})],
        [listed_container("z", labels={"a": "b"})],
    )
    assert await PodLister(runtime).list_pods() == {}


async def test_a_container_without_its_sandbox_still_makes_a_pod() -> None:
    """docs/behaviour/pleg.md, "What a look sees", a pod."""
    pod = (await PodLister(Runtime([], [listed_container("c")])).list_pods())[U]
    assert pod.name == "pod-u"
    assert pod.sandboxes == ()


@pytest.mark.parametrize("interned", [True, False])
async def test_unchanged_lists_give_the_same_mapping(interned: bool) -> None:
    """docs/behaviour/pleg.md, "What a look sees", at rest: whatever the order of the answers."""
    runtime = Runtime(
        [listed_sandbox(f"s{n}", f"u{n}") for n in range(20)],
        [listed_container(f"c{n}", f"u{n}") for n in range(20)],
    )
    runtime.interned = interned
    lister = PodLister(runtime)
    first = await lister.list_pods()
    assert len(first) == 20
    for _ in range(5):
        assert await lister.list_pods() is first


async def test_only_the_pod_that_changed_is_a_new_object() -> None:
    """docs/behaviour/pleg.md, "What a look sees", at rest."""
    runtime = Runtime([], [listed_container("c"), listed_container("d", "v")])
    lister = PodLister(runtime)
    before = await lister.list_pods()
    runtime.containers[0] = listed_container("c", state=EXITED)
    after = await lister.list_pods()
    assert after is not before
    assert after[V] is before[V]
    assert before[U].containers[0].state is ContainerState.RUNNING
    assert after[U].containers[0].state is ContainerState.EXITED


async def test_a_pod_that_lost_its_last_container_is_gone() -> None:
    """docs/behaviour/pleg.md, "What a look sees", a pod."""
    runtime = Runtime([], [listed_container("c"), listed_container("d", "v")])
    lister = PodLister(runtime)
    await lister.list_pods()
    del runtime.containers[0]
    assert set(await lister.list_pods()) == {"v"}
    runtime.containers.clear()
    assert await lister.list_pods() == {}


async def test_one_pod_is_found_by_its_label() -> None:
    """docs/behaviour/pleg.md, "What a look sees", one pod."""
    runtime = Runtime([listed_sandbox("s")], [listed_container("c"), listed_container("d", "v")])
    lister = PodLister(runtime)
    alone = await lister.get_pod(U)
    assert alone is not None
    assert [container.id for container in alone.containers] == ["c"]
    pods = await lister.list_pods()
    assert await lister.get_pod(U) is pods[U]
    assert await lister.get_pod(PodUID("w")) is None


async def test_an_inspection_leaves_out_what_is_gone() -> None:
    """docs/behaviour/pleg.md, "What a look sees", details."""
    runtime = Runtime(
        [listed_sandbox("s0"), listed_sandbox("s1", attempt=1)],
        [listed_container("c0"), listed_container("c1", attempt=1)],
    )
    lister = PodLister(runtime)
    pod = (await lister.list_pods())[U]
    status = await lister.inspect(pod)
    assert [s.id for s in status.sandboxes] == ["s1", "s0"]
    assert [c.id for c in status.containers] == ["c1", "c0"]
    assert status.ips == ("10.0.0.1",)
    runtime.gone = {"s1", "c1"}
    status = await lister.inspect(pod)
    assert [s.id for s in status.sandboxes] == ["s0"]
    assert [c.id for c in status.containers] == ["c0"]
    assert status.ips == ("10.0.0.0",)
    runtime.gone = {"s0", "s1", "c0", "c1"}
    status = await lister.inspect(pod)
    assert (status.uid, status.sandboxes, status.containers, status.ips) == ("u", (), (), ())


async def test_a_newest_sandbox_that_is_not_ready_has_no_address() -> None:
    """docs/behaviour/pleg.md, "What a look sees", addresses."""
    not_ready = v1.PodSandboxState.SANDBOX_NOTREADY
    runtime = Runtime([listed_sandbox("s0"), listed_sandbox("s1", attempt=1, state=not_ready)], [])
    lister = PodLister(runtime)
    assert (await lister.inspect((await lister.list_pods())[U])).ips == ()


@pytest.mark.parametrize("id_", ["s", "c"])
async def test_an_answer_without_a_status_is_a_failure(id_: str) -> None:
    """docs/behaviour/pleg.md, "What a look sees", details."""
    runtime = Runtime([listed_sandbox("s")], [listed_container("c")])
    runtime.statusless = {id_}
    lister = PodLister(runtime)
    pod = (await lister.list_pods())[U]
    with pytest.raises(Internal, match=f"{id_}: an answer without a status"):
        await lister.inspect(pod)


async def test_any_other_failure_ends_the_inspection_and_the_call_is_known() -> None:
    """docs/behaviour/pleg.md, "What a look sees", details."""
    runtime = Runtime([listed_sandbox("s")], [listed_container("c")])
    lister = PodLister(runtime)
    calls: list[str] = []

    def watch(rpc: str) -> AbstractContextManager[None]:
        calls.append(rpc)
        return nullcontext()

    pod = (await lister.list_pods(watch))[U]
    assert calls == ["ListPodSandbox", "ListContainers"]
    await lister.inspect(pod, watch)
    assert sorted(calls[2:]) == ["ContainerStatus", "PodSandboxStatus"]
    runtime.failing = Unavailable("gone")
    with pytest.raises(Unavailable):
        await lister.inspect(pod, watch)


def test_attempts_decide_whatever_the_times_say() -> None:
    """docs/behaviour/pleg.md, "What a look sees", order: created_at may be 0, 1970 or wrong."""
    for times in ((0, 0), (9, 0), (1, 9), (-5, 9)):
        old = RuntimeSandbox(SandboxID("a"), 0, SandboxState.READY, times[0])
        new = RuntimeSandbox(SandboxID("b"), 1, SandboxState.READY, times[1])
        assert sorted([old, new], key=newest_first) == [new, old]


def test_equal_attempts_are_ordered_by_time_then_id() -> None:
    """docs/behaviour/pleg.md, "What a look sees", order."""
    made = [
        RuntimeSandbox(SandboxID(id_), 0, SandboxState.READY, time)
        for id_, time in (("b", 5), ("a", 5), ("c", 9))
    ]
    assert [sandbox.id for sandbox in sorted(made, key=newest_first)] == ["c", "a", "b"]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (0, ContainerState.CREATED),
        (1, ContainerState.RUNNING),
        (2, ContainerState.EXITED),
        (3, ContainerState.UNKNOWN),
        (17, ContainerState.UNKNOWN),
    ],
)
def test_a_state_nobody_knows_is_unknown(given: int, expected: ContainerState) -> None:
    """docs/behaviour/pleg.md, "What a look sees", states."""
    wire = bytes(listed_container("c", state=v1.ContainerState(given)))
    assert runtime_container(v1.Container.parse(wire)).state is expected


@pytest.mark.parametrize(
    ("given", "expected"),
    [(0, SandboxState.READY), (1, SandboxState.NOT_READY), (9, SandboxState.NOT_READY)],
)
def test_a_sandbox_in_a_state_nobody_knows_is_not_ready(given: int, expected: SandboxState) -> None:
    """docs/behaviour/pleg.md, "What a look sees", states."""
    wire = bytes(listed_sandbox("s", state=v1.PodSandboxState(given)))
    assert runtime_sandbox(v1.PodSandbox.parse(wire)).state is expected


def test_a_listed_container_carries_our_labels_and_hash() -> None:
    """docs/behaviour/pleg.md, "What a look sees", labels."""
    assert runtime_container(listed_container("c", attempt=3)) == RuntimeContainer(
        id=ContainerID("c"),
        name="web",
        attempt=3,
        state=ContainerState.RUNNING,
        sandbox_id=SandboxID("s"),
        created_at=6,
        image="nginx:1",
        image_ref="sha256:1",
        hash="abc",
    )


def test_a_bare_container_still_makes_sense() -> None:
    """docs/behaviour/pleg.md, "What a look sees", labels: what is missing is empty."""
    bare = runtime_container(v1.Container(id="c"))
    assert (bare.name, bare.attempt, bare.image, bare.hash) == ("", 0, "", "")
    named = v1.Container(id="c", metadata=v1.ContainerMetadata(name="web"))
    assert runtime_container(named).name == "web"
    assert runtime_sandbox(v1.PodSandbox(id="s")).attempt == 0


def test_the_details_of_a_container_are_all_there() -> None:
    """docs/behaviour/pleg.md, "What a look sees", details."""
    annotations = {HASH_ANNOTATION: "abc", RESTART_COUNT_ANNOTATION: "7", "x": "y"}
    status = container_status(
        v1.ContainerStatus(
            id="c",
            metadata=v1.ContainerMetadata(name="web", attempt=2),
            state=EXITED,
            created_at=1,
            started_at=2,
            finished_at=3,
            exit_code=137,
            reason="OOMKilled",
            message="bye",
            image=v1.ImageSpec(image="nginx:1"),
            image_ref="repo@sha256:1",
            image_id="sha256:1",
            annotations=annotations,
            log_path="/var/log/pods/x/0.log",
        ),
        runtime_container(listed_container("c", attempt=2)),
    )
    assert (status.state, status.exit_code, status.reason, status.message) == (
        ContainerState.EXITED,
        137,
        "OOMKilled",
        "bye",
    )
    assert (status.created_at, status.started_at, status.finished_at) == (1, 2, 3)
    assert (status.image, status.image_ref, status.image_id) == (
        "nginx:1",
        "repo@sha256:1",
        "sha256:1",
    )
    assert (status.attempt, status.restart_count, status.hash) == (2, 7, "abc")
    assert (status.name, status.sandbox_id, status.log_path) == (
        "web",
        "s",
        "/var/log/pods/x/0.log",
    )
    assert status.annotations == annotations


@pytest.mark.parametrize("text", ["", "many", "-1", "1.5", "\u0663", "9" * 5000])
def test_a_restart_count_that_is_none_is_the_attempt(text: str) -> None:
    """docs/behaviour/pleg.md, "What a look sees", labels."""
    listed = runtime_container(listed_container("c", attempt=2))
    annotations = {RESTART_COUNT_ANNOTATION: text} if text else {}
    status = container_status(v1.ContainerStatus(id="c", annotations=annotations), listed)
    assert status.restart_count == 2
    assert status.hash == "abc"


def test_the_addresses_of_a_sandbox_are_those_that_are_addresses() -> None:
    """docs/behaviour/pleg.md, "What a look sees", addresses."""
    network = v1.PodSandboxNetworkStatus(
        ip="10.0.0.1", additional_ips=[v1.PodIp(ip="fd00::1"), v1.PodIp(ip="nonsense"), v1.PodIp()]
    )
    listed = runtime_sandbox(listed_sandbox("s", attempt=4))
    status = sandbox_status(v1.PodSandboxStatus(id="s", network=network), listed)
    assert status.ips == ("10.0.0.1", "fd00::1")
    assert status.has_network_status
    assert status.attempt == 4
    none = sandbox_status(v1.PodSandboxStatus(id="s"), listed)
    assert (none.ips, none.has_network_status, none.host_network) == ((), False, False)


def test_a_sandbox_in_the_hosts_network_says_so() -> None:
    """docs/behaviour/pleg.md, "What a look sees", details."""
    options = v1.NamespaceOption(network=v1.NamespaceMode.NODE)
    linux = v1.LinuxPodSandboxStatus(namespaces=v1.Namespace(options=options))
    status = v1.PodSandboxStatus(id="s", linux=linux, runtime_handler="runc")
    found = sandbox_status(status, runtime_sandbox(listed_sandbox("s")))
    assert found.host_network
    assert found.runtime_handler == "runc"


def accepts(runtime: RuntimeService) -> PodRuntime:
    """Type-checked only: every runtime service can be looked at."""
    return runtime


ids = st.sampled_from(["a", "b", "c", "d", "e"])
owners = st.sampled_from(["u", "v", ""])
things = st.dictionaries(ids, st.tuples(owners, st.integers(0, 3), st.integers(0, 3)), max_size=5)


@given(st.lists(things, min_size=1, max_size=6), st.booleans())
async def test_a_look_is_what_a_first_look_would_be(
    history: list[dict[str, tuple[str, int, int]]], interned: bool
) -> None:
    """docs/behaviour/pleg.md, "What a look sees": memory changes identity, never content."""
    runtime = Runtime([], [])
    runtime.interned = interned
    lister = PodLister(runtime)
    before: dict[PodUID, RuntimePod] = {}
    made: dict[tuple[Any, ...], v1.Container] = {}
    for moment in history:
        keys = [(id_, *facts) for id_, facts in moment.items()]
        for key in keys:
            id_, owner, attempt, state = key
            if key not in made:
                changes = {"state": v1.ContainerState(state)}
                made[key] = listed_container(id_, owner, attempt, **changes)
        runtime.containers = [made[key] for key in keys]
        pods = await lister.list_pods()
        assert pods == await PodLister(runtime).list_pods()
        for uid, pod in pods.items():
            assert pod is before.get(uid) or pod != before.get(uid)
        before = dict(pods)
