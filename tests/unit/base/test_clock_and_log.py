"""The wall clock, and structured logging."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest

from nodeagent import clock as clock_module
from nodeagent.clock import Clock, SystemClock, boot_id
from nodeagent.log import TRACE, Log, log_context


class Kept(logging.Handler):
    """Keeps records as they are."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)

    def fields(self) -> list[dict[str, Any]]:
        return [getattr(record, "fields", {}) for record in self.records]


@pytest.fixture
def kept() -> Iterator[Kept]:
    logger = logging.getLogger("nodeagent.basetest")
    handler = Kept()
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield handler
    logger.removeHandler(handler)
    logger.setLevel(logging.NOTSET)


def test_both_readings_of_the_clock_are_the_same_moment_in_utc() -> None:
    clock: Clock = SystemClock()
    before, now, after = clock.time_ns(), clock.now(), clock.time_ns()
    assert now.utcoffset() == timedelta(0)
    assert now.tzinfo is UTC
    assert before / 1e9 - 1e-3 <= now.timestamp() <= after / 1e9 + 1e-3


def test_a_boot_has_one_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert boot_id() == boot_id() != ""
    monkeypatch.setattr(clock_module, "_BOOT_ID", tmp_path / "not there")
    assert boot_id() == ""


def test_every_logger_lives_below_the_package() -> None:
    assert Log("pleg")._logger.name == "nodeagent.pleg"
    assert Log("nodeagent.pleg")._logger.name == "nodeagent.pleg"
    assert Log("nodeagent")._logger.name == "nodeagent"
    assert Log("nodeagents")._logger.name == "nodeagent.nodeagents"


def test_nothing_is_configured_at_import() -> None:
    # In a process of its own: other tests set up logging as commands do.
    code = (
        "import logging, nodeagent.agent; logger = logging.getLogger('nodeagent');"
        "print([type(handler).__name__ for handler in logger.handlers], logger.propagate)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "['NullHandler'] True\n"


def test_an_event_carries_its_fields(kept: Kept) -> None:
    Log("basetest").info("relisted", pods=3, why="period")
    (record,) = kept.records
    assert (record.getMessage(), record.levelno) == ("relisted", logging.INFO)
    assert kept.fields() == [{"pods": 3, "why": "period"}]


def test_percent_signs_and_odd_field_names_do_no_harm(kept: Kept) -> None:
    Log("basetest").info("100% done", event="x", level="y", msg="z", name="n", args=(1,))
    (record,) = kept.records
    assert record.getMessage() == "100% done"
    assert kept.fields() == [{"event": "x", "level": "y", "msg": "z", "name": "n", "args": (1,)}]


def test_the_levels_are_those_of_the_standard_library(kept: Kept) -> None:
    log = Log("basetest")
    log.debug("hidden")
    log.info("a")
    log.warning("b")
    log.error("c")
    assert [r.levelno for r in kept.records] == [logging.INFO, logging.WARNING, logging.ERROR]
    assert TRACE < logging.DEBUG


def test_a_bound_logger_adds_its_fields_and_the_call_wins(kept: Kept) -> None:
    log = Log("basetest", {"node": "n1"})
    bound = log.bind(pod="web").bind(uid="u1")
    bound.info("synced", pod="other")
    log.info("plain")
    assert kept.fields() == [{"node": "n1", "pod": "other", "uid": "u1"}, {"node": "n1"}]


def test_a_fault_carries_its_traceback(kept: Kept) -> None:
    try:
        raise KeyError("boom")
    except KeyError as error:
        Log("basetest").fault("handler_failed", error, channel="config")
    (record,) = kept.records
    assert record.levelno == logging.ERROR
    assert kept.fields() == [{"channel": "config", "error": "KeyError('boom')"}]
    assert record.exc_info is not None
    assert record.exc_info[0] is KeyError


def test_context_fields_end_with_their_block_and_inner_ones_win(kept: Kept) -> None:
    log = Log("basetest", {"part": "p"})
    with log_context(pod="outer", uid="u"):
        with log_context(pod="inner"):
            log.info("a")
        log.info("b")
    log.info("c")
    assert kept.fields() == [
        {"pod": "inner", "uid": "u", "part": "p"},
        {"pod": "outer", "uid": "u", "part": "p"},
        {"part": "p"},
    ]


def test_context_fields_end_when_the_block_fails(kept: Kept) -> None:
    with pytest.raises(ValueError, match="x"), log_context(pod="a"):
        raise ValueError("x")
    Log("basetest").info("after")
    assert kept.fields() == [{}]


@pytest.mark.anyio
async def test_context_fields_follow_into_child_tasks_and_not_into_siblings(kept: Kept) -> None:
    log = Log("basetest")

    async def child() -> None:
        await anyio.sleep(1)
        log.info("child")

    async with anyio.create_task_group() as tg:
        with log_context(pod="a"):
            tg.start_soon(child)
        tg.start_soon(child)
        log.info("parent")
    assert kept.fields() == [{}, {"pod": "a"}, {}]
