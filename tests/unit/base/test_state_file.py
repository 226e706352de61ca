"""State files: whole or not at all, and what a damaged one does."""

from __future__ import annotations

import os
import stat
import tempfile
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.state_file import StateFile, write_atomically

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@given(json_values)
def test_what_is_saved_is_loaded(content: Any) -> None:
    with tempfile.TemporaryDirectory() as directory:
        file = StateFile(Path(directory) / "s.json")
        file.save(content)
        assert file.load() == content
        assert names(Path(directory)) == ["s.json"]


def test_there_is_nothing_where_nothing_was_saved(tmp_path: Path) -> None:
    assert StateFile(tmp_path / "none.json").load() is None
    assert names(tmp_path) == []


def test_file_and_directory_are_for_their_owner_alone(tmp_path: Path) -> None:
    file = StateFile(tmp_path / "checkpoints" / "s.json")
    file.save([1])
    assert mode(file.path) == 0o600
    assert mode(file.path.parent) == 0o700


@pytest.mark.parametrize(
    "damaged",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b'{"version":1}',
        b'{"version":1,"crc32":0,"content":{}}',
        b'{"version":"x","crc32":0,"content":{}}',
        b'{"version":1,"crc32":0,"content":{"a":"\xff"}}',
        b'{"version":1,"crc32":0,"content":' + b"[" * 5000,
        b"[" * 50_000,
        b"\x00" * 100,
    ],
)
def test_a_damaged_file_is_moved_aside(tmp_path: Path, damaged: bytes) -> None:
    file = StateFile(tmp_path / "s.json")
    file.path.write_bytes(damaged)
    assert file.load() is None
    assert names(tmp_path) == ["s.json.damaged"]
    assert (tmp_path / "s.json.damaged").read_bytes() == damaged
    file.save("new")
    assert file.load() == "new"


def test_a_file_of_another_version_is_moved_aside(tmp_path: Path) -> None:
    StateFile(tmp_path / "s.json", version=1).save({"a": 1})
    assert StateFile(tmp_path / "s.json", version=2).load() is None
    assert names(tmp_path) == ["s.json.damaged"]


