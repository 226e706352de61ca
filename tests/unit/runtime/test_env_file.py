"""Files of variables (docs/behaviour/runtime.md, "Environment files")."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.runtime.env_file import MAX_FILE, EnvFileError, parse_env_file, read_env_file


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("\n\n# note\n   # another\n", {}),
        ("A='1'", {"A": "1"}),
        ("A='1'\nB='2'\n", {"A": "1", "B": "2"}),
        ("A=''", {"A": ""}),
        ("A='a b \"c\" $X = # \\n'", {"A": 'a b "c" $X = # \\n'}),
        ("A='one\ntwo\n'\nB='3'", {"A": "one\ntwo\n", "B": "3"}),
        ("A='1'   # why\nB='2'#x", {"A": "1", "B": "2"}),
        ("A='1'\nA='2'", {"A": "2"}),
        ("A='1'\r\nB='2'\r\n", {"A": "1", "B": "2"}),
        ("a.b-c='é🦊'", {"a.b-c": "é🦊"}),
    ],
)
def test_lines_are_read(text: str, expected: dict[str, str]) -> None:
    assert parse_env_file(text) == expected


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("A=1", 1),
        ('A="1"', 1),
        ("A ='1'", 1),
        ("A= '1'", 1),
        (" A='1'", 1),
        ("export A='1'", 1),
        ("A='1'x", 1),
        ("A='1''2'", 1),
        ("A='1", 1),
        ("='1'", 1),
        ("A", 1),
        ("A='1'\n\nB=2", 3),
    ],
)
def test_anything_else_is_an_error_that_names_the_line(text: str, line: int) -> None:
    with pytest.raises(EnvFileError, match=f"line {line} is not of the form"):
        parse_env_file(text)


KEYS = st.text(alphabet="ABC_.-x1", min_size=1, max_size=5)
VALUES = st.text(st.characters(codec="utf-8", exclude_characters="'\r")).map(str)


@given(st.dictionaries(KEYS, VALUES))
def test_what_is_written_is_read_back(entries: dict[str, str]) -> None:
    text = "".join(f"{key}='{value}'\n" for key, value in entries.items())
    assert parse_env_file(text) == entries


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    with suppress(EnvFileError):
        assert all("'" not in value for value in parse_env_file(text).values())


def test_a_file_is_read_in_its_volume(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "env").write_text("A='1'")
    assert read_env_file(str(tmp_path), "a/b/env") == {"A": "1"}
    assert read_env_file(str(tmp_path), "a/env") is None
    assert read_env_file(str(tmp_path), "none/env") is None
    assert read_env_file(str(tmp_path), "a/b/env/more") is None


def test_nothing_leads_out_of_the_volume(tmp_path: Path) -> None:
    volume = tmp_path / "volume"
    (volume / "dir").mkdir(parents=True)
    (tmp_path / "secret").write_text("A='1'")
    (volume / "link").symlink_to(tmp_path / "secret")
    (volume / "up").symlink_to(tmp_path)
    for path in ("link", "up/secret"):
        with pytest.raises(EnvFileError, match="symbolic link"):
            read_env_file(str(volume), path)
    with pytest.raises(EnvFileError, match="out of the volume"):
        read_env_file(str(volume), "dir/../../secret")


def test_only_a_regular_file_of_some_size_is_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "dir").mkdir()
    (tmp_path / "big").write_text("A='" + "x" * MAX_FILE + "'")
    for path in ("fifo", "dir"):
        with pytest.raises((EnvFileError, OSError)):
            read_env_file(str(tmp_path), path)
    with pytest.raises(EnvFileError, match="longer than 65536 bytes"):
        read_env_file(str(tmp_path), "big")
