"""The kernel's file events, as they come."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from nodeagent import inotify
from nodeagent.inotify import Inotify, Mask, out_of_reach

ALL = Mask.CREATE | Mask.MODIFY | Mask.CLOSE_WRITE | Mask.MOVED_TO | Mask.MOVED_FROM | Mask.DELETE


@pytest.fixture
def watching() -> Iterator[Inotify]:
    watching = Inotify()
    yield watching
    watching.close()


def told(watching: Inotify) -> list[tuple[Mask, str]]:
    return [(Mask(event.mask), event.name) for event in watching.read()]


def test_writing_tells_of_each_step(watching: Inotify, tmp_path: Path) -> None:
    watching.watch_directory(str(tmp_path), ALL)
    assert told(watching) == []
    with (tmp_path / "a").open("w") as file:
        assert told(watching) == [(Mask.CREATE, "a")]
        file.write("x")
        file.flush()
        assert told(watching) == [(Mask.MODIFY, "a")]
    assert told(watching) == [(Mask.CLOSE_WRITE, "a")]
    (tmp_path / "a").rename(tmp_path / "b")
    assert told(watching) == [(Mask.MOVED_FROM, "a"), (Mask.MOVED_TO, "b")]
    (tmp_path / "b").unlink()
    assert told(watching) == [(Mask.DELETE, "b")]


def test_names_may_be_any_bytes(watching: Inotify, tmp_path: Path) -> None:
    watching.watch_directory(str(tmp_path), Mask.CREATE)
    name = b"we\xffb"
    os.close(os.open(os.fsencode(tmp_path) + b"/" + name, os.O_CREAT | os.O_WRONLY))
    ((_, seen),) = told(watching)
    assert os.fsencode(seen) == name


def test_one_directory_has_one_watch_and_masks_add_up(watching: Inotify, tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "link").symlink_to("d")
    first = watching.watch_directory(str(tmp_path / "d"), Mask.CREATE)
    assert watching.watch_directory(str(tmp_path / "link"), Mask.DELETE) == first
    (tmp_path / "d" / "a").touch()
    (tmp_path / "d" / "a").unlink()
    assert told(watching) == [(Mask.CREATE, "a"), (Mask.DELETE, "a")]
    watching.unwatch(first)
    watching.unwatch(first)
    assert [Mask(event.mask) for event in watching.read()] == [Mask.IGNORED]


def test_only_directories_can_be_watched(watching: Inotify, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for name, number in (("file", errno.ENOTDIR), ("nowhere", errno.ENOENT)):
        with pytest.raises(OSError) as caught:
            watching.watch_directory(str(tmp_path / name), ALL)
        assert caught.value.errno == number


@pytest.mark.anyio
async def test_waiting_ends_when_something_happens(tmp_path: Path) -> None:
    watching = Inotify()
    watching.watch_directory(str(tmp_path), Mask.CREATE)
    with anyio.move_on_after(60) as scope:
        await watching.wait()
    assert scope.cancelled_caught
    with anyio.fail_after(60):
        async with anyio.create_task_group() as tg:
            tg.start_soon(watching.wait)
            await anyio.sleep(1)
            (tmp_path / "a").touch()
    assert len(watching.read()) == 1
    watching.close()


def test_each_limit_has_its_own_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    watches = out_of_reach(OSError(errno.ENOSPC, "no space"))
    assert watches.startswith(
        "the limit of inotify watches is reached; raise the sysctl fs.inotify.max_user_watches (it"
    )
    instances = out_of_reach(OSError(errno.EMFILE, "too many"))
    assert "fs.inotify.max_user_instances" in instances

    def none_left(*_args: object) -> int:
        raise OSError(errno.EMFILE, "too many")

    monkeypatch.setattr(os, "open", none_left)
    assert out_of_reach(OSError(errno.EMFILE, "x")) == (
        "the process has no file descriptor left; raise its limit (ulimit -n)"
    )
    assert out_of_reach(OSError(errno.EACCES, "Permission denied")) == "Permission denied"


def test_a_system_without_inotify_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inotify, "_libc", lambda: None)
    with pytest.raises(OSError, match="there is no inotify on this system"):
        Inotify()
