"""Whether the API server answers, as the requests tell it."""

from __future__ import annotations

import anyio
import pytest

from nodeagent.kube import ApiError, KubeClient, KubeClients, UnreachableError, paths
from nodeagent.kube.reach import REMEMBERED, Reach, observed, resource_of
from nodeagent.testing import ApiStore, StoreClient, make_pod

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("path", "resource"),
    [
        (paths.PODS, "pods"),
        (paths.pod("default", "web"), "pods"),
        (paths.pod("default", "web", "status"), "pods/status"),
        (paths.pods_in("namespaces"), "pods"),
        (paths.node("n1"), "nodes"),
        (paths.node("n1", "status"), "nodes/status"),
        (paths.lease("n1"), "leases"),
        (paths.lease(), "leases"),
        (paths.token("default", "app"), "serviceaccounts/token"),
        (paths.RUNTIME_CLASSES, "runtimeclasses"),
        (paths.csr("x"), "certificatesigningrequests"),
        ("/version", "/version"),
    ],
)
def test_what_a_path_leads_to(path: str, resource: str) -> None:
    assert resource_of(path) == resource


def away(reach: Reach) -> tuple[float | None, str]:
    return reach.away_since, reach.cause


class Bed:
    """A store, a client to it, and what the requests of that tell."""

    def __init__(self) -> None:
        self.store = ApiStore()
        self.wire = StoreClient(self.store)
        self.reach = Reach()
        clients = KubeClients(main=self.wire, events=self.wire, heartbeat=self.wire)
        self.client: KubeClient = observed(clients, self.reach).main

    async def ask(self) -> None:
        await self.client.get_bytes(paths.PODS)


async def test_nothing_is_known_before_the_first_request() -> None:
    reach = Reach()
    assert (reach.answered_at, reach.away_since, reach.cause) == (None, None, "")
    assert reach.refusals == {}


async def test_a_server_is_away_since_the_first_request_without_an_answer() -> None:
    bed = Bed()
    await anyio.sleep(5)
    await bed.ask()
    assert bed.reach.answered_at == anyio.current_time()
    bed.wire.cut()
    for _ in range(3):
        await anyio.sleep(10)
        with pytest.raises(UnreachableError):
            await bed.ask()
    assert away(bed.reach) == (anyio.current_time() - 20, "connection refused")
    returns: list[float] = []
    bed.reach.on_return.append(lambda: returns.append(anyio.current_time()))
    await anyio.sleep(5)
    bed.wire.heal()
    for _ in range(2):
        await bed.ask()
    assert returns == [anyio.current_time()]
    assert away(bed.reach) == (None, "")


async def test_a_server_that_comes_and_goes_is_not_pressed() -> None:
    """Whoever is told of a return waits for no back-off."""
    bed = Bed()
    returns: list[float] = []
    bed.reach.on_return.append(lambda: returns.append(anyio.current_time()))

    async def come_and_go(seconds: int) -> None:
        for _ in range(seconds):
            bed.wire.cut()
            with pytest.raises(UnreachableError):
                await bed.ask()
            bed.wire.heal()
            await bed.ask()
            await anyio.sleep(1)

    began = anyio.current_time()
    await come_and_go(200)
    assert [at - began for at in returns] == [0, 5, 15, 35, 75, 135, 195]
    await anyio.sleep(300)
    returns.clear()
    await come_and_go(20)
    assert len(returns) == 3


async def test_an_error_of_the_server_is_an_answer() -> None:
    bed = Bed()
    bed.store.refuse("GET", "pods", ApiError(500, "InternalError", "etcd is away"))
    with pytest.raises(ApiError):
        await bed.ask()
    assert bed.reach.away_since is None
    assert bed.reach.answered_at is not None
    assert bed.reach.refusals == {}


@pytest.mark.parametrize("status", [502, 503, 504])
async def test_a_gateway_without_a_server_is_no_answer(status: int) -> None:
    bed = Bed()
    bed.store.refuse("GET", "pods", ApiError(status, "", "no healthy upstream"))
    with pytest.raises(ApiError):
        await bed.ask()
    assert away(bed.reach) == (anyio.current_time(), "no healthy upstream")
    bed.store.refuse("GET", "pods", ApiError(status, "ServiceUnavailable", "busy"))
    with pytest.raises(ApiError):
        await bed.ask()
    assert away(bed.reach) == (None, "")


async def test_what_is_refused_is_known_until_it_is_allowed() -> None:
    bed = Bed()
    text = 'pods is forbidden: User "system:node:n1" cannot list resource "pods"'
    bed.store.refuse("GET", "pods", ApiError(403, "Forbidden", text), 2)
    for _ in range(2):
        with pytest.raises(ApiError):
            await bed.ask()
    assert bed.reach.refusals == {("get", "pods"): text}
    await bed.ask()
    assert bed.reach.refusals == {}


async def test_what_is_refused_and_not_asked_for_again_is_forgotten() -> None:
    bed = Bed()
    bed.store.refuse("GET", "pods", ApiError(403, "Forbidden", "no"))
    with pytest.raises(ApiError):
        await bed.ask()
    await anyio.sleep(REMEMBERED)
    assert bed.reach.refusals == {("get", "pods"): "no"}
    await anyio.sleep(1)
    assert bed.reach.refusals == {}


async def test_each_line_of_a_watch_is_a_sign_of_life_and_its_break_is_none() -> None:
    bed = Bed()
    query = {"watch": "true", "resourceVersion": "0"}

    async def watch() -> None:
        async with bed.client.watch(paths.PODS, query) as lines:
            await anyio.sleep(7)
            bed.store.create(make_pod("web"))
            assert b"web" in await anext(lines)
            assert bed.reach.answered_at == anyio.current_time()
            bed.wire.cut()
            await anext(lines)

    with pytest.raises(UnreachableError):
        await watch()
    assert bed.reach.away_since == anyio.current_time()
