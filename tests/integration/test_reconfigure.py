"""Each setting that is applied at once, seen at work in an agent that runs.

docs/reload-and-rollback.md, "Fields that are applied at once".
"""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import anyio
import pytest
from ring import FaultyRing, faulty_ring

from nodeagent import AgentConfig, ConfigError
from nodeagent.api import Container, PodSecurityContext, Sysctl
from nodeagent.config.effective import effective_configuration
from nodeagent.config.kubelet_fields import path_of_setting
from nodeagent.config.reload import LIVE, Changes, compare, merged
from nodeagent.model import PodUID
from nodeagent.pleg.pace import PaceMode
from nodeagent.testing import Delay, Fault, Hang, make_pod

pytestmark = pytest.mark.anyio

Show = Callable[[FaultyRing], Awaitable[None]]


async def change(node: FaultyRing, **settings: Any) -> Changes:
    return await node.agent.reconfigure(dataclasses.replace(node.agent.config, **settings))


def times(node: FaultyRing, what: str, pod: str = "") -> list[float]:
    return [record.at for record in node.recorded(what, pod)]


async def calls_within(node: FaultyRing, method: str, seconds: float) -> int:
    before = node.calls(method)
    await anyio.sleep(seconds)
    return node.calls(method) - before


async def test_relist_period(tmp_path: Path) -> None:
    async with faulty_ring(tmp_path, relist_period=1.0, evented_relist_period=1.0) as node:
        await anyio.sleep(30)
        assert await calls_within(node, "ListPodSandbox", 60) >= 50
        await change(node, relist_period=20.0, evented_relist_period=20.0)
        assert await calls_within(node, "ListPodSandbox", 60) <= 12
        # A rest that has begun is cut short.
        await change(node, relist_period=1.0, evented_relist_period=1.0)
        assert await calls_within(node, "ListPodSandbox", 5) >= 3


async def test_evented_relist_period(tmp_path: Path) -> None:
    async with faulty_ring(tmp_path, make_pod("web"), evented_relist_period=300.0) as node:
        pace = node.agent.parts.pleg._pace
        await node.until(lambda: pace.mode is PaceMode.EVENTS)
        assert pace.period(anyio.current_time()) == 300
        await change(node, evented_relist_period=2.0)
        assert pace.period(anyio.current_time()) == 2


async def test_relist_threshold(tmp_path: Path) -> None:
    async with faulty_ring(tmp_path) as node:
        await anyio.sleep(10)
        node.plan.add(Fault("ListPodSandbox", Hang()))
        await anyio.sleep(30)
        assert not node.health("pleg").startswith("PLEG is not healthy")
        await change(node, relist_threshold=5.0)
        assert node.health("pleg").startswith("PLEG is not healthy")


async def test_sync_frequency(tmp_path: Path) -> None:
    async with faulty_ring(tmp_path, make_pod("web"), sync_frequency=3600.0) as node:
        await node.running("web")
        await anyio.sleep(30)
        parts = node.agent.parts
        (uid,) = (PodUID(pod.metadata.uid) for pod in node.agent.pods())
        due = parts.queue.due_at(uid)
        assert due is not None
        assert due - anyio.current_time() > 1000
        await change(node, sync_frequency=10.0)
        due = parts.queue.due_at(uid)
        assert due is not None
        assert due - anyio.current_time() <= 15


async def test_housekeeping_period(tmp_path: Path) -> None:
    async with faulty_ring(tmp_path, housekeeping_period=3600.0) as node:

        def ticks() -> float:
            name, labels = "nodeagent_channel_sent_total", {"channel": "housekeeping"}
            return node.agent.registry.get_sample_value(name, labels) or 0.0

        before = ticks()
        await anyio.sleep(60)
        assert ticks() == before
        await change(node, housekeeping_period=1.0)
        await anyio.sleep(10)
        assert ticks() - before >= 8


async def test_runtime_request_timeout(tmp_path: Path) -> None:
    async with faulty_ring(tmp_path) as node:
        await anyio.sleep(10)
        node.plan.add(Fault("Status", Delay(10.0)))
        await anyio.sleep(60)
        assert node.health("runtime") == ""
        await change(node, runtime_request_timeout=2.0)
        await node.until(lambda: node.health("runtime"))


async def test_settings_of_sandboxes_and_containers(tmp_path: Path) -> None:
    resolver = tmp_path / "resolv.conf"
    resolver.write_text("nameserver 192.0.2.7\n")
    async with faulty_ring(tmp_path) as node:
        changes = await change(
            node,
            resolv_conf=resolver,
            cluster_dns=("10.96.0.10",),
            cluster_domain="cluster.example",
            seccomp_default=True,
            cpu_cfs_quota_period=0.05,
        )
        assert not changes.needs_restart
        limited = Container(name="main", image="busybox")
        node.source.set(
            make_pod("inside", limited, dns_policy="ClusterFirst"),
            make_pod("outside", limited, dns_policy="Default"),
        )
        await node.running("inside")
        await node.running("outside")
        dns = {
            sandbox.config.metadata.name: sandbox.config.dns_config
            for sandbox in node.runtime.core.state.sandboxes.values()
            if sandbox.config.metadata is not None
        }
        inside, outside = dns["inside"], dns["outside"]
        assert inside is not None
        assert outside is not None
        assert inside.servers == ["10.96.0.10"]
        assert "default.svc.cluster.example" in inside.searches
        assert outside.servers == ["192.0.2.7"]
        (record,) = node.containers("inside")
        made = repr(record.config.linux)
        assert "cpu_period=50000" in made
        assert "seccomp=SecurityProfile()" in made  # the runtime's default


