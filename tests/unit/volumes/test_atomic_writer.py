"""Files that change all at once (docs/behaviour/volumes.md, "Atomic writer")."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.volumes.atomic_writer import (
    Payload,
    PayloadError,
    ProjectedFile,
    clean_payload,
    has_payload,
    write_payload,
)


def files(**content: str) -> dict[str, ProjectedFile]:
    return {name: ProjectedFile(text.encode(), 0o644) for name, text in content.items()}


def versions(directory: Path) -> list[str]:
    return sorted(e.name for e in directory.iterdir() if e.name.startswith("..2"))


def shown(directory: Path) -> dict[str, bytes]:
    """What a reader finds, by path."""
    found = {}
    for top in directory.iterdir():
        if top.name.startswith(".."):
            continue
        for base, _, names in os.walk(top):
            for name in names:
                path = Path(base, name)
                found[str(path.relative_to(directory))] = path.read_bytes()
        if top.is_file():
            found[top.name] = top.read_bytes()
    return found


def test_the_layout_is_two_steps_of_links(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        assert write_payload(
            tmp_path,
            {"a": ProjectedFile(b"1", 0o640), "d/e": ProjectedFile(b"2", 0o400)},
        )
    finally:
        os.umask(before)
    (version,) = versions(tmp_path)
    assert str((tmp_path / "..data").readlink()) == version
    assert str((tmp_path / "a").readlink()) == "..data/a"
    assert str((tmp_path / "d").readlink()) == "..data/d"
    assert stat.S_IMODE((tmp_path / version).stat().st_mode) == 0o755
    assert stat.S_IMODE((tmp_path / "d").stat().st_mode) == 0o755
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o640
    assert stat.S_IMODE((tmp_path / "d/e").stat().st_mode) == 0o400
    assert {e.name for e in tmp_path.iterdir()} == {"a", "d", "..data", version}


def test_the_same_bytes_are_not_written_again(tmp_path: Path) -> None:
    write_payload(tmp_path, files(a="1"))
    before = versions(tmp_path)
    (tmp_path / "a").unlink()
    assert not write_payload(tmp_path, {"a": ProjectedFile(b"1", 0o400)})
    assert versions(tmp_path) == before
    assert shown(tmp_path) == {"a": b"1"}
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o644


def test_what_is_gone_goes_and_the_old_version_too(tmp_path: Path) -> None:
    write_payload(tmp_path, files(a="1", b="2"))
    (old,) = versions(tmp_path)
    assert write_payload(tmp_path, files(b="3"))
    assert shown(tmp_path) == {"b": b"3"}
    assert old not in versions(tmp_path)
    assert len(versions(tmp_path)) == 1


def test_nothing_at_all_is_a_version_too(tmp_path: Path) -> None:
    assert write_payload(tmp_path, {})
    assert (tmp_path / "..data").is_dir()
    assert not write_payload(tmp_path, {})


def test_the_new_version_is_prepared_before_anybody_sees_it(tmp_path: Path) -> None:
    write_payload(tmp_path, files(a="1"))

    def prepare(version: Path) -> None:
        assert (version / "a").read_text() == "2"
        assert (tmp_path / "a").read_text() == "1"

    assert write_payload(tmp_path, files(a="2"), prepare)
    assert (tmp_path / "a").read_text() == "2"


def test_a_failure_leaves_what_was_there(tmp_path: Path) -> None:
    write_payload(tmp_path, files(a="1"))
    before = sorted(e.name for e in tmp_path.iterdir())

    def refuse(_version: Path) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        write_payload(tmp_path, files(a="2", b="3"), refuse)
    assert sorted(e.name for e in tmp_path.iterdir()) == before
    assert shown(tmp_path) == {"a": b"1"}


def test_what_a_killed_agent_left_makes_room_before_anything_is_written(tmp_path: Path) -> None:
    write_payload(tmp_path, files(a="1"))
    left = tmp_path / "..2020_01_01_00_00_00.1"
    left.mkdir()
    (left / "half").write_text("fills the disk")

    def look(version: Path) -> None:
        assert not left.exists()
        assert len(versions(tmp_path)) == 2
        assert version.is_dir()

    assert write_payload(tmp_path, files(a="2"), look)
    assert shown(tmp_path) == {"a": b"2"}


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("", "must not be empty"),
        (".", "must not be empty"),
        ("/etc/passwd", "must be relative path: /etc/passwd"),
        ("a/../../b", "must not contain '..': a/../../b"),
        ("..", "must not contain '..'"),
        ("..data", "must not start with '..': ..data"),
        ("./..data", "must not start with '..'"),
        ("x" * 256, "filename must be less than or equal to 255 characters"),
        ("/".join(["x" * 200] * 21), "must be less than or equal to 4096 characters"),
        ("a\0b", "zero byte"),
    ],
)
def test_a_path_that_is_not_allowed_keeps_everything_from_being_written(
    tmp_path: Path, path: str, says: str
) -> None:
    with pytest.raises(PayloadError, match=says):
        write_payload(tmp_path, {"good": ProjectedFile(b"", 0o644), path: ProjectedFile(b"", 0)})
    assert list(tmp_path.iterdir()) == []


def test_a_path_is_cleaned() -> None:
    cleaned = clean_payload({"foo////bar": ProjectedFile(b"", 0), "./x/": ProjectedFile(b"", 0)})
    assert set(cleaned) == {"foo/bar", "x"}


def test_a_file_is_no_directory() -> None:
    with pytest.raises(PayloadError, match="a is a file and the directory of a/b"):
        clean_payload({"a": ProjectedFile(b"", 0), "a/b": ProjectedFile(b"", 0)})


def test_content_is_never_shown() -> None:
    assert "hunter2" not in repr(ProjectedFile(b"hunter2", 0o644))


_NAMES = st.sampled_from(["a", "b", "c/d", "c/e", "f/g/h"])
_PAYLOADS = st.dictionaries(_NAMES, st.binary(max_size=4))


def as_payload(content: dict[str, bytes]) -> Payload:
    return {path: ProjectedFile(data, 0o644) for path, data in content.items()}


class _Killed(BaseException):
    """The agent is gone in the middle."""


_STEPS = ("unlink", "symlink_to", "rename", "mkdir", "chmod")


@given(_PAYLOADS, _PAYLOADS, st.integers(0, 30))
def test_killed_anywhere_a_reader_sees_one_version_and_the_next_write_completes_it(
    tmp_path_factory: pytest.TempPathFactory,
    old: dict[str, bytes],
    new: dict[str, bytes],
    steps: int,
) -> None:
    directory = tmp_path_factory.mktemp("volume")
    write_payload(directory, as_payload(old))
    left = steps
    patch = pytest.MonkeyPatch()

    def dying(method: str) -> None:
        real = getattr(Path, method)

        def step(self: Path, *args: object, **kwargs: object) -> object:
            nonlocal left
            if left == 0:
                raise _Killed
            left -= 1
            return real(self, *args, **kwargs)

        patch.setattr(Path, method, step)

    for method in _STEPS:
        dying(method)
    # A killed agent cleans nothing up.
    patch.setattr("nodeagent.volumes.atomic_writer.shutil.rmtree", lambda *_a, **_k: None)
    try:
        write_payload(directory, as_payload(new))
    except _Killed:
        pass
    finally:
        patch.undo()
    data = directory / "..data"
    seen = {
        str(path.relative_to(data)): path.read_bytes() for path in data.rglob("*") if path.is_file()
    }
    assert seen in (old, new)
    write_payload(directory, as_payload(new))
    assert shown(directory) == new
    assert len(versions(directory)) == 1
    assert not (directory / "..data_tmp").is_symlink()


def test_a_reader_never_sees_a_mixed_view(tmp_path: Path) -> None:
    write_payload(tmp_path, files(a="0", b="0"))
    done = threading.Event()

    def write() -> None:
        for number in range(1, 101):
            write_payload(tmp_path, files(a=str(number), b=str(number)))
        done.set()

    writer = threading.Thread(target=write)
    writer.start()
    while not done.is_set():
        try:
            descriptor = os.open(tmp_path / "..data", os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:
            # The version went between the look at the link and the look at the directory.
            continue
        try:
            views = {read_at(descriptor, "a"), read_at(descriptor, "b")} - {None}
        finally:
            os.close(descriptor)
        assert len(views) <= 1
    writer.join()
    assert shown(tmp_path) == {"a": b"100", "b": b"100"}


def read_at(directory: int, name: str) -> bytes | None:
    try:
        descriptor = os.open(name, os.O_RDONLY, dir_fd=directory)
    except FileNotFoundError:
        return None
    with open(descriptor, "rb") as file:  # noqa: PTH123 - of a descriptor
        return file.read()


def test_what_a_killed_agent_wrote_is_completed_and_counts(tmp_path: Path) -> None:
    assert not has_payload(tmp_path)
    (tmp_path / "..2026_01_01_00_00_00.7").mkdir()
    assert not has_payload(tmp_path)
    write_payload(tmp_path, files(a="1", b="2"))
    (tmp_path / "a").unlink()
    (tmp_path / "old").symlink_to("..data/old")
    assert has_payload(tmp_path)
    assert shown(tmp_path) == {"a": b"1", "b": b"2"}
    assert not (tmp_path / "old").is_symlink()
    (tmp_path / "..data").unlink()
    assert not has_payload(tmp_path)
