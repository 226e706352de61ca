"""docs/reload-and-rollback.md: how changes of the configuration files are noticed."""

from __future__ import annotations

import errno
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from nodeagent.reload import watching
from nodeagent.reload.watching import ConfigWatch

pytestmark = [pytest.mark.anyio, pytest.mark.realtime]


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """A change is over soon after its writers are done; one that is not, long after the tests."""
    monkeypatch.setattr(watching, "QUIET", 0.01)
    monkeypatch.setattr(watching, "LONGEST", 600.0)


@asynccontextmanager
async def armed(*paths: Path) -> AsyncIterator[ConfigWatch]:
    watch = ConfigWatch(paths)
    try:
        await watch.arm()
        yield watch
    finally:
        watch.close()


async def comes(watch: ConfigWatch) -> None:
    with anyio.fail_after(60):
        await watch.wait()


async def test_a_file_that_is_written_replaced_or_removed_is_noticed(tmp_path: Path) -> None:
    file, new = tmp_path / "a.yaml", tmp_path / "new"
    async with armed(file) as watch:
        for step in (
            lambda: file.write_text("one"),
            lambda: file.write_text("two"),
            lambda: (new.write_text("three"), new.rename(file)),
            file.unlink,
        ):
            await watch.arm()
            assert not watch.stirred()
            step()
            await comes(watch)


async def test_a_file_beside_it_does_not_count(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text("one")
    async with armed(file) as watch:
        (tmp_path / "b.yaml").write_text("one")
        assert not watch.stirred()
        file.write_text("two")
        assert watch.stirred()
        await comes(watch)


async def test_all_that_lies_in_a_directory_counts(tmp_path: Path) -> None:
    place = tmp_path / "conf.d"
    (place / "inner").mkdir(parents=True)
    async with armed(place) as watch:
        for file in (place / "a.conf", place / "inner" / "b.conf"):
            await watch.arm()
            assert not watch.stirred()
            file.write_text("one")
            assert watch.stirred()
            await comes(watch)


@pytest.mark.parametrize("order", [1, -1])
async def test_a_file_that_lies_in_a_watched_directory_hides_no_other(
    tmp_path: Path, order: int
) -> None:
    place = tmp_path / "conf.d"
    place.mkdir()
    async with armed(*(place / "main.yaml", place)[::order]) as watch:
        (place / "other.conf").write_text("one")
        assert watch.stirred()


async def test_two_files_of_one_directory_count_both(tmp_path: Path) -> None:
    files = [tmp_path / "a.yaml", tmp_path / "b.yaml"]
    async with armed(*files) as watch:
        for file in files:
            file.write_text("one")
            assert watch.stirred()
        (tmp_path / "c.yaml").write_text("one")
        assert not watch.stirred()


async def test_a_mounted_config_map_counts_as_one_change(tmp_path: Path) -> None:
    for name in ("v1", "v2"):
        (tmp_path / f"..{name}").mkdir()
        (tmp_path / f"..{name}" / "kubelet.yaml").write_text(name)
    data, file = tmp_path / "..data", tmp_path / "kubelet.yaml"
    data.symlink_to("..v1")
    file.symlink_to("..data/kubelet.yaml")
    async with armed(file) as watch:
        (tmp_path / "..tmp").symlink_to("..v2")
        assert not watch.stirred()
        (tmp_path / "..tmp").rename(data)
        assert watch.stirred()
        await comes(watch)


async def test_a_writer_is_waited_for(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text("one")
    async with armed(file) as watch, anyio.create_task_group() as tasks:
        ended = anyio.Event()

        async def wait() -> None:
            await comes(watch)
            ended.set()

        with file.open("ab") as writer:
            writer.write(b"two")
            writer.flush()
            tasks.start_soon(wait)
            # Longer than the pause that ends a change whose writers are done.
            with anyio.move_on_after(20 * watching.QUIET):
                await ended.wait()
            assert not ended.is_set()


async def test_a_directory_that_comes_later_is_noticed(tmp_path: Path) -> None:
    place = tmp_path / "conf.d"
    async with armed(place) as watch:
        place.mkdir()
        assert watch.stirred()
        await watch.arm()
        (place / "a.conf").write_text("one")
        assert watch.stirred()


async def test_without_inotify_the_stamps_tell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def at_its_limit() -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(watching, "Inotify", at_its_limit)
    file = tmp_path / "a.yaml"
    async with armed(file) as watch:
        assert not watch.stirred()
        file.write_text("one")
        await comes(watch)
        await watch.arm()
    assert [record.message for record in caplog.records].count("watch_failed") == 1
