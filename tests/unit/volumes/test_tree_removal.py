"""Removing a pod's directory (docs/behaviour/runtime.md, "Volumes")."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.volumes.removal import mount_points_below, remove_tree


def mountinfo(tmp_path: Path, *points: Path) -> Path:
    path = tmp_path / "mountinfo"
    lines = ["22 1 8:1 / / rw - ext4 /dev/sda1 rw", "garbage"]
    for number, point in enumerate(points, 30):
        escaped = str(point).replace(" ", "\\040")
        lines.append(f"{number} 22 8:1 /x {escaped} rw,relatime shared:1 - ext4 /dev/sda1 rw")
    path.write_text("\n".join(lines) + "\n")
    return path


def test_a_tree_goes_with_all_that_is_in_it(tmp_path: Path) -> None:
    pod = tmp_path / "pod"
    (pod / "a/b/c").mkdir(parents=True)
    (pod / "a/file").write_text("x")
    (pod / "a/b/locked").write_text("x")
    (pod / "a/b/locked").chmod(0)
    os.mkfifo(pod / "pipe")
    assert remove_tree(pod).complete
    assert not pod.exists()


def test_removing_what_is_gone_is_fine(tmp_path: Path) -> None:
    assert remove_tree(tmp_path / "pod").complete
    assert remove_tree(tmp_path / "missing/pod").complete


def test_symbolic_links_are_removed_and_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_text("x")
    pod = tmp_path / "pod"
    pod.mkdir()
    (pod / "to-directory").symlink_to(outside)
    (pod / "to-file").symlink_to(outside / "precious")
    (pod / "dangling").symlink_to("nowhere")
    assert remove_tree(pod).complete
    assert (outside / "precious").read_text() == "x"


def test_a_pod_directory_that_is_itself_a_link_is_only_unlinked(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (tmp_path / "pod").symlink_to(outside)
    assert remove_tree(tmp_path / "pod").complete
    assert outside.exists()


def test_what_is_mounted_stays_and_is_named(tmp_path: Path) -> None:
    pod = tmp_path / "pod"
    mounted = pod / "volumes/with space"
    mounted.mkdir(parents=True)
    (mounted / "precious").write_text("x")
    (pod / "volumes/other").mkdir()
    removal = remove_tree(pod, mountinfo(tmp_path, mounted))
    assert removal.mounts == [str(mounted)]
    assert not removal.complete
    assert (mounted / "precious").exists()
    assert not (pod / "volumes/other").exists()
    assert remove_tree(pod, mountinfo(tmp_path)).complete


def test_a_file_can_be_a_mount_point_too(tmp_path: Path) -> None:
    pod = tmp_path / "pod"
    pod.mkdir()
    (pod / "file").write_text("x")
    assert remove_tree(pod, mountinfo(tmp_path, pod / "file")).mounts == [str(pod / "file")]
    assert (pod / "file").exists()


def test_another_file_system_is_not_entered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pod = tmp_path / "pod"
    (pod / "inside").mkdir(parents=True)
    with monkeypatch.context() as patch:
        # The parent seems to be on another device than what is in it.
        patch.setattr("nodeagent.volumes.removal.os.fstat", lambda _: SimpleNamespace(st_dev=-1))
        removal = remove_tree(pod, tmp_path / "missing")
    assert removal.mounts == [str(pod)]
    assert (pod / "inside").exists()


def test_only_mounts_below_the_path_count(tmp_path: Path) -> None:
    info = mountinfo(tmp_path, tmp_path / "pod/a", tmp_path / "podcast", tmp_path / "pod")
    (tmp_path / "pod").mkdir()
    found = mount_points_below(tmp_path / "pod", info)
    assert found == {str(tmp_path / "pod/a"), str(tmp_path / "pod")}
    assert mount_points_below(tmp_path, tmp_path / "missing") == frozenset()


names = st.text("ab ", min_size=1, max_size=3).filter(lambda name: name.strip() == name)


@given(paths=st.lists(st.lists(names, min_size=1, max_size=4).map("/".join), max_size=8))
def test_any_tree_goes_and_its_neighbour_stays(paths: list[str], tmp_path_factory: object) -> None:

    with tempfile.TemporaryDirectory() as directory:
        pod, neighbour = Path(directory) / "pod", Path(directory) / "pod2"
        for root in (pod, neighbour):
            root.mkdir()
            for path in paths:
                (root / path).mkdir(parents=True, exist_ok=True)
        assert remove_tree(pod).complete
        assert not pod.exists()
        assert all((neighbour / path).is_dir() for path in paths)
