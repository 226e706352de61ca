"""What the agent serves, asked by a real HTTP client on loopback."""

from __future__ import annotations

import errno
import json
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime

import aiohttp
import anyio
import pytest
from prometheus_client import CollectorRegistry, Counter

from nodeagent.api import Container, ObjectMeta, Pod, PodSpec, PodStatus
from nodeagent.api.codec import decode_pod, encode
from nodeagent.journal import Journal
from nodeagent.server import (
    App,
    Check,
    CheckResult,
    HealthChecks,
    HttpListener,
    Level,
    bind_error,
    health_app,
    read_only_app,
)

pytestmark = [pytest.mark.anyio, pytest.mark.realtime]


@dataclass
class Page:
    """One answer."""

    status: int
    text: str
    headers: dict[str, str]

    @property
    def kind(self) -> str:
        return self.headers["Content-Type"]


@dataclass
class Site:
    """A listener with a client."""

    session: aiohttp.ClientSession
    base: str

    async def get(self, path: str, **headers: str) -> Page:
        async with self.session.get(self.base + path, headers=headers) as reply:
            return Page(reply.status, await reply.text(), dict(reply.headers))


@asynccontextmanager
async def serving(app: App) -> AsyncIterator[Site]:
    async with (
        HttpListener("healthz", app, "127.0.0.1", 0) as listener,
        aiohttp.ClientSession() as session,
    ):
        yield Site(session, f"http://127.0.0.1:{listener.port}")


@dataclass
class Parts:
    """What the health app shows, to be changed by a test."""

    results: dict[str, CheckResult] = field(default_factory=dict)
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)
    at: float = 100.0

    def __post_init__(self) -> None:
        self.journal = Journal(monotonic=lambda: self.at)

    def app(self) -> App:
        def run(name: str) -> Callable[[], CheckResult]:
            return lambda: self.results.get(name, CheckResult())

        checks = HealthChecks(
            [
                Check("ping", run("ping"), frozenset({"healthz", "livez", "readyz"})),
                Check("pleg", run("pleg")),
                Check("sources", run("sources"), frozenset({"readyz"})),
            ]
        )
        return health_app(checks, self.registry, self.journal)


async def test_health_is_plain_ok_as_the_kubelet_answers() -> None:
    async with serving(Parts().app()) as site:
        for path in ("/healthz", "/livez", "/readyz", "/healthz/ping", "/healthz/pleg"):
            page = await site.get(path)
            assert (page.status, page.text) == (200, "ok")
            assert page.kind == "text/plain; charset=utf-8"
            assert page.headers["X-Content-Type-Options"] == "nosniff"
            assert page.headers["Cache-Control"] == "no-store"


async def test_verbose_has_one_line_per_check() -> None:
    async with serving(Parts().app()) as site:
        page = await site.get("/healthz?verbose")
        assert page.text == "[+]ping ok\n[+]pleg ok\nhealthz check passed\n"
        page = await site.get("/readyz?verbose=true")
        assert page.text.splitlines()[2:] == ["[+]sources ok", "readyz check passed"]
        page = await site.get("/healthz/pleg?verbose")
        assert page.text == "[+]pleg ok\nhealthz check passed\n"


async def test_a_failed_check_is_status_500_on_the_probes_that_it_decides() -> None:
    parts = Parts()
    async with serving(parts.app()) as site:
        parts.results["pleg"] = CheckResult(Level.FAILED, "pleg was last seen active 3m5s ago")
        page = await site.get("/healthz")
        assert page.status == 500
        assert "[-]pleg failed: pleg was last seen active 3m5s ago\n" in page.text
        assert page.text.endswith("healthz check failed\n")
        assert (await site.get("/healthz/pleg")).status == 500
        assert (await site.get("/healthz/ping")).status == 200
        assert (await site.get("/livez")).status == 200
        assert (await site.get("/readyz")).status == 500
        left_out = await site.get("/healthz?verbose&exclude=pleg&exclude=nothing")
        assert left_out.status == 200
        assert "\n[+]pleg excluded: ok\n" in left_out.text
        assert 'cannot be excluded: no matches for "nothing"\n' in left_out.text


async def test_a_degraded_check_is_no_failure() -> None:
    parts = Parts({"pleg": CheckResult(Level.DEGRADED, "cannot inspect pod d/web")})
    async with serving(parts.app()) as site:
        assert (await site.get("/healthz")).text == "ok"
        assert (
            "[+]pleg ok, degraded: cannot inspect pod d/web"
            in (await site.get("/healthz?verbose")).text
        )


