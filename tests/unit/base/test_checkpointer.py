"""What cannot be rebuilt is saved when it changes, and a refusing disk stops nobody."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

from nodeagent.checkpointer import Checkpointer
from nodeagent.state_file import StateFile

pytestmark = pytest.mark.anyio


async def test_it_saves_what_changed_and_gives_it_back(tmp_path: Path) -> None:
    content: dict[str, Any] = {"a": 1}
    file = StateFile(tmp_path / "state" / "x.json")
    keeper = Checkpointer(file, lambda: content)
    assert await keeper.load() is None
    await keeper.save()
    assert await Checkpointer(file, dict).load() == {"a": 1}
    before = file.path.stat().st_ino
    await keeper.save()
    assert file.path.stat().st_ino == before
    content["a"] = 2
    await keeper.save()
    assert await Checkpointer(file, dict).load() == {"a": 2}


async def test_it_saves_once_a_period_and_when_it_ends(tmp_path: Path) -> None:
    content = {"a": 1}
    file = StateFile(tmp_path / "x.json")
    keeper = Checkpointer(file, lambda: dict(content), period=5)
    async with anyio.create_task_group() as tg:
        await tg.start(keeper.run)
        await anyio.sleep(6)
        assert await Checkpointer(file, dict).load() == {"a": 1}
        content["a"] = 2
        tg.cancel_scope.cancel()
    assert await Checkpointer(file, dict).load() == {"a": 2}


async def test_a_disk_that_refuses_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    content = {"a": 1}
    keeper = Checkpointer(StateFile(tmp_path / "file" / "x.json"), lambda: dict(content))
    await keeper.save()
    content["a"] = 2
    await keeper.save()
    assert [r.getMessage() for r in caplog.records] == ["checkpoint_not_saved"]
