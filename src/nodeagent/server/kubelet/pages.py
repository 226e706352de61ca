"""Pages on the agent itself: its state and flags, and how much it logs.

docs/behaviour/server.md, "Pages".
"""

from __future__ import annotations

import platform
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import msgspec

from nodeagent._version import __version__
from nodeagent.clock import Clock
from nodeagent.log import set_verbosity
from nodeagent.server.app import Response
from nodeagent.server.kubelet.accept import GROUP, JSON, TEXT, VERSION, wanted_form
from nodeagent.server.kubelet.api import Answer, Route
from nodeagent.server.kubelet.exchange import Exchange

_NAME: Final = "kubelet"
_WARNING: Final = (
    "Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility "
    "guarantees and is for debugging purposes only."
)
_LONGEST_LEVEL: Final = 16
_LEVEL: Final = re.compile(r"[0-9]{1,9}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pages:
    """What the agent tells of itself.

    Attributes:
        clock: wall time.
        started: when the agent started.
        paths: what is answered.
        flags: gives the values of the settings by the names of their flags; nothing secret.
        debug_flags: whether the level of the log may be changed.
    """

    clock: Clock
    started: datetime
    paths: Callable[[], Sequence[str]]
    flags: Callable[[], Mapping[str, str]]
    debug_flags: bool = True

    def routes(self) -> list[Route]:
        """What is answered here."""
        off = "" if self.debug_flags else "flags"
        return [
            Route("statusz", ("GET",), self.statusz),
            Route("flagz", ("GET",), self.flagz),
            Route("debug/flags", ("PUT",), self.level, steps=(1,), off=off),
        ]

    async def statusz(self, exchange: Exchange, _steps: Sequence[str]) -> Answer:
        """Since when the agent runs, which version, and what it answers."""
        up = max(int((self.clock.now() - self.started).total_seconds()), 0)
        paths = sorted(self.paths())
        body: dict[str, Any] = {
            "startTime": f"{self.started:%Y-%m-%dT%H:%M:%SZ}",
            "uptimeSeconds": up,
            "binaryVersion": __version__,
            "pythonVersion": platform.python_version(),
            "paths": paths,
        }
        lines = [
            f"Started: {self.started:%a %b %d %H:%M:%S UTC %Y}",
            f"Up: {up // 3600} hr {up // 60 % 60:02d} min {up % 60:02d} sec",
            f"Python version: {platform.python_version()}",
            f"Binary version: {__version__}",
            f"Paths: {' '.join(paths)}",
        ]
        return _page(exchange, "Statusz", f"{_NAME} statusz", lines, body)

    async def flagz(self, exchange: Exchange, _steps: Sequence[str]) -> Answer:
        """The settings in force, each under the name of its flag."""
        flags = self.flags()
        lines = [f"{name}={value}" for name, value in sorted(flags.items())]
        return _page(exchange, "Flagz", f"{_NAME} flags", lines, {"flags": dict(flags)})

    async def level(self, exchange: Exchange, steps: Sequence[str]) -> Answer:
        """Change how much is logged."""
        if steps != ("v",):
            return Response(404, b"404: Page Not Found\n")
        body = await exchange.body(_LONGEST_LEVEL)
        text = "" if body is None else body.decode("ascii", "replace").strip()
        if not _LEVEL.fullmatch(text):
            return Response(400, b"400: the body must be a level of the log: 0 to 10\n")
        set_verbosity(int(text))
        return Response(200, f"successfully set klog.logging.verbosity to {int(text)}\n".encode())


def _page(
    exchange: Exchange, kind: str, title: str, lines: Sequence[str], body: Mapping[str, Any]
) -> Response:
    form = wanted_form(exchange.request.headers.get("accept", ""), kind)
    if form == TEXT:
        text = "\n".join([title, _WARNING, "", *lines, ""])
        return Response(200, text.encode(errors="replace"))
    if not form:
        return Response(406, b"406: text/plain, application/json and application/yaml are there\n")
    whole = {"kind": kind, "apiVersion": f"{GROUP}/{VERSION}", "metadata": {"name": _NAME}, **body}
    if form == JSON:
        return Response(200, msgspec.json.encode(whole), form)
    import yaml

    return Response(200, yaml.safe_dump(whole, sort_keys=False).encode(), form)
