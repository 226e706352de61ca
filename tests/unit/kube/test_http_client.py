"""docs/behaviour/cluster.md, "Requests"."""

from __future__ import annotations

import gzip
import json
import socket
from pathlib import Path

import anyio
import pytest
from aiohttp import web
from prometheus_client import CollectorRegistry, generate_latest
from tests.unit.kube.kube_lab import api_server, connected, kubeconfig

from nodeagent.api.node import Node, NodeList
from nodeagent.kube import KubeClient, KubeClients, PatchKind, paths
from nodeagent.kube.connect import ClientSettings, open_clients, open_connection
from nodeagent.kube.errors import ApiError, UndecodableError, UnreachableError
from nodeagent.kube.transport import BODY_LIMIT, impatient_socket

pytestmark = pytest.mark.anyio

NODE = {"kind": "Node", "apiVersion": "v1", "metadata": {"name": "n1"}, "fresh": 1}
HTML = b"<!DOCTYPE html><html><head><title>502 Bad\nGateway</title></head><body>x</body></html>"


def status(code: int, reason: str, message: str, **details: object) -> dict[str, object]:
    """A Status object."""
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "message": message,
        "reason": reason,
        "code": code,
        "details": details,
    }


async def refused(clients: KubeClients, path: str = paths.NODES) -> ApiError:
    with pytest.raises(ApiError) as caught:
        await clients.main.get(path, NodeList)
    return caught.value


async def unreachable(clients: KubeClients) -> str:
    with pytest.raises(UnreachableError) as caught:
        await clients.main.get(paths.NODES, NodeList)
    return str(caught.value)


async def test_kq1_an_object_is_read_into_the_wanted_type(tmp_path: Path) -> None:
    async with connected(tmp_path, token="secret") as (api, clients):
        api.body = NODE
        node = await clients.main.get(paths.node("n1"), Node, query={"resourceVersion": "0"})
        assert node.metadata.name == "n1"
        (request,) = api.requests
        assert request.path == "/api/v1/nodes/n1"
        assert request.query == {"resourceVersion": "0"}
        assert request.headers["Authorization"] == "Bearer secret"
        assert request.headers["User-Agent"].startswith("nodeagent/")
        assert request.headers["Accept"] == "application/json"
        assert await clients.main.get_bytes(paths.node("n1"))


async def test_kq1_writes_say_what_they_are(tmp_path: Path) -> None:
    async with connected(tmp_path) as (api, clients):
        api.body = NODE
        node = await clients.main.post(paths.NODES, Node(), Node)
        await clients.main.put(paths.node("n1"), node, Node)
        change = {"metadata": {"labels": {"a": None}}}
        await clients.main.patch(paths.node("n1", "status"), change, Node)
        await clients.main.patch(paths.node("n1"), [{"op": "test"}], Node, kind=PatchKind.JSON)
        await clients.main.delete(paths.pod("ns", "web"), grace_seconds=0, uid="u1")
        said = [(r.method, r.headers["Content-Type"]) for r in api.requests]
        assert said == [
            ("POST", "application/json"),
            ("PUT", "application/json"),
            ("PATCH", "application/strategic-merge-patch+json"),
            ("PATCH", "application/json-patch+json"),
            ("DELETE", "application/json"),
        ]
        assert api.bodies[2] == change
        assert api.bodies[4]["gracePeriodSeconds"] == 0
        assert api.bodies[4]["preconditions"] == {"uid": "u1"}


async def test_kq1_answers_may_be_packed(tmp_path: Path) -> None:
    async with connected(tmp_path) as (api, clients):
        packed = gzip.compress(json.dumps({"items": [NODE] * 1000}).encode())
        api.headers = {"Content-Encoding": "gzip"}
        api.body = packed
        assert len((await clients.main.get(paths.NODES, NodeList)).items) == 1000
        assert api.requests[0].headers["Accept-Encoding"] == "gzip"
        for broken in (packed[:200], b"no gzip at all"):
            api.body = broken
            with pytest.raises((UnreachableError, UndecodableError)):
                await clients.main.get(paths.NODES, NodeList)
        api.headers, api.body = {}, b""
        async with clients.main.watch(paths.PODS, {}):
            assert api.requests[-1].headers["Accept-Encoding"] == "identity"


async def test_kq2_one_connection_serves_requests_after_each_other(tmp_path: Path) -> None:
    async with connected(tmp_path) as (api, clients):
        for client in (clients.main, clients.events, clients.heartbeat):
            await client.get(paths.node("n1"), Node)
        assert len(set(api.ports)) == 1


