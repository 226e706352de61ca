"""Logs of services of the node, asked for by name: ``/logs/?query=kubelet&tailLines=100``.

docs/behaviour/server.md, "Logs of services".
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import anyio
from anyio import to_thread

from nodeagent.log import Log
from nodeagent.program import end_program
from nodeagent.server.app import Request, Response
from nodeagent.server.kubelet.api import Answer
from nodeagent.server.kubelet.exchange import Exchange
from nodeagent.server.kubelet.log_request import parse_time
from nodeagent.server.kubelet.node_files import open_below

log = Log("server")

_PATIENCE: Final = 30.0
_MOST_SERVICES: Final = 4
_MOST_LINES: Final = 100_000
_LONGEST_PATTERN: Final = 1024
_SERVICE: Final = re.compile(r"[A-Za-z0-9._:@-]+")
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,9}")
_OPTIONS: Final = ("sinceTime", "untilTime", "tailLines", "pattern", "boot")


class UnreadableError(Exception):
    """An option is not written as it must be."""


class SenselessError(Exception):
    """Options make no sense."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeLogQuery:
    """What is wanted of the node's logs.

    Attributes:
        services: whose logs, in this order.
        file: a file below the log directory in their place; "" for none.
        since: the first moment that is wanted; None for the beginning.
        until: the last one; None for the end.
        tail: so many lines from the end; None for all.
        pattern: a regular expression that lines must match; "" for none.
        boot: counted back from the present boot, 0; None for all.
    """

    services: tuple[str, ...] = ()
    file: str = ""
    since: datetime | None = None
    until: datetime | None = None
    tail: int | None = None
    pattern: str = ""
    boot: int | None = None

    def arguments(self, service: str) -> list[str]:
        """Those of journalctl for one of the services."""
        found = ["--utc", "--no-pager", "--quiet", "--output=short-precise"]
        for name, moment in (("since", self.since), ("until", self.until)):
            if moment is not None:
                found.append(f"--{name}={moment:%Y-%m-%d %H:%M:%S}")
        if self.tail is not None:
            found.append(f"--lines={self.tail}")
        if self.pattern:
            found += [f"--grep={self.pattern}", "--case-sensitive=false"]
        if self.boot is not None:
            found.append(f"--boot={self.boot}")
        return [*found, f"--unit={service}"]


def parse_query(request: Request) -> NodeLogQuery:
    """The query of a request.

    Raises:
        UnreadableError: an option cannot be read.
        SenselessError: together they make no sense.
    """
    names = request.values("query")
    query = NodeLogQuery(
        services=tuple(names),
        since=_moment(request, "sinceTime"),
        until=_moment(request, "untilTime"),
        tail=_number(request, "tailLines"),
        pattern=request.value("pattern"),
        boot=_number(request, "boot"),
    )
    _check_options(query)
    files = [name for name in names if "/" in name]
    if files:
        if len(names) > 1 or any(request.has(option) for option in _OPTIONS):
            raise SenselessError("query: a file is asked for alone, without options")
        return NodeLogQuery(file=files[0])
    if not names or len(names) > _MOST_SERVICES:
        msg = f"query: 1 to {_MOST_SERVICES} services"
        raise SenselessError(msg)
    for name in names:
        if not _SERVICE.fullmatch(name) or name in (".", ".."):
            raise SenselessError("query: a service has letters, digits, and ._:@- in its name")
    return query


def _check_options(query: NodeLogQuery) -> None:
    if query.tail is not None and not 0 <= query.tail <= _MOST_LINES:
        msg = f"tailLines: must be between 0 and {_MOST_LINES}"
        raise SenselessError(msg)
    if query.boot is not None and query.boot > 0:
        raise SenselessError("boot: must not be more than 0")
    if query.since is not None and query.until is not None and query.until < query.since:
        raise SenselessError("untilTime: must not be before sinceTime")
    if len(query.pattern) > _LONGEST_PATTERN or not query.pattern.isprintable():
        msg = f"pattern: at most {_LONGEST_PATTERN} characters that can be printed"
        raise SenselessError(msg)


def _moment(request: Request, name: str) -> datetime | None:
    text = request.value(name)
    if not text:
        return None
    found = parse_time(text)
    if found is None:
        msg = f"{name}: must be a time as in RFC 3339"
        raise UnreadableError(msg)
    return datetime.fromtimestamp(found // 10**9, UTC)


def _number(request: Request, name: str) -> int | None:
    text = request.value(name)
    if not text:
        return None
    if not _INTEGER.fullmatch(text):
        msg = f"{name}: must be a whole number"
        raise UnreadableError(msg)
    return int(text)


async def answer_query(exchange: Exchange, root: Path, journal: Sequence[str]) -> Answer:
    """Answer a request that has a query.

    Args:
        exchange: the request.
        root: the log directory.
        journal: the command that shows the system's journal.
    """
    try:
        query = parse_query(exchange.request)
    except UnreadableError as error:
        return Response(400, f"{error}\n".encode())
    except SenselessError as error:
        return Response(406, f"{error}\n".encode())
    if query.file:
        if not await _sent_file(exchange, root, query.file.split("/")):
            return Response(404, b"404 page not found\n")
        return await exchange.end()
    for service in query.services:
        if await _sent_journal(exchange, [*journal, *query.arguments(service)]):
            continue
        for steps in ((f"{service}.log",), (service, f"{service}.log"), (service,)):
            if await _sent_file(exchange, root, steps):
                break
        else:
            await exchange.write(f"there are no logs of {service}\n".encode())
    return await exchange.end()


async def _sent_file(exchange: Exchange, root: Path, steps: Sequence[str]) -> bool:
    """Send a file below the log directory; False when there is none."""
    try:
        found = await to_thread.run_sync(open_below, root, steps)
    except (FileNotFoundError, PermissionError):
        return False
    if isinstance(found, list):
        return False
    await exchange.write_file(found)
    return True


async def _sent_journal(exchange: Exchange, command: Sequence[str]) -> bool:
    """Send what journalctl shows; False when that is nothing."""
    try:
        process = await anyio.open_process(
            command, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )
    except OSError as error:
        log.debug("no_journal", cause=error.strerror)
        return False
    sent = False
    assert process.stdout is not None
    try:
        with anyio.move_on_after(_PATIENCE):
            async for data in process.stdout:
                await exchange.write(data)
                sent = True
    finally:
        await end_program(process)
    return sent
