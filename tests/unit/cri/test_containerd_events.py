"""containerd's own event service.

docs/behaviour/pleg.md, "Event feeds".
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.cri.fake_containerd import MOMENT_NS, FakeContainerd, envelope
from tests.unit.cri.feed_recorder import OPENED, listen

from nodeagent import rpc
from nodeagent.cri import ContainerdEventFeed, ContainerdEvents, CRIClient, RuntimeHint
from nodeagent.cri.containerd_events import parse_envelope
from nodeagent.cri.events import Effect
from nodeagent.proto.containerd import events
from nodeagent.proto.containerd.services.events.v1 import Envelope
from nodeagent.proto.runtime import v1

pytestmark = pytest.mark.anyio


@pytest.fixture
def path() -> Iterator[str]:
    with TemporaryDirectory(prefix="cri") as directory:
        yield str(Path(directory, "cri.sock"))


def hint(id_: str, topic: str, effect: Effect = Effect.ANY) -> RuntimeHint:
    return RuntimeHint(container_id=id_, what=topic, effect=effect, at=MOMENT_NS)


async def test_events_of_containers_are_hints(path: str) -> None:
    """docs/behaviour/pleg.md, "Event feeds", containerd."""
    fake = FakeContainerd(
        envelope("/containers/create", events.ContainerCreate(id="c1", image="busybox")),
        envelope("/tasks/start", events.TaskStart(container_id="c1", pid=300)),
        envelope("/tasks/exit", events.TaskExit(container_id="c1", id="c1", exit_status=137)),
        envelope("/tasks/delete", events.TaskDelete(container_id="c1", pid=300)),
        envelope("/tasks/oom", events.TaskOom(container_id="c2")),
        envelope("/containers/delete", events.ContainerDelete(id="c1")),
    )
    async with rpc.serve_unix([fake], path), CRIClient(f"unix://{path}") as client:
        assert isinstance(client, ContainerdEvents)
        told = (await listen(ContainerdEventFeed(client), 10)).told
    assert told == [
        OPENED,
        hint("c1", "/containers/create"),
        hint("c1", "/tasks/start"),
        hint("c1", "/tasks/exit", Effect.ENDING),
        hint("c1", "/tasks/delete", Effect.ENDING),
        hint("c2", "/tasks/oom"),
        hint("c1", "/containers/delete", Effect.GONE),
    ]
    assert [list(request.filters) for request in fake.requests] == [[]]


@pytest.mark.parametrize(
    "event",
    [
        envelope("/tasks/exit", events.TaskExit(container_id="c1", id="probe-7")),
        envelope("/tasks/delete", events.TaskDelete(container_id="c1", id="probe-7")),
        envelope("/tasks/exec-started", events.TaskExit(container_id="c1", id="probe-7")),
        envelope("/tasks/exit", events.TaskExit(container_id="c1", id="c1"), namespace="moby"),
        envelope("/images/create", events.ContainerCreate(id="busybox")),
        envelope("/tasks/exit", events.TaskExit()),
        Envelope(),
    ],
    ids=["exec ended", "exec deleted", "exec began", "namespace", "topic", "no id", "empty"],
)
def test_what_is_about_no_container_of_a_pod_is_passed_over(event: Envelope) -> None:
    """docs/behaviour/pleg.md, "Event feeds", containerd: commands, images, other namespaces."""
    assert parse_envelope(bytes(event)) is None


async def test_a_runtime_that_is_not_containerd_says_so(path: str) -> None:
    async with (
        rpc.serve_unix([v1.ImageServiceBase()], path),
        CRIClient(f"unix://{path}") as client,
    ):
        with pytest.raises(rpc.Unimplemented, match="Subscribe"):
            await listen(ContainerdEventFeed(client), 10)


@given(st.binary(max_size=60))
def test_damaged_envelopes_raise_nothing_unknown(data: bytes) -> None:
    try:
        parse_envelope(data)
    except rpc.Internal:
        return


@given(
    st.sampled_from(["/tasks/exit", "/tasks/start", "/containers/delete"]),
    st.text(st.characters(codec="ascii", exclude_characters="\0"), min_size=1, max_size=64),
)
def test_an_id_comes_out_as_it_went_in(topic: str, id_: str) -> None:
    kinds: dict[str, Any] = {
        "/tasks/exit": events.TaskExit(container_id=id_, id=id_, pid=7, exit_status=1),
        "/tasks/start": events.TaskStart(container_id=id_, pid=2**31),
        "/containers/delete": events.ContainerDelete(id=id_),
    }
    found = parse_envelope(bytes(envelope(topic, kinds[topic])))
    assert found is not None
    assert (found.container_id, found.what, found.at) == (id_, topic, MOMENT_NS)
