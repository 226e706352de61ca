"""Files that are given to a group (docs/behaviour/volumes.md, "fsGroup")."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from nodeagent.volumes.ownership import Progress, set_group, wanted_mode
from nodeagent.volumes.removal import remove_tree

GROUP = os.getgid()


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize(
    ("before", "read_only", "after"),
    [
        (stat.S_IFREG | 0o600, False, 0o660),
        (stat.S_IFREG | 0o755, False, 0o775),
        (stat.S_IFREG | 0o000, True, 0o440),
        (stat.S_IFDIR | 0o700, False, 0o2770),
        (stat.S_IFDIR | 0o700, True, 0o2750),
        (stat.S_IFREG | 0o4711, False, 0o4771),
    ],
)
def test_the_group_may_read_and_write(before: int, read_only: bool, after: int) -> None:
    assert wanted_mode(before, read_only=read_only) == after


def test_all_below_is_changed_and_links_are_not_followed(tmp_path: Path) -> None:
    volume, outside = tmp_path / "volume", tmp_path / "outside"
    (volume / "d").mkdir(parents=True)
    outside.touch(mode=0o600)
    (volume / "d/file").touch(mode=0o600)
    (volume / "link").symlink_to(outside)
    progress = Progress()
    set_group(volume, GROUP, progress=progress)
    assert mode(volume / "d/file") == 0o660
    assert mode(volume / "d") & 0o2770 == 0o2770
    assert mode(volume) & 0o2770 == 0o2770
    assert mode(outside) == 0o600
    assert (progress.seen, progress.failures) == (4, 0)


def test_a_settled_top_means_a_settled_tree(tmp_path: Path) -> None:
    volume = tmp_path / "volume"
    volume.mkdir()
    (volume / "file").touch(mode=0o600)
    volume.chmod(0o2770)
    set_group(volume, GROUP, on_root_mismatch=True)
    assert mode(volume / "file") == 0o600
    volume.chmod(0o700)
    set_group(volume, GROUP, on_root_mismatch=True)
    assert mode(volume / "file") == 0o660


def test_one_that_cannot_be_changed_does_not_keep_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "abc":
        (tmp_path / name).touch(mode=0o600)
    real = Path.chmod
    refused: list[str] = []

    def chmod(path: Path, wanted: int) -> None:
        if not refused:
            refused.append(str(path.readlink()))
            raise PermissionError(1, "Operation not permitted")
        real(path, wanted)

    monkeypatch.setattr(Path, "chmod", chmod)
    progress = Progress()
    set_group(tmp_path, GROUP, progress=progress)
    assert progress.failures == 1
    done = {name for name in "abc" if mode(tmp_path / name) == 0o660}
    assert len(done) == 2


def test_a_tree_deeper_than_any_path_may_be_long_is_changed_and_removed(tmp_path: Path) -> None:
    top = tmp_path / "top"
    top.mkdir()
    here = os.open(top, os.O_RDONLY)
    for _ in range(2000):
        os.mkdir("deep", dir_fd=here)
        below = os.open("deep", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    progress = Progress()
    set_group(top, GROUP, progress=progress)
    assert (progress.seen, progress.failures) == (2001, 0)
    assert remove_tree(top).complete
    assert not top.exists()
