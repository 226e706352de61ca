"""docs/behaviour/server.md, "Limits"."""

from __future__ import annotations

import base64
from collections import Counter
from pathlib import Path

import anyio
import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.server.api_lab import api_lab, head, reply, until
from tests.unit.server.review_fakes import Reviews

from nodeagent.server.kubelet import listener as listener_module
from nodeagent.server.kubelet.limits import (
    BURST,
    LONGEST_TOKEN,
    MOST_OPEN,
    RATE,
    PeerCounts,
    PeerLimits,
    client_of,
)
from nodeagent.server.kubelet.reviews import BusyError, TokenReviews

pytestmark = pytest.mark.anyio


async def asked(reviews: TokenReviews, tokens: list[str], peer: str) -> int:
    """How many tokens were not refused unasked."""
    answered = 0
    for token in tokens:
        try:
            await reviews.user(token, peer)
        except BusyError:
            continue
        answered += 1
    return answered


async def test_hm1_a_flood_of_bad_tokens_does_not_reach_the_api_server() -> None:
    api = Reviews()
    reviews = TokenReviews(api.client, 120.0)
    assert await reviews.user("good", "10.0.0.1") is not None
    flood = [f"bad-{number}" for number in range(1000)]
    assert await asked(reviews, flood, "10.0.0.1") == BURST - 1
    assert api.count("tokenreviews") == BURST
    # What is known is answered, and others are not held up.
    assert await reviews.user("good", "10.0.0.1") is not None
    assert await reviews.user("bad-0", "10.0.0.1") is None
    assert await asked(reviews, ["other"], "10.0.0.2") == 1
    await anyio.sleep(2)
    assert await asked(reviews, flood[500:], "10.0.0.1") == 2 * RATE
    assert api.count("tokenreviews") == BURST + 1 + 2 * RATE


async def test_hm2_questions_that_hang_are_bounded() -> None:
    api = Reviews()
    api.gate = anyio.Event()
    reviews = TokenReviews(api.client, 120.0)
    found: Counter[str] = Counter()

    async def ask(token: str, peer: str) -> None:
        try:
            await reviews.user(token, peer)
        except BusyError:
            found["busy"] += 1
        else:
            found["answered"] += 1

    async with anyio.create_task_group() as tasks:
        for number in range(40):
            tasks.start_soon(ask, f"a-{number}", "10.0.0.1")
        await anyio.wait_all_tasks_blocked()
        assert api.count("tokenreviews") == MOST_OPEN // 2
        for number in range(40):
            tasks.start_soon(ask, f"b-{number}", "10.0.0.2")
        tasks.start_soon(ask, "c", "10.0.0.3")
        await anyio.wait_all_tasks_blocked()
        assert api.count("tokenreviews") == MOST_OPEN
        api.gate.set()
    assert found == {"answered": MOST_OPEN, "busy": 81 - MOST_OPEN}


@pytest.mark.parametrize("token", ["a\nb", "a\r\nX: y", "a\0", "\udcff", "x" * (LONGEST_TOKEN + 1)])
async def test_hm3_a_token_that_is_none_is_nobodys(token: str) -> None:
    api = Reviews()
    assert await TokenReviews(api.client, 120.0).user(token, "10.0.0.1") is None
    assert api.bodies == []


async def test_hm1_hm3_over_the_port_others_are_answered_meanwhile(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    api = Reviews()
    api.gate = anyio.Event()
    async with (
        api_lab(tmp_path, tokens=TokenReviews(api.client, 120.0)) as lab,
        anyio.create_task_group() as tasks,
    ):
        answers: Counter[int] = Counter()

        async def flood(number: int) -> None:
            answers[(await lab.ask("/pods", token=f"bad-{number}")).status] += 1

        for number in range(100):
            tasks.start_soon(flood, number)
        await until(lambda: api.count("tokenreviews") + answers[429] == 100)
        assert api.count("tokenreviews") == MOST_OPEN // 2
        client = lab.authority.client("admin")
        sound = await lab.ask("/healthz", token="", client=client)
        assert (sound.status, sound.body) == (200, b"ok")
        refused = await lab.ask("/pods", token="one more")
        assert refused.status == 429
        assert refused.headers["retry-after"] == "1"
        # Neither a raw byte nor a newline in disguise is asked about, or kills the answer.
        async with lab.connected() as stream:
            text = head("GET", "/pods", "raw").replace(b"Bearer raw", b"Bearer \xff\xfe")
            await stream.send(text)
            assert (await reply(stream)).status == 401
        encoded = base64.urlsafe_b64encode(b"line\nline: 2").decode().rstrip("=")
        offered = f"base64url.bearer.authorization.k8s.io.{encoded}, v4.channel.k8s.io"
        socket = {"Upgrade": "websocket", "Sec-WebSocket-Protocol": offered}
        got = await lab.ask("/exec/a/b/c", token="", headers=socket)
        assert (got.status, got.body) == (401, b"Unauthorized")
        assert api.count("tokenreviews") == MOST_OPEN // 2
        api.gate.set()
    assert answers == {401: MOST_OPEN // 2, 429: 100 - MOST_OPEN // 2}
    assert "Traceback" not in caplog.text


async def test_hm4_one_client_cannot_have_all_connections(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener_module, "MOST_OF_ONE", 2)
    async with api_lab(tmp_path) as lab:
        async with lab.connected() as first, lab.connected() as second:
            for stream in (first, second):
                await stream.send(head("GET", "/healthz", "admin", {"Connection": "keep-alive"}))
                assert (await reply(stream)).status == 200
            assert not await _answered(lab.ask)
        with anyio.fail_after(60):
            while not await _answered(lab.ask):
                await anyio.sleep(0.1)


async def _answered(ask: object) -> bool:
    assert callable(ask)
    try:
        return bool((await ask("/healthz")).status == 200)
    except (h11.RemoteProtocolError, anyio.BrokenResourceError, OSError):
        return False


@given(st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), max_size=60))
def test_hm4_counts_come_back_to_nothing(steps: list[tuple[str, bool]]) -> None:
    counts, have = PeerCounts(3), Counter[str]()
    for client, enter in steps:
        if enter:
            assert counts.enter(client) == (have[client] < 3)
            have[client] = min(have[client] + 1, 3)
        elif have[client]:
            counts.leave(client)
            have[client] -= 1
    assert counts._open == +have


async def test_hm1_very_many_clients_are_not_all_remembered() -> None:
    limits = PeerLimits()
    for number in range(10_000):
        assert limits.take(f"client-{number}")
    assert len(limits._full_at) <= 4096


def test_who_counts_as_one_client() -> None:
    assert client_of("10.0.0.7") == "10.0.0.7"
    assert client_of("2001:db8::1") == client_of("2001:db8:0:0:1::2") != client_of("2001:db8:1::1")
    assert client_of("::ffff:10.0.0.7") != client_of("::ffff:10.0.0.8")
    assert client_of("fe80::1%eth0") == "fe80::/64"
    assert client_of("") == ""
