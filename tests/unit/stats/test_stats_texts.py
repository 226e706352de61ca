"""The summary and the metrics that are made of a collection (docs/behaviour/stats.md)."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families
from tests.unit.stats.stats_lab import (
    MIB,
    SANDBOX,
    STARTED,
    WEB,
    SaidRuntime,
    collecting,
    sandbox_stats,
)

from nodeagent.model import PodUID
from nodeagent.stats.container_metrics import FAMILIES as CONTAINER_FAMILIES
from nodeagent.stats.container_metrics import container_metrics
from nodeagent.stats.exposition import Exposition, labels
from nodeagent.stats.records import Fs, NodeFigures, Snapshot, VolumeFigures
from nodeagent.stats.resource_metrics import FAMILIES as RESOURCE_FAMILIES
from nodeagent.stats.resource_metrics import resource_metrics
from nodeagent.stats.summary import encode_summary, summary

pytestmark = pytest.mark.anyio


async def volumes(_uid: PodUID) -> Sequence[VolumeFigures]:
    room = Fs(time=STARTED, used=5, capacity=100, available=95, inodes=9, inodes_free=8)
    return [
        VolumeFigures(name="scratch", fs=room, local=True),
        VolumeFigures(name="data", fs=room, claim=("default", "claim-1"), abnormal=True),
    ]


@pytest.fixture
def found(tmp_path: Path) -> Snapshot:
    async def collect() -> Snapshot:
        async with collecting(tmp_path, volumes=volumes) as bench:
            return await bench.collector.snapshot()

    return anyio.run(collect)


Parsed = dict[str, list[tuple[dict[str, str], float, float | None]]]


def parsed(text: bytes) -> Parsed:
    """What the library's own parser makes of a text."""
    found: Parsed = {}
    for family in text_string_to_metric_families(text.decode()):
        for sample in family.samples:
            stamp = None if sample.timestamp is None else float(sample.timestamp)
            found.setdefault(sample.name, []).append((sample.labels, sample.value, stamp))
    return found


def shape(value: Any) -> Any:
    """The names of an object and of what is in it."""
    if isinstance(value, dict):
        return {name: shape(inner) for name, inner in value.items()}
    return [shape(inner) for inner in value[:1]] if isinstance(value, list) else None


PRESSURE = {kind: dict.fromkeys(("total", "avg10", "avg60", "avg300")) for kind in ("full", "some")}
CPU = {"time": None, "usageCoreNanoSeconds": None, "psi": PRESSURE}
SWAP = dict.fromkeys(("time", "swapAvailableBytes", "swapUsageBytes"))
IO = {"time": None, "psi": PRESSURE}
ROOM = ("time", "availableBytes", "capacityBytes", "usedBytes", "inodesFree", "inodes")
FS = dict.fromkeys((*ROOM, "inodesUsed"))
INTERFACE = dict.fromkeys(("name", "rxBytes", "rxErrors", "txBytes", "txErrors"))
NETWORK = {"time": None, **INTERFACE, "interfaces": [INTERFACE]}
LEVELS = ("time", "availableBytes", "usageBytes", "workingSetBytes", "rssBytes")
MEMORY = {**dict.fromkeys((*LEVELS, "pageFaults", "majorPageFaults")), "psi": PRESSURE}


def without(names: dict[str, Any], *gone: str) -> dict[str, Any]:
    return {name: inner for name, inner in names.items() if name not in gone}


def test_sj1_the_summary_has_the_kubelets_names(found: Snapshot) -> None:
    shown = json.loads(encode_summary(found))
    assert shape(shown["pods"]) == [
        {
            "podRef": dict.fromkeys(("name", "namespace", "uid")),
            "startTime": None,
            "containers": [
                {
                    **dict.fromkeys(("name", "startTime")),
                    "cpu": CPU,
                    "memory": MEMORY,
                    "io": IO,
                    "rootfs": FS,
                    "logs": FS,
                    "swap": SWAP,
                }
            ],
            "cpu": without(CPU, "psi"),
            "memory": without(MEMORY, "psi"),
            "network": NETWORK,
            "volume": [{**dict.fromkeys(ROOM), "name": None}],
            "ephemeral-storage": FS,
            "process_stats": {"process_count": None},
            "swap": SWAP,
        }
    ]
    node = shown["node"]
    assert shape(without(node, "systemContainers", "memory")) == {
        **dict.fromkeys(("nodeName", "startTime")),
        "cpu": CPU,
        "io": IO,
        "network": NETWORK,
        "fs": FS,
        "swap": SWAP,
        "runtime": {"imageFs": FS, "containerFs": FS},
        "rlimit": dict.fromkeys(("time", "maxpid", "curproc")),
    }
    assert [one["name"] for one in node["systemContainers"]] == ["kubelet", "pods"]
    assert shown["pods"][0]["volume"][1]["pvcRef"] == {"namespace": "default", "name": "claim-1"}
    assert shown["pods"][0]["volume"][1]["volumeHealthStats"] == {"abnormal": True}
    assert shown["pods"][0]["startTime"] == "2023-11-14T22:13:20Z"


