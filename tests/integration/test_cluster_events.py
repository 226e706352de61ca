"""Events of pods and the node, as the API server has them (docs/behaviour/events.md)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest
from cluster_ring import NODE, ClusterRing, bound, cluster_ring, static_pod, writes

from nodeagent.embedded import Script, SimulatedBackend
from nodeagent.kube import ApiError

pytestmark = pytest.mark.anyio

CRASHING = Script(exits=[(1.0, 3)] * 20)


def about(node: ClusterRing, name: str) -> list[dict[str, Any]]:
    """Events about an object, the oldest first."""
    found = [e for e in node.store.all("events") if e["involvedObject"]["name"] == name]
    return sorted(found, key=lambda event: event["metadata"]["name"])


def reasons(node: ClusterRing, name: str) -> list[str]:
    return [event["reason"] for event in about(node, name)]


async def event(node: ClusterRing, name: str, reason: str) -> Mapping[str, Any]:
    await node.until(lambda: reason in reasons(node, name))
    return next(e for e in about(node, name) if e["reason"] == reason)


async def test_the_life_of_a_pod_is_told_in_order(tmp_path: Path) -> None:
    async with cluster_ring(tmp_path, bound("web"), cluster_dns=("10.0.0.10",)) as node:
        await node.api_running("web")
        started = await event(node, "web", "Started")
        assert reasons(node, "web")[-2:] == ["Created", "Started"]
        uid = node.store.get("pods", "web")["metadata"]["uid"]
        reference = started["involvedObject"]
        assert (reference["kind"], reference["uid"]) == ("Pod", uid)
        assert reference["fieldPath"] == "spec.containers{main}"
        assert started["source"] == {"component": "kubelet", "host": NODE}
        assert started["metadata"]["namespace"] == "default"
        node.store.delete("pods", "web", grace=1)
        killing = await event(node, "web", "Killing")
        assert killing["message"] == "Stopping container main"


async def test_a_container_that_crashes_again_and_again_is_one_event(tmp_path: Path) -> None:
    backend = SimulatedBackend({"main": CRASHING})
    async with cluster_ring(tmp_path, bound("web"), backend=backend) as node:

        def backs_off() -> int:
            told = [e["count"] for e in about(node, "web") if e["reason"] == "BackOff"]
            return max(told, default=0)

        await node.until(lambda: backs_off() >= 3, 1800)
        assert reasons(node, "web").count("BackOff") == 1
        assert reasons(node, "web").count("Started") == 1
        assert writes(node.store.requests)["PATCH events"] >= 4


async def test_events_of_a_static_pod_are_found_by_its_own_uid(tmp_path: Path) -> None:
    async with cluster_ring(tmp_path, static=(static_pod(),)) as node:
        name = f"static-{NODE}"
        await node.api_running(name)
        started = await event(node, name, "Started")
        mirror = node.store.get("pods", name)
        shown = mirror["metadata"]["annotations"]["kubernetes.io/config.mirror"]
        assert started["involvedObject"]["uid"] == shown


async def test_events_wait_for_a_server_that_is_away(tmp_path: Path) -> None:
    backend = SimulatedBackend({"main": Script(exits=[(60.0, 3)])})
    async with cluster_ring(tmp_path, bound("web"), backend=backend) as node:
        await node.api_running("web")
        await event(node, "web", "Started")
        node.line.cut()
        await node.until(lambda: len(node.recorded("Started", "web")) == 2)
        await anyio.sleep(30)
        node.line.heal()
        await node.until(
            lambda: any(e["reason"] == "Started" and e["count"] == 2 for e in about(node, "web"))
        )


async def test_a_server_that_takes_no_events_changes_nothing_else(tmp_path: Path) -> None:
    async with cluster_ring(tmp_path) as node:
        refusal = ApiError(403, "Forbidden", "events is forbidden")
        node.store.refuse("POST", "events$", refusal, 10_000)
        node.store.create(bound("web"))
        await node.api_running("web")
        assert about(node, "web") == []
        assert node.recorded("Started", "web") == ["Container started"]


async def test_a_node_says_that_it_starts(tmp_path: Path) -> None:
    async with cluster_ring(tmp_path) as node:
        starting = await event(node, NODE, "Starting")
        assert (starting["type"], starting["message"]) == ("Normal", "Starting kubelet.")
        assert starting["metadata"]["namespace"] == "default"
        assert starting["involvedObject"]["uid"] == NODE, "where kubectl looks for it"
