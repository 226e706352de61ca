"""docs/behaviour/server.md, "Pages", "Profiles" and "Checkpoints"."""

from __future__ import annotations

import json
import logging
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.server.api_lab import api_lab, head, reply

from nodeagent.config import AgentConfig
from nodeagent.config.effective import effective_flags
from nodeagent.rpc import InvalidArgument, RpcError, Unimplemented
from nodeagent.runtime.checkpointing import NoSuchContainerError
from nodeagent.server import HealthChecks, checks
from nodeagent.server.health import Level
from nodeagent.server.kubelet.accept import wanted_form
from nodeagent.testing import make_container, make_pod

pytestmark = pytest.mark.anyio


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    found = logging.getLogger("nodeagent")
    level = found.level
    yield found
    found.setLevel(level)


async def test_hg1_statusz_says_what_runs(tmp_path: Path) -> None:
    async with api_lab(tmp_path) as lab:
        got = await lab.ask("/statusz")
        assert got.text.startswith("kubelet statusz\nWarning: ")
        assert "\nStarted: " in got.text
        assert "/containerLogs" in got.text
        as_json = {"Accept": "application/json;as=Statusz;g=config.k8s.io;v=v1beta1"}
        found = json.loads((await lab.ask("/statusz", headers=as_json)).body)
        assert (found["kind"], found["apiVersion"]) == ("Statusz", "config.k8s.io/v1beta1")
        assert {"/healthz", "/pods", "/metrics", "/exec", "/statusz"} <= set(found["paths"])


async def test_hg2_flagz_shows_settings(tmp_path: Path) -> None:
    async with api_lab(tmp_path) as lab:
        assert (await lab.ask("/flagz")).text.endswith("\n\nport=10250\n")
        got = await lab.ask("/flagz", headers={"Accept": "application/yaml"})
        assert got.headers["content-type"] == "application/yaml"
        assert got.text.startswith("kind: Flagz\napiVersion: config.k8s.io/v1beta1\n")
        assert (await lab.ask("/flagz", headers={"Accept": "image/png"})).status == 406


def test_hg2_nothing_secret_is_among_the_flags() -> None:
    config = AgentConfig(
        static_pod_url="http://user:hidden@host/pods",
        static_pod_url_header=(("Authorization", "hidden"),),
        kube_reserved={"cpu": "1"},
    )
    found = effective_flags(config)
    assert "hidden" not in str(found)
    assert found["manifest-url-header"] == "Authorization=<masked>"
    assert found["kube-reserved"] == "cpu=1"
    assert found["anonymous-auth"] == "false"
    assert found["sync-frequency"] == "1m0s"


@pytest.mark.parametrize(
    ("accept", "form"),
    [
        ("", "text/plain"),
        ("*/*", "text/plain"),
        ("text/html, text/*;q=0.5", "text/plain"),
        ("application/json", "application/json"),
        ("application/json;as=Flagz;v=v1beta1;g=config.k8s.io, */*", "application/json"),
        ("application/json;as=Statusz", ""),
        ("application/json;v=v9;as=Flagz, text/plain", "text/plain"),
        ("application/json;q=0, application/yaml", "application/yaml"),
        ("image/png", ""),
    ],
)
def test_hg3_the_form_is_the_first_that_is_there(accept: str, form: str) -> None:
    assert wanted_form(accept, "Flagz") == form


@given(st.text(max_size=40))
def test_hg3_any_header_is_read(accept: str) -> None:
    forms = ("", "text/plain", "application/json", "application/yaml")
    assert wanted_form(accept, "Flagz") in forms


async def put_level(tmp_path: Path, body: bytes, *, on: bool = True) -> tuple[int, str]:
    async with api_lab(tmp_path, logs=on) as lab, lab.connected() as stream:
        await stream.send(
            head("PUT", "/debug/flags/v", "admin", {"Content-Length": str(len(body))}) + body
        )
        got = await reply(stream, "PUT")
        return got.status, got.text


async def test_hg4_the_level_of_the_log_can_be_changed(
    tmp_path: Path, logger: logging.Logger
) -> None:
    said = "successfully set klog.logging.verbosity to 4\n"
    assert await put_level(tmp_path, b"4") == (200, said)
    assert logger.level == logging.DEBUG


@pytest.mark.parametrize("body", [b"", b"-1", b"high", b"4" * 100, b"\xff"])
async def test_hg4_what_is_no_level_is_refused(
    body: bytes, tmp_path: Path, logger: logging.Logger
) -> None:
    level = logger.level
    assert (await put_level(tmp_path, body))[0] == 400
    assert logger.level == level


async def test_hg4_pages_that_change_something_can_be_off(tmp_path: Path) -> None:
    assert await put_level(tmp_path, b"4", on=False) == (405, "flags endpoint is disabled.\n")


async def test_hg4_a_body_that_does_not_come_is_not_waited_for(tmp_path: Path) -> None:
    async with api_lab(tmp_path) as lab, lab.connected() as stream:
        await stream.send(head("PUT", "/debug/flags/v", "admin", {"Content-Length": "2"}) + b"4")
        assert (await reply(stream, "PUT")).status == 400
        await stream.send(b"2")


