"""docs/behaviour/sources.md, "Settling": however a file is saved, that is one update."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
import pytest
from tests.unit.sources.file_lab import POD, TWO_CONTAINERS, running

pytestmark = pytest.mark.anyio

OLD, NEW = POD % ("web", "one"), POD % ("web", "two")
FIRST, SECOND = (piece % "busybox" for piece in TWO_CONTAINERS)


async def in_place(path: Path) -> None:
    """Nano, VS Code, a shell's redirection: truncate and write."""
    path.write_text(NEW)


async def in_pieces(path: Path) -> None:
    with path.open("w") as file:
        for start in range(0, len(NEW), 7):
            file.write(NEW[start : start + 7])
            file.flush()
            await anyio.sleep(0.4)


async def renamed_over(path: Path) -> None:
    """Most programs that care: write a hidden file, then rename it."""
    hidden = path.with_name(".web.yaml.new")
    hidden.write_text(NEW)
    hidden.rename(path)


async def sed(path: Path) -> None:
    """``sed -i``: a temporary file that looks like a manifest, for a moment."""
    temporary = path.with_name("sedXy12Zz")
    temporary.write_text(NEW)
    temporary.rename(path)


async def slow_sed(path: Path) -> None:
    temporary = path.with_name("sedXy12Zz")
    with temporary.open("w") as file:
        file.write(NEW[:60])
        file.flush()
        await anyio.sleep(0.4)
        file.write(NEW[60:])
    await anyio.sleep(0.4)
    temporary.rename(path)


async def vim(path: Path) -> None:
    """A probe, the old file renamed to a backup, the new one written, the backup removed."""
    path.with_name("4913").write_text("")
    path.with_name("4913").unlink()
    backup = path.with_name("web.yaml~")
    path.rename(backup)
    path.write_text(NEW)
    path.chmod(0o644)
    backup.unlink()


async def slow_vim(path: Path) -> None:
    path.rename(path.with_name("web.yaml~"))
    await anyio.sleep(2.5)
    await in_pieces(path)
    path.with_name("web.yaml~").unlink()


async def away_and_anew(path: Path) -> None:
    path.rename(path.parent.parent / "elsewhere")
    await anyio.sleep(0.8)
    path.write_text(NEW)


async def removed_and_anew(path: Path) -> None:
    path.unlink()
    await anyio.sleep(0.8)
    path.write_text(NEW)


async def emptied_first(path: Path) -> None:
    path.write_text("")
    await anyio.sleep(0.8)
    path.write_text(NEW)


async def line_by_line(path: Path) -> None:
    """A shell loop that opens and closes the file for each line."""
    path.write_text("")
    for line in NEW.splitlines(keepends=True):
        with path.open("a") as file:
            file.write(line)
        await anyio.sleep(0.15)


async def linked(path: Path) -> None:
    """A new file is linked to a name, then renamed."""
    (path.parent.parent / "new").write_text(NEW)
    (path.parent / "web.yaml.tmp").hardlink_to(path.parent.parent / "new")
    (path.parent / "web.yaml.tmp").rename(path)


SAVES: list[Callable[[Path], Awaitable[None]]] = [
    in_place, in_pieces, renamed_over, sed, slow_sed, vim, slow_vim, away_and_anew,
    removed_and_anew, emptied_first, line_by_line, linked,
]  # fmt: skip


@pytest.mark.parametrize("save", SAVES, ids=lambda save: save.__name__)
async def test_a_save_is_one_update(
    tmp_path: Path, save: Callable[[Path], Awaitable[None]]
) -> None:
    """sources.md, T1, T2, T3, T5, T6."""
    path = tmp_path / "m" / "web.yaml"
    path.parent.mkdir()
    path.write_text(OLD)
    async with running(path.parent, period=1000) as run:
        assert await run.next() == {"web-n1": "one"}
        await save(path)
        assert await run.next() == {"web-n1": "two"}
        assert await run.silent()
        assert run.refusals() == []


@pytest.mark.parametrize("gap", [0.3, 1.0, 4.5])
@pytest.mark.parametrize("fresh", [True, False], ids=["new", "edited"])
async def test_half_a_file_does_not_win_though_it_is_a_valid_pod(
    tmp_path: Path, gap: float, fresh: bool
) -> None:
    """sources.md, T1."""
    path = tmp_path / "web.yaml"
    if not fresh:
        path.write_text(OLD)
    async with running(tmp_path, period=1000) as run:
        assert await run.next() == ({} if fresh else {"web-n1": "one"})
        with path.open("w") as file:
            file.write(FIRST)
            file.flush()
            await anyio.sleep(gap)
            file.write(SECOND)
        assert await run.next() == {"web-n1": "busybox,busybox"}
        assert await run.silent()


