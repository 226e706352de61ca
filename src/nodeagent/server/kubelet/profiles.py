"""Profiles of the agent: where it spends its time, and what it keeps in memory.

docs/behaviour/server.md, "Profiles".
"""

from __future__ import annotations

import sys
import threading
import time
import tracemalloc
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Final

import anyio
from anyio import to_thread

from nodeagent.server.app import Response
from nodeagent.server.kubelet.api import Answer, Route
from nodeagent.server.kubelet.exchange import Exchange

_SECONDS: Final = 30
_MOST_SECONDS: Final = 300
_PERIOD: Final = 0.01
_DEEPEST: Final = 100
_MOST_PLACES: Final = 100
_PROFILES: Final = ("heap", "profile", "threads")
_BUSY: Final = Response(429, b"429: a profile is being taken\n", headers={"Retry-After": "30"})


@dataclass(slots=True)
class Profiles:
    """Takes profiles, one at a time.

    Attributes:
        on: whether they are served.
    """

    on: bool = True
    _one: anyio.Lock = field(default_factory=anyio.Lock)

    def routes(self) -> list[Route]:
        """What is answered here."""
        methods = ("GET", "POST", "DELETE")
        off = "" if self.on else "profiling"
        return [Route("debug/pprof", methods, self.profile, steps=(0, 1), off=off)]

    async def profile(self, exchange: Exchange, steps: Sequence[str]) -> Answer:
        """One profile, or which there are."""
        name = steps[0] if steps else ""
        method = exchange.request.method
        if name == "heap":
            return await self._alone(exchange)
        if name not in ("", *_PROFILES):
            return Response(404, b"Unknown profile\n")
        if method != "GET":
            return Response(405, b"405: Method Not Allowed", headers={"Allow": "GET"})
        if not name:
            return Response(200, "".join(f"{one}\n" for one in _PROFILES).encode())
        if name == "threads":
            return Response(200, _folded(Counter(_stacks(frozenset()))))
        return await self._alone(exchange)

    async def _alone(self, exchange: Exchange) -> Answer:
        try:
            self._one.acquire_nowait()
        except anyio.WouldBlock:
            return _BUSY
        try:
            if exchange.request.path.endswith("/heap"):
                return await to_thread.run_sync(_heap, exchange.request.method)
            return await _processor(exchange.request.value("seconds"))
        finally:
            self._one.release()


async def _processor(text: str) -> Response:
    """Where the threads are, looked at a hundred times a second."""
    seconds = _SECONDS
    if text:
        if not (text.isascii() and text.isdigit() and 0 < int(text[:9]) <= _MOST_SECONDS):
            return Response(400, f"400: seconds must be 1 to {_MOST_SECONDS}\n".encode())
        seconds = int(text)
    stop = threading.Event()
    found: Counter[str] = Counter()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(to_thread.run_sync, _sample, found, stop)
        try:
            await anyio.sleep(seconds)
        finally:
            # Before the group waits for the thread, which no cancellation reaches.
            stop.set()
    return Response(200, _folded(found))


def _sample(found: Counter[str], stop: threading.Event) -> None:
    own = frozenset((threading.get_ident(),))
    while not stop.wait(_PERIOD):
        found.update(_stacks(own))


def _stacks(without: frozenset[int]) -> list[str]:
    """The stack of each thread on one line, the outermost place first."""
    frames = sys._current_frames()
    return [_stack(frame) for thread, frame in frames.items() if thread not in without]


def _stack(frame: FrameType | None) -> str:
    places: list[str] = []
    while frame is not None and len(places) < _DEEPEST:
        places.append(_place(frame.f_code))
        frame = frame.f_back
    return ";".join(reversed(places))


def _place(code: CodeType) -> str:
    return f"{Path(code.co_filename).name}:{code.co_qualname}".replace(";", ",").replace(" ", "_")


def _folded(found: Counter[str]) -> bytes:
    return "".join(f"{stack} {count}\n" for stack, count in found.most_common()).encode()


def _heap(method: str) -> Response:
    """Blocking: what is in memory, by the line that made it. Costs memory only when it is on."""
    if method == "POST":
        if not tracemalloc.is_tracing():
            tracemalloc.start()
        return Response(200, b"what is made from now on is traced, until DELETE\n")
    if method == "DELETE":
        tracemalloc.stop()
        return Response(200, b"nothing is traced any more\n")
    if not tracemalloc.is_tracing():
        return Response(409, b"409: nothing is traced: POST begins with it, DELETE ends it\n")
    began = time.monotonic()
    places = tracemalloc.take_snapshot().statistics("lineno")[:_MOST_PLACES]
    lines = [f"{one.size} bytes in {one.count} pieces: {_line(one)}" for one in places]
    now, peak = tracemalloc.get_traced_memory()
    took = time.monotonic() - began
    head = f"traced: {now} bytes, at most {peak}; looked at in {took:.1f} s"
    return Response(200, "\n".join([head, *lines, ""]).encode(errors="replace"))


def _line(one: tracemalloc.Statistic) -> str:
    place = one.traceback[0]
    return f"{'/'.join(Path(place.filename).parts[-2:])}:{place.lineno}"
