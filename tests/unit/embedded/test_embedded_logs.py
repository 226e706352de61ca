"""Log records and log files of the process backend."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.embedded.process.launcher.logs import MAX_LINE, LineCutter, LogFile, open_log, stamp

NOW = 1_700_000_000_000_000_007
RECORD = re.compile(rb"(\S+) (stdout|stderr) ([FP]) (.*)", re.DOTALL)


def test_a_record_has_time_stream_tag_and_content() -> None:
    cutter = LineCutter("stdout")
    assert cutter.feed(b"hello\n", NOW) == b"2023-11-14T22:13:20.000000007Z stdout F hello\n"


def test_times_have_nine_decimals() -> None:
    assert stamp(0) == b"1970-01-01T00:00:00.000000000Z"
    assert stamp(1_500_000_000) == b"1970-01-01T00:00:01.500000000Z"


def test_a_line_is_written_when_it_is_complete_and_its_rest_at_the_end() -> None:
    cutter = LineCutter("stderr")
    assert cutter.feed(b"one", NOW) == b""
    assert cutter.feed(b" line\ntwo", NOW).endswith(b" stderr F one line\n")
    assert cutter.finish(NOW).endswith(b" stderr P two\n")
    assert cutter.finish(NOW) == b""


def test_a_long_line_is_cut_into_partial_records() -> None:
    cutter = LineCutter("stdout")
    records = cutter.feed(b"x" * (2 * MAX_LINE + 5) + b"\n", NOW).splitlines()
    tags = [RECORD.fullmatch(record) for record in records]
    assert [(match[3], len(match[4])) for match in tags if match] == [
        (b"P", MAX_LINE),
        (b"P", MAX_LINE),
        (b"F", 5),
    ]


@given(st.lists(st.binary(max_size=3 * MAX_LINE // 2), max_size=6))
def test_nothing_is_lost_however_the_output_comes(chunks: list[bytes]) -> None:
    cutter = LineCutter("stdout")
    out = b"".join([*(cutter.feed(chunk, NOW) for chunk in chunks), cutter.finish(NOW)])
    content = b""
    for record in out.split(b"\n")[:-1]:
        match = RECORD.fullmatch(record)
        assert match is not None
        assert len(match[4]) <= MAX_LINE
        content += match[4] + (b"\n" if match[3] == b"F" else b"")
    assert content == b"".join(chunks)


def test_a_log_file_and_its_directories_are_made_with_modest_permissions(tmp_path: Path) -> None:
    os.close(open_log(str(tmp_path / "logs"), "web/0.log"))
    assert (tmp_path / "logs/web/0.log").stat().st_mode & 0o777 == 0o640
    assert (tmp_path / "logs/web").is_dir()


def test_a_log_file_is_appended_to(tmp_path: Path) -> None:
    for text in (b"one\n", b"two\n"):
        LogFile(str(tmp_path), "0.log").write(text)
    assert (tmp_path / "0.log").read_bytes() == b"one\ntwo\n"


def test_symbolic_links_are_not_followed(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("keep")
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "0.log").symlink_to(secret)
    (logs / "web").symlink_to(tmp_path)
    for path in ("0.log", "web/secret"):
        with pytest.raises(OSError):
            open_log(str(logs), path)
    assert secret.read_text() == "keep"


@pytest.mark.parametrize("path", ["", "/etc/passwd", "../x", "a/../../x", "a//b", "./a", "a/"])
def test_a_path_stays_in_its_directory(tmp_path: Path, path: str) -> None:
    with pytest.raises(OSError, match="not a plain relative path"):
        open_log(str(tmp_path), path)


def test_reopening_goes_on_in_a_new_file(tmp_path: Path) -> None:
    log = LogFile(str(tmp_path), "0.log")
    log.write(b"old\n")
    (tmp_path / "0.log").rename(tmp_path / "0.log.1")
    log.write(b"still old\n")
    log.reopen()
    log.write(b"new\n")
    assert (tmp_path / "0.log.1").read_bytes() == b"old\nstill old\n"
    assert (tmp_path / "0.log").read_bytes() == b"new\n"


def test_a_log_that_cannot_be_reopened_goes_on_in_the_old_file(tmp_path: Path) -> None:
    directory = tmp_path / "logs"
    log = LogFile(str(directory), "0.log")
    directory.rename(tmp_path / "moved")
    directory.write_text("a file is in the way")
    log.reopen()
    log.write(b"more\n")
    assert (tmp_path / "moved/0.log").read_bytes() == b"more\n"


def test_what_a_full_disk_does_not_take_is_lost_and_nothing_else_happens(tmp_path: Path) -> None:
    (tmp_path / "full").symlink_to("/dev/full")
    log = LogFile(str(tmp_path), "0.log")
    with Path("/dev/full").open("wb", buffering=0) as full:
        os.dup2(full.fileno(), log._fd)
    log.write(b"lost\n")