async def test_json_names_check_state_cause_pod_rpc_and_since() -> None:
    details = ({"pod": "d/web", "rpc": "ContainerStatus", "since": 12.5, "error": ""},)
    parts = Parts({"pleg": CheckResult(Level.FAILED, "cannot inspect", details)})
    async with serving(parts.app()) as site:
        page = await site.get("/healthz", Accept="application/json")
        assert (page.status, page.kind) == (500, "application/json")
        answer = json.loads(page.text)
        assert (answer["probe"], answer["state"]) == ("healthz", "failed")
        assert answer["checks"][0] == {"check": "ping", "state": "ok", "cause": ""}
        pleg = answer["checks"][1]
        assert {k: pleg[k] for k in ("check", "state", "cause", "pod", "rpc", "since")} == {
            "check": "pleg",
            "state": "failed",
            "cause": "cannot inspect",
            "pod": "d/web",
            "rpc": "ContainerStatus",
            "since": 12.5,
        }
        one = json.loads((await site.get("/healthz/ping", Accept="application/json")).text)
        assert [c["check"] for c in one["checks"]] == ["ping"]


async def test_an_unknown_check_is_404_and_names_those_there_are() -> None:
    async with serving(Parts().app()) as site:
        page = await site.get("/healthz/nope")
        assert (page.status, page.text) == (
            404,
            "no check 'nope'; there are: ping, pleg, sources\n",
        )


async def test_a_cause_of_arbitrary_bytes_is_shown_escaped() -> None:
    parts = Parts({"pleg": CheckResult(Level.FAILED, "bad name \udcff.yaml")})
    async with serving(parts.app()) as site:
        assert "bad name \\udcff.yaml" in (await site.get("/healthz")).text
        page = await site.get("/healthz", Accept="application/json")
        assert json.loads(page.text)["checks"][1]["cause"] == "bad name \udcff.yaml"


async def test_metrics_come_in_the_text_format() -> None:
    parts = Parts()
    Counter("kubelet_things", "Things", registry=parts.registry).inc(3)
    async with serving(parts.app()) as site:
        page = await site.get("/metrics")
        assert page.status == 200
        assert page.kind.startswith("text/plain; version=")
        assert "kubelet_things_total 3.0" in page.text.splitlines()


def lines(page: Page) -> list[str]:
    assert (page.status, page.kind.partition(";")[0]) == (200, "application/x-ndjson")
    return [json.loads(line)["what"] for line in page.text.splitlines()]


async def test_the_journal_comes_as_json_lines_by_pod_and_time() -> None:
    parts = Parts()
    journal = parts.journal
    journal.name_pod("u1", "default/web")
    for at, what, pod in ((10.0, "a", "u1"), (50.0, "b", "u2"), (90.0, "c", "u1")):
        parts.at = at
        journal.record("t", what, pod, "because", 0.5, container="x")
    parts.at = 100.0
    async with serving(parts.app()) as site:
        page = await site.get("/debug/journal")
        assert lines(page) == ["a", "b", "c"]
        first = json.loads(page.text.splitlines()[0])
        assert first["name"] == "default/web"
        assert (first["why"], first["duration"], first["fields"]) == (
            "because",
            0.5,
            {"container": "x"},
        )
        assert lines(await site.get("/debug/journal?pod=u1")) == ["a", "c"]
        assert lines(await site.get("/debug/journal?pod=default/web")) == ["a", "c"]
        assert lines(await site.get("/debug/journal?pod=web&since=20s")) == ["c"]
        assert lines(await site.get("/debug/journal?since=1m")) == ["b", "c"]
        assert lines(await site.get("/debug/journal?since=90")) == ["c"]
        assert lines(await site.get("/debug/journal?since=49.5")) == ["b", "c"]
        assert lines(await site.get("/debug/journal?pod=unknown")) == []


async def test_a_bad_age_is_400_and_says_what_one_looks_like() -> None:
    async with serving(Parts().app()) as site:
        page = await site.get("/debug/journal?since=soon")
        assert page.status == 400
        assert page.text == (
            "since: 'soon' is not a duration (write it like 20s, 1m30s or 500ms)\n"
        )


async def test_a_record_of_any_values_is_shown() -> None:
    parts = Parts()
    parts.journal.record("t", "odd", "u", "name \udcff", value=object(), error=ValueError("x"))
    async with serving(parts.app()) as site:
        assert lines(await site.get("/debug/journal")) == ["odd"]