async def test_hf6_a_profile_of_the_processor_is_folded_stacks(tmp_path: Path) -> None:
    async with api_lab(tmp_path) as lab:
        got = await lab.ask("/debug/pprof/profile?seconds=1")
        assert got.status == 200
        for line in got.text.splitlines():
            stack, _, count = line.rpartition(" ")
            assert stack
            assert int(count) > 0
        assert "KubeletApi" in (await lab.ask("/debug/pprof/threads")).text


@pytest.mark.parametrize("seconds", ["0", "-1", "301", "x", "9" * 30, "²"])
async def test_hf6_a_profile_has_bounds(seconds: str, tmp_path: Path) -> None:
    async with api_lab(tmp_path) as lab:
        got = await lab.ask(f"/debug/pprof/profile?seconds={quote(seconds)}")
        assert got.status == 400


async def test_hf7_one_profile_is_taken_at_a_time(tmp_path: Path) -> None:
    async with api_lab(tmp_path) as lab, anyio.create_task_group() as tasks:
        statuses: list[int] = []

        async def ask() -> None:
            statuses.append((await lab.ask("/debug/pprof/profile?seconds=300")).status)

        tasks.start_soon(ask)
        tasks.start_soon(ask)
        with anyio.fail_after(60):
            while not statuses:
                await anyio.sleep(0.05)
        assert statuses == [429]
        tasks.cancel_scope.cancel()


async def test_hf8_memory_is_traced_on_demand_only(tmp_path: Path) -> None:
    async with api_lab(tmp_path) as lab:
        try:
            assert (await lab.ask("/debug/pprof/heap")).status == 409
            assert (await lab.ask("/debug/pprof/heap", method="POST")).status == 200
            got = await lab.ask("/debug/pprof/heap")
            assert got.text.startswith("traced: ")
            assert " bytes in " in got.text
            assert (await lab.ask("/debug/pprof/heap", method="DELETE")).status == 200
            assert (await lab.ask("/debug/pprof/heap")).status == 409
        finally:
            tracemalloc.stop()


CHECKPOINT = "/checkpoint/default/web/main"


async def test_hk1_a_checkpoint_is_written(tmp_path: Path) -> None:
    async with api_lab(tmp_path) as lab:
        lab.table.pods = [make_pod("web", make_container("main"))]
        got = await lab.ask(CHECKPOINT, method="POST")
        assert got.status == 200
        assert json.loads(got.body) == {"items": ["/root/checkpoints/checkpoint-web.tar"]}
        await lab.ask(f"{CHECKPOINT}?timeout=7", method="POST")
        assert lab.runtime.requests == [("web", "main", 0), ("web", "main", 7)]


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("/checkpoint/default/none/main", "pod does not exist"),
        ("/checkpoint/other/web/main", "pod does not exist"),
        ("/checkpoint/default/web/none", "container none does not exist"),
        ("/checkpoint/default/web/..%2f..%2fetc", "container ../../etc does not exist"),
        (f"{CHECKPOINT}?timeout=soon", "cannot parse value of timeout parameter"),
        (f"{CHECKPOINT}?timeout=", "cannot parse value of timeout parameter"),
        (f"{CHECKPOINT}?timeout={2**64}", "cannot parse value of timeout parameter"),
    ],
)
async def test_hk2_what_cannot_be_found_is_named(path: str, text: str, tmp_path: Path) -> None:
    async with api_lab(tmp_path) as lab:
        lab.table.pods = [make_pod("web", make_container("main"))]
        got = await lab.ask(path, method="POST")
        if "%2f" in path:
            assert got.status == 404
        else:
            assert (got.status, got.text) == (404, text)
        assert lab.runtime.requests == []


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (Unimplemented("CheckpointContainer", "unknown method"), "unknown method"),
        (InvalidArgument("CheckpointContainer", "negative"), "negative"),
        (NoSuchContainerError("container main does not run"), "container main does not run"),
        (OSError(28, "No space left on device"), "No space left on device"),
    ],
)
async def test_hk3_a_checkpoint_that_fails_says_why(
    error: RpcError | OSError | LookupError, cause: str, tmp_path: Path
) -> None:
    async with api_lab(tmp_path) as lab:
        lab.table.pods = [make_pod("web", make_container("main"))]
        lab.runtime.error = error
        got = await lab.ask(CHECKPOINT, method="POST")
        assert got.status == 500
        assert got.text.startswith("checkpointing of default/web/main failed (")
        assert cause in got.text
        assert "Traceback" not in got.text


def test_hc7_a_bad_certificate_degrades_health() -> None:
    problems = ["", "served.crt cannot be read"]
    found = HealthChecks([])
    found.add(checks.serving(lambda: problems[0]))
    assert found.one("serving")[0][1].level is Level.OK
    problems.pop(0)
    (_, result), *_ = found.one("serving")
    assert (result.level, result.cause) == (Level.DEGRADED, "served.crt cannot be read")