async def test_allowed_unsafe_sysctls(tmp_path: Path) -> None:
    asks = PodSecurityContext(sysctls=(Sysctl(name="net.core.somaxconn", value="9"),))
    async with faulty_ring(tmp_path) as node:
        node.source.set(make_pod("first", security_context=asks))
        await node.until(lambda: (p := node.pod("first")) and p.status.phase == "Failed")
        await change(node, allowed_unsafe_sysctls=("net.*",))
        node.source.set(make_pod("second", security_context=asks))
        await node.running("second")


async def test_pulls_side_by_side(tmp_path: Path) -> None:
    images = [make_pod(f"p{n}", Container(name="main", image=f"image{n}")) for n in range(4)]
    async with faulty_ring(tmp_path, *images) as node:
        pull = node.plan.add(Fault("PullImage", Hang(), name="slow"))
        await node.until(lambda: pull.waiting == 1)
        await anyio.sleep(5)
        assert pull.waiting == 1
        await change(node, serialize_image_pulls=False, max_parallel_image_pulls=3)
        await node.until(lambda: pull.waiting == 3)
        await anyio.sleep(5)
        assert pull.waiting == 3
        await change(node, max_parallel_image_pulls=0)
        await node.until(lambda: pull.waiting == 4)
        node.plan.clear()


async def test_journal_size(tmp_path: Path) -> None:
    async with faulty_ring(tmp_path) as node:
        await change(node, journal_size=7)
        for number in range(20):
            node.agent.journal.record("test", "Said", why=str(number))
        said = [record.why for record in node.agent.journal.select()]
        assert len(said) == 7
        assert said[-1] == "19"


async def test_what_the_node_offers(tmp_path: Path) -> None:
    async with faulty_ring(tmp_path) as node:
        await change(node, max_pods=2)
        node.source.set(*(make_pod(f"p{n}") for n in range(3)))
        wanted = ["Failed", "Running", "Running"]
        await node.until(lambda: sorted(p.status.phase for p in node.agent.pods()) == wanted)


async def test_a_reservation_that_is_too_large_is_refused(tmp_path: Path) -> None:
    async with faulty_ring(tmp_path) as node:
        with pytest.raises(ConfigError):
            await change(node, kube_reserved={"memory": "900Ti"}, sync_frequency=7.0)
        assert node.agent.config.sync_frequency == 60.0


async def test_what_needs_a_restart_stays_as_it_was(tmp_path: Path) -> None:
    async with faulty_ring(tmp_path) as node:
        changes = await change(node, node_labels={"a": "b"}, sync_frequency=7.0)
        assert [c.setting for c in changes.needs_restart] == ["node_labels"]
        assert [str(c) for c in changes.applied] == ["syncFrequency: 1m0s -> 7s"]
        assert node.agent.config.node_labels == {}
        assert node.agent.config.sync_frequency == 7.0
        shown = effective_configuration(node.agent.parts.settings.current)
        assert shown["syncFrequency"] == "7s"
        again = await change(node, sync_frequency=7.0)
        assert not again


def test_forty_fields_of_files_are_applied_at_once() -> None:
    assert len([name for name in LIVE if path_of_setting(name)]) >= 40


OTHERS: Final[dict[str, Any]] = {
    "static_pod_url_header": (("A", "b"),),
    "image_pull_credentials_verification_policy": "AlwaysVerify",
    "max_container_restart_period": 77.0,
    "swap_behavior": "LimitedSwap",
    "image_gc_high_threshold_percent": 99,
    "image_gc_low_threshold_percent": 3,
    "image_maximum_gc_age": 7200.0,
    "eviction_hard": {"memory.available": "1Mi"},
    "kube_reserved": {"memory": "1Mi"},
    "system_reserved": {"memory": "1Mi"},
    "single_process_oom_kill": True,
    "cpu_cfs_quota_period": 0.05,
}
TOGETHER: Final = {
    "image_credential_provider_config",
    "image_credential_provider_bin_dir",
    "preloaded_images_verification_allowlist",
    "serialize_image_pulls",
    "static_pod_path",
    "static_pod_url",
    "resolv_conf",
    "cluster_dns",
    "cluster_domain",
    "allowed_unsafe_sysctls",
}
"""Tested elsewhere: they have values of kinds of their own."""


@pytest.mark.parametrize("name", sorted(LIVE.keys() - TOGETHER))
def test_each_of_them_is_taken_over_and_nothing_else(name: str) -> None:
    active = AgentConfig(node_name="node1")
    value = getattr(active, name)
    other = OTHERS.get(name)
    if other is None:
        other = not value if isinstance(value, bool) else value + 3
    wanted: dict[str, Any] = {name: other}
    new = dataclasses.replace(active, **wanted, node_labels={"a": "b"})
    changes = compare(active, new)
    assert [change.setting for change in changes.applied] == [name]
    assert [change.setting for change in changes.needs_restart] == ["node_labels"]
    assert merged(active, new) == dataclasses.replace(active, **wanted)