def test_sj1_what_nobody_knows_is_left_out() -> None:
    nothing = Snapshot(time=1, node=NodeFigures(name="node1"))
    assert summary(nothing) == {
        "node": {
            "nodeName": "node1",
            "systemContainers": [],
            "startTime": "1970-01-01T00:00:00Z",
            "runtime": {},
            "rlimit": {"time": "1970-01-01T00:00:00Z"},
        },
        "pods": [],
    }


def test_sj2_processor_and_memory_only(found: Snapshot) -> None:
    shown = json.loads(encode_summary(found, only_cpu_and_memory=True))
    assert set(shown["node"]) == {"nodeName", "systemContainers", "startTime", "cpu", "memory"}
    assert set(shown["pods"][0]) == {"podRef", "startTime", "containers", "cpu", "memory"}
    assert set(shown["pods"][0]["containers"][0]) == {"name", "startTime", "cpu", "memory"}


def test_sj3_pressure(found: Snapshot) -> None:
    psi = summary(found)["pods"][0]["containers"][0]["memory"]["psi"]
    assert psi == {
        "full": {"total": 500_000, "avg10": 0.0, "avg60": 0.0, "avg300": 0.0},
        "some": {"total": 2_000_000, "avg10": 1.5, "avg60": 0.5, "avg300": 0.1},
    }


def test_sj4_the_network_of_a_pod(found: Snapshot) -> None:
    network = summary(found)["pods"][0]["network"]
    assert (network["name"], network["rxBytes"], network["txErrors"]) == ("eth0", 1000, 3)
    assert [one["name"] for one in network["interfaces"]] == ["eth0", "eth1"]


def test_sk1_resource_metrics(found: Snapshot) -> None:
    told = parsed(resource_metrics(found))
    assert set(told) == {name for name, _, _ in RESOURCE_FAMILIES}
    own = {"namespace": "default", "pod": "web"}
    whole = {"container": "main", **own}
    stamp = found.time // 10**6 / 1000
    stamps = {at for samples in told.values() for _, _, at in samples if at is not None}
    assert all(at == pytest.approx(stamp) for at in stamps)
    told = {name: [(o, v, a and stamp) for o, v, a in samples] for name, samples in told.items()}
    assert told["container_cpu_usage_seconds_total"] == [(whole, 3.0, stamp)]
    assert told["container_memory_working_set_bytes"] == [(whole, 80.0 * MIB, stamp)]
    assert told["container_swap_limit_bytes"][0][1] == 50 * MIB
    assert told["container_start_time_seconds"] == [(whole, STARTED / 10**9, None)]
    assert told["pod_cpu_usage_seconds_total"] == [(own, 6.0, stamp)]
    assert told["node_cpu_usage_seconds_total"][0][0] == {}
    assert told["resource_scrape_error"] == [({}, 0.0, None)]


def test_sk1_the_stamp_of_a_sample_is_in_whole_milliseconds(found: Snapshot) -> None:
    lines = [line for line in resource_metrics(found).decode().splitlines() if line[0] != "#"]
    stamped = [line for line in lines if re.search(r" [0-9.e+]+ [0-9]{13}$", line)]
    assert len(stamped) == len(lines) - 2, "all but the start time and the error"


def test_sk2_what_is_not_known_has_no_sample() -> None:
    nothing = Snapshot(time=1, node=NodeFigures(name="node1"))
    assert set(parsed(resource_metrics(nothing))) == {"resource_scrape_error"}


def test_sc6_a_failed_collection_is_told_by_one_sample() -> None:
    assert parsed(resource_metrics(None)) == {"resource_scrape_error": [({}, 1.0, None)]}
    assert parsed(container_metrics(None, {})) == {"machine_scrape_error": [({}, 1.0, None)]}


