"""What an ended container left as its last words.

docs/behaviour/runtime.md, "Termination message"; docs/behaviour/phase.md, "Container statuses".
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from tests.unit.cri.fake_runtime import container_status

from nodeagent.cri.log_tail import MAX_BYTES, tail_log
from nodeagent.cri.termination import (
    MESSAGE_LIMIT,
    TERMINATION_PATH_ANNOTATION,
    TERMINATION_POLICY_ANNOTATION,
    final_message,
)
from nodeagent.proto.runtime import v1

pytestmark = pytest.mark.anyio

EXITED = v1.ContainerState.CONTAINER_EXITED
PATH = "/dev/termination-log"


def ended(
    *sources: Path,
    message: str = "",
    state: v1.ContainerState = EXITED,
    policy: str = "File",
    **fields: Any,
) -> v1.ContainerStatus:
    return container_status(
        "c",
        state=state,
        message=message,
        annotations={TERMINATION_PATH_ANNOTATION: PATH, TERMINATION_POLICY_ANNOTATION: policy},
        **fields,
        mounts=[v1.Mount(container_path=PATH, host_path=str(source)) for source in sources],
    )


async def test_the_log_follows_the_message_of_the_runtime(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("no database")
    assert await final_message(ended(log)) == "no database"
    assert await final_message(ended(log, message="killed")) == "killed: no database"
    log.write_text("")
    assert await final_message(ended(log, message="killed")) == "killed"


async def test_a_container_that_has_not_ended_or_has_no_log_has_no_last_words(
    tmp_path: Path,
) -> None:
    log = tmp_path / "log"
    log.write_text("not yet")
    running = v1.ContainerState.CONTAINER_RUNNING
    assert await final_message(ended(log, message="m", state=running)) == "m"
    assert await final_message(ended(message="m")) == "m"
    assert await final_message(container_status("c", state=EXITED, message="m")) == "m"


async def test_the_end_of_a_long_log_counts_whatever_bytes_it_has(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"begin" + b"x" * MESSAGE_LIMIT + b"\xff end")
    words = await final_message(ended(log))
    assert len(words) == MESSAGE_LIMIT
    assert words.endswith("x\ufffd end")


async def test_the_last_mount_on_the_path_is_the_log(tmp_path: Path) -> None:
    volume, log = tmp_path / "volume", tmp_path / "log"
    volume.write_text("of a volume")
    log.write_text("of the container")
    assert await final_message(ended(volume, log)) == "of the container"


async def test_a_log_that_cannot_be_read_says_so(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    assert await final_message(ended(fifo)) == (
        f"cannot read the termination log {fifo}: not a regular file"
    )
    assert "No such file" in await final_message(ended(tmp_path / "gone"))


FALL_BACK = "FallbackToLogsOnError"
STAMP = "2030-01-01T00:00:00.000000001Z"


def written(path: Path, *lines: str) -> Path:
    path.write_text("".join(f"{STAMP} {line}\n" for line in lines))
    return path


def said(log: Path, **fields: Any) -> dict[str, Any]:
    return {"policy": FALL_BACK, "exit_code": 1, "log_path": str(log), **fields}


async def test_a_log_speaks_for_a_container_that_failed_without_words(tmp_path: Path) -> None:
    words, log = tmp_path / "words", written(tmp_path / "0.log", "stderr F no db", "stdout F bye")
    words.touch()
    assert await final_message(ended(words, **said(log))) == "no db\nbye\n"
    assert await final_message(ended(words, message="m", **said(log))) == "m: no db\nbye\n"
    assert await final_message(ended(**said(log))) == "no db\nbye\n"
    assert await final_message(ended(tmp_path / "gone", **said(log))) == "no db\nbye\n"
    words.write_text("own words")
    assert await final_message(ended(words, **said(log))) == "own words"


@pytest.mark.parametrize(
    "fields", [{"exit_code": 0}, {"reason": "ContainerCannotRun"}, {"policy": "File"}]
)
async def test_it_does_not_when_all_is_well_or_nothing_ran_or_nobody_asks(
    tmp_path: Path, fields: dict[str, Any]
) -> None:
    words, log = tmp_path / "words", written(tmp_path / "0.log", "stderr F no db")
    words.touch()
    assert await final_message(ended(words, **said(log, **fields))) == ""


async def test_a_log_that_is_not_there_says_so(tmp_path: Path) -> None:
    log = tmp_path / "0.log"
    told = await final_message(ended(**said(log)))
    assert told == f"cannot read the log {log}: No such file or directory"


def test_the_last_80_lines_and_of_them_the_last_2048_bytes_count(tmp_path: Path) -> None:
    log = written(tmp_path / "0.log", *(f"stdout F {n:03}" for n in range(100)))
    assert tail_log(str(log)).split() == [f"{n:03}" for n in range(20, 100)]
    written(log, *(f"stdout F {n:03}{'x' * 96}" for n in range(100)))
    tail = tail_log(str(log))
    assert len(tail) == MAX_BYTES
    assert tail.endswith("x\n")


def test_partial_lines_are_joined_and_lines_of_docker_are_read(tmp_path: Path) -> None:
    log = written(
        tmp_path / "0.log", "stdout P one ", "stdout F two", "stderr F", "stdout F  x ", "garbage"
    )
    with log.open("a") as file:
        file.write('{"log":"json é\\n","stream":"stdout","time":"x"}\n{"log":\n{"x": 1}\nnoise')
    assert tail_log(str(log)) == "one two\n\n x \njson é\n"


def test_an_endless_line_does_no_harm(tmp_path: Path) -> None:
    log = written(tmp_path / "0.log", "stdout F " + "x" * 300_000, "stdout F end")
    assert tail_log(str(log)) == "end\n"
    written(log, "stdout F " + "x" * 300_000)
    assert tail_log(str(log)) == ""
