"""docs/behaviour/sources.md, "Files": what is looked at and what is left alone."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from nodeagent.sources.manifest_scan import SIZE_LIMIT, is_leftover, scan


@pytest.mark.parametrize(
    "name",
    [".hidden", "web.yaml~", "web.yaml.bak", ".web.yaml.swp", "web.yaml.swp", "web.yaml.tmp",
     "4913", "#web.yaml#", "web.yaml.orig", "web.yaml.rej", "web.yaml.dpkg-new",
     "web.yaml.rpmsave", "web.yaml.dpkg-old", "web.yaml___jb_tmp___", "WEB.BAK", "web.yaml.save",
     "web.yaml.save.1", "web.yaml.pacnew"],
)  # fmt: skip
def test_leftovers_of_editors_and_package_managers_are_ignored(name: str) -> None:
    """sources.md, F2."""
    assert is_leftover(name)


@pytest.mark.parametrize("name", ["web.yaml", "web.json", "web", "web.conf", "web.bak.yaml"])
def test_any_other_name_is_a_manifest(name: str) -> None:
    """sources.md, F1."""
    assert not is_leftover(name)


def test_files_come_in_order_of_their_names(tmp_path: Path) -> None:
    """sources.md, L6: the order in which they count."""
    for name in ("b.yaml", "a.yaml", "c"):
        (tmp_path / name).write_text(name)
    (seen,) = scan([tmp_path], {})
    assert [f.path.name for f in seen.files] == ["a.yaml", "b.yaml", "c"]


def test_an_unchanged_file_is_not_read_again(tmp_path: Path) -> None:
    """sources.md, F10."""
    path = tmp_path / "a.yaml"
    path.write_text("x")
    (first,) = scan([tmp_path], {})
    assert first.files[0].stamp is not None
    (again,) = scan([tmp_path], {path: first.files[0].stamp})
    assert again.files[0].data is None
    assert again.files[0].problem == ""


def test_subdirectories_are_not_entered(tmp_path: Path) -> None:
    """sources.md, F3."""
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "a.yaml").write_text("x")
    (seen,) = scan([tmp_path], {})
    assert seen.files == ()


def test_special_files_do_not_hang_the_scan(tmp_path: Path) -> None:
    """sources.md, F4."""
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "null").symlink_to("/dev/null")
    (seen,) = scan([tmp_path], {})
    assert [f.problem for f in seen.files] == ["not a regular file"] * 2


def test_a_dangling_link_is_named_with_its_target(tmp_path: Path) -> None:
    """sources.md, F5."""
    (tmp_path / "a.yaml").symlink_to("/nowhere/b.yaml")
    (seen,) = scan([tmp_path], {})
    assert seen.files[0].problem == "the link leads to /nowhere/b.yaml, which does not exist"


def test_a_symlinked_manifest_is_followed(tmp_path: Path) -> None:
    """sources.md, F1."""
    (tmp_path / ".real").write_text("x")
    (tmp_path / "a.yaml").symlink_to(tmp_path / ".real")
    (seen,) = scan([tmp_path], {})
    assert [f.data for f in seen.files] == [b"x"]


@pytest.mark.parametrize(("size", "refused"), [(SIZE_LIMIT, True), (SIZE_LIMIT - 1, False)])
def test_reaching_the_size_limit_fails(tmp_path: Path, size: int, refused: bool) -> None:
    """sources.md, F5."""
    with (tmp_path / "a.yaml").open("wb") as file:
        file.truncate(size)
    (seen,) = scan([tmp_path], {})
    assert bool(seen.files[0].problem) is refused


def test_a_single_file_is_read_whatever_its_name(tmp_path: Path) -> None:
    """sources.md, F2."""
    path = tmp_path / "web.bak"
    path.write_text("x")
    (seen,) = scan([path], {})
    assert [f.data for f in seen.files] == [b"x"]


def test_a_missing_path_wants_no_pods(tmp_path: Path) -> None:
    """sources.md, F6."""
    (seen,) = scan([tmp_path / "nowhere"], {})
    assert seen.missing
    assert seen.problem == "path does not exist, ignoring"