async def test_half_a_file_does_not_win_at_a_rescan_or_beside_another_change(
    tmp_path: Path,
) -> None:
    """sources.md, T1."""
    async with running(tmp_path, period=0.1) as run:
        assert await run.next() == {}
        with (tmp_path / "web.yaml").open("w") as file:
            file.write(FIRST)
            file.flush()
            await anyio.sleep(1)
            (tmp_path / "db.yaml").write_text(POD % ("db", "sql"))
            assert await run.next() == {"db-n1": "sql"}
            file.write(SECOND)
        assert await run.next() == {"db-n1": "sql", "web-n1": "busybox,busybox"}


@pytest.mark.parametrize("watch", [True, False])
async def test_half_a_file_at_the_start_does_not_win(tmp_path: Path, watch: bool) -> None:
    """sources.md, T4, T8."""
    path = tmp_path / "web.yaml"
    with path.open("w") as file:
        file.write(FIRST)
        file.flush()
        async with anyio.create_task_group() as tg:

            async def go_on() -> None:
                await anyio.sleep(0.2)
                file.write(SECOND)
                file.flush()

            tg.start_soon(go_on)
            async with running(tmp_path, period=1000, watch=watch) as run:
                found = await run.next()
    # Whoever sees that the writer is at work does not wait for its end with the first snapshot.
    assert found == ({} if watch else {"web-n1": "busybox,busybox"})


async def test_a_writer_that_never_closes_is_read_when_it_rests(tmp_path: Path) -> None:
    """sources.md, T1."""
    async with running(tmp_path, period=1000) as run:
        assert await run.next() == {}
        with (tmp_path / "web.yaml").open("w") as file:
            file.write(NEW)
            file.flush()
            began = anyio.current_time()
            assert await run.next() == {"web-n1": "two"}
            assert anyio.current_time() - began >= 5


async def test_a_writer_that_never_rests_is_read_in_the_end(tmp_path: Path) -> None:
    """sources.md, T1."""
    async with running(tmp_path, period=1000) as run:
        assert await run.next() == {}
        with (tmp_path / "web.yaml").open("w") as file:
            file.write(NEW)
            async with anyio.create_task_group() as tg:

                async def chatter() -> None:
                    while True:
                        file.write("# more\n")
                        file.flush()
                        await anyio.sleep(1)

                tg.start_soon(chatter)
                assert await run.next(60) == {"web-n1": "two"}
                tg.cancel_scope.cancel()


async def test_a_writer_that_comes_back_all_the_time_is_read_in_between(tmp_path: Path) -> None:
    """sources.md, T2."""
    path = tmp_path / "web.yaml"
    async with running(tmp_path, period=1000) as run:
        assert await run.next() == {}
        async with anyio.create_task_group() as tg:

            async def rewrite() -> None:
                while True:
                    path.write_text(NEW)
                    await anyio.sleep(0.1)

            tg.start_soon(rewrite)
            assert await run.next(10) == {"web-n1": "two"}
            tg.cancel_scope.cancel()


@pytest.mark.parametrize("watch", [True, False])
async def test_without_events_a_file_must_look_the_same_for_a_while(
    tmp_path: Path, watch: bool
) -> None:
    """sources.md, T4: a new link says nothing of the file that it leads to."""
    (tmp_path / "m").mkdir()
    (tmp_path / "out" / "deep").mkdir(parents=True)
    target = tmp_path / "out" / "deep" / "web.yaml"
    async with running(tmp_path / "m", period=0.1, watch=watch) as run:
        assert await run.next() == {}
        with target.open("w") as file:
            file.write(FIRST)
            file.flush()
            (tmp_path / "m" / "web.yaml").symlink_to(target)
            await anyio.sleep(0.2)
            file.write(SECOND)
            file.flush()
            await anyio.sleep(0.2)
            file.write("# the end\n")
        assert await run.next() == {"web-n1": "busybox,busybox"}


async def test_a_removed_file_is_gone_soon_and_one_renamed_to_a_backup_a_little_later(
    tmp_path: Path,
) -> None:
    """sources.md, T5, T6, L5."""
    for name in ("a", "b"):
        (tmp_path / f"{name}.yaml").write_text(POD % (name, "one"))
    async with running(tmp_path, period=1000) as run:
        assert await run.next() == {"a-n1": "one", "b-n1": "one"}
        (tmp_path / "a.yaml").unlink()
        assert await run.next(1.2) == {"b-n1": "one"}
        (tmp_path / "b.yaml").rename(tmp_path / "b.yaml.bak")
        assert await run.silent(2.5)
        assert await run.next(1) == {}


async def test_a_renamed_file_is_followed_without_a_word(tmp_path: Path) -> None:
    """sources.md, T5, L8."""
    (tmp_path / "a.yaml").write_text(POD % ("web", "one"))
    async with running(tmp_path, period=1000) as run:
        assert await run.next() == {"web-n1": "one"}
        (tmp_path / "a.yaml").rename(tmp_path / "b.yaml")
        assert await run.silent()
        assert run.refusals() == []
        (tmp_path / "b.yaml").write_text(POD % ("web", "two"))
        assert await run.next() == {"web-n1": "two"}


