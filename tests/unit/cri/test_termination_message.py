"""docs/behaviour/phase.md, "Container statuses": what an ended container left as its last words."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.unit.cri.fake_runtime import container_status

from nodeagent.cri.termination import MESSAGE_LIMIT, TERMINATION_PATH_ANNOTATION, final_message
from nodeagent.proto.runtime import v1

pytestmark = pytest.mark.anyio

EXITED = v1.ContainerState.CONTAINER_EXITED
PATH = "/dev/termination-log"


def ended(
    *sources: Path, message: str = "", state: v1.ContainerState = EXITED
) -> v1.ContainerStatus:
    return container_status(
        "c",
        state=state,
        message=message,
        annotations={TERMINATION_PATH_ANNOTATION: PATH},
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
