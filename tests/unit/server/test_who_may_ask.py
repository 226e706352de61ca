"""Who asks, and what they may: docs/behaviour/server.md, "Who asks" and "Rights"."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.server.review_fakes import Reviews, certificate

from nodeagent.kube import ApiError, UnreachableError
from nodeagent.server.kubelet.gate import EverythingAllowed, Gate, Rights, Tokens, has_ended
from nodeagent.server.kubelet.identity import (
    User,
    bearer_token,
    certificate_user,
    offered_protocols,
    without_token,
)
from nodeagent.server.kubelet.permissions import subresources, verb
from nodeagent.server.kubelet.reviews import AccessReviews, ReviewError, TokenReviews

pytestmark = pytest.mark.anyio

OPS = User("jane", "u1", ("ops",), {"scopes": ("a", "b")})


class StillClock:
    """Wall time that stands still."""

    def __init__(self, now: datetime) -> None:
        self._now = now

    def now(self) -> datetime:
        return self._now

    def time_ns(self) -> int:
        return int(self._now.timestamp()) * 10**9


class Known:
    """Knows some tokens, and counts how often it is asked."""

    def __init__(self, *, away: bool = False) -> None:
        self.asked: list[str] = []
        self._away = away

    async def user(self, token: str, _peer: str) -> User | None:
        self.asked.append(token)
        if self._away:
            raise ReviewError("away")
        return OPS if token == "good" else None


class Some:
    """Allows some subresources, and remembers the questions."""

    def __init__(self, *allowed: str, away: bool = False) -> None:
        self.asked: list[tuple[str, str, str]] = []
        self.users: list[User] = []
        self._allowed = allowed
        self._away = away

    async def allowed(self, user: User, verb: str, subresource: str) -> bool:
        self.asked.append((user.name, verb, subresource))
        self.users.append(user)
        if self._away:
            raise ReviewError("away")
        return subresource in self._allowed


def gate(
    tokens: Tokens | None = None,
    rights: Rights | None = None,
    *,
    anonymous: bool = False,
    ended: bool = False,
) -> Gate:
    return Gate(
        tokens, rights or EverythingAllowed(), anonymous=anonymous, expired=lambda _cert: ended
    )


async def status(
    of: Gate,
    headers: Mapping[str, str] | None = None,
    cert: Mapping[str, Any] | None = None,
    path: str = "/pods",
) -> int:
    """The status of a refusal; 200 for none."""
    refusal = await of.refusal("GET", path, headers or {}, cert)
    return 200 if refusal is None else refusal.status


BEARER = {"authorization": "Bearer good"}
WRONG = {"authorization": "Bearer wrong"}


async def test_ha1_ha6_a_certificate_names_a_user_and_groups() -> None:
    rights = Some("pods")
    assert await status(gate(rights=rights), cert=certificate("jane", "ops", "dev")) == 200
    assert rights.users == [User("jane", groups=("ops", "dev", "system:authenticated"))]
    assert certificate_user(certificate("", "ops")) is None
    assert certificate_user(None) is None


async def test_ha2_a_certificate_that_has_ended_is_nobodys() -> None:
    assert await status(gate(ended=True), cert=certificate("jane")) == 401
    assert await status(gate(ended=True, anonymous=True), cert=certificate("jane")) == 401
    assert await status(gate(Known(), ended=True), BEARER, certificate("jane")) == 200
    cert = certificate("jane") | {"notAfter": "May 20 12:00:00 2026 GMT"}
    before, after = datetime(2026, 5, 20, 11, 59, tzinfo=UTC), datetime(2026, 5, 20, 12, tzinfo=UTC)
    assert not has_ended(StillClock(before), cert)
    assert has_ended(StillClock(after), cert)


async def test_ha3_a_token_is_the_users_whom_the_api_server_names() -> None:
    tokens, rights = Known(), Some("pods")
    assert await status(gate(tokens, rights), BEARER) == 200
    assert rights.users == [OPS.authenticated()]
    assert await status(gate(None, rights), BEARER) == 401, "the webhook is off"


@pytest.mark.parametrize("anonymous", [False, True])
async def test_ha4_a_bad_token_is_refused_whatever_else_is_on(anonymous: bool) -> None:
    assert await status(gate(Known(), anonymous=anonymous), WRONG) == 401
    assert await status(gate(Known(away=True), anonymous=anonymous), BEARER) == 401
    answer = await gate(Known()).refusal("GET", "/pods", WRONG, None)
    assert answer is not None
    assert answer.body == b"Unauthorized"


async def test_ha5_who_shows_nothing_is_anonymous_or_nobody() -> None:
    assert await status(gate(Known())) == 401
    rights = Some("pods")
    assert await status(gate(Known(), rights, anonymous=True)) == 200
    assert rights.users == [User("system:anonymous", groups=("system:unauthenticated",))]
    assert await status(gate(Known(), anonymous=True), {"authorization": "Basic eDp5"}) == 200


@pytest.mark.parametrize(
    ("headers", "token"),
    [
        ({"authorization": "Bearer abc"}, "abc"),
        ({"authorization": "bearer abc"}, "abc"),
        ({"authorization": "  Bearer abc  "}, "abc"),
        ({"authorization": "Bearer abc def"}, "abc"),
        ({"authorization": "Bearer "}, None),
        ({"authorization": "Bearer  abc"}, None),
        ({"authorization": "Basic abc"}, None),
        ({}, None),
    ],
)
def test_where_a_token_stands(headers: dict[str, str], token: str | None) -> None:
    assert bearer_token(headers) == token


def test_ha3_a_token_may_be_a_subprotocol_of_a_websocket() -> None:
    encoded = base64.urlsafe_b64encode(b"abc??").decode().rstrip("=")
    own = f"base64url.bearer.authorization.k8s.io.{encoded}"
    headers = {"upgrade": "websocket", "sec-websocket-protocol": f"v4.channel.k8s.io, {own}"}
    assert bearer_token(headers) == "abc??"
    assert without_token(offered_protocols(headers)) == ["v4.channel.k8s.io"]
    assert bearer_token({**headers, "upgrade": "SPDY/3.1"}) is None
    assert bearer_token({**headers, "sec-websocket-protocol": own}) is None
    broken = "base64url.bearer.authorization.k8s.io.%%"
    assert bearer_token({**headers, "sec-websocket-protocol": f"a, {broken}"}) is None


PATHS = [
    ("/stats/summary", ["stats"]),
    ("/metrics", ["metrics"]),
    ("/metrics/cadvisor", ["metrics"]),
    ("/logs/", ["log"]),
    ("/checkpoint/a/b/c", ["checkpoint"]),
    ("/statusz", ["statusz"]),
    ("/flagz", ["configz"]),
    ("/pods", ["pods", "proxy"]),
    ("/pods/", ["pods", "proxy"]),
    ("/runningpods/", ["pods", "proxy"]),
    ("/healthz/ping", ["healthz", "proxy"]),
    ("/configz", ["configz", "proxy"]),
    ("/containerLogs/a/b/c", ["proxy"]),
    ("/exec/a/b/c", ["proxy"]),
    ("/readyz", ["proxy"]),
    ("/", ["proxy"]),
]


@pytest.mark.parametrize(("path", "tried"), PATHS)
async def test_hr2_subresources_are_tried_in_order(path: str, tried: list[str]) -> None:
    rights = Some()
    assert await status(gate(rights=rights), cert=certificate("jane"), path=path) == 403
    assert rights.asked == [("jane", "get", name) for name in tried]
    last = Some(tried[-1])
    assert await status(gate(rights=last), cert=certificate("jane"), path=path) == 200
    first = Some(*tried)
    assert await status(gate(rights=first), cert=certificate("jane"), path=path) == 200
    assert len(first.asked) == 1


@given(
    st.sampled_from([path for path, tried in PATHS if tried != ["proxy"]]),
    st.text("ax-.", min_size=1),
)
def test_hr3_a_longer_name_is_another_path(path: str, more: str) -> None:
    first = "/" + path.split("/")[1]
    assert subresources(first + more) == ("proxy",)


def test_hr1_methods_are_verbs() -> None:
    verbs = {m: verb(m) for m in ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS")}
    assert list(verbs.values()) == ["get", "create", "update", "patch", "delete", "", ""]


async def test_hr4_who_may_not_is_told_what_was_tried() -> None:
    answer = await gate(rights=Some()).refusal("GET", "/configz", {}, certificate("jane"))
    assert answer is not None
    assert answer.status == 403
    text = "Forbidden (user=jane, verb=get, resource=nodes, subresource(s)=[configz proxy])\n"
    assert answer.body.decode() == text


async def test_hr5_nobody_gets_in_while_nobody_can_say_who_may() -> None:
    rights = Some(away=True)
    answer = await gate(rights=rights).refusal("POST", "/exec/a/b/c", {}, certificate("jane"))
    assert answer is not None
    assert answer.status == 500
    text = "Authorization error (user=jane, verb=create, resource=nodes, subresource=proxy)"
    assert answer.body.decode() == text


async def test_hr7_always_allow_asks_nobody_but_who_they_are() -> None:
    assert await status(gate(), cert=certificate("jane"), path="/exec/a/b/c") == 200
    assert await status(gate(), path="/exec/a/b/c") == 401


async def test_ha7_the_owner_of_a_token_is_remembered_for_a_while() -> None:
    api = Reviews()
    reviews = TokenReviews(api.client, 120.0)
    for _ in range(3):
        assert await reviews.user("good", "10.0.0.9") == User(
            "jane", "u1", ("ops",), {"scopes": ("a",)}
        )
        assert await reviews.user("bad", "10.0.0.9") is None
    assert api.count("tokenreviews") == 2
    await anyio.sleep(121)
    await reviews.user("good", "10.0.0.9")
    assert api.count("tokenreviews") == 3
    assert "good" not in repr(vars(reviews))


async def test_ha7_that_nobody_answered_is_not_remembered() -> None:
    api = Reviews()
    reviews = TokenReviews(api.client, 120.0)
    api.fail(ApiError(400, "BadRequest", "no"))
    with pytest.raises(ReviewError):
        await reviews.user("good", "10.0.0.9")
    assert await reviews.user("good", "10.0.0.9") is not None


async def test_ha8_many_who_ask_the_same_share_one_question() -> None:
    api = Reviews()
    api.gate = anyio.Event()
    reviews = AccessReviews(api.client, "n1", yes=300, no=30)
    async with anyio.create_task_group() as tasks:
        for _ in range(20):
            tasks.start_soon(reviews.allowed, OPS, "get", "pods")
        await anyio.wait_all_tasks_blocked()
        api.gate.set()
    assert api.count("subjectaccessreviews") == 1


async def test_ha8_a_server_that_is_away_is_asked_five_times() -> None:
    api = Reviews()
    reviews = AccessReviews(api.client, "n1", yes=300, no=30)
    api.fail(*[UnreachableError("away")] * 4)
    assert await reviews.allowed(OPS, "get", "pods")
    assert api.count("subjectaccessreviews") == 5
    api.fail(*[ApiError(503, "", "busy")] * 5)
    with pytest.raises(ReviewError):
        await reviews.allowed(OPS, "get", "stats")
    assert api.count("subjectaccessreviews") == 10


async def test_ha8_who_gives_up_does_not_take_the_others_along() -> None:
    api = Reviews()
    api.gate = anyio.Event()
    reviews = AccessReviews(api.client, "n1", yes=300, no=30)
    answers: list[bool] = []

    async def ask() -> None:
        answers.append(await reviews.allowed(OPS, "get", "pods"))

    async with anyio.create_task_group() as tasks:
        scope = anyio.CancelScope()

        async def first() -> None:
            with scope:
                await reviews.allowed(OPS, "get", "pods")

        tasks.start_soon(first)
        await anyio.wait_all_tasks_blocked()
        tasks.start_soon(ask)
        await anyio.wait_all_tasks_blocked()
        scope.cancel()
        await anyio.wait_all_tasks_blocked()
        api.gate.set()
    assert answers == [True]


async def test_hr6_answers_are_good_for_a_while_each_its_own() -> None:
    api = Reviews()
    reviews = AccessReviews(api.client, "n1", yes=300, no=30)
    assert await reviews.allowed(OPS, "get", "pods")
    assert not await reviews.allowed(OPS, "get", "proxy")
    await anyio.sleep(31)
    assert await reviews.allowed(OPS, "get", "pods")
    assert not await reviews.allowed(OPS, "get", "proxy")
    assert api.count("subjectaccessreviews") == 3
    await anyio.sleep(301)
    assert await reviews.allowed(OPS, "get", "pods")
    assert api.count("subjectaccessreviews") == 4
    other = User("jane", "u1", ("dev",))
    await reviews.allowed(other, "get", "pods")
    assert api.count("subjectaccessreviews") == 5, "another group is another user"


async def test_hr1_the_question_names_node_verb_and_subresource() -> None:
    api = Reviews()
    await AccessReviews(api.client, "n1", yes=0, no=0).allowed(OPS, "create", "proxy")
    assert api.bodies[-1]["spec"] == {
        "resourceAttributes": {
            "verb": "create",
            "version": "v1",
            "resource": "nodes",
            "subresource": "proxy",
            "name": "n1",
        },
        "user": "jane",
        "groups": ["ops"],
        "uid": "u1",
        "extra": {"scopes": ["a", "b"]},
    }
