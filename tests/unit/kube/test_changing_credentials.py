"""docs/behaviour/cluster.md, "Credentials that change"."""

from __future__ import annotations

import logging
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import anyio
import pytest
from aiohttp import web
from tests.unit.kube.authority import Authority
from tests.unit.kube.kube_lab import Api, api_server, connected, kubeconfig, server_tls

from nodeagent.api.node import NodeList
from nodeagent.kube import ApiError, KubeClient, UnreachableError, paths
from nodeagent.kube.access import Access, AccessError
from nodeagent.kube.connect import open_clients
from nodeagent.kube.credentials.keeper import LOOK_PERIOD

pytestmark = pytest.mark.anyio


class Clock:
    """Wall time that goes with the loop."""

    def now(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=anyio.current_time())

    def time_ns(self) -> int:
        return int(self.now().timestamp() * 1e9)


class Source:
    """Access that the test decides on."""

    source = "the test"

    def __init__(self, server: str) -> None:
        self.server = server
        self.token = "t0"
        self.error: Exception | None = None
        self.life: float | None = None
        self.loads = 0

    async def load(self) -> Access:
        self.loads += 1
        await anyio.lowlevel.checkpoint()
        if self.error is not None:
            raise self.error
        now = Clock().now()
        expires = now + timedelta(seconds=self.life) if self.life is not None else None
        return Access(server=self.server, authorization=self.token, expires=expires, source="x")


async def token_of_next(api: Api, client: KubeClient) -> str:
    """What the client says it is."""
    await client.get(paths.NODES, NodeList)
    return api.requests[-1].headers.get("Authorization", "")


async def until_looked() -> None:
    await anyio.sleep(LOOK_PERIOD * 1.2)


