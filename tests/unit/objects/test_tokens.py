"""docs/behaviour/objects.md, "Tokens"."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.objects.objects_lab import LoopClock

from nodeagent.api import Pod
from nodeagent.api.tokens import TokenRequest, TokenRequestSpec, TokenRequestStatus
from nodeagent.kube import ApiError
from nodeagent.model import PodUID, SyncError
from nodeagent.objects import ObjectStore, StandaloneObjects
from nodeagent.objects.tokens import Tokens, needs_renewal, token_key
from nodeagent.testing import ApiStore, StoreClient, make_pod

pytestmark = pytest.mark.anyio

ACCOUNT = {
    "apiVersion": "v1",
    "kind": "ServiceAccount",
    "metadata": {"name": "builder", "namespace": "default"},
}


class Lab:
    def __init__(self) -> None:
        self.store = ApiStore(clock=LoopClock())
        self.store.create(ACCOUNT)
        made = self.store.create(make_pod("web"))
        self.pod: Pod = make_pod("web", uid=made["metadata"]["uid"], service_account_name="builder")
        self.tokens = Tokens(StoreClient(self.store), LoopClock(), jitter=lambda: 0)

    async def value(self, audience: str = "", expiration: int | None = None) -> str:
        return (await self.tokens.get(token_key(self.pod, audience, expiration))).value

    def fail(self, times: int = 1) -> None:
        error = ApiError(500, "InternalError", "no luck")
        self.store.refuse("POST", "token", error, times)

    def asked(self) -> list[dict[str, object]]:
        found = [r.body for r in self.store.requests if r.path.endswith("/builder/token")]
        return [dict(body or {})["spec"] for body in found]


@asynccontextmanager
async def sweeping(lab: Lab) -> AsyncIterator[None]:
    async with anyio.create_task_group() as tasks:
        await tasks.start(lab.tokens.run)
        yield
        tasks.cancel_scope.cancel()


async def test_ot1_a_token_is_bound_to_its_pod() -> None:
    lab = Lab()
    assert (await lab.value()).startswith("token-")
    await lab.value("vault", 600)
    bound = {
        "kind": "Pod",
        "apiVersion": "v1",
        "name": "web",
        "uid": lab.pod.metadata.uid,
    }
    assert lab.asked() == [
        {"audiences": [], "expirationSeconds": 3600, "boundObjectRef": bound},
        {"audiences": ["vault"], "expirationSeconds": 600, "boundObjectRef": bound},
    ]


async def test_ot2_a_token_is_kept_until_its_last_fifth() -> None:
    lab = Lab()
    first = await lab.value()
    await anyio.sleep(2879)
    assert await lab.value() == first
    await anyio.sleep(2)
    second = await lab.value()
    assert second != first
    assert await lab.value("other") not in (first, second)


async def test_ot2_of_many_who_ask_at_once_one_asks_the_server() -> None:
    lab = Lab()
    async with anyio.create_task_group() as tasks:
        for _ in range(20):
            tasks.start_soon(lab.value)
    assert len(lab.asked()) == 1


async def test_ot3_a_failure_leaves_a_token_that_is_still_good() -> None:
    lab = Lab()
    first = await lab.value()
    await anyio.sleep(3000)
    lab.fail(2)
    assert await lab.value() == first
    await anyio.sleep(601)
    said = r'^token "default"/"builder"/\[\] expired and refresh failed: no luck$'
    with pytest.raises(SyncError, match=said):
        await lab.value()
    assert await lab.value() != first


async def test_ot3_without_a_token_a_failure_is_an_error() -> None:
    lab = Lab()
    lab.fail()
    with pytest.raises(SyncError, match=r"^failed to fetch token: no luck$"):
        await lab.value()
    assert len(lab.tokens) == 0
    lab.store.delete("serviceaccounts", "builder")
    said = r'^failed to fetch token: serviceaccounts "builder" not found$'
    with pytest.raises(SyncError, match=said):
        await lab.value()


async def test_ot4_tokens_go_with_their_pod_and_when_they_have_ended() -> None:
    lab = Lab()
    async with sweeping(lab):
        await lab.value()
        await lab.value("vault", 600)
        await anyio.sleep(661)
        assert len(lab.tokens) == 1
        lab.tokens.forget_pod(PodUID("another"))
        assert lab.tokens.pods() == {lab.pod.metadata.uid}
        lab.tokens.forget_pod(PodUID(lab.pod.metadata.uid))
        assert len(lab.tokens) == 0


async def test_ot5_without_an_api_server_there_are_no_tokens() -> None:
    with pytest.raises(SyncError, match=r"^kube client is not configured$"):
        await ObjectStore(StandaloneObjects()).token(make_pod("web"), "", None)


async def test_ot6_a_token_does_not_show_itself() -> None:
    lab = Lab()
    token = await lab.tokens.get(token_key(lab.pod, "", None))
    answer = TokenRequestStatus(token=token.value)
    assert token.value not in f"{token!r} {token} {answer!r} {answer}"


def answer(seconds: int | None, life: int) -> TokenRequest:
    return TokenRequest(
        spec=TokenRequestSpec(expiration_seconds=seconds),
        status=TokenRequestStatus(
            token="t",
            expiration_timestamp=datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=life),
        ),
    )


def test_ot2_a_long_token_is_renewed_once_a_day() -> None:
    start, week = datetime(2026, 1, 1, tzinfo=UTC), 7 * 24 * 3600
    token = answer(week, week)
    none = timedelta()
    assert not needs_renewal(token, start + timedelta(hours=23, minutes=59), none)
    assert needs_renewal(token, start + timedelta(hours=24, seconds=1), none)
    assert needs_renewal(token, start + timedelta(hours=24), timedelta(seconds=9))


def test_ot2_a_token_of_unknown_life_is_not_renewed() -> None:
    assert not needs_renewal(answer(None, 60), datetime(2027, 1, 1, tzinfo=UTC), timedelta())


@given(st.integers(600, 10**6), st.integers(0, 10**6), st.integers(0, 9))
def test_a_renewal_once_due_stays_due(life: int, age: int, jitter: int) -> None:
    token, start = answer(life, life), datetime(2026, 1, 1, tzinfo=UTC)
    now, early = start + timedelta(seconds=age), timedelta(seconds=jitter)
    if needs_renewal(token, now, early):
        assert needs_renewal(token, now + timedelta(seconds=1), early)
        assert needs_renewal(token, now, early + timedelta(seconds=1))
    assert needs_renewal(token, start + timedelta(seconds=life), early) or life > 5 * 10**5
