"""What containers of containerd use: the summary, and the metrics that are made of it.

docs/behaviour/stats.md.
"""

import json
import math
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.e2e.lab.agent import Agent, full_name
from tests.e2e.lab.containerd_lab import Lab
from tests.e2e.lab.manifests import Json, container, pod, then_wait
from tests.e2e.lab.waiting import until

pytestmark = [pytest.mark.realtime, pytest.mark.timeout(240)]

MIB = 1 << 20
#: Holds memory, keeps a processor busy now and then, writes to its layer and to its log.
WORK = then_wait(
    "dd if=/dev/zero of=/written bs=1M count=3 2>/dev/null; echo a line in the log;"
    " (while true; do i=0; while [ $i -lt 2000 ]; do i=$((i+1)); done; sleep 0.1; done) &"
)
LIMITS = {"limits": {"cpu": "500m", "memory": "64Mi"}}


def summary(agent: Agent, query: str = "") -> Json:
    found: Json = json.loads(agent.ask(f"/stats/summary{query}"))
    return found


def pod_of(found: Json, name: str) -> Json | None:
    return next((it for it in found["pods"] if it["podRef"]["name"] == full_name(name)), None)


def samples(text: str) -> dict[str, list[tuple[dict[str, str], float]]]:
    """What the library's own parser makes of it."""
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


def working(agent: Agent) -> Json:
    """A pod that works, once there are two readings of it."""
    agent.put("busy", pod("busy", container(command=WORK, resources=LIMITS)))
    agent.wait_pod("busy")

    def measured() -> Any:
        found = pod_of(summary(agent), "busy")
        main = found["containers"][0] if found is not None else {}
        rates = main.get("cpu", {}).get("usageNanoCores", 0) > 0
        return found if rates and main.get("rootfs", {}).get("usedBytes", 0) >= 3 * MIB else None

    found: Json = until("figures of the pod that works", measured)
    return found


def test_the_summary_of_a_pod(lab: Lab, agent: Agent) -> None:
    found = working(agent)
    (main,) = found["containers"]
    assert main["name"] == "main"
    assert main["cpu"]["usageCoreNanoSeconds"] > 0
    assert main["cpu"]["usageNanoCores"] < 2 * 10**9
    memory = main["memory"]
    assert 0 < memory["workingSetBytes"] <= memory["usageBytes"] <= 64 * MIB
    assert memory["availableBytes"] == 64 * MIB - memory["workingSetBytes"]
    assert memory["pageFaults"] > 0
    assert main["rootfs"]["usedBytes"] < main["rootfs"]["capacityBytes"]
    assert main["rootfs"]["inodesUsed"] > 0
    assert main["logs"]["usedBytes"] >= len("a line in the log")
    assert found["process_stats"]["process_count"] >= 3, "a shell, another one, and the sandbox's"
    assert found["cpu"]["usageCoreNanoSeconds"] >= main["cpu"]["usageCoreNanoSeconds"]
    assert found["network"]["name"] == "eth0"
    assert "rxBytes" in found["network"]
    ephemeral = found["ephemeral-storage"]["usedBytes"]
    assert ephemeral == main["rootfs"]["usedBytes"] + main["logs"]["usedBytes"]


def test_the_summary_of_the_node(agent: Agent) -> None:
    working(agent)
    node = summary(agent)["node"]
    assert node["memory"]["workingSetBytes"] > 64 * MIB
    assert node["fs"]["capacityBytes"] > node["fs"]["usedBytes"] > 0
    assert node["runtime"]["imageFs"]["usedBytes"] > 0
    assert node["rlimit"]["curproc"] > 1
    assert node["network"]["interfaces"]
    system = {one["name"]: one for one in node["systemContainers"]}
    assert set(system) == {"kubelet", "runtime", "pods"}
    for one in system.values():
        assert one["memory"]["workingSetBytes"] > 0
        assert one["cpu"]["usageCoreNanoSeconds"] > 0
    brief = summary(agent, "?only_cpu_and_memory=true")
    assert set(brief["node"]) == {"nodeName", "systemContainers", "startTime", "cpu", "memory"}


def test_a_pod_on_the_hosts_network_has_none_of_its_own(agent: Agent) -> None:
    agent.put("host", pod("host", hostNetwork=True))
    agent.wait_pod("host")
    found: Json = until("its figures", lambda: pod_of(summary(agent), "host"))
    assert "network" not in found


def test_metrics_of_resources_and_of_containers(agent: Agent) -> None:
    working(agent)
    own = {"container": "main", "namespace": "default", "pod": full_name("busy")}
    resource = samples(agent.ask("/metrics/resource"))
    for name in ("container_cpu_usage_seconds_total", "container_memory_working_set_bytes"):
        ((_, value),) = [it for it in resource[name] if it[0] == own]
        assert value > 0, name
    assert resource["resource_scrape_error"] == [({}, 0.0)]
    told = samples(agent.ask("/metrics/cadvisor"))
    for name, least in (
        ("container_cpu_usage_seconds_total", 0.0),
        ("container_memory_rss", 1.0),
        ("container_fs_usage_bytes", 3.0 * MIB),
        ("container_spec_memory_limit_bytes", 64.0 * MIB),
        ("container_spec_cpu_quota", 50_000.0),
        ("container_processes", 2.0),
    ):
        found = [value for named, value in told[name] if own.items() <= named.items()]
        assert len(found) == 1, name
        assert found[0] >= least, name
    received = [
        named
        for named, _ in told["container_network_receive_bytes_total"]
        if named["pod"] == full_name("busy")
    ]
    assert [named["interface"] for named in received] == ["eth0"]


def test_every_endpoint_of_metrics_is_read_by_prometheuss_parser(agent: Agent) -> None:
    agent.healthz()
    for path in ("", "/resource", "/cadvisor", "/probes", "/slis"):
        told = samples(agent.ask(f"/metrics{path}"))
        assert told, path
        assert all(not math.isnan(value) for found in told.values() for _, value in found), path


def test_what_is_gone_is_not_shown(agent: Agent) -> None:
    working(agent)
    agent.remove("busy")
    agent.wait_gone("busy")
    until("no figures", lambda: pod_of(summary(agent), "busy") is None)
