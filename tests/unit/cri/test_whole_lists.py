"""docs/behaviour/pleg.md, "Large nodes": every item is seen, however many there are."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio
import pytest

from nodeagent import rpc
from nodeagent.cri import CRIClient
from nodeagent.cri.pods import PodLister
from nodeagent.cri.whole_lists import Way
from nodeagent.model import PodUID
from nodeagent.proto.runtime import v1

pytestmark = pytest.mark.anyio

MIB = 2**20
CREATED, RUNNING, EXITED, UNKNOWN = list(v1.ContainerState)
READY, NOT_READY = list(v1.PodSandboxState)
UID = "io.kubernetes.pod.uid"


class Node(v1.RuntimeServiceBase):
    """A runtime full of containers. ``streams`` says whether it has streamed lists."""

    def __init__(self, *, streams: bool = False) -> None:
        self.streams = streams
        self.containers: dict[str, v1.Container] = {}
        self.sandboxes: dict[str, v1.PodSandbox] = {}
        self.asked: Counter[str] = Counter()
        self.after: dict[v1.ContainerState, tuple[str, v1.ContainerState]] = {}
        """Once containers of a state were listed, this one is in that state."""

    def put(self, uid: str, id_: str, state: v1.ContainerState, size: int = 100) -> None:
        self.containers[id_] = v1.Container(
            id=id_,
            state=state,
            pod_sandbox_id=f"s-{uid}",
            metadata=v1.ContainerMetadata(name="main"),
            labels={UID: uid, "io.kubernetes.container.name": "main"},
            annotations={"padding": "." * size},
        )
        alive = state is RUNNING or self.sandboxes.get(f"s-{uid}", v1.PodSandbox()).id != ""
        self.sandboxes[f"s-{uid}"] = v1.PodSandbox(
            id=f"s-{uid}", state=READY if alive else NOT_READY, labels={UID: uid}
        )

    def fill(self, pods: int, per_pod: int, size: int) -> None:
        for pod in range(pods):
            for n in range(per_pod):
                self.put(f"dead{pod}", f"d{pod}-{n}", EXITED, size)
            self.sandboxes[f"s-dead{pod}"].state = NOT_READY

    async def list_containers(self, message: v1.ListContainersRequest) -> v1.ListContainersResponse:
        where = message.filter or v1.ContainerFilter()
        uid = where.label_selector.get(UID, "")
        by_state = "all" if where.state is None else "state"
        self.asked["id" if where.id else "pod" if uid else by_state] += 1
        found = [
            item
            for item in self.containers.values()
            if (not where.id or item.id == where.id)
            and (not uid or item.labels[UID] == uid)
            and (where.state is None or item.state == where.state.state)
        ]
        if where.state is not None and (moved := self.after.pop(where.state.state, None)):
            self.containers[moved[0]] = v1.Container.parse(bytes(self.containers[moved[0]]))
            self.containers[moved[0]].state = moved[1]
        return v1.ListContainersResponse(containers=found)

    async def list_pod_sandbox(
        self, message: v1.ListPodSandboxRequest
    ) -> v1.ListPodSandboxResponse:
        where = message.filter or v1.PodSandboxFilter()
        uid = where.label_selector.get(UID, "")
        found = [
            item
            for item in self.sandboxes.values()
            if (not where.id or item.id == where.id)
            and (not uid or item.labels[UID] == uid)
            and (where.state is None or item.state == where.state.state)
        ]
        return v1.ListPodSandboxResponse(items=found)

    async def stream_containers(
        self, message: v1.StreamContainersRequest
    ) -> AsyncIterator[v1.StreamContainersResponse]:
        self.asked["stream"] += 1
        if not self.streams:
            raise rpc.Unimplemented("unknown method StreamContainers")
        for item in list(self.containers.values()):
            yield v1.StreamContainersResponse(containers=[item])

    async def stream_pod_sandboxes(
        self, message: v1.StreamPodSandboxesRequest
    ) -> AsyncIterator[v1.StreamPodSandboxesResponse]:
        if not self.streams:
            raise rpc.Unimplemented("unknown method StreamPodSandboxes")
        for item in list(self.sandboxes.values()):
            yield v1.StreamPodSandboxesResponse(pod_sandboxes=[item])


@pytest.fixture
def path() -> Iterator[str]:
    with TemporaryDirectory(prefix="cri") as directory:
        yield str(Path(directory, "cri.sock"))


@asynccontextmanager
async def client_of(node: Node, path: str, max_send: int | None) -> AsyncIterator[CRIClient]:
    async with (
        rpc.serve_unix([node], path, max_send=max_send),
        CRIClient(f"unix://{path}") as client,
    ):
        yield client


async def ids(client: CRIClient) -> set[str]:
    return {item.id for item in await client.list_containers()}


def way(client: CRIClient) -> Way:
    return client._all_containers.way


@pytest.mark.parametrize("size", [4, 16, 17])
async def test_an_answer_may_be_as_large_as_the_runtime_sends_it(path: str, size: int) -> None:
    """docs/behaviour/pleg.md, "Large nodes", one answer: no ceiling of ours."""
    node = Node()
    node.fill(size, 1, MIB)
    async with client_of(node, path, None) as client:
        assert await ids(client) == set(node.containers)
        assert node.asked == {"all": 1}


async def test_a_list_that_is_too_large_is_streamed(path: str) -> None:
    """docs/behaviour/pleg.md, "Large nodes", streamed."""
    node = Node(streams=True)
    node.fill(17, 1, MIB)
    async with client_of(node, path, 16 * MIB) as client:
        for _ in range(3):
            assert await ids(client) == set(node.containers)
        assert way(client) is Way.STREAM
        assert node.asked == {"all": 1, "stream": 3}


async def test_without_streams_it_is_listed_by_state(
    path: str, caplog: pytest.LogCaptureFixture
) -> None:
    """docs/behaviour/pleg.md, "Large nodes", by state; the choice is remembered."""
    node = Node()
    node.fill(9, 1, MIB)
    for n in range(9):
        node.put(f"live{n}", f"l{n}", RUNNING, MIB)
    async with client_of(node, path, 16 * MIB) as client:
        for _ in range(3):
            assert await ids(client) == set(node.containers)
        assert way(client) is Way.BY_STATE
        assert node.asked == {"all": 1, "stream": 1, "state": 12}
    assert [r.getMessage() for r in caplog.records].count("list_too_large") == 1


async def test_dead_ones_are_listed_by_pod_when_their_state_is_too_large(path: str) -> None:
    """docs/behaviour/pleg.md, "Large nodes", by pod: no more than 50 old pods each time."""
    node = Node()
    node.fill(120, 2, MIB // 10)
    node.put("live", "l", RUNNING)
    async with client_of(node, path, 16 * MIB) as client:
        await client.list_pod_sandbox()
        assert await ids(client) == set(node.containers)
        assert way(client) is Way.BY_POD
        assert node.asked["pod"] == 121
        for _ in range(3):
            assert await ids(client) == set(node.containers)
        assert node.asked["pod"] == 121 + 150
        # A removal is seen once its pod has been asked about, at the latest three lists on.
        del node.containers["d7-1"]
        for _ in range(3):
            left = await ids(client)
        assert left == set(node.containers)


async def test_a_look_at_one_pod_is_not_undone_by_an_older_part(path: str) -> None:
    """docs/behaviour/pleg.md, "Large nodes", by pod: what was looked at is asked about anew."""
    node = Node()
    node.fill(120, 2, MIB // 10)
    async with client_of(node, path, 16 * MIB) as client:
        lister = PodLister(client)
        await lister.list_pods()
        del node.containers["d119-1"]
        last = PodUID("dead119")
        pod = await lister.get_pod(last)
        assert pod is not None
        assert len(pod.containers) == 1
        assert len((await lister.list_pods())[last].containers) == 1


async def test_what_moves_between_two_lists_by_state_is_not_lost(path: str) -> None:
    """docs/behaviour/pleg.md, "Large nodes", missing: asked for by its id."""
    node = Node()
    node.fill(17, 1, MIB)
    for id_ in ("a", "b", "c"):
        node.put("live", id_, UNKNOWN if id_ == "b" else RUNNING)
    del node.containers["d16-0"]
    node.put("more", "d16", EXITED, MIB)
    async with client_of(node, path, 12 * MIB) as client:
        node.containers["d0-0"].annotations["padding"] = ""
        await client.list_pod_sandbox()
        assert await ids(client) == set(node.containers)
        # RUNNING is listed before UNKNOWN: this one is in neither list, and that one in both.
        node.after = {RUNNING: ("b", RUNNING), CREATED: ("a", EXITED)}
        found = {item.id: item.state for item in await client.list_containers()}
        assert set(found) == set(node.containers)
        assert (found["a"], found["b"]) == (EXITED, RUNNING)
        assert node.asked["id"] >= 1
        node.containers.pop("c")
        assert "c" not in await ids(client)


async def test_the_plain_list_is_tried_again_rarely(path: str) -> None:
    """docs/behaviour/pleg.md, "Large nodes", again: after ten minutes."""
    node = Node(streams=True)
    node.fill(17, 1, MIB)
    async with client_of(node, path, 16 * MIB) as client:
        await ids(client)
        for pod in range(10):
            del node.containers[f"d{pod}-0"]
        await anyio.sleep(599)
        assert await ids(client) == set(node.containers)
        assert way(client) is Way.STREAM
        await anyio.sleep(2)
        assert await ids(client) == set(node.containers)
        assert way(client) is Way.PLAIN
        assert node.asked == {"all": 2, "stream": 2}


async def test_other_errors_are_not_about_size(path: str) -> None:
    """docs/behaviour/pleg.md, "Large nodes", one answer: a runtime that is away is away."""
    node = Node()
    async with client_of(node, path, None) as client:
        await ids(client)
    with pytest.raises(rpc.Unavailable):
        await ids(client)
    assert node.asked == {"all": 1}


async def test_unchanged_items_stay_the_same_objects_in_parts_too(path: str) -> None:
    """docs/behaviour/pleg.md, "Large nodes", by state: at rest nothing is decoded."""
    node = Node()
    node.fill(9, 1, MIB)
    for n in range(9):
        node.put(f"live{n}", f"l{n}", RUNNING, MIB)
    async with client_of(node, path, 16 * MIB) as client:
        lister = PodLister(client)
        first = await lister.list_pods()
        assert await lister.list_pods() is first
