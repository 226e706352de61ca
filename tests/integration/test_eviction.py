"""Pods that take too much of the node, on a whole agent (docs/behaviour/eviction.md)."""

from __future__ import annotations

from pathlib import Path

import pytest
from anyio import to_thread
from cluster_ring import cluster_ring

from nodeagent.api import EmptyDirVolumeSource, Quantity, Volume, VolumeMount
from nodeagent.testing import make_container, make_pod

pytestmark = pytest.mark.anyio

MIB = 2**20


async def test_el1_el2_el6_a_pod_that_fills_its_directory_is_evicted(tmp_path: Path) -> None:
    limit = EmptyDirVolumeSource(size_limit=Quantity("1Mi"))
    mounted = make_container(volume_mounts=(VolumeMount(name="v", mount_path="/v"),))
    volumes = (Volume(name="v", empty_dir=limit),)
    async with cluster_ring(tmp_path) as node:
        for name in ("big", "small"):
            node.store.create(make_pod(name, mounted, volumes=volumes, node_name="node1"))
            await node.api_running(name)
        uid = node.store.get("pods", "big")["metadata"]["uid"]
        place = tmp_path / "root/pods" / uid / "volumes/kubernetes.io~empty-dir/v/file"
        await to_thread.run_sync(place.write_bytes, b"x" * (2 * MIB))
        await node.until(lambda: node.api_phase("big") == "Failed")
        status = node.store.get("pods", "big")["status"]
        text = 'Usage of EmptyDir volume "v" exceeds the limit "1Mi". '
        assert (status["reason"], status["message"]) == ("Evicted", text)
        assert "DisruptionTarget" not in {c["type"] for c in status["conditions"]}
        assert node.api_phase("small") == "Running"
        found = [e for e in node.store.all("events") if e["reason"] == "Evicted"]
        assert [(e["type"], e["message"]) for e in found] == [("Warning", text)]