async def test_a_pod_that_moves_with_its_uid_to_another_name_is_not_refused(
    tmp_path: Path,
) -> None:
    """sources.md, T5, L4."""
    fixed = (POD % ("a", "one")).replace("name: a", "name: a, uid: fixed")
    (tmp_path / "a.yaml").write_text(fixed)
    async with running(tmp_path, period=1000) as run:
        assert await run.next() == {"a-n1": "one"}
        (tmp_path / "a.yaml").unlink()
        (tmp_path / "b.yaml").write_text(fixed.replace("name: a", "name: b"))
        assert await run.next() == {"b-n1": "one"}
        assert run.refusals() == []


async def test_a_target_behind_a_link_is_watched_too(tmp_path: Path) -> None:
    """sources.md, F1, T7."""
    (tmp_path / "m").mkdir()
    (tmp_path / "out").mkdir()
    target = tmp_path / "out" / "web.yaml"
    target.write_text(OLD)
    (tmp_path / "m" / "web.yaml").symlink_to(target)
    async with running(tmp_path / "m", period=1000) as run:
        assert await run.next() == {"web-n1": "one"}
        await in_pieces(target)
        assert await run.next() == {"web-n1": "two"}
        await renamed_over(target)
        (tmp_path / "out" / "other").write_text("not looked at")
        assert await run.silent()
        target.write_text(OLD)
        assert await run.next() == {"web-n1": "one"}


def swap(directory: Path, number: int) -> None:
    """What the kubelet does to change a ConfigMap volume."""
    new = directory / f"..{number}"
    new.mkdir()
    for name in ("a", "b"):
        (new / f"{name}.yaml").write_text(POD % (name, number))
    old = (directory / "..data").resolve() if (directory / "..data").exists() else None
    (directory / "..data_tmp").symlink_to(new.name)
    (directory / "..data_tmp").rename(directory / "..data")
    if old is None:
        for name in ("a", "b"):
            (directory / f"{name}.yaml").symlink_to(f"..data/{name}.yaml")
    else:
        for file in old.iterdir():
            file.unlink()
        old.rmdir()


async def test_swaps_of_a_data_link_one_by_one_are_each_seen_once(tmp_path: Path) -> None:
    """sources.md, F9, T3."""
    swap(tmp_path, 0)
    async with running(tmp_path, period=1000) as run:
        assert await run.next() == {"a-n1": "0", "b-n1": "0"}
        for number in range(1, 6):
            swap(tmp_path, number)
            assert await run.next(1) == {"a-n1": str(number), "b-n1": str(number)}
        assert await run.silent()
        assert run.refusals() == []


@pytest.mark.parametrize("pause", [0.0, 0.01, 0.1])
async def test_a_hundred_swaps_in_a_row_end_with_the_last(tmp_path: Path, pause: float) -> None:
    """sources.md, F9, T3."""
    swap(tmp_path, 0)
    async with running(tmp_path, period=1000) as run:
        await run.next()
        for number in range(1, 101):
            swap(tmp_path, number)
            await anyio.sleep(pause)
        seen: list[dict[str, str]] = []
        while not seen or seen[-1] != {"a-n1": "100", "b-n1": "100"}:
            seen.append(await run.next(1))
        assert len(seen) <= 100
        assert all(found["a-n1"] == found["b-n1"] for found in seen)
        assert await run.silent()


async def test_an_editors_files_beside_it_wake_nobody(tmp_path: Path) -> None:
    """sources.md, F2."""
    async with running(tmp_path, period=1000) as run:
        await run.next()
        for name in (".web.yaml.swp", "web.yaml~", "#web.yaml#", "4913", "web.yaml.tmp"):
            (tmp_path / name).write_text(NEW)
        (tmp_path / ".#web.yaml").symlink_to("me@here.1:2")
        assert await run.silent()
        assert run.refusals() == []


async def test_many_files_that_come_one_after_another_all_arrive(tmp_path: Path) -> None:
    async with running(tmp_path, period=1000) as run:
        await run.next()
        for number in range(50):
            (tmp_path / f"{number}.yaml").write_text(POD % (f"p{number}", "x"))
            await anyio.sleep(0.03)
        while len(found := await run.next()) < 50:
            assert found
        os.truncate(tmp_path / "7.yaml", 0)
        assert await run.silent(4)
        assert await run.silent()
        assert run.refusals() == ["7.yaml: empty: no documents"]


@pytest.mark.realtime
async def test_the_real_sed_on_the_real_clock_is_one_update(tmp_path: Path) -> None:
    """sources.md, T2, T3."""
    path = tmp_path / "web.yaml"
    path.write_text(OLD)
    async with running(tmp_path, period=1000) as run:
        assert await run.next() == {"web-n1": "one"}
        await anyio.run_process(["sed", "-i", "s/one/two/", str(path)])
        assert await run.next() == {"web-n1": "two"}
        assert await run.silent(1)
        assert run.refusals() == []
