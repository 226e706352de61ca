"""How events reach the API server (docs/behaviour/events.md, "Delivery")."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest
from prometheus_client import CollectorRegistry
from tests.unit.node.event_fakes import EventsApi, event

from nodeagent.kube import ApiError, UndecodableError, UnreachableError
from nodeagent.node.event_sender import CROWD, QUEUE, TRIES, EventSender
from nodeagent.testing import make_pod

pytestmark = pytest.mark.anyio

AWAY = UnreachableError("connection refused")


class Lab:
    def __init__(self) -> None:
        self.api = EventsApi()
        self.registry = CollectorRegistry()
        self.sender = EventSender(self.api.client, self.registry)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with anyio.create_task_group() as tasks:
            await tasks.start(self.sender.run)
            yield
            tasks.cancel_scope.cancel()

    def count(self, result: str) -> float:
        return self.registry.get_sample_value("nodeagent_events_total", {"result": result}) or 0.0

    def said(self) -> list[str]:
        return [kept.message for kept in self.api.events.values()]


@pytest.fixture
def lab() -> Lab:
    return Lab()


async def test_ev20_a_new_event_is_created_and_a_known_one_patched(lab: Lab) -> None:
    async with lab.running():
        lab.sender.send(event())
        lab.sender.send(event())
        await anyio.sleep(1)
    (path,) = lab.api.events
    assert path.startswith("/api/v1/namespaces/default/events/web.")
    assert lab.api.calls == [("post", path.rpartition("/")[0]), ("patch", path)]
    (patch,) = lab.api.patches
    assert patch == {"count": 2, "lastTimestamp": "2023-11-14T22:13:20Z", "message": "m"}
    assert (lab.count("created"), lab.count("updated")) == (1, 1)


async def test_ev21_a_known_event_that_has_vanished_is_created_with_its_count(lab: Lab) -> None:
    async with lab.running():
        lab.sender.send(event())
        await anyio.sleep(1)
        lab.api.events.clear()
        lab.sender.send(event())
        await anyio.sleep(1)
    (kept,) = lab.api.events.values()
    assert kept.count == 2


async def test_ev22_without_an_answer_twelve_tries_ten_seconds_apart(lab: Lab) -> None:
    lab.api.trouble = [AWAY] * TRIES
    async with lab.running():
        lab.sender.send(event(message="lost"))
        lab.sender.send(event(message="next"))
        await anyio.sleep(99)
        assert len(lab.api.calls) in {10, 11}
        await anyio.sleep(30)
    assert len(lab.api.calls) == TRIES + 1
    assert lab.said() == ["next"]
    assert (lab.count("unreachable"), lab.count("created")) == (1, 1)


async def test_ev22_an_answer_that_is_no_event_counts_as_none(lab: Lab) -> None:
    lab.api.trouble = [UndecodableError("HTML"), AWAY]
    async with lab.running():
        lab.sender.send(event())
        await anyio.sleep(30)
    assert lab.said() == ["m"]


@pytest.mark.parametrize(
    "error",
    [
        ApiError(404, "NotFound", 'namespaces "shop" not found'),
        ApiError(403, "Forbidden", "no"),
        ApiError(500, "InternalError", "no"),
        ApiError(409, "AlreadyExists", "no"),
    ],
    ids=lambda error: error.reason,
)
async def test_ev23_what_is_refused_is_not_tried_again(lab: Lab, error: ApiError) -> None:
    lab.api.trouble = [error]
    async with lab.running():
        lab.sender.send(event(message="refused"))
        lab.sender.send(event(message="next"))
        await anyio.sleep(1)
    assert lab.said() == ["next"]
    assert lab.count("refused") == 1


async def test_ev23_why_is_logged_once(lab: Lab, caplog: pytest.LogCaptureFixture) -> None:
    forbidden = ApiError(403, "Forbidden", "events is forbidden")
    going = ApiError(403, "Forbidden", "namespace shop is being terminated")
    lab.api.trouble = [going, forbidden, forbidden, None, forbidden]
    async with lab.running():
        for number in range(5):
            lab.sender.send(event(message=str(number)))
        await anyio.sleep(1)
    refused = [record for record in caplog.records if record.message == "event_refused"]
    causes = [record.__dict__["fields"]["cause"] for record in refused]
    assert causes == ["events is forbidden"] * 2


async def test_ev20_an_event_without_words_is_counted_too(lab: Lab) -> None:
    async with lab.running():
        lab.sender.send(event(message=""))
        lab.sender.send(event(message=""))
        lab.sender.send(event(message="more"))
        await anyio.sleep(1)
    assert [patch["count"] for patch in lab.api.patches] == [2]
    assert lab.said() == ["", "more"]


async def test_ev24_what_does_not_fit_is_dropped_and_counted(lab: Lab) -> None:
    for number in range(QUEUE + 5):
        lab.sender.send(event(make_pod(f"web-{number}"), message=str(number)))
    assert lab.count("full") == 5
    async with lab.running():
        await anyio.sleep(1)
    assert len(lab.api.events) == QUEUE


async def test_ev25_too_many_are_counted_and_not_sent(lab: Lab) -> None:
    async with lab.running():
        for _ in range(30):
            lab.sender.send(event())
        await anyio.sleep(1)
    assert lab.count("spam") == 5
    assert len(lab.api.calls) == 25


async def test_ev26_what_waits_at_the_end_is_sent(lab: Lab) -> None:
    async with lab.running():
        for number in range(3):
            lab.sender.send(event(message=str(number)))
    assert lab.said() == ["0", "1", "2"]


async def test_ev26_the_end_waits_for_no_server_that_is_away(lab: Lab) -> None:
    lab.api.trouble = [AWAY, AWAY]
    async with lab.running():
        for number in range(3):
            lab.sender.send(event(message=str(number)))
        await anyio.sleep(0)
        await anyio.sleep(0)
        before = anyio.current_time()
    assert anyio.current_time() == before
    assert len(lab.api.calls) == 1


async def test_ev26_the_end_takes_two_seconds_at_most(lab: Lab) -> None:
    lab.api.hangs = True
    async with lab.running():
        lab.sender.send(event())
        await anyio.sleep(1)
        before = anyio.current_time()
    assert anyio.current_time() - before == pytest.approx(2.0)


async def test_ev27_after_each_event_it_rests(lab: Lab) -> None:
    lab.api.takes = 0.01
    async with lab.running():
        for number in range(10):
            lab.sender.send(event(message=str(number)))
        await anyio.sleep(0.2)
        assert len(lab.api.calls) in (4, 5)  # one each 0.05 s
        lab.api.takes = 1.0
        await anyio.sleep(5.5)
        assert len(lab.api.calls) in (9, 10)  # one each 1.1 s


async def test_ev27_when_many_wait_it_does_not_rest(lab: Lab) -> None:
    lab.api.takes = 0.01
    async with lab.running():
        for number in range(CROWD + 100):
            lab.sender.send(event(make_pod(f"web-{number}")))
        await anyio.sleep(0.995)
        assert len(lab.api.calls) == 100
