"""Log lines for people and for machines."""

from __future__ import annotations

import errno
import io
import json
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nodeagent.cli import log_setup
from nodeagent.cli.log_setup import JsonFormatter, TextFormatter, set_up_logging
from nodeagent.log import TRACE, Log, Written

LOGGER = logging.getLogger("nodeagent")


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    """Put the package's logger back as it was."""
    handlers, level, propagate = list(LOGGER.handlers), LOGGER.level, LOGGER.propagate
    yield
    LOGGER.handlers[:] = handlers
    LOGGER.setLevel(level)
    LOGGER.propagate = propagate


def make_record(event: str = "relisted", **fields: Any) -> logging.LogRecord:
    record = logging.LogRecord("nodeagent.pleg", logging.INFO, "f", 1, event, (), None)
    record.created = 1_767_225_600.0009
    record.fields = fields
    return record


def text(**fields: Any) -> str:
    line = TextFormatter().format(make_record(**fields))
    return line.removeprefix("2026-01-01T00:00:00.000Z INFO    pleg relisted").removeprefix(" ")


def entry(**fields: Any) -> dict[str, Any]:
    line = JsonFormatter().format(make_record(**fields))
    assert "\n" not in line
    found: dict[str, Any] = json.loads(line)
    return found


def test_a_text_line_has_time_level_part_event_and_fields() -> None:
    line = TextFormatter().format(make_record(pods=3, why="period"))
    assert line == "2026-01-01T00:00:00.000Z INFO    pleg relisted pods=3 why=period"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("plain", "plain"),
        ("two words", '"two words"'),
        ("", '""'),
        ("a=b", '"a=b"'),
        ('say "x"', '"say \\"x\\""'),
        ("line\nbreak", '"line\\nbreak"'),
        ("café", "café"),
        ("café au lait", '"café au lait"'),
        ("\x1b[31mred", '"\\u001b[31mred"'),
        ("bell\x07", '"bell\\u0007"'),
        ("c1\x9bm", '"c1\\u009bm"'),
        ("name \udcff", '"name \\udcff"'),
        ("name\udcff", '"name\\udcff"'),
        ("\u202egnp.exe", '"\\u202egnp.exe"'),
        (None, "None"),
        (1.5, "1.5"),
        (Path("/a b"), '"/a b"'),
        (("a", "b"), "\"('a', 'b')\""),
    ],
)
def test_a_value_stays_on_its_line_and_steers_no_terminal(value: Any, shown: str) -> None:
    line = text(v=value)
    assert line == f"v={shown}"
    assert line.isprintable()
    line.encode()


def test_a_json_line_is_one_object() -> None:
    assert entry(pods=3, why="two words", path=Path("/x")) == {
        "ts": "2026-01-01T00:00:00.000Z",
        "level": "info",
        "logger": "nodeagent.pleg",
        "event": "relisted",
        "pods": 3,
        "why": "two words",
        "path": "/x",
    }


def test_a_field_named_like_one_of_the_line_loses_neither() -> None:
    record = make_record(event_="x")
    record.fields = {"event": "died", "level": 7, "ts": "now"}
    found = json.loads(JsonFormatter().format(record))
    assert (found["event"], found["level"]) == ("relisted", "info")
    assert (found["event_"], found["level_"], found["ts_"]) == ("died", 7, "now")


@pytest.mark.parametrize("value", ["\udcff", object(), {1, 2}, {(1,): 2}, ValueError("x"), 2**70])
def test_every_value_gives_a_json_line(value: Any) -> None:
    assert "v" in entry(v=value)


def test_a_record_without_fields_is_a_line_too() -> None:
    record = logging.LogRecord("nodeagent.x", logging.WARNING, "f", 1, "plain %s", ("x",), None)
    assert TextFormatter().format(record).endswith("WARNING x plain x")
    assert json.loads(JsonFormatter().format(record))["event"] == "plain x"


def failed() -> logging.LogRecord:
    try:
        raise ValueError("boom")
    except ValueError as error:
        record = make_record()
        record.exc_info = (type(error), error, error.__traceback__)
        return record


def test_a_traceback_stands_below_the_line_or_in_a_field() -> None:
    lines = TextFormatter().format(failed()).splitlines()
    assert lines[1] == "Traceback (most recent call last):"
    assert lines[-1] == "ValueError: boom"
    found = json.loads(JsonFormatter().format(failed()))
    assert found["traceback"].splitlines()[-1] == "ValueError: boom"


@pytest.mark.parametrize(
    ("verbosity", "level"),
    [
        (0, logging.INFO),
        (2, logging.INFO),
        (3, logging.DEBUG),
        (4, logging.DEBUG),
        (5, TRACE),
        (10, TRACE),
    ],
)
def test_verbosity_counts_as_the_kubelets(verbosity: int, level: int) -> None:
    set_up_logging("text", verbosity)
    assert LOGGER.level == level


def test_logging_goes_to_standard_error_once(capsys: pytest.CaptureFixture[str]) -> None:
    set_up_logging("text", 2)
    set_up_logging("text", 2)
    Log("pleg").info("relisted", pods=3)
    Log("pleg").debug("hidden")
    told = capsys.readouterr()
    assert told.out == ""
    assert re.fullmatch(r"\S+Z INFO    pleg relisted pods=3\n", told.err)


def test_json_is_chosen_by_its_name(capsys: pytest.CaptureFixture[str]) -> None:
    set_up_logging("json", 2)
    Log("pleg").info("relisted", pods=3)
    assert json.loads(capsys.readouterr().err)["pods"] == 3


def test_other_loggers_are_left_alone() -> None:
    before = list(logging.getLogger().handlers)
    set_up_logging("text", 2)
    assert logging.getLogger().handlers == before


class Full(io.StringIO):
    """Standard error on a disk that is full, until there is room."""

    full = True

    def write(self, text: str) -> int:
        if self.full:
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().write(text)


def test_lines_that_are_lost_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    stream, noted = Full(), Written()
    monkeypatch.setattr(log_setup, "written", noted)
    handler = log_setup.StandardError(stream)
    record = logging.LogRecord("nodeagent.x", logging.INFO, "", 0, "event", (), None)
    assert noted.trouble(0) == ""
    handler.emit(record)
    assert noted.trouble(0) == "No space left on device"
    assert noted.trouble(3600) == ""
    stream.full = False
    handler.emit(record)
    assert noted.trouble(0) == ""
    assert stream.getvalue() == "event\n"
