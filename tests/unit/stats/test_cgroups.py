"""Cgroups: where those of containers are, and what their files say (docs/behaviour/stats.md)."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.stats.stats_lab import MIB, NOW, SANDBOX, V1, V2, WEB, add_cgroup, make_machine

from nodeagent.stats import texts
from nodeagent.stats.cgroup_tree import Cgroups, read
from nodeagent.stats.cgroup_usage import FILES_V1, FILES_V2, usage_v1, usage_v2
from nodeagent.stats.reading import own_cgroup
from nodeagent.stats.records import DeviceIo, Limits, Pressure, Psi


@pytest.mark.parametrize(
    "name", [WEB, f"cri-containerd-{WEB}.scope", f"crio-{WEB}.scope", f"crio-{WEB}"]
)
@pytest.mark.parametrize("version", [1, 2])
def test_sg1_a_cgroup_is_found_by_the_id_in_its_name(
    tmp_path: Path, name: str, version: int
) -> None:
    make_machine(tmp_path, version)
    for base in (tmp_path / "sys/fs/cgroup", tmp_path / "sys/fs/cgroup/memory"):
        for found in (base / "kubepods/pod1").glob("3e*"):
            found.rename(found.with_name("moved"))
    add_cgroup(tmp_path, f"a.slice/b.slice/{name}", version)
    cgroups = Cgroups(tmp_path)
    assert cgroups.version == version
    assert cgroups.find([WEB])[WEB] == f"/a.slice/b.slice/{name}"


def test_sg1_its_place_is_remembered_until_nobody_asks(tmp_path: Path) -> None:
    make_machine(tmp_path)
    cgroups = Cgroups(tmp_path)
    place = f"/kubepods/pod1/{WEB}"
    assert cgroups.find([WEB]) == {WEB: place}
    (tmp_path / f"sys/fs/cgroup{place}").rename(tmp_path / "elsewhere")
    assert cgroups.find([WEB]) == {WEB: place}
    assert cgroups.find([]) == {}
    assert cgroups.find([WEB]) == {}


def test_sg2_one_that_was_not_there_is_looked_for_when_another_comes(tmp_path: Path) -> None:
    make_machine(tmp_path)
    late, other = "ab" * 32, "cd" * 32
    cgroups = Cgroups(tmp_path)
    assert cgroups.find([late]) == {}
    add_cgroup(tmp_path, f"kubepods/{late}", 2)
    assert cgroups.find([late]) == {}, "it is not searched for each time"
    assert cgroups.find([late, other]) == {late: f"/kubepods/{late}"}


def test_sg2_and_from_time_to_time(tmp_path: Path) -> None:
    make_machine(tmp_path)
    late = "ab" * 32
    cgroups = Cgroups(tmp_path)
    assert cgroups.find([late]) == {}
    add_cgroup(tmp_path, f"kubepods/{late}", 2)
    found = [bool(cgroups.find([late])) for _ in range(100)]
    assert found == sorted(found)
    assert found[-1]


def flat_v1() -> dict[str, str]:
    return {name: text for texts_ in V1.values() for name, text in texts_.items()}


def test_sg3_cgroup_v1(tmp_path: Path) -> None:
    make_machine(tmp_path, 1)
    cgroups = Cgroups(tmp_path)
    used = cgroups.usage(cgroups.find([WEB])[WEB], NOW)
    assert used == usage_v1(flat_v1(), NOW)
    assert used.cpu is not None
    assert used.memory is not None
    assert used.swap is not None
    assert used.io is not None
    assert (used.cpu.usage, used.cpu.user, used.cpu.system) == (3 * 10**9, 2 * 10**9, 10**9)
    assert (used.cpu.periods, used.cpu.throttled_periods, used.cpu.throttled) == (10, 4, 7 * 10**8)
    memory = used.memory
    assert (memory.usage, memory.working_set, memory.rss) == (100 * MIB, 80 * MIB, 60 * MIB)
    assert (memory.available, memory.max_usage, memory.failures) == (120 * MIB, 150 * MIB, 3)
    assert (memory.page_faults, memory.major_page_faults, memory.oom_kills) == (900, 7, 2)
    assert (used.swap.usage, used.swap.available) == (10 * MIB, 40 * MIB)
    assert used.io.devices == (DeviceIo("8:0", 5, 6, 50, 60),)
    assert (used.processes, used.tasks) == (2, 9)
    assert used.limits == Limits(
        cpu_period=100000, cpu_quota=50000, cpu_shares=512, memory=200 * MIB, swap=250 * MIB
    )


def test_sg4_cgroup_v2_has_the_same_figures_and_pressure(tmp_path: Path) -> None:
    make_machine(tmp_path)
    cgroups = Cgroups(tmp_path)
    used = cgroups.usage(cgroups.find([WEB])[WEB], NOW)
    old = usage_v1(flat_v1(), NOW)
    assert used.cpu is not None
    assert used.memory is not None
    assert used.io is not None
    psi = Psi(Pressure(2_000_000, 1.5, 0.5, 0.1), Pressure(500_000, 0.0, 0.0, 0.0))
    assert used.cpu.psi == used.memory.psi == used.io.psi == psi
    assert old.cpu is not None
    assert old.memory is not None
    assert old.io is not None
    for name in ("usage", "user", "system", "periods", "throttled_periods", "throttled"):
        assert getattr(used.cpu, name) == getattr(old.cpu, name), name
    for name in ("usage", "working_set", "rss", "available", "cache", "kernel", "oom_kills"):
        assert getattr(used.memory, name) == getattr(old.memory, name), name
    assert used.io.devices == old.io.devices
    assert used.limits is not None
    assert used.limits.cpu_shares == 2 + 19 * 262142 // 9999
    assert used.swap is not None
    assert (used.swap.usage, used.swap.available, used.swap.limit) == (
        10 * MIB,
        40 * MIB,
        50 * MIB,
    )


@pytest.mark.parametrize("text", ["max", "9223372036854771712", str(1 << 62), "-1", "0", ""])
def test_sg5_a_huge_limit_is_none(text: str) -> None:
    assert texts.limit(text) == 0
    used = usage_v2({**V2, "memory.max": text}, NOW)
    assert used.memory is not None
    assert used.memory.available is None
    assert used.limits is not None
    assert used.limits.memory == 0


@given(st.sets(st.sampled_from(sorted(FILES_V2))))
def test_sg6_missing_files_of_v2_leave_the_other_figures(gone: set[str]) -> None:
    used = usage_v2({name: text for name, text in V2.items() if name not in gone}, NOW)
    assert (used.cpu is None) == ("cpu.stat" in gone)
    assert (used.memory is None) == ("memory.current" in gone)
    assert (used.swap is None) == ("memory.swap.current" in gone)


@given(st.dictionaries(st.sampled_from(sorted(V2) + sorted(flat_v1())), st.text(max_size=40)))
def test_sg6_what_cannot_be_read_is_no_error(files: dict[str, str]) -> None:
    for usage, whole in ((usage_v1, flat_v1()), (usage_v2, V2)):
        usage(files, NOW)
        usage({**whole, **files}, NOW)


def test_sg6_a_cgroup_that_is_gone_uses_nothing(tmp_path: Path) -> None:
    make_machine(tmp_path)
    used = Cgroups(tmp_path).usage("/gone", NOW)
    assert used.cpu is None
    assert used.memory is None
    assert used.processes is None
    assert Cgroups(tmp_path).first_process("/gone") is None


def test_a_process_of_a_sandbox_is_found(tmp_path: Path) -> None:
    make_machine(tmp_path, 1)
    cgroups = Cgroups(tmp_path)
    assert cgroups.first_process(cgroups.find([SANDBOX])[SANDBOX]) == 11


def test_all_files_that_are_read_are_told_by_the_lab() -> None:
    assert set(FILES_V2) == set(V2)
    assert {name: set(files) for name, files in FILES_V1.items()} == {
        name: set(files) for name, files in V1.items()
    }


def test_long_files_are_read_whole(tmp_path: Path) -> None:
    text = "1234567\n" * 20_000
    (tmp_path / "cgroup.procs").write_text(text)
    assert read(str(tmp_path / "cgroup.procs")) == text
    assert read(str(tmp_path / "none")) is None
    assert read(str(tmp_path)) is None


@pytest.mark.parametrize(
    ("text", "version", "path"),
    [
        ("0::/system.slice/agent.service\n", 2, "/system.slice/agent.service"),
        ("0::/user.slice/session-1.scope\n", 2, ""),
        ("0::/\n", 2, ""),
        ("4:memory:/system.slice/a.service\n3:cpu,cpuacct:/system.slice/a.service\n0::/\n", 1,
         "/system.slice/a.service"),
        ("4:memory:/system.slice/a.service\n3:cpu,cpuacct:/\n", 1, ""),
        ("", 1, ""),
        ("garbage", 2, ""),
        (None, 2, ""),
    ],
)  # fmt: skip
def test_sf10_a_service_is_told_by_a_cgroup_of_its_own(
    text: str | None, version: int, path: str
) -> None:
    assert own_cgroup(text, version) == path


@given(st.text())
def test_no_text_is_too_odd(text: str) -> None:
    texts.pressure(text)
    texts.flat(text)
    texts.io_v2(text)
    texts.io_v1(text, text)
    texts.interfaces(text)
    texts.default_interface(text)
    texts.meminfo(text)
    texts.cpu_max(text)
    texts.topology(text)
    texts.number(text)
    own_cgroup(text, 1)