async def test_kc1_files_are_read_again_when_they_change(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("one")
    async with connected(tmp_path, tokenFile="token") as (api, clients):
        assert await token_of_next(api, clients.main) == "Bearer one"
        token.write_text("second")
        await until_looked()
        assert await token_of_next(api, clients.heartbeat) == "Bearer second"
        (tmp_path / "new").write_text("third")
        (tmp_path / "new").rename(token)
        await until_looked()
        assert await token_of_next(api, clients.main) == "Bearer third"
        kubeconfig(tmp_path / "kubeconfig", api.url, user={"token": "fourth"})
        await until_looked()
        assert await token_of_next(api, clients.events) == "Bearer fourth"
        assert len(set(api.ports)) == 1


async def test_kc1_another_server(tmp_path: Path) -> None:
    async with connected(tmp_path) as (api, clients), api_server() as other:
        await clients.main.get(paths.NODES, NodeList)
        kubeconfig(tmp_path / "kubeconfig", other.url)
        await until_looked()
        await clients.main.get(paths.NODES, NodeList)
        assert (len(api.requests), len(other.requests)) == (1, 1)


async def test_kc2_garbage_changes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "kubeconfig"
    async with connected(tmp_path, token="good") as (api, clients):
        with caplog.at_level(logging.INFO, "nodeagent"):
            path.write_text("a: [")
            await anyio.sleep(300)
            assert await token_of_next(api, clients.main) == "Bearer good"
            path.unlink()
            await until_looked()
            assert await token_of_next(api, clients.main) == "Bearer good"
            kubeconfig(path, api.url, user={"token": "better"})
            await until_looked()
        assert await token_of_next(api, clients.main) == "Bearer better"
    told = [record.getMessage() for record in caplog.records]
    assert [event for event in told if event.startswith("credentials")] == [
        "credentials_refused",
        "credentials_refused",
        "credentials_good_again",
        "credentials_changed",
    ]


async def test_kc2_a_certificate_without_its_key_yet(tmp_path: Path) -> None:
    authority = Authority()
    old, new = authority.client("old"), authority.client("new")
    certificate, key = old.write(tmp_path, "mine")
    server = authority.server().write(tmp_path, "server")
    (tmp_path / "ca.crt").write_bytes(authority.certificate)
    tls = server_tls(*server, authority.certificate, required=True)
    async with api_server(tls) as api:
        path = kubeconfig(
            tmp_path / "kubeconfig",
            api.url,
            user={"client-certificate": "mine.crt", "client-key": "mine.key"},
            cluster={"certificate-authority": "ca.crt"},
        )
        async with open_clients(path) as clients:
            await clients.main.get(paths.NODES, NodeList)
            certificate.write_bytes(new.certificate)
            await until_looked()
            await clients.main.get(paths.NODES, NodeList)
            key.write_bytes(new.key)
            await until_looked()
            await clients.main.get(paths.NODES, NodeList)
    assert api.peers == ["old", "old", "new"]


async def test_kc3_what_is_in_flight_ends_on_the_old_connection(tmp_path: Path) -> None:
    going = anyio.Event()

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        if "watch" in request.query:
            await api.over.wait()
            return response
        await going.wait()
        await response.write(b"{}")
        return response

    async with connected(tmp_path) as (api, clients), api_server() as other:
        api.handler = answer
        outcomes: list[object] = []

        async def read() -> None:
            outcomes.append(await clients.main.get(paths.NODES, NodeList))

        async with anyio.create_task_group() as tasks, clients.main.watch(paths.PODS, {}) as lines:
            tasks.start_soon(read)
            kubeconfig(tmp_path / "kubeconfig", other.url)
            assert [line async for line in lines] == []
            assert outcomes == []
            going.set()
        assert outcomes == [NodeList()]
        await clients.main.get(paths.NODES, NodeList)
        assert len(other.requests) == 1


def refusing(api: Api, token: str) -> None:
    """Let the server know only one token."""

    async def answer(request: web.Request) -> web.StreamResponse:
        if request.headers.get("Authorization") != token:
            return web.Response(status=401)
        return web.json_response({})

    api.handler = answer


async def test_kc4_who_is_not_known_looks_for_newer_credentials(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("old")
    async with connected(tmp_path, tokenFile="token") as (api, clients):
        await anyio.sleep(20.0)
        token.write_text("new")
        refusing(api, "Bearer new")
        assert await token_of_next(api, clients.main) == "Bearer new"


async def test_kc4_not_at_each_request(tmp_path: Path) -> None:
    async with api_server() as api:
        source = Source(api.url)
        async with open_clients(source) as clients:
            refusing(api, "t1")
            await anyio.sleep(20.0)
            for _ in range(10):
                with pytest.raises(ApiError, match="check the credentials of the test"):
                    await clients.main.get(paths.NODES, NodeList)
            assert source.loads == 2
            await anyio.sleep(6.0)
            source.token = "t1"
            results: list[NodeList] = []

            async def ask() -> None:
                results.append(await clients.main.get(paths.NODES, NodeList))

            async with anyio.create_task_group() as tasks:
                for _ in range(10):
                    tasks.start_soon(ask)
            assert len(results) == 10
            assert source.loads == 3


async def test_kc5_a_token_is_replaced_before_it_ends() -> None:
    async with api_server() as api:
        source = Source(api.url)
        source.life = 100
        async with open_clients(source, clock=Clock()) as clients:
            await anyio.sleep(50)
            source.token = "t1"
            assert await token_of_next(api, clients.main) == "t0"
            await anyio.sleep(45)
            assert await token_of_next(api, clients.main) == "t1"
            assert source.loads == 2


async def test_kc6_the_agent_waits_for_credentials(tmp_path: Path) -> None:
    async with api_server() as api:
        path = tmp_path / "kubeconfig"
        async with open_clients(path) as clients:
            with pytest.raises(UnreachableError, match="cannot be read: No such file"):
                await clients.main.get(paths.NODES, NodeList)
            kubeconfig(path, api.url)
            await until_looked()
            await clients.main.get(paths.NODES, NodeList)


async def test_kc6_a_source_that_fails_is_asked_less_and_less_often() -> None:
    async with api_server() as api:
        source = Source(api.url)
        source.error = AccessError("no login")
        async with open_clients(source) as clients:
            await anyio.sleep(600)
            assert 10 <= source.loads <= 20
            source.error = RuntimeError("a fault of ours")
            with suppress(UnreachableError):
                await clients.main.get(paths.NODES, NodeList)
            await anyio.sleep(100)
            source.error = None
            await anyio.sleep(100)
            await clients.main.get(paths.NODES, NodeList)