async def test_sn1_every_container_metric_is_served(tmp_path: Path) -> None:
    async with collecting(tmp_path) as bench:
        told = parsed(container_metrics(await bench.collector.snapshot(), {"kernelVersion": "6"}))
    # The parser gives every counter the ending that one of the names does not have.
    counters = {name for name, kind, _ in CONTAINER_FAMILIES if kind == "counter"}
    gauges = {name for name, kind, _ in CONTAINER_FAMILIES if kind == "gauge"}
    assert set(told) == gauges | {f"{name.removesuffix('_total')}_total" for name in counters}
    for name, samples in told.items():
        for own, _, _ in samples:
            if name.startswith("container_"):
                assert {"container", "id", "image", "name", "namespace", "pod"} <= set(own), name


def of_container(told: Parsed, name: str) -> list[tuple[dict[str, str], float]]:
    return [(own, value) for own, value, _ in told[name] if own["container"] == "main"]


def test_sn1_the_labels_of_a_container(found: Snapshot) -> None:
    told = parsed(container_metrics(found, {}))
    whole = {
        "container": "main",
        "id": f"/kubepods/pod1/{WEB}",
        "image": "registry/web:1",
        "name": WEB,
        "namespace": "default",
        "pod": "web",
    }
    assert of_container(told, "container_memory_rss") == [(whole, 60 * MIB)]
    assert of_container(told, "container_cpu_usage_seconds_total") == [
        ({**whole, "cpu": "total"}, 3.0)
    ]
    assert of_container(told, "container_spec_cpu_quota") == [(whole, 50_000)]
    assert of_container(told, "container_fs_reads_total") == [({**whole, "device": "/dev/sda"}, 5)]
    stalled = of_container(told, "container_pressure_io_stalled_seconds_total")
    assert stalled == [(whole, 0.5)]
    used = of_container(told, "container_blkio_device_usage_total")
    assert [value for own, value in used if own["operation"] == "Read"] == [50]


def test_sn2_a_whole_pod_and_its_network(found: Snapshot) -> None:
    told = parsed(container_metrics(found, {}))
    own = {"container": "", "image": "", "namespace": "default", "pod": "web"}
    own["id"] = f"/kubepods/pod1/{SANDBOX}"
    rss = [s[:2] for s in told["container_memory_rss"] if s[0]["pod"] and not s[0]["container"]]
    assert rss == [({**own, "name": ""}, 120 * MIB)]
    received = [s[:2] for s in told["container_network_receive_bytes_total"] if s[0]["pod"]]
    network = {**own, "name": SANDBOX}
    assert received == [
        ({**network, "interface": "eth0"}, 1000),
        ({**network, "interface": "eth1"}, 5),
    ]


def test_sn3_the_machine(found: Snapshot) -> None:
    told = parsed(container_metrics(found, {}))
    roots = [own for own, _, _ in told["container_cpu_usage_seconds_total"] if own["id"] == "/"]
    named = dict.fromkeys(("container", "image", "name", "namespace", "pod"), "")
    assert roots == [{**named, "id": "/", "cpu": "total"}]
    assert told["machine_memory_bytes"][0][1] == 1_000_000 * 1024
    assert told["machine_cpu_physical_cores"][0][1] == 2


async def test_sn4_without_a_cgroup(tmp_path: Path) -> None:
    machine = tmp_path / "machine"
    (machine / "proc").mkdir(parents=True)
    runtime = SaidRuntime(sandboxes=[sandbox_stats(SaidRuntime().containers)])
    async with collecting(tmp_path, runtime) as bench:
        told = parsed(container_metrics(await bench.collector.snapshot(), {}))
    ids = [own["id"] for own, _, _ in told["container_memory_working_set_bytes"]]
    assert ids == ["/kubepods/poduid-1", f"/kubepods/poduid-1/{WEB}"]


texts_ = st.text(st.characters(codec="utf-8"), max_size=12)


@given(st.dictionaries(st.sampled_from(["a", "b", "c"]), texts_), st.floats(allow_nan=False))
def test_any_label_is_read_as_it_was_written(values: dict[str, str], value: float) -> None:
    text = Exposition()
    text.family("some_metric", "gauge", "Some metric")
    text.add("some_metric", value, labels(values))
    # The library splits lines at every separator of Unicode; the format knows line feeds only.
    if not any(len(v.splitlines()) > 1 or v.splitlines() != [v] for v in values.values() if v):
        ((own, read, stamp),) = parsed(text.text())["some_metric"]
        assert (own, read, stamp) == (values, value, None)