async def test_other_paths_and_methods_are_refused() -> None:
    async with serving(Parts().app()) as site:
        assert (await site.get("/pods")).status == 404
        assert (await site.get("/")).status == 404
        async with site.session.post(site.base + "/healthz") as reply:
            assert reply.status == 405


def make_pod(name: str) -> Pod:
    return Pod(
        metadata=ObjectMeta(name=name, namespace="default", uid=f"u-{name}"),
        spec=PodSpec(containers=(Container(name="c", image="img"),)),
        status=PodStatus(phase="Running", start_time=datetime(2026, 1, 2, tzinfo=UTC)),
    )


async def test_pods_is_a_pod_list_with_status() -> None:
    pods: list[Pod] = []
    async with serving(read_only_app(lambda: pods)) as site:
        empty = json.loads((await site.get("/pods")).text)
        assert empty == {"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": []}
        pods += [make_pod("web"), make_pod("db")]
        for path in ("/pods", "/pods/"):
            page = await site.get(path)
            assert (page.status, page.kind) == (200, "application/json")
            items = json.loads(page.text)["items"]
            assert [i["metadata"]["name"] for i in items] == ["web", "db"]
            assert items[0]["status"]["phase"] == "Running"
            assert decode_pod(json.dumps(items[0])) == pods[0]
            assert encode(pods[0]).decode() in page.text
        assert (await site.get("/healthz")).status == 404


async def test_a_port_that_is_taken_says_what_to_do() -> None:
    app = Parts().app()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match=f"127.0.0.1:{port}: the port is taken") as caught:
            async with HttpListener("healthz", app, "127.0.0.1", port):
                raise AssertionError
    assert caught.value.errno == errno.EADDRINUSE
    assert "--healthz-port, or 0 for none" in str(caught.value)


async def test_an_address_of_no_interface_names_the_flag() -> None:
    with pytest.raises(OSError, match="does not have the address") as caught:
        async with HttpListener("read-only", App(), "192.0.2.1", 0):
            raise AssertionError
    assert str(caught.value).endswith("Choose another one with --address")


NO_ADDRESS = (
    "127.0.0.1:80: this machine does not have the address."
    " Choose another one with --healthz-bind-address"
)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (
            OSError(errno.EACCES, "x"),
            "127.0.0.1:80: not permitted. Choose a port above 1023 with --healthz-port",
        ),
        (OSError(errno.EIO, "broken"), "127.0.0.1:80: broken"),
        (OSError("just text"), "127.0.0.1:80: just text"),
        (OSError(errno.EADDRNOTAVAIL, "x"), NO_ADDRESS),
        (OSError("could not bind on any address out of [('127.0.0.1', 80)]"), NO_ADDRESS),
    ],
)
async def test_errors_of_binding_are_one_line(error: OSError, text: str) -> None:
    found = bind_error("healthz", "127.0.0.1", 80, error)
    assert found == f"healthz cannot listen on {text}"


async def test_an_ipv6_address_stands_in_brackets() -> None:
    text = bind_error("healthz", "::1", 80, OSError(errno.EIO, "x"))
    assert text == "healthz cannot listen on [::1]:80: x"


async def test_the_port_is_closed_after_the_block_also_for_a_client_that_holds_on() -> None:
    async with aiohttp.ClientSession() as session:
        async with HttpListener("healthz", Parts().app(), "127.0.0.1", 0) as listener:
            url = f"http://127.0.0.1:{listener.port}/healthz"
            async with session.get(url) as reply:
                assert reply.status == 200
        with pytest.raises(aiohttp.ClientConnectorError):
            await session.get(url)


async def test_the_port_is_closed_when_the_block_is_cancelled() -> None:
    with anyio.CancelScope() as scope:
        async with HttpListener("healthz", Parts().app(), "127.0.0.1", 0) as listener:
            scope.cancel()
            await anyio.lowlevel.checkpoint()
    assert scope.cancelled_caught
    with socket.create_server(("127.0.0.1", listener.port)):
        pass


async def test_nothing_stays_open_when_opening_is_cancelled() -> None:
    listener = HttpListener("healthz", Parts().app(), "127.0.0.1", 0)
    with anyio.CancelScope() as scope:
        scope.cancel()
        async with listener:
            await anyio.lowlevel.checkpoint()
    assert scope.cancelled_caught
    assert listener._server is None


async def test_two_listeners_serve_side_by_side() -> None:
    async with serving(Parts().app()) as one, serving(read_only_app(list)) as two:
        assert (await one.get("/healthz")).text == "ok"
        assert json.loads((await two.get("/pods")).text)["items"] == []
