"""The file source as a whole, on real files; time is virtual."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.unit.sources.file_lab import POD, refusal, running

pytestmark = pytest.mark.anyio


async def test_the_first_snapshot_is_sent_even_when_empty(tmp_path: Path) -> None:
    """sources.md, F11."""
    async with running(tmp_path) as run:
        assert await run.next() == {}


async def test_a_new_changed_and_removed_file_is_seen(tmp_path: Path) -> None:
    """sources.md, F8, F11."""
    async with running(tmp_path) as run:
        assert await run.next() == {}
        (tmp_path / "a.yaml").write_text(POD % ("a", "one"))
        assert await run.next() == {"a-n1": "one"}
        (tmp_path / "a.yaml").write_text(POD % ("a", "two"))
        assert await run.next() == {"a-n1": "two"}
        (tmp_path / "a.yaml").unlink()
        assert await run.next() == {}


async def test_a_file_moved_in_place_of_another_is_seen(tmp_path: Path) -> None:
    """sources.md, F8."""
    (tmp_path / "a.yaml").write_text(POD % ("a", "one"))
    async with running(tmp_path) as run:
        assert await run.next() == {"a-n1": "one"}
        (tmp_path / ".new").write_text(POD % ("a", "two"))
        (tmp_path / ".new").rename(tmp_path / "a.yaml")
        assert await run.next() == {"a-n1": "two"}


async def test_a_bad_edit_is_reported_and_sends_nothing(tmp_path: Path) -> None:
    """sources.md, L2, V1, F11."""
    path = tmp_path / "a.yaml"
    path.write_text(POD % ("a", "one"))
    async with running(tmp_path) as run:
        assert await run.next() == {"a-n1": "one"}
        with run.journal.follower() as records:
            path.write_text(POD.replace("image", "imago") % ("a", "one"))
            assert "containers[0].image: required" in await refusal(records)
        assert run.snapshots.statistics().current_buffer_used == 0
        path.write_text(POD % ("a", "three"))
        assert await run.next() == {"a-n1": "three"}


async def test_the_last_good_pod_survives_a_restart(tmp_path: Path) -> None:
    """sources.md, L10."""
    manifests, state = tmp_path / "m", tmp_path / "state" / "manifests.json"
    manifests.mkdir()
    (manifests / "a.yaml").write_text(POD % ("a", "one"))
    async with running(manifests, checkpoint=state) as run:
        before = await run.uids()
    (manifests / "a.yaml").write_text("kind: Pod\nmetadata: {name: a}\nspec: {containers: 3}\n")
    async with running(manifests, checkpoint=state) as run:
        assert await run.uids() == before
    assert state.stat().st_mode & 0o777 == 0o600


async def test_a_rename_keeps_the_uid_over_a_restart(tmp_path: Path) -> None:
    """sources.md, L8, L10."""
    manifests, state = tmp_path / "m", tmp_path / "state.json"
    manifests.mkdir()
    (manifests / "a.yaml").write_text(POD % ("a", "one"))
    async with running(manifests, checkpoint=state) as run:
        before = await run.uids()
    (manifests / "a.yaml").rename(manifests / "b.yaml")
    async with running(manifests, checkpoint=state) as run:
        assert await run.uids() == before


async def test_a_damaged_checkpoint_is_moved_aside(tmp_path: Path) -> None:
    """sources.md, L10."""
    manifests, state = tmp_path / "m", tmp_path / "state.json"
    manifests.mkdir()
    (manifests / "a.yaml").write_text(POD % ("a", "one"))
    state.write_bytes(b"\0" * 40)
    async with running(manifests, checkpoint=state) as run:
        assert await run.next() == {"a-n1": "one"}
    assert (tmp_path / "state.json.damaged").exists()


async def test_a_single_file_and_a_directory_together(tmp_path: Path) -> None:
    directory, single = tmp_path / "m", tmp_path / "single.yaml"
    directory.mkdir()
    (directory / "a.yaml").write_text(POD % ("a", "one"))
    single.write_text(POD % ("b", "two"))
    async with running(single, directory) as run:
        assert await run.next() == {"a-n1": "one", "b-n1": "two"}
        single.write_text(POD % ("b", "three"))
        assert await run.next() == {"a-n1": "one", "b-n1": "three"}


async def test_a_directory_that_comes_later_is_found(tmp_path: Path) -> None:
    """sources.md, F6, F9."""
    async with running(tmp_path / "m") as run:
        assert await run.next() == {}
        (tmp_path / "m").mkdir()
        (tmp_path / "m" / "a.yaml").write_text(POD % ("a", "one"))
        assert await run.next() == {"a-n1": "one"}


async def test_a_directory_that_is_replaced_is_watched_again(tmp_path: Path) -> None:
    """sources.md, F9."""
    manifests = tmp_path / "m"
    manifests.mkdir()
    async with running(manifests, period=1000) as run:
        assert await run.next() == {}
        manifests.rename(tmp_path / "old")
        manifests.mkdir()
        (manifests / "a.yaml").write_text(POD % ("a", "one"))
        assert await run.next() == {"a-n1": "one"}
        (manifests / "b.yaml").write_text(POD % ("b", "two"))
        assert await run.next() == {"a-n1": "one", "b-n1": "two"}


async def test_a_data_link_that_leads_elsewhere_is_seen(tmp_path: Path) -> None:
    """sources.md, F9."""
    for number in ("1", "2"):
        (tmp_path / f"..{number}").mkdir()
        (tmp_path / f"..{number}" / "a.yaml").write_text(POD % ("a", number))
    (tmp_path / "..data").symlink_to("..1")
    (tmp_path / "a.yaml").symlink_to("..data/a.yaml")
    async with running(tmp_path, period=1000) as run:
        assert await run.next() == {"a-n1": "1"}
        (tmp_path / "..data_tmp").symlink_to("..2")
        (tmp_path / "..data_tmp").rename(tmp_path / "..data")
        assert await run.next() == {"a-n1": "2"}


async def test_an_unreadable_directory_keeps_what_it_gave(tmp_path: Path) -> None:
    """sources.md, F7."""
    manifests = tmp_path / "m"
    manifests.mkdir()
    (manifests / "a.yaml").write_text(POD % ("a", "one"))
    async with running(manifests, period=0.2) as run:
        assert await run.next() == {"a-n1": "one"}
        # A file where the directory was is an error of the path, not an empty directory.
        with run.journal.follower() as records:
            manifests.rename(tmp_path / "aside")
            os.mkfifo(manifests)
            assert "not a directory or file" in await refusal(records)
        assert run.source.selection.pods
