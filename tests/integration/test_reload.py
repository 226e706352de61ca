"""A change of the configuration files while the agent runs: docs/reload-and-rollback.md."""

from __future__ import annotations

import dataclasses
import shutil
import stat
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from ring import FaultyRing, faulty_ring

from nodeagent import AgentConfig, ConfigError
from nodeagent.config.kubelet_file import LoadedFile
from nodeagent.journal import JournalRecord
from nodeagent.reload.last_good import LastGood
from nodeagent.reload.loading import FileLoader, First, first_configuration
from nodeagent.reload.reloader import Reloader, ReloadHooks
from nodeagent.reload.watching import ConfigWatch
from nodeagent.rpc import Code
from nodeagent.testing import Delay, Fail, Fault, FaultPlan, make_pod

pytestmark = pytest.mark.anyio

MANIFEST = """apiVersion: v1
kind: Pod
metadata: {{name: {name}}}
spec: {{containers: [{{name: main, image: busybox, command: [sleep, "1000"]}}]}}
"""
HEAD = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"


class Lab:
    """An agent whose configuration lies in files."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.file = home / "kubelet.yaml"
        self.drop_ins = home / "kubelet.d"
        self.told: list[str] = []
        self.logging: list[Mapping[str, Any]] = []
        self.write("syncFrequency: 1m")
        self.drop_ins.mkdir(exist_ok=True)

    def write(self, *lines: str) -> None:
        self.file.write_text(HEAD + "\n".join(lines) + "\n")

    def drop(self, name: str, *lines: str) -> None:
        (self.drop_ins / name).write_text(HEAD + "\n".join(lines) + "\n")

    def loader(self, base: AgentConfig) -> FileLoader:
        return FileLoader(self.file, self.drop_ins, partial(_built, base))

    @property
    def last_good(self) -> LastGood:
        return LastGood(self.home / "root")


def _built(base: AgentConfig, loaded: LoadedFile) -> tuple[AgentConfig, Mapping[str, Any]]:
    settings = dict(loaded.settings)
    logging = {"verbosity": settings.pop("verbosity", 2)}
    settings.pop("logging_format", None)
    return dataclasses.replace(base, **settings), logging


class Reloaded:
    """A ring with a reloader."""

    def __init__(self, lab: Lab, ring: FaultyRing, reloader: Reloader, first: First) -> None:
        self.lab = lab
        self.ring = ring
        self.reloader = reloader
        self.first = first
        self.agent = ring.agent

    @property
    def config(self) -> AgentConfig:
        return self.agent.config

    def records(self, what: str) -> list[JournalRecord]:
        return [r for r in self.agent.journal.select() if r.what == what]

    def check(self) -> str:
        ((_, result),) = self.agent.parts.checks.one("config")
        return result.cause or result.note

    def metric(self, name: str, **labels: str) -> float | None:
        return self.agent.registry.get_sample_value(f"nodeagent_config_{name}", labels)

    async def until(self, what: str, count: int = 1, seconds: float = 120.0) -> JournalRecord:
        """Wait for a record of the configuration."""
        await self.ring.until(lambda: len(self.records(what)) >= count, seconds)
        return self.records(what)[-1]


@asynccontextmanager
async def reloading(lab: Lab, *, trial: float = 600.0, **settings: Any) -> AsyncIterator[Reloaded]:
    """An agent that has read the files of the lab, and watches them."""
    async with faulty_ring(lab.home, make_pod("web"), **settings) as ring:
        base = ring.agent.config
        loader = lab.loader(base)
        first = await anyio.to_thread.run_sync(first_configuration, loader, lab.last_good)
        await ring.agent.reconfigure(first.loaded.config)
        reloader = Reloader(
            ring.agent,
            loader,
            first,
            lab.last_good,
            ConfigWatch([lab.file, lab.drop_ins], events=False),
            trial=trial,
            hooks=ReloadHooks(set_logging=lab.logging.append, tell=lab.told.append),
        )
        async with anyio.create_task_group() as tasks:
            await tasks.start(reloader.run)
            yield Reloaded(lab, ring, reloader, first)
            tasks.cancel_scope.cancel()


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path)


async def test_a_change_of_a_file_is_in_force_while_the_agent_runs(lab: Lab) -> None:
    async with reloading(lab) as node:
        await node.until("LastKnownGood")
        lab.write("syncFrequency: 17s", "port: 50")
        record = await node.until("Reloaded")
        assert record.why == "syncFrequency"
        assert node.config.sync_frequency == 17
        assert node.config.port == 0
        assert node.check() == "waits for a restart: port; on trial"
        assert node.metric("reloads_total", result="applied") == 1
        assert node.metric("trial") == 1
        assert node.metric("needs_restart") == 1
        await node.until("LastKnownGood", 2, seconds=700)
        assert node.metric("trial") == 0


async def test_a_bad_change_is_refused_with_all_its_errors(lab: Lab) -> None:
    async with reloading(lab) as node:
        lab.write("syncFrequency: -17s", "imageGCHighThresholdPercent: 101")
        record = await node.until("Refused")
        assert record.fields is not None
        assert len(record.fields["errors"]) == 2
        assert node.config.sync_frequency == 60
        assert "syncFrequency" in node.check()
        assert node.check().endswith("what was good stays")
        assert node.metric("error") == 1
        lab.write("syncFrequency: 1m")
        await node.until("GoodAgain")
        assert node.metric("error") == 0
        assert node.check() in ("", "on trial")


async def test_drop_ins_come_and_go_and_their_directory_vanishes(lab: Lab) -> None:
    async with reloading(lab) as node:
        lab.drop("50.conf", "syncFrequency: 5s")
        await node.until("Reloaded")
        assert node.config.sync_frequency == 5
        shutil.move(lab.drop_ins, lab.home / "aside")
        record = await node.until("Refused")
        assert "cannot be read" in record.why
        assert node.config.sync_frequency == 5
        shutil.move(lab.home / "aside", lab.drop_ins)
        await node.until("GoodAgain")
        (lab.drop_ins / "50.conf").unlink()
        await node.until("Reloaded", 2)
        assert node.config.sync_frequency == 60


async def test_a_file_that_is_good_and_bad_by_turns_changes_nothing(lab: Lab) -> None:
    async with reloading(lab) as node:
        await node.until("LastKnownGood")
        for turn in range(1, 11):
            lab.write("syncFrequency: wrong")
            await node.until("Refused", turn)
            lab.write("syncFrequency: 1m")
            await node.until("GoodAgain", turn)
        assert node.config.sync_frequency == 60
        assert node.records("Reloaded") == []
        assert node.reloader.state.active == node.reloader.state.last_known_good


async def test_a_change_that_makes_the_node_unwell_is_taken_back(lab: Lab) -> None:
    slow = Fault("Status", Delay(4.0))
    async with reloading(lab, plan=FaultPlan(slow)) as node:
        await node.until("LastKnownGood")
        lab.write("syncFrequency: 30s", "runtimeRequestTimeout: 1s")
        await node.until("Reloaded")
        assert node.config.runtime_request_timeout == 1
        record = await node.until("RolledBack")
        assert "runtime" in record.why
        assert node.config.runtime_request_timeout == 120
        assert node.config.sync_frequency == 60
        assert "rolled back to the last known good configuration: runtime" in node.check()
        assert node.metric("reloads_total", result="rolled_back") == 1
        assert node.lab.told[-2:] == ["reloading", "ready"]
        # It is not tried again, also not by the next agent.
        before = len(node.records("Reloaded"))
        await anyio.sleep(60)
        assert len(node.records("Reloaded")) == before
    async with reloading(lab, plan=FaultPlan(slow)) as node:
        await node.until("StartedOnLastKnownGood")
        assert node.config.runtime_request_timeout == 120
        assert "rolled back" in node.check()
        # Somebody asks for it: it is given another chance.
        node.reloader.ask()
        await node.until("Reloaded")
        assert node.config.runtime_request_timeout == 1
        lab.write("syncFrequency: 1m")
        await node.until("Reloaded", 2)
        assert node.config.runtime_request_timeout == 120


async def test_a_change_is_not_blamed_for_a_runtime_that_was_down_before(lab: Lab) -> None:
    plan = FaultPlan()
    async with reloading(lab, trial=60.0, plan=plan) as node:
        await node.until("LastKnownGood")
        down = plan.add(Fault("Status", Fail(Code.UNKNOWN, "down")))
        await node.ring.until(lambda: node.ring.health("runtime"))
        lab.write("syncFrequency: 30s")
        await node.until("Reloaded")
        await anyio.sleep(300)
        assert node.records("RolledBack") == []
        assert node.config.sync_frequency == 30
        plan.remove(down)
        await node.until("LastKnownGood", 2)


async def test_an_agent_starts_on_what_was_good_when_its_files_are_damaged(lab: Lab) -> None:
    lab.write("syncFrequency: 44s")
    async with reloading(lab) as node:
        await node.until("LastKnownGood")
    assert stat.S_IMODE(lab.last_good.path.stat().st_mode) == 0o600
    lab.write("syncFrequency: [")
    async with reloading(lab) as node:
        assert node.config.sync_frequency == 44
        await node.until("StartedOnLastKnownGood")
        assert node.check().endswith("the last known good one is in force")
        lab.write("syncFrequency: 45s")
        await node.until("Reloaded")
        assert node.config.sync_frequency == 45
        assert node.check() == "on trial"


def test_without_anything_good_a_damaged_file_ends_the_start(lab: Lab) -> None:
    lab.write("syncFrequency: [")
    with pytest.raises(ConfigError, match="line 4"):
        first_configuration(lab.loader(AgentConfig()), lab.last_good)


async def test_a_damaged_memory_of_what_was_good_is_moved_aside(lab: Lab) -> None:
    async with reloading(lab) as node:
        await node.until("LastKnownGood")
    path = lab.last_good.path
    path.write_bytes(path.read_bytes()[:-40])
    async with reloading(lab) as node:
        await node.until("LastKnownGood")
    path.write_bytes(b"{}")
    lab.write("syncFrequency: [")
    with pytest.raises(ConfigError):
        first_configuration(lab.loader(AgentConfig()), lab.last_good)


async def test_manifests_elsewhere_take_the_place_of_those_of_before(lab: Lab) -> None:
    old, new = lab.home / "old", lab.home / "new"
    for path, name in ((old, "one"), (new, "two")):
        path.mkdir()
        (path / "pod.yaml").write_text(MANIFEST.format(name=name))
    lab.write(f"staticPodPath: {old}")
    async with reloading(lab) as node:
        await node.ring.running("one-node1")
        lab.write(f"staticPodPath: {lab.home / 'nowhere'}")
        record = await node.until("Refused")
        assert "the pods of before run on" in record.why
        await anyio.sleep(60)
        assert len(node.ring.ids("one-node1")) == 1
        lab.write(f"staticPodPath: {new}")
        await node.until("Reloaded")
        await node.ring.running("two-node1")
        await node.ring.until(lambda: node.ring.ids("one-node1") == [])
        lab.write("syncFrequency: 1m")
        await node.ring.until(lambda: node.ring.ids("two-node1") == [])
        assert len(node.ring.ids("web")) == 1


async def test_the_log_follows_the_file(lab: Lab) -> None:
    async with reloading(lab) as node:
        lab.write("logging: {verbosity: 5}")
        await node.until("Reloaded")
        assert lab.logging[-1]["verbosity"] == 5
