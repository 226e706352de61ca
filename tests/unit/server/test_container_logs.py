"""What a client gets of a container's log: docs/behaviour/server.md, "Container logs"."""

from __future__ import annotations

import os
import re
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from nodeagent.api import Pod, PodStatus
from nodeagent.api.status import (
    ContainerState,
    ContainerStateRunning,
    ContainerStateTerminated,
    ContainerStateWaiting,
    ContainerStatus,
)
from nodeagent.server import Request
from nodeagent.server.kubelet.log_files import LogFileError, open_log, tail_start
from nodeagent.server.kubelet.log_lines import LONGEST_LINE, LogLines, UnsupportedLogError
from nodeagent.server.kubelet.log_request import (
    InvalidQueryError,
    LogRequest,
    UndecodableQueryError,
    log_request,
    parse_time,
)
from nodeagent.server.kubelet.targets import NoLogError, has_container, log_container
from nodeagent.testing import make_container, make_pod

NOW = datetime(2026, 5, 1, 12, 0, 10, tzinfo=UTC)

LOG = (
    b"2026-05-01T12:00:00.1Z stdout F one\n"
    b"2026-05-01T12:00:01Z stderr F two\n"
    b"2026-05-01T12:00:02.123456789Z stdout P thr\n"
    b"2026-05-01T12:00:02.2Z stdout F ee\n"
    b"2026-05-01T14:00:03+02:00 stdout F four\n"
)


def asked(query: str) -> LogRequest:
    return log_request(Request.of("GET", f"/containerLogs/a/b/c?{query}"), NOW)


def shown(query: str, log: bytes = LOG, pieces: int = 7) -> bytes:
    """What a client gets, fed piece by piece."""
    lines = LogLines(asked(query))
    found = [lines.feed(log[at : at + pieces]) for at in range(0, len(log), pieces)]
    return b"".join(found) + lines.finish()


def test_hl1_without_parameters_parts_are_joined_and_times_left_out() -> None:
    assert shown("") == b"one\ntwo\nthree\nfour\n"
    assert shown("", pieces=10_000) == b"one\ntwo\nthree\nfour\n"


@pytest.mark.parametrize("name", ["follow", "previous", "timestamps"])
@pytest.mark.parametrize(
    ("text", "value"),
    [("=true", True), ("", True), ("=", True), ("=1", True), ("=0", False), ("=false", False)],
)
def test_hl2_a_flag_is_on_unless_it_says_no(name: str, text: str, value: bool) -> None:
    assert getattr(asked(f"{name}{text}"), name) is value
    assert getattr(asked(""), name) is False


def test_hl3_times_have_nine_digits_and_stand_before_lines_only() -> None:
    assert shown("timestamps").decode().splitlines() == [
        "2026-05-01T12:00:00.100000000Z one",
        "2026-05-01T12:00:01.000000000Z two",
        "2026-05-01T12:00:02.123456789Z three",
        "2026-05-01T14:00:03.000000000+02:00 four",
    ]


def tail_of(log: bytes, lines: int, tmp_path: Path) -> bytes:
    path = tmp_path / "0.log"
    path.write_bytes(log)
    file = open_log(path, lines)
    try:
        return os.read(file.descriptor, len(log) + 1)
    finally:
        file.close()


def test_hl4_lines_are_counted_from_the_end(tmp_path: Path) -> None:
    lines = LOG.splitlines(keepends=True)
    for count in range(len(lines) + 2):
        assert tail_of(LOG, count, tmp_path) == b"".join(lines[max(len(lines) - count, 0) :])
    rest = LOG + b"2026-05-01T12:00:04Z stdout F unfin"
    assert tail_of(rest, 1, tmp_path) == lines[-1] + b"2026-05-01T12:00:04Z stdout F unfin"
    assert asked("tailLines=3").tail == 3
    assert asked("tail=3").tail == 3
    assert asked("tail=all").tail is None
    assert shown("tailLines=2", b"".join(lines[-2:])) == b"ee\nfour\n"
    assert shown("tailLines=0", b"") == b""


@given(st.binary(max_size=300).map(lambda data: data.replace(b"\x01", b"\n")), st.integers(0, 20))
def test_hl4_the_tail_is_what_reading_forwards_finds(data: bytes, lines: int) -> None:
    descriptor = os.memfd_create("log")
    try:
        os.write(descriptor, data)
        start = tail_start(descriptor, len(data), lines)
    finally:
        os.close(descriptor)
    whole = data[: data.rfind(b"\n") + 1].split(b"\n")[:-1]
    kept = whole[max(len(whole) - lines, 0) :]
    assert data[start:] == b"".join(line + b"\n" for line in kept) + data[data.rfind(b"\n") + 1 :]


