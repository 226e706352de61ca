"""CPU, memory and OOM settings (docs/behaviour/runtime.md, "Linux resources")."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.unit.runtime.fakes import make_container, make_pod, make_settings

from nodeagent.api import Container, Pod, Quantity, ResourceRequirements
from nodeagent.proto.runtime import v1
from nodeagent.runtime.errors import ContainerStartError, Waiting
from nodeagent.runtime.linux_resources import (
    container_resources,
    cpu_quota,
    cpu_shares,
    oom_score_adj,
    sandbox_resources,
)
from nodeagent.runtime.qos import QOSClass, compute_qos
from nodeagent.runtime.settings import HostFacts, detect_host

Amounts = dict[str, str]
CAPACITY = 8_000_000_000


def needs(requests: Amounts | None = None, limits: Amounts | None = None) -> ResourceRequirements:
    return ResourceRequirements(
        requests={k: Quantity(v) for k, v in (requests or {}).items()},
        limits={k: Quantity(v) for k, v in (limits or {}).items()},
    )


def container(
    requests: Amounts | None = None, limits: Amounts | None = None, name: str = "web"
) -> Container:
    return make_container(name, resources=needs(requests, limits))


@pytest.mark.parametrize(
    ("milli", "shares"),
    [(0, 2), (1, 2), (2, 2), (10, 10), (100, 102), (1000, 1024), (1500, 1536), (10**9, 262144)],
)
def test_shares_are_proportional_within_bounds(milli: int, shares: int) -> None:
    assert cpu_shares(milli) == shares


@pytest.mark.parametrize(
    ("milli", "period", "quota"),
    [
        (0, 100_000, 0),
        (1, 100_000, 1000),
        (10, 100_000, 1000),
        (11, 100_000, 1100),
        (100, 100_000, 10_000),
        (1500, 100_000, 150_000),
        (1000, 5_000, 5_000),
        (2**63 * 1000, 100_000, 2**63 - 1),
    ],
)
def test_quota_is_a_share_of_the_period(milli: int, period: int, quota: int) -> None:
    assert cpu_quota(milli, period) == quota


@pytest.mark.parametrize(
    ("requests", "limits", "shares", "quota", "memory"),
    [
        ({}, {}, 2, 0, 0),
        ({"cpu": "250m"}, {}, 256, 0, 0),
        ({}, {"cpu": "1"}, 1024, 100_000, 0),
        ({"cpu": "0"}, {"cpu": "1"}, 2, 100_000, 0),
        ({"cpu": "100m"}, {"cpu": "2", "memory": "64Mi"}, 102, 200_000, 64 * 1024**2),
        ({"memory": "1Gi"}, {}, 2, 0, 0),
    ],
)
def test_requests_and_limits_become_runtime_resources(
    requests: Amounts, limits: Amounts, shares: int, quota: int, memory: int
) -> None:
    one = container(requests, limits)
    found = container_resources(make_pod(one), one, make_settings(Path("/x")), HostFacts())
    assert found.cpu_shares == shares
    assert found.cpu_period == 100_000
    assert found.cpu_quota == quota
    assert found.memory_limit_in_bytes == memory


def test_without_cfs_quota_neither_period_nor_quota_is_set() -> None:
    import dataclasses

    settings = dataclasses.replace(make_settings(Path("/x")), cpu_cfs_quota=False)
    one = container({}, {"cpu": "1"})
    found = container_resources(make_pod(one), one, settings, HostFacts())
    assert (found.cpu_period, found.cpu_quota, found.cpu_shares) == (0, 0, 1024)


@pytest.mark.parametrize(
    ("host", "unified", "swap"),
    [
        (
            HostFacts(cgroup_v2=True, swap_accounting=True),
            {"memory.oom.group": "1", "memory.swap.max": "0"},
            0,
        ),
        (HostFacts(cgroup_v2=True), {"memory.oom.group": "1"}, 0),
        (HostFacts(cgroup_v2=False, swap_accounting=True), {}, 1024),
        (HostFacts(cgroup_v2=False), {}, 0),
    ],
)
def test_containers_do_not_swap_where_the_host_can_say_so(
    host: HostFacts, unified: dict[str, str], swap: int
) -> None:
    one = container({}, {"memory": "1Ki"})
    found = container_resources(make_pod(one), one, make_settings(Path("/x")), host)
    assert found.unified == unified
    assert found.memory_swap_limit_in_bytes == swap


def test_a_process_may_be_killed_alone() -> None:
    one = container({}, {"memory": "1Ki"})
    settings = dataclasses.replace(make_settings(Path("/x")), single_process_oom_kill=True)
    found = container_resources(make_pod(one), one, settings, HostFacts())
    assert found.unified == {}
    assert sandbox_resources(make_pod(one), settings, HostFacts()).unified == {}
    settings = dataclasses.replace(settings, single_process_oom_kill=False)
    found = container_resources(make_pod(one), one, settings, HostFacts())
    assert found.unified == {"memory.oom.group": "1"}


@pytest.mark.parametrize(
    ("one", "spec", "swap"),
    [
        (container({"memory": "2Gi"}), {}, 512 * 1024**2),
        (container({"memory": "2Gi"}, {"memory": "3Gi"}), {}, 512 * 1024**2),
        (container({"memory": "2Gi"}, {"memory": "2Gi"}), {}, 0),
        (container({"cpu": "1"}), {}, 0),
        (container(), {}, 0),
        (container({"memory": "2Gi"}), {"priority": 2_000_000_000}, 0),
    ],
    ids=["request", "less-than-limit", "limit", "no-memory", "best-effort", "critical"],
)
def test_swap_is_shared_out_by_what_containers_request(
    one: Container, spec: dict[str, Any], swap: int
) -> None:
    gib = 1024**3
    host = HostFacts(memory_capacity=8 * gib, swap_capacity=2 * gib, swap_accounting=True)
    settings = dataclasses.replace(make_settings(Path("/x")), limited_swap=True)
    found = container_resources(make_pod(one, **spec), one, settings, host)
    assert found.unified["memory.swap.max"] == str(swap)
    old = dataclasses.replace(host, cgroup_v2=False)
    found = container_resources(make_pod(one, **spec), one, settings, old)
    assert found.memory_swap_limit_in_bytes == found.memory_limit_in_bytes


def test_the_period_of_cpu_limits_can_be_set() -> None:
    one = container({}, {"cpu": "500m"})
    settings = dataclasses.replace(make_settings(Path("/x")), cpu_cfs_period=20_000)
    found = container_resources(make_pod(one), one, settings, HostFacts())
    assert (found.cpu_period, found.cpu_quota) == (20_000, 10_000)


def test_every_huge_page_size_of_the_host_has_a_limit() -> None:
    host = HostFacts(hugepage_sizes=(2 * 1024**2, 1024**3))
    one = container({}, {"hugepages-2Mi": "4Mi"})
    found = container_resources(make_pod(one), one, make_settings(Path("/x")), host)
    assert found.hugepage_limits == [
        v1.HugepageLimit(page_size="2MB", limit=4 * 1024**2),
        v1.HugepageLimit(page_size="1GB", limit=0),
    ]


BOTH = {"cpu": "1", "memory": "1Gi"}


def test_huge_pages_that_the_host_does_not_have_are_refused() -> None:
    web = container(limits={"hugepages-1Gi": "2Gi", "memory": "1Gi"})
    host = HostFacts(hugepage_sizes=(2 * 1024**2,))
    with pytest.raises(ContainerStartError, match=r"no huge pages of 1GB \(.*has: 2MB\)") as caught:
        container_resources(make_pod(web), web, make_settings(Path("/x")), host)
    assert caught.value.reason is Waiting.CONFIG
    none = container(limits={"hugepages-1Gi": "0"})
    assert container_resources(make_pod(none), none, make_settings(Path("/x")), host)


def test_a_container_without_a_limit_has_that_of_its_pod() -> None:
    level = needs({"cpu": "1"}, {"cpu": "2", "memory": "1Gi", "ephemeral-storage": "1Gi"})
    own, none = container(limits={"memory": "1Mi"}), container(name="none")
    pod = make_pod(own, none, resources=level)
    settings, host = make_settings(Path("/x")), HostFacts()
    found = [container_resources(pod, c, settings, host) for c in (own, none)]
    assert [r.memory_limit_in_bytes for r in found] == [1024**2, 1024**3]
    assert {(r.cpu_quota, r.cpu_shares) for r in found} == {(200_000, 2048)}


def test_the_sandbox_has_the_amounts_of_the_pod_where_it_has_its_own() -> None:
    level = needs({"cpu": "1"}, {"memory": "1Gi"})
    web = container({"cpu": "100m"}, {"cpu": "3", "memory": "1Mi"})
    found = sandbox_resources(
        make_pod(web, resources=level), make_settings(Path("/x")), HostFacts()
    )
    assert (found.cpu_shares, found.cpu_quota) == (1024, 300_000)
    assert found.memory_limit_in_bytes == 1024**3


@pytest.mark.parametrize(
    ("containers", "expected"),
    [
        ([container()], QOSClass.BEST_EFFORT),
        ([container({"cpu": "0"}, {"memory": "0"})], QOSClass.BEST_EFFORT),
        ([container({"ephemeral-storage": "1Gi"})], QOSClass.BEST_EFFORT),
        ([container({"cpu": "1"})], QOSClass.BURSTABLE),
        ([container(BOTH, BOTH)], QOSClass.GUARANTEED),
        ([container(BOTH, BOTH), container(name="b")], QOSClass.BURSTABLE),
        ([container(BOTH, {**BOTH, "cpu": "2"})], QOSClass.BURSTABLE),
        ([container({}, BOTH)], QOSClass.BURSTABLE),
        ([container({"cpu": "1"}, {"cpu": "1"})], QOSClass.BURSTABLE),
        ([container(BOTH, BOTH), container(BOTH, BOTH, "b")], QOSClass.GUARANTEED),
    ],
)
def test_cpu_and_memory_decide_the_class(containers: list[Container], expected: QOSClass) -> None:
    """docs/behaviour/runtime.md, "Quality of service"."""
    assert compute_qos(make_pod(*containers)) is expected


def test_pod_level_amounts_replace_those_of_the_containers() -> None:
    pod = make_pod(container(), resources=needs(BOTH, BOTH))
    assert compute_qos(pod) is QOSClass.GUARANTEED


def test_init_containers_count_for_the_class() -> None:
    pod = make_pod(container(BOTH, BOTH), init_containers=(container(name="init"),))
    assert compute_qos(pod) is QOSClass.BURSTABLE


def test_the_class_that_the_api_gave_wins_and_nonsense_does_not() -> None:
    pod = make_pod(container())
    for given, expected in (("Burstable", QOSClass.BURSTABLE), ("x", QOSClass.BEST_EFFORT)):
        status = msgspec.structs.replace(pod.status, qos_class=given)
        assert compute_qos(msgspec.structs.replace(pod, status=status)) is expected


@pytest.mark.parametrize(
    ("requests", "expected"),
    [
        ({"memory": "4000000000"}, 500),
        ({"memory": "7999999999"}, 3),
        ({"memory": "9000000000"}, 3),
        ({"memory": "1"}, 999),
        ({"cpu": "1"}, 999),
    ],
)
def test_a_burstable_container_scores_by_its_memory_request(
    requests: Amounts, expected: int
) -> None:
    one = container(requests)
    assert oom_score_adj(make_pod(one), one, CAPACITY) == pytest.approx(expected, abs=1)


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        (make_pod(container(BOTH, BOTH)), -997),
        (make_pod(container()), 1000),
        (make_pod(container(), priority=2_000_000_000), 1000),
        (
            make_pod(
                container(), priority_class_name="system-node-critical", priority=2_000_001_000
            ),
            -997,
        ),
        (make_pod(container(), priority_class_name="system-node-critical"), 1000),
    ],
)
def test_the_class_and_the_priority_decide_first(pod: Pod, expected: int) -> None:
    assert oom_score_adj(pod, pod.spec.containers[0], CAPACITY) == expected


def test_a_sidecar_scores_no_higher_than_the_smallest_regular_container() -> None:
    small, sidecar = container({"memory": "4000000000"}), container(name="side")
    sidecar = msgspec.structs.replace(sidecar, restart_policy="Always")
    pod = make_pod(small, init_containers=(sidecar,))
    assert oom_score_adj(pod, sidecar, CAPACITY) == oom_score_adj(pod, small, CAPACITY)


def test_a_pod_level_request_is_shared_out() -> None:
    one, two = container({"memory": "1000000000"}), container(name="b")
    pod = make_pod(one, two, resources=needs({"memory": "3000000000"}))
    assert oom_score_adj(pod, two, CAPACITY) == 875
    plain = (container(name="i1"), container(name="i2"))
    with_init = make_pod(one, two, init_containers=plain, resources=pod.spec.resources)
    # (3e9 - 1e9) / 4 for each of the four
    assert oom_score_adj(with_init, two, CAPACITY) == 938


def test_the_host_is_read_from_proc_and_sys(tmp_path: Path) -> None:
    cgroup = tmp_path / "sys/fs/cgroup"
    (cgroup / "system.slice").mkdir(parents=True)
    (cgroup / "cgroup.controllers").write_text("cpu memory")
    (cgroup / "system.slice/memory.swap.max").write_text("max")
    (tmp_path / "sys/kernel/mm/hugepages/hugepages-2048kB").mkdir(parents=True)
    (tmp_path / "sys/devices/system/cpu/cpu0/thermal_throttle").mkdir(parents=True)
    (tmp_path / "sys/module/apparmor/parameters").mkdir(parents=True)
    (tmp_path / "sys/module/apparmor/parameters/enabled").write_text("Y\n")
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text("MemTotal:  1024 kB\nMemFree: 1 kB\nSwapTotal: 2 kB\n")
    found = detect_host(tmp_path, tmp_path)
    assert found.cpus >= 1
    assert found.storage_capacity > 0
    assert found.kernel >= (3, 0)
    found = dataclasses.replace(found, cpus=1, storage_capacity=0, kernel=HostFacts().kernel)
    assert found == HostFacts(
        memory_capacity=1024**2,
        swap_capacity=2048,
        cgroup_v2=True,
        swap_accounting=True,
        hugepage_sizes=(2 * 1024**2,),
        thermal_throttle=("/sys/devices/system/cpu/cpu0/thermal_throttle",),
        app_armor=True,
    )


def test_a_host_that_says_nothing_has_cautious_facts(tmp_path: Path) -> None:
    facts = detect_host(tmp_path)
    assert not facts.cgroup_v2
    assert not facts.swap_accounting
    assert not facts.app_armor
    assert facts.memory_capacity > 0