async def test_kq3_an_answer_that_does_not_come_is_given_up(tmp_path: Path) -> None:
    async with connected(tmp_path) as (api, clients):
        api.handler = api.silent
        began = anyio.current_time()
        assert "no complete answer within 1m0s" in await unreachable(clients)
        with pytest.raises(UnreachableError, match="within 10s"):
            await clients.heartbeat.get(paths.NODES, NodeList)
        with pytest.raises(UnreachableError, match="within 3s"):
            await clients.main.get(paths.NODES, NodeList, timeout=3)
        assert 73 <= anyio.current_time() - began < 80


async def test_kq4_a_password_in_the_url_is_shown_to_nobody(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with api_server() as api:
        host = api.url.removeprefix("http://")
        config = kubeconfig(tmp_path / "kubeconfig", f"http://me:sesame@{host}")
        caplog.set_level("DEBUG")
        async with open_connection(config) as connection:
            await connection.clients.main.get(paths.NODES, NodeList)
            assert api.requests[0].headers["Authorization"].startswith("Basic ")
            assert connection.server == api.url
    async with open_clients(config) as clients:
        message = await unreachable(clients)
    assert message.startswith(f"GET {api.url}/")
    kubeconfig(config, "me:sesame@host")
    async with open_clients(config) as clients:
        message = await unreachable(clients)
    assert "must be a URL" in message
    assert "sesame" not in message + caplog.text


async def test_kq4_a_server_that_is_away_is_unreachable(tmp_path: Path) -> None:
    async with api_server() as api:
        config = kubeconfig(tmp_path / "kubeconfig", api.url)
        port = api.url.rpartition(":")[2]
    async with open_clients(config) as clients:
        message = await unreachable(clients)
    expected = f"cannot connect to 127.0.0.1:{port}: Connection refused"
    assert message == f"GET http://127.0.0.1:{port}/api/v1/nodes: {expected}"


async def test_kq4_an_answer_that_breaks_off_is_none(tmp_path: Path) -> None:
    async def broken(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Length": "1000"})
        await response.prepare(request)
        await response.write(b'{"items":[')
        assert request.transport is not None
        request.transport.close()
        return response

    async with connected(tmp_path) as (api, clients):
        api.handler = broken
        assert (await unreachable(clients)).endswith("the answer broke off")


async def test_kq5_errors_are_what_the_server_says(tmp_path: Path) -> None:
    async with connected(tmp_path) as (api, clients):
        api.status = 404
        api.body = status(404, "NotFound", 'nodes "n1" not found')
        error = await refused(clients)
        assert error.not_found
        assert (error.status, error.reason) == (404, "NotFound")
        assert str(error) == 'nodes "n1" not found'
        api.status, api.body = 409, status(409, "AlreadyExists", "it exists")
        assert (await refused(clients)).already_exists
        api.status, api.body = 409, status(409, "Conflict", "changed")
        assert (await refused(clients)).conflict
        api.status, api.body = 410, status(410, "Expired", "too old")
        assert (await refused(clients)).gone


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (HTML, "502 Bad Gateway"),
        (b"upstream\n  is   away\x00", "upstream is away"),
        (b"", "HTTP 502 when asked to list nodes"),
        (b'{"kind":"Status","mess', '{"kind":"Status","mess'),
        (b"[" * 100000, "[" * 200),
    ],
    ids=["KQ5 html", "text", "nothing", "truncated", "nested"],
)
async def test_errors_of_others_are_shortened(tmp_path: Path, body: bytes, said: str) -> None:
    """KQ5."""
    async with connected(tmp_path) as (api, clients):
        api.status, api.body = 502, body
        error = await refused(clients)
        assert (error.status, error.reason, str(error)) == (502, "", said)


async def test_kq6_a_missing_permission_is_named(tmp_path: Path) -> None:
    async with connected(tmp_path) as (api, clients):
        api.status, api.body = 403, b"Forbidden"
        error = await refused(clients)
        assert error.forbidden
        assert str(error) == "Forbidden: there is no permission to list nodes"
        path = paths.pod("ns", "web", "status")
        with pytest.raises(ApiError, match=r"patch pods/status web in namespace ns"):
            await clients.main.patch(path, {}, Node)
        with pytest.raises(ApiError, match=r"update leases.coordination.k8s.io n1 in"):
            await clients.main.put(paths.lease("n1"), {}, Node)
        own = 'nodes is forbidden: User "x" cannot list resource "nodes" at the cluster scope'
        api.body = status(403, "Forbidden", own)
        assert str(await refused(clients)) == own


async def test_kq6_who_is_not_known_is_told_where_the_credentials_are(tmp_path: Path) -> None:
    async with connected(tmp_path, token="old") as (api, clients):
        api.status, api.body = 401, status(401, "Unauthorized", "Unauthorized")
        error = await refused(clients)
        assert error.unauthorized
        assert str(error) == (
            "Unauthorized: the server does not know who wants to list nodes; "
            f"check the credentials of kubeconfig {tmp_path}/kubeconfig"
        )


