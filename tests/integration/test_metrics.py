"""docs/metrics.md names every metric that an agent has, and every one that it names is there."""

from __future__ import annotations

import socket
from pathlib import Path

import anyio
import pytest
from cluster_ring import bound, cluster_ring
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families
from ring import ring
from tests.unit.docs.metric_names import (
    Named,
    documented,
    names_in,
    registered,
    samples_of,
    section,
    without_meaning,
)

from nodeagent.kube.credentials.certificates import CertificateMetrics
from nodeagent.kube.credentials.serving_certificates import ServingMetrics
from nodeagent.kube.metrics import ClientMetrics
from nodeagent.reload.metrics import ConfigMetrics
from nodeagent.stats.container_metrics import FAMILIES as CONTAINER
from nodeagent.stats.resource_metrics import FAMILIES as RESOURCE
from nodeagent.testing import make_pod

pytestmark = pytest.mark.anyio

#: Told by the samples alone.
CHANNELS = {
    "nodeagent_channel_depth",
    "nodeagent_channel_high_water",
    "nodeagent_channel_sent_total",
    "nodeagent_channel_coalesced_total",
    "nodeagent_channel_wait_seconds_total",
}


def of_connection() -> CollectorRegistry:
    """What an agent has besides, with a real API server and its configuration in files."""
    registry = CollectorRegistry()
    ClientMetrics(registry)
    CertificateMetrics(registry, lambda: 1.0)
    ServingMetrics(registry)
    ConfigMetrics(registry)
    return registry


async def test_the_page_names_what_is_registered_with_type_and_labels(tmp_path: Path) -> None:
    (tmp_path / "alone").mkdir()
    (tmp_path / "node").mkdir()
    found: dict[str, Named] = {named.name: named for named in registered(of_connection())}
    async with ring(tmp_path / "alone") as alone:
        everywhere = {named.name: named for named in registered(alone.agent.registry)}
    async with cluster_ring(tmp_path / "node", address="127.0.0.1", port=free()) as node:
        found |= {named.name: named for named in registered(node.agent.registry)}
    found |= everywhere
    page = documented()
    assert set(page) == set(found) | CHANNELS
    for name, named in found.items():
        assert page[name].kind == named.kind, name
        if named.labels is not None:
            assert page[name].labels == named.labels, name
    for row in section("/metrics"):
        for name in names_in(row[0]):
            assert (row[3] == "every agent") == (name in everywhere or name in CHANNELS), name


async def test_what_is_not_here_is_not_here() -> None:
    assert without_meaning() & set(documented()) == set()
    assert len(without_meaning()) > 20


async def test_an_agent_serves_what_the_page_names(tmp_path: Path) -> None:
    async with cluster_ring(tmp_path, bound("web"), healthz_port=free()) as node:
        await node.api_running("web")
        text = await ask(node.agent.ports["healthz"], "/metrics")
    page = {sample: named for named in documented().values() for sample in samples_of(named)}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            assert sample.name in page
            assert set(sample.labels) - {"le"} == set(page[sample.name].labels or ()), sample


async def ask(port: int, path: str) -> str:
    """What a listener of the agent answers."""
    async with await anyio.connect_tcp("127.0.0.1", port) as stream:
        await stream.send(f"GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n".encode())
        got = b""
        with anyio.fail_after(60):
            async for data in stream:
                got += data
    head, _, body = got.partition(b"\r\n\r\n")
    assert b" 200 " in head.splitlines()[0], head
    return body.decode()


def free() -> int:
    """A port that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.mark.parametrize(
    ("path", "families"), [("/metrics/resource", RESOURCE), ("/metrics/cadvisor", CONTAINER)]
)
async def test_the_page_names_figures_of_containers(
    path: str, families: tuple[tuple[str, str, str], ...]
) -> None:
    rows = {names_in(row[0])[0]: row[1] for row in section(path)}
    assert rows == {name: kind for name, kind, _ in families}


async def test_every_endpoint_of_metrics_is_read_by_prometheuss_parser(tmp_path: Path) -> None:
    async with ring(tmp_path, make_pod("web"), healthz_port=free()) as alone:
        await alone.running("web")
        port = alone.agent.ports["healthz"]
        await ask(port, "/healthz")
        for path in ("", "/resource", "/cadvisor", "/probes", "/slis"):
            families = list(text_string_to_metric_families(await ask(port, f"/metrics{path}")))
            assert any(family.samples for family in families), path
