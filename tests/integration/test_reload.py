"""A change of the configuration files while the agent runs: docs/reload-and-rollback.md."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from ring import Ring, faulty_ring

from nodeagent import AgentConfig
from nodeagent.config.kubelet_file import LoadedFile
from nodeagent.journal import JournalRecord
from nodeagent.reload.last_good import LastGood
from nodeagent.reload.loading import FileLoader, First, first_configuration
from nodeagent.reload.reloader import Reloader, ReloadHooks
from nodeagent.reload.watching import ConfigWatch
from nodeagent.testing import make_pod

pytestmark = pytest.mark.anyio

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

    def __init__(self, lab: Lab, ring: Ring, reloader: Reloader, first: First) -> None:
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
            ConfigWatch(lambda: [lab.file, lab.drop_ins], events=False),
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
        lab.write("syncFrequency: 17s", "maxPods: 50")
        record = await node.until("Reloaded")
        assert "syncFrequency" in record.why
        assert node.config.sync_frequency == 17
        assert "on trial" in node.check()
        assert node.metric("reloads_total", result="applied") == 1
        assert node.metric("trial") == 1


async def test_a_bad_change_is_refused_with_all_its_errors(lab: Lab) -> None:
    async with reloading(lab) as node:
        lab.write("syncFrequency: -17s", "imageGCHighThresholdPercent: 101")
        record = await node.until("Refused")
        assert record.fields is not None
        assert len(record.fields["errors"]) == 2
        assert node.config.sync_frequency == 60
        assert "syncFrequency" in node.check()
        assert node.metric("error") == 1
        lab.write("syncFrequency: 1m")
        await node.until("GoodAgain")
        assert node.metric("error") == 0
