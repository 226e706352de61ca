"""Fixtures: a runtime in memory and a manager that works on it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import anyio
import pytest
from tests.unit.runtime.fakes import EventLog, FakeRuntime, make_settings

from nodeagent.journal import Journal
from nodeagent.model import PodUID
from nodeagent.runtime import RuntimeManager


class LoopClock:
    """Wall time that runs with the loop's."""

    def now(self) -> datetime:
        return datetime(2030, 1, 1, tzinfo=UTC) + timedelta(seconds=anyio.current_time())

    def time_ns(self) -> int:
        return int(self.now().timestamp() * 10**9)


@pytest.fixture
def runtime() -> FakeRuntime:
    runtime = FakeRuntime()
    runtime.add_image()
    return runtime


@pytest.fixture
def events() -> EventLog:
    return EventLog()


@pytest.fixture
def journal() -> Journal:
    return Journal(monotonic=lambda: 0.0)


@pytest.fixture
def actions() -> list[tuple[PodUID, str]]:
    return []


@pytest.fixture
def manager(
    runtime: FakeRuntime,
    events: EventLog,
    journal: Journal,
    actions: list[tuple[PodUID, str]],
    tmp_path: Path,
) -> RuntimeManager:
    return RuntimeManager(
        runtime,
        runtime,
        make_settings(tmp_path),
        events=events,
        journal=journal,
        clock=LoopClock(),
        on_action=lambda uid, what: actions.append((uid, what)),
    )
