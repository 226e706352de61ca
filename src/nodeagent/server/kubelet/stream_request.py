"""What a request for streams asks for: exec, attach, port-forward. No I/O.

docs/behaviour/server.md, "Streams".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from nodeagent.server.app import Request
from nodeagent.server.kubelet.identity import offered_protocols, without_token

SPDY: Final = "spdy/3.1"
WEBSOCKET: Final = "websocket"
_YES: Final = "1"
_PASSED_ON: Final = (
    "x-stream-protocol-version",
    "sec-websocket-key",
    "sec-websocket-version",
    "sec-websocket-extensions",
    "origin",
)
"""Headers of an upgrade that mean something to the runtime. Credentials are none of them."""


class BadStreamRequestError(ValueError):
    """The request cannot be meant; says why."""


@dataclass(frozen=True, slots=True)
class Streams:
    """Which streams of a command or container are wanted.

    Attributes:
        stdin: what the client writes.
        stdout: what it writes.
        stderr: what it complains; not together with ``tty``.
        tty: through a terminal.
    """

    stdin: bool
    stdout: bool
    stderr: bool
    tty: bool


Wish: TypeAlias = Streams | tuple[int, ...]
"""What is asked for: streams of a command or container, or ports, none of them for SPDY."""


def wanted_streams(request: Request) -> Streams:
    """The streams that a request for exec or attach asks for.

    Raises:
        BadStreamRequestError: it asks for none.
    """
    stdin, stdout, stderr, tty = (
        request.value(name) == _YES for name in ("input", "output", "error", "tty")
    )
    if tty:
        stderr = False  # a terminal has one output
    if not (stdin or stdout or stderr):
        raise BadStreamRequestError("you must specify at least 1 of stdin, stdout, stderr")
    return Streams(stdin, stdout, stderr, tty)


def wanted_ports(request: Request) -> tuple[int, ...]:
    """The ports that a WebSocket client wants forwarded; a SPDY client names them later.

    Raises:
        BadStreamRequestError: one is none; or there are none, and the client speaks WebSocket.
    """
    tunnel = any(p.startswith("SPDY/3.1+") for p in offered_protocols(request.headers))
    if request.headers.get("upgrade", "").lower() != WEBSOCKET or tunnel:
        return ()
    texts = [part for value in request.values("port") for part in value.split(",")]
    if not texts:
        raise BadStreamRequestError('query parameter "port" is required')
    return tuple(_port(text) for text in texts)


def _port(text: str) -> int:
    if text.isascii() and text.isdigit() and len(text) <= 5 and 0 < int(text) < 65536:
        return int(text)
    msg = f'unable to parse "{text}" as a port'
    raise BadStreamRequestError(msg)


def upgrade_headers(request: Request) -> dict[str, str]:
    """The headers with which the runtime is asked for the same upgrade.

    Raises:
        BadStreamRequestError: the request is no upgrade, or contradicts itself.
    """
    headers = request.headers
    tokens = {part.strip().lower() for part in headers.get("connection", "").split(",")}
    protocol = headers.get("upgrade", "").strip()
    if "upgrade" not in tokens or not protocol:
        raise BadStreamRequestError("Upgrade request required")
    if protocol.lower() not in (SPDY, WEBSOCKET):
        msg = f"no upgrade to {protocol!r}: SPDY/3.1 and websocket are known"
        raise BadStreamRequestError(msg)
    if "transfer-encoding" in headers or headers.get("content-length", "0").strip() != "0":
        raise BadStreamRequestError("an upgrade request must not have a body")
    if protocol.lower() == WEBSOCKET and request.method != "GET":
        raise BadStreamRequestError("a WebSocket is asked for with GET")
    return {"connection": "Upgrade", "upgrade": protocol, **_passed_on(headers)}


def _passed_on(headers: Mapping[str, str]) -> dict[str, str]:
    found = {name: headers[name] for name in _PASSED_ON if name in headers}
    protocols = without_token(offered_protocols(headers))
    if protocols:
        found["sec-websocket-protocol"] = ", ".join(protocols)
    return found
