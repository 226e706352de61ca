"""docs/configuration.md, "Lock file"."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from nodeagent.cli import lock_file
from nodeagent.cli.lock_file import LockFile
from nodeagent.errors import StartError
from nodeagent.inotify import Inotify

pytestmark = [pytest.mark.anyio, pytest.mark.realtime]


def is_locked(path: Path) -> bool:
    descriptor = os.open(path, os.O_RDWR)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


async def test_it_is_held_and_given_back(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    async with LockFile(path).held(anyio.Event()) as held:
        assert held
        assert is_locked(path)
        assert path.stat().st_mode & 0o777 == 0o600
    assert not is_locked(path)


async def test_it_is_waited_for(tmp_path: Path) -> None:
    path, order = tmp_path / "lock", list[str]()
    free = anyio.Event()

    async def second() -> None:
        async with LockFile(path).held(anyio.Event()):
            order.append("second")

    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks, LockFile(path).held(anyio.Event()):
            tasks.start_soon(second)
            with anyio.move_on_after(0.2):
                await free.wait()
            order.append("first")
    assert order == ["first", "second"]


async def test_the_wait_ends_when_the_agent_is_to_end(tmp_path: Path) -> None:
    stop = anyio.Event()

    async def wait() -> None:
        async with LockFile(tmp_path / "lock").held(stop) as held:
            assert not held

    with anyio.fail_after(60):
        first = LockFile(tmp_path / "lock").held(anyio.Event())
        async with first, anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            await anyio.lowlevel.checkpoint()
            stop.set()


def opened(path: Path) -> None:
    with path.open():
        pass


@pytest.mark.parametrize("wanted", [opened, Path.unlink, lambda path: path.rename("moved")])
async def test_it_is_given_up_when_another_program_wants_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wanted: Callable[[Path], object]
) -> None:
    monkeypatch.chdir(tmp_path)
    path, stop = tmp_path / "lock", anyio.Event()
    with anyio.fail_after(60):
        async with LockFile(path, give_way=True).held(stop) as held:
            assert held
            (tmp_path / "other").write_text("no concern of ours")
            await anyio.lowlevel.checkpoint()
            assert not stop.is_set()
            await anyio.to_thread.run_sync(wanted, path)
            await stop.wait()


async def test_it_is_kept_when_nobody_is_to_get_it(tmp_path: Path) -> None:
    path, stop = tmp_path / "lock", anyio.Event()
    async with LockFile(path).held(stop):
        await anyio.to_thread.run_sync(opened, path)
        await anyio.lowlevel.checkpoint()
        assert not stop.is_set()
        assert is_locked(path)


async def test_a_file_that_cannot_be_opened_or_watched_ends_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(StartError, match=r"cannot open .*/none/lock: No such file or directory"):
        async with LockFile(tmp_path / "none" / "lock").held(anyio.Event()):
            pass

    def none() -> Inotify:
        raise OSError(errno.EMFILE, "too many")

    monkeypatch.setattr(lock_file, "Inotify", none)
    with pytest.raises(StartError, match="lock cannot be watched: the limit of inotify"):
        async with LockFile(tmp_path / "lock", give_way=True).held(anyio.Event()):
            pass