def test_hl4_of_a_large_file_only_the_end_is_read(tmp_path: Path) -> None:
    path = tmp_path / "large"
    with path.open("wb") as file:
        file.truncate(1 << 40)
        file.seek(1 << 40)
        file.write(LOG)
    found = open_log(path, 2)
    try:
        assert os.read(found.descriptor, 1000) == b"".join(LOG.splitlines(keepends=True)[-2:])
    finally:
        found.close()


def test_hl5_lines_since_a_moment() -> None:
    assert shown("sinceTime=2026-05-01T12:00:02Z") == b"three\nfour\n"
    assert shown("sinceTime=2026-05-01T12:00:02.2Z") == b"ee\nfour\n"
    assert shown("sinceTime=2026-05-01T13:00:03%2B01:00") == b"four\n"
    assert shown("sinceSeconds=9") == b"two\nthree\nfour\n"
    assert shown("sinceSeconds=9223372036854775807") == b"one\ntwo\nthree\nfour\n"


@pytest.mark.parametrize("limit", range(1, 25))
def test_hl6_so_many_bytes_and_no_more(limit: int) -> None:
    assert shown(f"limitBytes={limit}") == b"one\ntwo\nthree\nfour\n"[:limit]
    whole = shown("timestamps")
    assert shown(f"timestamps&limitBytes={limit}") == whole[:limit]
    lines = LogLines(asked("limitBytes=4"))
    assert lines.feed(LOG) == b"one\n"
    assert lines.done


def test_hl7_one_of_the_streams() -> None:
    assert shown("stream=Stdout") == b"one\nthree\nfour\n"
    assert shown("stream=Stderr") == b"two\n"
    assert shown("stream=All") == shown("")


@pytest.mark.parametrize(
    "query",
    [
        "tailLines=x",
        "tailLines=1.5",
        "limitBytes=0x10",
        "sinceSeconds=9223372036854775808",
        "sinceTime=yesterday",
        "sinceTime=2026-13-01T00:00:00Z",
        "sinceTime=2026-05-01T00:00:00",
        "tailLines=99999999999999999999999",
        "tailLines=%D9%A3",
    ],
)
def test_hl8_what_is_not_written_well_is_not_decoded(query: str) -> None:
    with pytest.raises(UndecodableQueryError):
        asked(query)


@pytest.mark.parametrize(
    "query",
    [
        "tailLines=-1",
        "limitBytes=0",
        "limitBytes=-5",
        "sinceSeconds=0",
        "sinceSeconds=-9",
        "sinceSeconds=1&sinceTime=2026-05-01T00:00:00Z",
        "stream=Nothing",
        "stream=Stdout&tailLines=1",
    ],
)
def test_hl9_what_makes_no_sense_is_invalid(query: str) -> None:
    with pytest.raises(InvalidQueryError):
        asked(query)


def test_hl13_what_is_no_log_is_told(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedLogError, match="unsupported log format: 'hello'"):
        shown("", b"hello\nworld\n")
    with pytest.raises(UnsupportedLogError):
        shown("", b"yesterday stdout F one\n")
    with pytest.raises(LogFileError, match="no such file"):
        open_log(tmp_path / "no")
    with pytest.raises(LogFileError, match="not a regular file"):
        open_log(tmp_path)
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(LogFileError, match="not a regular file"):
        open_log(tmp_path / "fifo")


def test_hl14_further_lines_that_cannot_be_read_are_skipped() -> None:
    first, *rest = LOG.splitlines(keepends=True)
    assert shown("", first + b"garbage\n" + b"".join(rest)) == b"one\ntwo\nthree\nfour\n"
    long = b"x" * (LONGEST_LINE + 10)
    assert shown("", first + long + b"\n" + rest[0], 300_000) == b"one\ntwo\n"


def test_hl15_no_line_however_long_is_kept_in_memory() -> None:
    lines = LogLines(LogRequest())
    for _ in range(200):
        lines.feed(b"x" * 256 * 1024)
        assert len(lines._rest) <= LONGEST_LINE + 256 * 1024


def test_a_last_line_without_an_end_is_shown() -> None:
    assert (
        shown("", LOG + b"2026-05-01T12:00:04Z stdout F unfin") == b"one\ntwo\nthree\nfour\nunfin"
    )


def test_what_a_container_writes_stays_as_it_is() -> None:
    odd = b"2026-05-01T12:00:00Z stdout F a\rb\x0b\xff\xfe  c \n2026-05-01T12:00:00Z stdout F \n"
    assert shown("", odd) == b"a\rb\x0b\xff\xfe  c \n\n"
    assert shown("timestamps", odd).count(b"2026-") == 2


_TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\n"), max_size=12)
_ENTRIES = st.lists(
    st.tuples(st.integers(0, 10**10), st.sampled_from(["stdout", "stderr"]), st.booleans(), _TEXTS)
)


_QUERIES = (
    "",
    "timestamps",
    "stream=Stderr",
    "sinceTime=2026-05-01T12:00:05.5Z",
    "timestamps&stream=Stdout&sinceTime=2026-05-01T12:00:04Z",
    "sinceTime=9999-12-31T23:59:59-10:00",
    "sinceTime=0001-01-01T00:00:00Z",
)


@given(_ENTRIES, st.integers(1, 60), st.sampled_from(_QUERIES))
def test_the_pieces_in_which_a_log_comes_do_not_matter(
    entries: list[tuple[int, str, bool, str]], pieces: int, query: str
) -> None:
    log = "".join(
        f"2026-05-01T12:00:{at // 10**9:02}.{at % 10**9:09}Z {stream} {'PF'[full]} {text}\n"
        for at, stream, full, text in entries
    ).encode()
    assert shown(query, log, pieces) == shown(query, log, len(log) + 1)
    zoned = log.replace(b"Z std", b"+00:00 std")
    assert shown(query, zoned).replace(b"+00:00", b"Z") == shown(query, log)
    if not query:
        said = "".join(text + "\n" * full for _, _, full, text in entries)
        assert shown("", log, pieces) == said.encode()


@given(st.integers(0, 2**32), st.integers(0, 10**9 - 1))
def test_times_are_read_to_the_nanosecond(seconds: int, nanos: int) -> None:
    text = f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{nanos:09}Z"
    assert parse_time(text) == seconds * 10**9 + nanos


# -- which log ---------------------------------------------------------------------------------


def pod_with(
    state: ContainerState | None = None,
    last_state: ContainerState | None = None,
    container_id: str = "",
) -> Pod:
    none = ContainerState()
    status = ContainerStatus(
        name="c", state=state or none, last_state=last_state or none, container_id=container_id
    )
    pod = make_pod("p", make_container("c"))
    return replace(pod, status=PodStatus(container_statuses=(status,)))


def ended(container_id: str = "") -> ContainerState:
    return ContainerState(terminated=ContainerStateTerminated(container_id=container_id))


def waiting(reason: str) -> ContainerState:
    return ContainerState(waiting=ContainerStateWaiting(reason=reason))


RUNNING = ContainerState(running=ContainerStateRunning())


def test_hl11_containers_of_every_kind_are_known() -> None:
    pod = make_pod("p", make_container("c"), init_containers=(make_container("i"),))
    assert has_container(pod, "c")
    assert has_container(pod, "i")
    assert not has_container(pod, "x")


@pytest.mark.parametrize(
    ("pod", "previous", "found"),
    [
        (pod_with(state=RUNNING, container_id="containerd://a"), False, "a"),
        (pod_with(state=ended("containerd://b")), False, "b"),
        (pod_with(state=ended(), last_state=ended("x://c")), False, "c"),
        (pod_with(state=waiting("CrashLoopBackOff"), last_state=ended("x://d")), False, "d"),
        (pod_with(state=RUNNING, container_id="x://a", last_state=ended("x://e")), True, "e"),
    ],
)
def test_the_log_is_that_of_the_newest_run(pod: Pod, previous: bool, found: str) -> None:
    assert log_container(pod, "c", previous=previous) == found


@pytest.mark.parametrize(
    ("pod", "previous", "why"),
    [
        (make_pod("p", make_container("c")), False, 'container "c" in pod "p" is not available'),
        (
            pod_with(state=RUNNING, container_id="x://a"),
            True,
            'previous terminated container "c" in pod "p" not found',
        ),
        (pod_with(state=ended()), False, 'container "c" in pod "p" is terminated'),
        (
            pod_with(state=waiting("ContainerCreating")),
            False,
            'container "c" in pod "p" is waiting to start: ContainerCreating',
        ),
        (
            pod_with(state=waiting("ErrImagePull")),
            False,
            'container "c" in pod "p" is waiting to start: image can\'t be pulled',
        ),
        (
            pod_with(state=waiting("ImagePullBackOff")),
            False,
            'container "c" in pod "p" is waiting to start: trying and failing to pull image',
        ),
        (pod_with(), False, 'container "c" in pod "p" is waiting to start - no logs yet'),
    ],
)
def test_hl12_why_there_is_no_log(pod: Pod, previous: bool, why: str) -> None:
    with pytest.raises(NoLogError, match=f"^{re.escape(why)}$"):
        log_container(pod, "c", previous=previous)
