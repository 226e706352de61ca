"""Pods through the runtime manager, against a runtime in memory."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.runtime.fakes import (
    RUNNING,
    EventLog,
    FakeRuntime,
    make_pod,
    make_settings,
)

from nodeagent.runtime import RuntimeManager

pytestmark = pytest.mark.anyio


@pytest.fixture
def runtime() -> FakeRuntime:
    runtime = FakeRuntime()
    runtime.add_image()
    return runtime


@pytest.fixture
def events() -> EventLog:
    return EventLog()


@pytest.fixture
def manager(runtime: FakeRuntime, events: EventLog, tmp_path: Path) -> RuntimeManager:
    return RuntimeManager(runtime, runtime, make_settings(tmp_path), events=events)


async def test_a_new_pod_gets_a_sandbox_and_its_containers(
    runtime: FakeRuntime, manager: RuntimeManager, events: EventLog
) -> None:
    result = await manager.sync_pod(make_pod(), await runtime.status(), {})
    assert result.error() is None
    assert result.started == ("web",)
    assert result.did_something
    assert runtime.newest("web").state is RUNNING
    assert events.reasons == ["MissingClusterDNS", "Pulled", "Created", "Started"]