async def test_kq7_a_busy_server_is_asked_again_when_it_wants(tmp_path: Path) -> None:
    async def busy(request: web.Request) -> web.StreamResponse:
        if len(api.requests) < 3:
            return web.Response(status=429, headers={"Retry-After": "7"}, text="later")
        return web.json_response(NODE)

    async with connected(tmp_path) as (api, clients):
        api.handler = busy
        began = anyio.current_time()
        await clients.main.patch(paths.node("n1"), {}, Node)
        assert 14 <= anyio.current_time() - began < 18
        assert len(api.requests) == 3


async def test_kq7_not_longer_than_the_timeout_allows(tmp_path: Path) -> None:
    async with connected(tmp_path) as (api, clients):
        api.status, api.headers = 503, {"Retry-After": "120"}
        error = await refused(clients)
        assert (error.status, error.retry_after) == (503, 120.0)
        api.status, api.headers = 429, {"Retry-After": "Wed, 01 Jan 2025 00:00:00 GMT"}
        assert (await refused(clients)).retry_after is None
        api.headers, api.body = {}, status(429, "TooManyRequests", "x", retryAfterSeconds=2)
        error = await refused(clients)
        assert error.too_many_requests
        assert error.retry_after == 2
        assert anyio.current_time() < 60
        assert len(api.requests) < 15


async def test_kq7_an_error_without_that_is_not_repeated(tmp_path: Path) -> None:
    async with connected(tmp_path) as (api, clients):
        api.status = 500
        assert (await refused(clients)).status == 500
        assert len(api.requests) == 1


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (HTML, "an HTML page: '502 Bad Gateway'"),
        (b"", "nothing"),
        (b'{"items":[{"metadata":{"na', "26 bytes that are not what was asked for"),
        (b'{"items": 5}', "Expected `array`, got `int` - at `$.items`"),
        (b"[" * 200000, "bytes that are not what was asked for"),
    ],
    ids=["KQ8 html", "nothing", "truncated", "type", "nested"],
)
async def test_a_good_answer_must_be_the_object(tmp_path: Path, body: bytes, said: str) -> None:
    """KQ8."""
    async with connected(tmp_path) as (api, clients):
        api.body = body
        with pytest.raises(UndecodableError) as caught:
            await clients.main.get(paths.NODES, NodeList)
        assert "asked to list nodes, the server answered" in str(caught.value)
        assert said in str(caught.value)
        assert len(str(caught.value)) <= 500


