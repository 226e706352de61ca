"""A streaming server's side of the request that becomes a stream."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qs, urlsplit

import anyio
import h11

from nodeagent.streaming.protocols import (
    PORT_FORWARD,
    SPDY,
    SPDY_COMMAND,
    TUNNEL,
    VERSION_HEADER,
    WEBSOCKET_COMMAND,
    WEBSOCKET_PORTS,
    chosen,
)

if TYPE_CHECKING:
    from anyio.abc import ByteStream

_MOST_HEAD: Final = 64 * 1024
_WEBSOCKET_VERSION: Final = "13"
_REASONS: Final = {
    400: "Bad Request",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
}


class UpgradeError(Exception):
    """What is asked for cannot be had; the answer says why.

    Attributes:
        status: of the answer.
    """

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


@dataclass(frozen=True, slots=True)
class Asked:
    """A request.

    Attributes:
        path: without query.
        query: the values of each parameter.
        headers: by lower-case names; those that come several times joined by commas.
        rest: what came after it.
    """

    method: str
    path: str
    query: Mapping[str, Sequence[str]]
    headers: Mapping[str, str]
    rest: bytes


@dataclass(frozen=True, slots=True)
class Agreed:
    """What a connection becomes.

    Attributes:
        websocket: a WebSocket, else SPDY.
        protocol: over it.
        head: the answer.
    """

    websocket: bool
    protocol: str
    head: bytes


async def read_request(stream: ByteStream) -> Asked | None:
    """The request on a new connection; None when there is none.

    Raises:
        UpgradeError: it is no HTTP, or too large.
    """
    core = h11.Connection(h11.SERVER, max_incomplete_event_size=_MOST_HEAD)
    try:
        while (event := core.next_event()) is h11.NEED_DATA:
            core.receive_data(await stream.receive())
    except (anyio.EndOfStream, anyio.BrokenResourceError):
        return None
    except h11.RemoteProtocolError as error:
        raise UpgradeError(400, str(error)) from error
    if not isinstance(event, h11.Request):
        return None
    headers: dict[str, str] = {}
    for name, value in event.headers:
        key, text = name.decode("latin-1"), value.decode("latin-1")
        headers[key] = f"{headers[key]}, {text}" if key in headers else text
    parts = urlsplit(event.target.decode("latin-1"))
    return Asked(
        event.method.decode(),
        parts.path,
        parse_qs(parts.query, keep_blank_values=True),
        headers,
        core.trailing_data[0],
    )


def command_upgrade(asked: Asked) -> Agreed:
    """What a request for exec or attach becomes.

    Raises:
        UpgradeError: it cannot be had.
    """
    return _agree(asked, SPDY_COMMAND, WEBSOCKET_COMMAND)


def port_upgrade(asked: Asked) -> Agreed:
    """What a request for port-forward becomes.

    Raises:
        UpgradeError: it cannot be had.
    """
    return _agree(asked, (PORT_FORWARD,), (TUNNEL, *WEBSOCKET_PORTS))


def _agree(asked: Asked, spdy: Sequence[str], websocket: Sequence[str]) -> Agreed:
    tokens = _listed(asked.headers.get("connection", "").lower())
    wanted = asked.headers.get("upgrade", "").strip().lower()
    if "upgrade" not in tokens or not wanted:
        raise UpgradeError(400, "Upgrade request required")
    if wanted == "websocket":
        return _websocket(asked, websocket)
    if wanted == SPDY.lower():
        return _spdy(asked, spdy)
    msg = f"no upgrade to {wanted!r}: {SPDY} and websocket are known"
    raise UpgradeError(400, msg)


def _spdy(asked: Asked, known: Sequence[str]) -> Agreed:
    offered = _listed(asked.headers.get(VERSION_HEADER, ""))
    protocol = chosen(offered, known)
    if protocol is None:
        raise UpgradeError(403, _no_protocol(offered, known))
    return Agreed(
        websocket=False,
        protocol=protocol,
        head=_switch({"Upgrade": SPDY, "X-Stream-Protocol-Version": protocol}),
    )


def _websocket(asked: Asked, known: Sequence[str]) -> Agreed:
    from nodeagent.streaming.websocket import accept_key

    key = asked.headers.get("sec-websocket-key", "").strip()
    if asked.method != "GET":
        raise UpgradeError(400, "a WebSocket is asked for with GET")
    if asked.headers.get("sec-websocket-version", "").strip() != _WEBSOCKET_VERSION or not key:
        raise UpgradeError(400, "a WebSocket of version 13 with a key is required")
    offered = _listed(asked.headers.get("sec-websocket-protocol", ""))
    protocol = chosen(offered, known)
    if protocol is None:
        raise UpgradeError(403, _no_protocol(offered, known))
    named = {"Sec-WebSocket-Protocol": protocol} if protocol else {}
    accept = {"Upgrade": "websocket", "Sec-WebSocket-Accept": accept_key(key)}
    return Agreed(websocket=True, protocol=protocol, head=_switch({**accept, **named}))


def _no_protocol(offered: Sequence[str], known: Sequence[str]) -> str:
    names = ", ".join(one for one in known if one)
    wants = ", ".join(offered)
    return f"unable to negotiate protocol: client supports {wants}, server accepts {names}"


def _listed(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _switch(headers: Mapping[str, str]) -> bytes:
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    head = f"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n{lines}\r\n"
    return head.encode("latin-1")


def refusal(error: UpgradeError) -> bytes:
    """The whole answer to a request that cannot be had."""
    body = f"{error}\n".encode(errors="replace")
    head = (
        f"HTTP/1.1 {error.status} {_REASONS.get(error.status, 'Error')}\r\n"
        f"Content-Type: text/plain; charset=utf-8\r\nContent-Length: {len(body)}\r\n"
        "Connection: close\r\n\r\n"
    )
    return head.encode() + body
