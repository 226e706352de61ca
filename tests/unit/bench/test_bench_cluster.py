"""Measurements with an API server, in small, and what they are made of. No figure is asserted."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from click.testing import CliRunner

from nodeagent.bench import e2e_start, idle
from nodeagent.bench.cluster import ClusterPlace, PodTimes, open_cluster, operation_seconds
from nodeagent.bench.figures import BenchError
from nodeagent.cli.app import cli
from nodeagent.testing.api_server import serving_api

pytestmark = [pytest.mark.anyio, pytest.mark.realtime]


@asynccontextmanager
async def place(directory: Path) -> AsyncIterator[ClusterPlace]:
    """An API server in memory, which lets everybody do everything."""
    async with serving_api() as server:
        config = directory / "kubeconfig"
        config.write_text(kubeconfig(server.url))
        yield ClusterPlace(config, config)


def kubeconfig(url: str) -> str:
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": {"server": url}}],
            "users": [{"name": "u", "user": {"token": "t"}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
    )


async def test_starts_and_deletes_are_timed_through_the_api_server(tmp_path: Path) -> None:
    async with place(tmp_path) as cluster:
        figures = await e2e_start.run(1, 2, None, cluster, repeats=1)
    assert (figures["pods"], figures["at_once"], figures["runtime"]) == (1, 2, "simulated")
    for name in ("start_p50_ms", "own_p99_ms", "delete_p50_ms", "start_all_s", "delete_all_s"):
        assert figures[name] > 0, name
    assert figures["calls_p50_ms"] < figures["start_p50_ms"]
    assert figures["bare_start_all_s"] > 0
    assert figures["bare_concurrency"] in (4, 8, 16)
    assert figures["own_worst_ms"] <= figures["start_worst_ms"]


async def test_an_agent_at_rest_is_measured_with_pods_of_the_api_server(tmp_path: Path) -> None:
    async with place(tmp_path) as cluster:
        figures = await idle.run(2, 1, 0.2, settle=0.1, cluster=cluster)
    assert (figures["pods"], figures["containers"]) == (2, 2)
    assert figures["rss_mb"] > 0


async def test_nothing_is_no_measure(tmp_path: Path) -> None:
    nowhere = ClusterPlace(tmp_path, tmp_path)
    with pytest.raises(ValueError, match="all must be at least 1"):
        await e2e_start.run(0, 1, None, nowhere)


async def test_a_server_that_does_not_answer_is_named(tmp_path: Path) -> None:
    config = tmp_path / "kubeconfig"
    config.write_text(kubeconfig("http://127.0.0.1:1"))
    with pytest.raises(BenchError, match=r"kubeconfig: .*Connection refused"):
        async with open_cluster(ClusterPlace(config, config)):
            pass


def event(kind: str, name: str, *, ready: bool = False) -> bytes:
    conditions = [{"type": "Ready", "status": str(ready)}]
    item = {"metadata": {"name": name}, "status": {"conditions": conditions}}
    return json.dumps({"type": kind, "object": item}).encode()


async def test_the_first_sight_of_a_pod_counts() -> None:
    times = PodTimes()
    times.take(event("ADDED", "a"))
    times.take(event("MODIFIED", "a", ready=True))
    first = await times.ready("a")
    await anyio.sleep(0.01)
    times.take(event("MODIFIED", "a", ready=True))
    assert await times.ready("a") == first
    times.take(event("DELETED", "a", ready=True))
    assert await times.gone("a") > first


async def test_the_end_of_a_watch_is_no_pod() -> None:
    with pytest.raises(BenchError, match="too old"):
        PodTimes().take(b'{"type":"ERROR","object":{"message":"too old","code":410}}')


def test_seconds_in_calls_are_added_up_by_kind() -> None:
    name = "kubelet_runtime_operations_duration_seconds"
    page = (
        f'{name}_sum{{operation_type="create_container"}} 0.25\n'
        f'{name}_count{{operation_type="create_container"}} 3.0\n'
        f'{name}_sum{{operation_type="start_container"}} 0.5\n'
        f'{name}_sum{{operation_type="list_containers"}} 9.0\n'
    )
    kinds = frozenset({"create_container", "start_container"})
    assert operation_seconds(page, kinds) == 0.75


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ([], "are needed"),
        (["--admin-kubeconfig=a"], "go together"),
    ],
)
def test_the_command_asks_for_both_kubeconfigs(flags: list[str], said: str) -> None:
    done = CliRunner().invoke(cli, ["bench", "e2e-start", *flags])
    assert done.exit_code == 2
    assert said in done.output