@given(st.data())
def test_no_flipped_byte_gives_other_content(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as directory:
        file = StateFile(Path(directory) / "s.json")
        content = {"documents": [{"name": "web", "written": '{"a":"é"}'}], "n": 7}
        file.save(content)
        good = file.path.read_bytes()
        at = data.draw(st.integers(0, len(good) - 1))
        other = data.draw(st.integers(0, 255))
        file.path.write_bytes(good[:at] + bytes([other]) + good[at + 1 :])
        assert file.load() in (None, content)


@given(st.integers(min_value=0, max_value=200))
def test_no_cut_file_gives_content(length: int) -> None:
    with tempfile.TemporaryDirectory() as directory:
        file = StateFile(Path(directory) / "s.json")
        file.save(list(range(100)))
        good = file.path.read_bytes()
        file.path.write_bytes(good[: min(length, len(good) - 1)])
        assert file.load() is None


def test_a_file_that_cannot_be_read_stays_where_it_is(tmp_path: Path) -> None:
    (tmp_path / "s.json").symlink_to("s.json")
    assert StateFile(tmp_path / "s.json").load() is None
    assert names(tmp_path) == ["s.json"]


@pytest.mark.parametrize(
    "put",
    [Path.mkdir, os.mkfifo, lambda path: path.symlink_to("/dev/zero")],
    ids=["directory", "FIFO", "device"],
)
def test_what_is_no_file_is_moved_aside_unread(tmp_path: Path, put: Callable[[Path], None]) -> None:
    file = StateFile(tmp_path / "s.json")
    put(file.path)
    assert file.load() is None
    assert file.problem == "no regular file; moved to s.json.damaged"
    file.save("new")
    assert file.load() == "new"


def test_content_that_is_no_json_is_refused_and_the_old_one_stays(tmp_path: Path) -> None:
    file = StateFile(tmp_path / "s.json")
    file.save("old")
    with pytest.raises(TypeError):
        file.save(object())
    assert file.load() == "old"
    assert names(tmp_path) == ["s.json"]


def test_a_write_that_fails_leaves_the_old_content_and_no_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = StateFile(tmp_path / "s.json")
    file.save("old")

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        file.save("new")
    monkeypatch.undo()
    assert file.load() == "old"
    assert names(tmp_path) == ["s.json"]


def test_a_short_write_goes_on_where_it_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.write

    def slow(descriptor: int, data: bytes | memoryview) -> int:
        return real(descriptor, bytes(data)[:7])

    monkeypatch.setattr(os, "write", slow)
    write_atomically(tmp_path / "f", b"x" * 100)
    assert (tmp_path / "f").read_bytes() == b"x" * 100


def test_a_file_is_replaced_and_never_written_through_a_link(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_bytes(b"precious")
    link = tmp_path / "link"
    link.symlink_to(target)
    write_atomically(link, b"new", mode=0o640)
    assert target.read_bytes() == b"precious"
    assert not link.is_symlink()
    assert (link.read_bytes(), mode(link)) == (b"new", 0o640)


@pytest.mark.parametrize("code", [22, 95])
def test_a_file_system_that_cannot_sync_directories_is_good_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    real = os.fsync

    def picky(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(code, "not here")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", picky)
    write_atomically(tmp_path / "f", b"data")
    assert (tmp_path / "f").read_bytes() == b"data"


def test_what_is_wrong_is_told_until_the_next_look(tmp_path: Path) -> None:
    file = StateFile(tmp_path / "s.json")
    assert (file.load(), file.problem) == (None, "")
    file.path.write_bytes(b'{"version":9,"crc32":0,"content":{}}')
    file.load()
    assert file.problem == "written by another version (9); moved to s.json.damaged"
    assert (file.load(), file.problem) == (None, "")
    file.path.symlink_to("s.json")
    file.load()
    assert file.problem == "cannot be read: Too many levels of symbolic links"


def test_what_a_killed_writer_left_is_removed(tmp_path: Path) -> None:
    file = StateFile(tmp_path / "s.json")
    file.save(1)
    (tmp_path / ".s.json.4711.new").write_bytes(b"half")
    (tmp_path / ".other.json.4711.new").write_bytes(b"someone else's")
    assert file.load() == 1
    assert names(tmp_path) == [".other.json.4711.new", "s.json"]


def test_the_envelope_is_plain_json(tmp_path: Path) -> None:
    file = StateFile(tmp_path / "s.json", version=3)
    file.save({"a": 1})
    envelope = msgspec.json.decode(file.path.read_bytes())
    assert (envelope["version"], envelope["content"]) == (3, {"a": 1})


PATIENCE = 60.0


@pytest.mark.anyio
async def test_saves_are_made_in_order_in_a_thread(tmp_path: Path) -> None:
    file = StateFile(tmp_path / "s.json")
    here, threads = threading.get_ident(), set[int]()

    def save(content: int) -> None:
        threads.add(threading.get_ident())
        file.save(content)

    async with anyio.create_task_group() as tasks:
        for number in range(5):
            tasks.start_soon(file.in_time, partial(save, number))
    assert file.load() == 4
    assert here not in threads


@pytest.mark.anyio
async def test_a_refused_save_is_raised(tmp_path: Path) -> None:
    (tmp_path / "s.json").mkdir()
    file = StateFile(tmp_path / "s.json")
    with pytest.raises(OSError, match="Is a directory"):
        await file.in_time(partial(file.save, 1))
    assert file.refused == "Is a directory"


@pytest.mark.anyio
async def test_a_save_that_hangs_is_abandoned_by_name_and_overtaken_by_none(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """docs/what-survives.md, a dead disk."""
    file = StateFile(tmp_path / "s.json")
    begun, alive = threading.Event(), threading.Event()

    def hang() -> None:
        begun.set()
        assert alive.wait(PATIENCE)
        file.save("first")

    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(file.in_time, hang, PATIENCE)
            assert await anyio.to_thread.run_sync(begun.wait, PATIENCE)
            tasks.cancel_scope.cancel()
    for content in ("second", "third"):
        with pytest.raises(OSError, match="the disk does not answer"):
            await file.in_time(partial(file.save, content), limit=0.01)
    assert file.refused == "the disk does not answer"
    warnings = [r.getMessage() for r in caplog.records if "state_save_abandoned" in r.getMessage()]
    assert len(warnings) == 1
    assert str(file.path) in str(vars(caplog.records[0]))
    alive.set()
    await file.in_time(partial(file.save, "last"), limit=PATIENCE)
    assert (file.load(), file.refused) == ("last", "")


@pytest.mark.anyio
async def test_a_cancelled_save_that_hangs_keeps_nobody(tmp_path: Path) -> None:
    """docs/what-survives.md, a dead disk: an agent that is to end."""
    file = StateFile(tmp_path / "s.json")
    alive = threading.Event()

    def hang() -> None:
        assert alive.wait(PATIENCE)

    try:
        with anyio.fail_after(PATIENCE / 2):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(file.in_time, hang, PATIENCE)
                await anyio.lowlevel.checkpoint()
                tasks.cancel_scope.cancel()
        assert file.refused == "the disk does not answer"
    finally:
        alive.set()
