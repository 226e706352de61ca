"""docs/behaviour/server.md, "Logs of services"."""

from __future__ import annotations

import stat
from datetime import UTC, datetime
from pathlib import Path

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.server.api_lab import api_lab, head

from nodeagent.server.app import Request
from nodeagent.server.kubelet import node_log_query
from nodeagent.server.kubelet.node_log_query import (
    NodeLogQuery,
    SenselessError,
    UnreadableError,
    parse_query,
)

pytestmark = [pytest.mark.anyio, pytest.mark.realtime]

ARGUMENTS = "--utc --no-pager --quiet --output=short-precise"


def asked(query: str) -> NodeLogQuery:
    return parse_query(Request.of("GET", f"/logs/?{query}"))


def program(directory: Path, text: str) -> tuple[str]:
    """A program in the place of journalctl."""
    file = directory / "journal"
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(file.stat().st_mode | stat.S_IXUSR)
    return (str(file),)


def test_hq1_what_is_asked_for() -> None:
    found = asked(
        "query=kubelet&query=a.b_c:d@e-f&sinceTime=2026-01-02T03:04:05Z"
        "&untilTime=2026-01-02T04:04:05%2B01:00&tailLines=7&pattern=a%20b&boot=-1"
    )
    moment = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    assert found == NodeLogQuery(
        services=("kubelet", "a.b_c:d@e-f"),
        since=moment,
        until=moment,
        tail=7,
        pattern="a b",
        boot=-1,
    )
    assert " ".join(found.arguments("kubelet")) == (
        f"{ARGUMENTS} --since=2026-01-02 03:04:05 --until=2026-01-02 03:04:05 --lines=7 "
        "--grep=a b --case-sensitive=false --boot=-1 --unit=kubelet"
    )
    assert asked("query=syslog/x") == NodeLogQuery(file="syslog/x")


@pytest.mark.parametrize("query", ["tailLines=x", "boot=1.5", "sinceTime=now", "untilTime=1"])
def test_hq4_what_cannot_be_read(query: str) -> None:
    with pytest.raises(UnreadableError):
        asked(f"query=kubelet&{query}")


@pytest.mark.parametrize(
    "query",
    [
        "query=",
        "query=a&query=b&query=c&query=d&query=e",
        "query=a b",
        "query=-x;y",
        "query=..",
        "query=kubelet&tailLines=-1",
        "query=kubelet&tailLines=100001",
        "query=kubelet&boot=1",
        "query=kubelet&sinceTime=2026-01-02T00:00:00Z&untilTime=2026-01-01T00:00:00Z",
        "query=kubelet&pattern=%0a",
        f"query=kubelet&pattern={'x' * 1025}",
        "query=/a&query=b",
        "query=/a&tailLines=1",
    ],
)
def test_hq5_what_makes_no_sense(query: str) -> None:
    with pytest.raises(SenselessError):
        asked(query)


@given(st.text(max_size=20), st.text(max_size=8), st.text(max_size=8))
def test_hq5_no_option_becomes_another_one(name: str, tail: str, pattern: str) -> None:
    pairs = (("query", name), ("tailLines", tail), ("pattern", pattern))
    try:
        found = parse_query(Request("GET", "/logs/", pairs))
    except (UnreadableError, SenselessError):
        return
    for service in found.services:
        *_, last = found.arguments(service)
        assert last == f"--unit={service}"
        assert all(one.startswith("--") for one in found.arguments(service))


async def test_hq1_the_journal_is_shown(tmp_path: Path) -> None:
    journal = program(tmp_path, 'echo "$@"')
    async with api_lab(tmp_path, journal=journal) as lab:
        got = await lab.ask("/logs/?query=a&query=b&tailLines=2")
        lines = [f"{ARGUMENTS} --lines=2 --unit={name}" for name in "ab"]
        assert (got.status, got.text.splitlines()) == (200, lines)
        assert (await lab.ask("/logs/?query=a", token="reader")).status == 403


async def test_hq2_hq3_files_are_shown_where_there_is_no_journal(tmp_path: Path) -> None:
    async with api_lab(tmp_path, journal=program(tmp_path, "exit 1")) as lab:
        logs = tmp_path / "var-log"
        (logs / "b").mkdir()
        (logs / "a.log").write_text("first\n")
        (logs / "b" / "b.log").write_text("second\n")
        (logs / "c").write_text("third\n")
        (logs / "out").symlink_to(tmp_path / "journal")
        got = await lab.ask("/logs/?query=a&query=b&query=c&query=d")
        assert got.text == "first\nsecond\nthird\nthere are no logs of d\n"
        assert (await lab.ask("/logs/?query=/b/b.log")).text == "second\n"
        for path in ("/none", "/../secret", "/out", "b/"):
            assert (await lab.ask(f"/logs/?query={path}")).status == 404
        # Another path is a file, whatever else is said.
        assert (await lab.ask("/logs/c?query=a")).text == "third\n"


async def test_hq2_without_journalctl_files_are_shown(tmp_path: Path) -> None:
    async with api_lab(tmp_path, journal=("/none/journalctl",)) as lab:
        (tmp_path / "var-log" / "a.log").write_text("first\n")
        assert (await lab.ask("/logs/?query=a")).text == "first\n"


async def test_hq4_hq5_bad_options_are_told(tmp_path: Path) -> None:
    async with api_lab(tmp_path, journal=program(tmp_path, "exit 1")) as lab:
        got = await lab.ask("/logs/?query=a&tailLines=x")
        assert (got.status, got.text) == (400, "tailLines: must be a whole number\n")
        got = await lab.ask("/logs/?query=a&boot=1")
        assert (got.status, got.text) == (406, "boot: must not be more than 0\n")


async def test_a_query_is_none_where_queries_are_off(tmp_path: Path) -> None:
    async with api_lab(tmp_path) as lab:
        assert "<pre>" in (await lab.ask("/logs/?query=a&tailLines=x")).text


@pytest.mark.parametrize("who", ["client", "clock"])
async def test_hq6_a_journal_that_never_ends_is_ended(
    who: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = f"echo $$ > {tmp_path}/pid; echo line; exec sleep 1000"
    if who == "clock":
        monkeypatch.setattr(node_log_query, "_PATIENCE", 1.0)
    async with api_lab(tmp_path, journal=program(tmp_path, text)) as lab:
        if who == "clock":
            assert (await lab.ask("/logs/?query=a")).text == "line\n"
        else:
            async with lab.connected() as stream:
                await stream.send(head("GET", "/logs/?query=a", "admin"))
                got = b""
                while b"line\n" not in got:
                    got += await stream.receive()
        process = Path("/proc", (tmp_path / "pid").read_text().strip())
        with anyio.fail_after(60):
            while process.exists():
                await anyio.sleep(0.05)
