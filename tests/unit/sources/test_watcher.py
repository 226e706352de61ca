"""docs/behaviour/sources.md, "Watching": how the file source learns that something changed."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import anyio
import pytest
from tests.unit.sources.file_lab import POD, Running, running

from nodeagent.inotify import FileEvent, Inotify, Mask
from nodeagent.sources import watcher as module

pytestmark = pytest.mark.anyio


class Limited(Inotify):
    """An inotify at its limits, as long as ``left`` says so."""

    made = 0
    instances = 1000
    watches = 1000

    def __init__(self) -> None:
        if type(self).instances <= 0:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        super().__init__()
        type(self).made += 1
        self.extra: list[FileEvent] = []

    def watch_directory(self, path: str, mask: Mask) -> int:
        if type(self).watches <= 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().watch_directory(path, mask)

    def read(self) -> list[FileEvent]:
        extra, self.extra = self.extra, []
        return super().read() + extra


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> type[Limited]:
    class Mine(Limited):
        pass

    monkeypatch.setattr(module, "Inotify", Mine)
    return Mine


def said(run: Running, what: str) -> list[str]:
    return [r.why for r in run.journal.select() if r.what == what]


@pytest.mark.parametrize(
    ("limit", "sysctl"),
    [("instances", "fs.inotify.max_user_instances"), ("watches", "fs.inotify.max_user_watches")],
)
async def test_at_a_limit_the_source_looks_every_second_and_says_why_once(
    tmp_path: Path,
    limits: type[Limited],
    limit: str,
    sysctl: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """sources.md, T10."""
    caplog.set_level("INFO")
    setattr(limits, limit, 0)
    async with running(tmp_path, period=1000) as run:
        assert await run.next() == {}
        for number in range(5):
            (tmp_path / "web.yaml").write_text(POD % ("web", number))
            assert await run.next(2.5) == {"web-n1": str(number)}
        (tmp_path / "web.yaml").unlink()
        assert await run.next(3.5) == {}
        (cause,) = said(run, "WatchFailed")
        assert sysctl in cause
        warnings = [r for r in caplog.records if r.getMessage() == "watch_failed"]
        assert len(warnings) == 1
        setattr(limits, limit, 1000)
        await anyio.sleep(3)
        assert len(said(run, "WatchWorks")) == 1
        (tmp_path / "web.yaml").write_text(POD % ("web", "again"))
        assert await run.next(0.5) == {"web-n1": "again"}
    assert [r.getMessage() for r in caplog.records].count("watch_works_again") == 1


async def test_at_a_limit_half_a_file_does_not_win(tmp_path: Path, limits: type[Limited]) -> None:
    """sources.md, T4, T10."""
    limits.instances = 0
    async with running(tmp_path, period=1000) as run:
        assert await run.next() == {}
        text = POD % ("web", "one")
        with (tmp_path / "web.yaml").open("w") as file:
            for start in range(0, len(text), 10):
                file.write(text[start : start + 10])
                file.flush()
                await anyio.sleep(0.25)
        assert await run.next() == {"web-n1": "one"}
        assert run.refusals() == []


async def test_names_that_are_not_utf8_disturb_nobody(
    tmp_path: Path, limits: type[Limited]
) -> None:
    """sources.md, T9."""
    async with running(tmp_path, period=1000) as run:
        assert await run.next() == {}
        odd = os.fsencode(tmp_path) + b"/we\xffb.yaml"
        with open(odd, "w", encoding="utf-8") as file:  # noqa: PTH123 - bytes
            file.write(POD % ("web", "one"))
        assert await run.next(0.5) == {"web-n1": "one"}
        os.rename(odd, os.fsencode(tmp_path) + b"/\xfe.yaml")  # noqa: PTH104 - bytes
        (tmp_path / "db.yaml").write_text(POD % ("db", "sql"))
        assert await run.next(0.5) == {"web-n1": "one", "db-n1": "sql"}
        assert await run.silent()
        assert run.refusals() == []
    assert limits.made == 1


async def test_lost_events_cost_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limits: type[Limited]
) -> None:
    """sources.md, T10."""
    async with running(tmp_path, period=1000) as run:
        assert await run.next() == {}

        def lossy(self: Limited) -> list[FileEvent]:
            events = Inotify.read(self)
            return [FileEvent(-1, Mask.OVERFLOW, "")] if events else []

        monkeypatch.setattr(limits, "read", lossy)
        (tmp_path / "web.yaml").write_text(POD % ("web", "one"))
        assert await run.next(1) == {"web-n1": "one"}
        (tmp_path / "web.yaml").unlink()
        assert await run.next(2) == {}


async def test_a_directory_that_comes_goes_and_comes_again(tmp_path: Path) -> None:
    """sources.md, F6, F9, T5."""
    manifests = tmp_path / "m"
    async with running(manifests, period=1000) as run:
        assert await run.next() == {}
        for number in range(3):
            manifests.mkdir()
            (manifests / "web.yaml").write_text(POD % ("web", number))
            assert await run.next(1) == {"web-n1": str(number)}
            (manifests / "web.yaml").unlink()
            manifests.rmdir()
            assert await run.next(5) == {}


async def test_a_directory_that_is_replaced_at_once_loses_no_pod(tmp_path: Path) -> None:
    """sources.md, F9, T5, T6."""
    manifests, new = tmp_path / "m", tmp_path / "new"
    for directory, image in ((manifests, "one"), (new, "two")):
        directory.mkdir()
        (directory / "web.yaml").write_text(POD % ("web", image))
        (directory / "db.yaml").write_text(POD % ("db", "sql"))
    async with running(manifests, period=1000) as run:
        assert await run.next() == {"db-n1": "sql", "web-n1": "one"}
        manifests.rename(tmp_path / "old")
        await anyio.sleep(2)
        new.rename(manifests)
        assert await run.next(1) == {"db-n1": "sql", "web-n1": "two"}
        (manifests / "web.yaml").write_text(POD % ("web", "three"))
        assert await run.next(1) == {"db-n1": "sql", "web-n1": "three"}
        assert await run.silent()


async def test_what_comes_to_lie_over_a_directory_is_found_at_the_rescan_and_watched(
    tmp_path: Path,
) -> None:
    """sources.md, F9: no event tells of a mount, nor of a link further up that leads elsewhere."""
    for name in ("one", "two"):
        (tmp_path / name / "m").mkdir(parents=True)
        (tmp_path / name / "m" / "web.yaml").write_text(POD % ("web", name))
    (tmp_path / "up").symlink_to("one")
    async with running(tmp_path / "up" / "m") as run:
        assert await run.next() == {"web-n1": "one"}
        (tmp_path / "up").unlink()
        (tmp_path / "up").symlink_to("two")
        assert await run.next(21) == {"web-n1": "two"}
        (tmp_path / "two" / "m" / "web.yaml").write_text(POD % ("web", "three"))
        assert await run.next(0.5) == {"web-n1": "three"}
        (tmp_path / "one" / "m" / "web.yaml").write_text(POD % ("web", "four"))
        assert await run.silent(100)


async def test_a_single_file_is_watched_in_its_directory(tmp_path: Path) -> None:
    """sources.md, F8, T5."""
    path = tmp_path / "web.bak"
    async with running(path, period=1000) as run:
        assert await run.next() == {}
        path.write_text(POD % ("web", "one"))
        (tmp_path / "other.yaml").write_text(POD % ("other", "x"))
        assert await run.next(0.5) == {"web-n1": "one"}
        path.rename(tmp_path / "aside")
        await anyio.sleep(0.5)
        path.write_text(POD % ("web", "two"))
        assert await run.next(0.5) == {"web-n1": "two"}
        path.unlink()
        assert await run.next(5) == {}