@pytest.mark.realtime
async def test_kq8_a_list_that_never_ends_is_given_up(tmp_path: Path) -> None:
    async def endless(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        try:
            while True:
                await response.write(b" " * (1 << 20))
        except ConnectionError:
            return response

    async with connected(tmp_path) as (api, clients):
        api.handler = endless
        with pytest.raises(UndecodableError, match=f"more than {BODY_LIMIT} bytes"):
            await clients.main.get_bytes(paths.NODES)


async def test_kq8_a_redirect_is_not_followed(tmp_path: Path) -> None:
    async with connected(tmp_path, token="secret") as (api, clients):
        api.status, api.headers = 302, {"Location": f"{api.url}/elsewhere"}
        assert "redirected" in str(await refused(clients))
        assert len(api.requests) == 1


async def test_kq9_a_watch_gives_lines_of_any_length(tmp_path: Path) -> None:
    long = b'{"type":"MODIFIED","object":"' + b"x" * 3_000_000 + b'"}'
    sent = b'{"type":"ADDED"}\n' + long + b'\n\n{"type":"BOOKMARK"}\n{"type":"DE'

    async def stream(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for start in range(0, len(sent), 70_001):
            await response.write(sent[start : start + 70_001])
        return response

    async with connected(tmp_path) as (api, clients):
        api.handler = stream
        async with clients.main.watch(paths.PODS, {"resourceVersion": "5"}) as lines:
            found = [line async for line in lines]
        assert found == [b'{"type":"ADDED"}', long, b'{"type":"BOOKMARK"}', b'{"type":"DE']
        assert api.requests[0].query == {"watch": "1", "resourceVersion": "5"}


async def test_kq9_a_watch_that_is_refused_or_breaks(tmp_path: Path) -> None:
    async def broken(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b'{"type":"ADDED"}\n{"ty')
        assert request.transport is not None
        request.transport.close()
        return response

    async with connected(tmp_path) as (api, clients):
        api.status, api.body = 410, status(410, "Expired", "too old")
        with pytest.raises(ApiError, match="too old"):
            async with clients.main.watch(paths.PODS, {}):
                pytest.fail("it is open")
        api.handler = broken
        async with clients.main.watch(paths.PODS, {}) as lines:
            assert await anext(lines) == b'{"type":"ADDED"}'
            with pytest.raises(UnreachableError, match="broke off"):
                await anext(lines)


async def test_kq10_connections_that_seem_dead_are_dropped(tmp_path: Path) -> None:
    opened = anyio.Event()

    async def stream(request: web.Request) -> web.StreamResponse:
        if "watch" not in request.query:
            return await api.silent(request)
        response = web.StreamResponse()
        await response.prepare(request)
        opened.set()
        await api.over.wait()
        return response

    async with connected(tmp_path) as (api, clients):
        api.handler = stream
        failures: list[str] = []

        async def read() -> None:
            failures.append(await unreachable(clients))

        async with anyio.create_task_group() as tasks, clients.main.watch(paths.PODS, {}) as lines:
            tasks.start_soon(read)
            await opened.wait()
            with anyio.move_on_after(1):
                await anyio.sleep_forever()
            clients.heartbeat.drop_connections()
            with pytest.raises(UnreachableError, match="seemed dead"):
                await anext(lines)
        assert "seemed dead" in failures[0]
        api.handler = None
        api.body = NODE
        assert (await clients.main.get(paths.node("n1"), Node)).metadata.name == "n1"
        assert len(set(api.ports)) == 3


async def test_kq10_after_an_answer_that_did_not_come_connections_are_new(
    tmp_path: Path,
) -> None:
    async with connected(tmp_path) as (api, clients):
        watching = anyio.Event()

        async def stream(request: web.Request) -> web.StreamResponse:
            if "watch" not in request.query:
                return await api.silent(request)
            response = web.StreamResponse()
            await response.prepare(request)
            watching.set()
            await api.over.wait()
            return response

        async with anyio.create_task_group() as tasks:
            for _ in range(2):
                tasks.start_soon(clients.main.get, paths.NODES, NodeList)
        idle = set(api.ports)
        assert len(idle) == 2
        api.handler = stream
        async with clients.main.watch(paths.PODS, {}) as lines:
            await watching.wait()
            await unreachable(clients)
            api.handler = None
            await clients.main.get(paths.NODES, NodeList)
            assert api.ports[-1] not in idle
            with anyio.move_on_after(5) as scope:
                await anext(lines)
            assert scope.cancelled_caught


@pytest.mark.realtime
async def test_kq13_the_kernel_gives_dead_connections_up(tmp_path: Path) -> None:
    made = impatient_socket((socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.0.1", 1)))
    with made:
        assert made.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        assert made.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 30_000
        assert made.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 15


async def test_kq11_requests_are_throttled_and_heartbeats_are_not(tmp_path: Path) -> None:
    settings = ClientSettings(qps=2, burst=4, event_qps=1, event_burst=1)
    async with connected(tmp_path, settings=settings) as (_, clients):

        async def many(client: KubeClient, times: int) -> float:
            began = anyio.current_time()
            async with anyio.create_task_group() as tasks:
                for _ in range(times):
                    tasks.start_soon(client.get, paths.NODES, NodeList)
            return anyio.current_time() - began

        assert await many(clients.main, 4) == 0
        assert await many(clients.main, 4) == pytest.approx(2, abs=0.01)
        assert await many(clients.events, 4) == pytest.approx(3, abs=0.01)
        assert await many(clients.heartbeat, 30) == 0


async def test_kq12_requests_are_counted(tmp_path: Path) -> None:
    registry = CollectorRegistry()
    async with api_server() as api:
        config = kubeconfig(tmp_path / "kubeconfig", api.url)
        async with open_clients(config, registry=registry) as clients:
            await clients.main.get(paths.NODES, NodeList)
            api.handler = api.silent
            await unreachable(clients)
        host = api.url.removeprefix("http://")
    text = generate_latest(registry).decode()
    labels = f'code="200",host="{host}",method="GET"'
    assert f"rest_client_requests_total{{{labels}}} 1.0" in text
    assert f'rest_client_requests_total{{code="<error>",host="{host}",method="GET"}} 1.0' in text
    assert f'rest_client_request_duration_seconds_count{{host="{host}",verb="GET"}} 1.0' in text


async def test_nothing_is_left_open_by_who_is_cancelled(tmp_path: Path) -> None:
    async with connected(tmp_path) as (api, clients):
        api.handler = api.silent
        with anyio.move_on_after(5):
            await clients.main.get(paths.NODES, NodeList)
        api.handler = None
        await clients.main.get(paths.NODES, NodeList)


async def test_a_client_without_credentials_says_why(tmp_path: Path) -> None:
    async with open_clients(tmp_path / "none") as clients:
        message = await unreachable(clients)
    assert message.endswith(
        f"kubeconfig {tmp_path}/none: cannot be read: No such file or directory"
    )
