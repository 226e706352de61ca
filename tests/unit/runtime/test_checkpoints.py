"""Checkpoints of containers (docs/behaviour/runtime.md, "Checkpoints")."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.unit.runtime.fakes import UID, FakeRuntime, make_pod

from nodeagent.journal import Journal
from nodeagent.rpc import Unimplemented
from nodeagent.runtime import RuntimeManager
from nodeagent.runtime.checkpointing import NoSuchContainerError

pytestmark = pytest.mark.anyio


async def test_a_running_container_is_written_to_a_file(
    runtime: FakeRuntime, manager: RuntimeManager, journal: Journal, tmp_path: Path
) -> None:
    await manager.sync_pod(make_pod(), await runtime.status(), {})
    path = await manager.checkpoint_container(make_pod(), "web", 30)
    directory = tmp_path / "agent" / "checkpoints"
    assert path.parent == directory
    assert directory.stat().st_mode & 0o777 == 0o700
    assert re.fullmatch(r"checkpoint-web_default-web-2030-01-\d\dT\d\d:\d\d:\d\dZ\.tar", path.name)
    assert runtime.checkpoints == [("c2", str(path), 30)]
    assert "CheckpointWritten" in [r.what for r in journal.select(UID)]


async def test_one_that_does_not_run_is_an_error(
    runtime: FakeRuntime, manager: RuntimeManager
) -> None:
    with pytest.raises(NoSuchContainerError, match=r"container web of pod web_default\(uid-1\)"):
        await manager.checkpoint_container(make_pod(), "web")
    await manager.sync_pod(make_pod(), await runtime.status(), {})
    runtime.exit("web", 0)
    with pytest.raises(NoSuchContainerError):
        await manager.checkpoint_container(make_pod(), "web")


async def test_what_the_runtime_says_comes_out(
    runtime: FakeRuntime, manager: RuntimeManager
) -> None:
    await manager.sync_pod(make_pod(), await runtime.status(), {})
    runtime.fail("checkpoint_container", Unimplemented("not here"))
    with pytest.raises(Unimplemented):
        await manager.checkpoint_container(make_pod(), "web")
