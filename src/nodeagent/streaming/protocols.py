"""Names of the protocols, the channels they have, and how a command's end is told. No I/O."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

SPDY: Final = "SPDY/3.1"
V5: Final = "v5.channel.k8s.io"
V4: Final = "v4.channel.k8s.io"
V3: Final = "v3.channel.k8s.io"
V2: Final = "v2.channel.k8s.io"
V1: Final = "channel.k8s.io"
SPDY_COMMAND: Final = (V4, V3, V2, V1)
BASE64: Final = ("v4.base64.channel.k8s.io", "base64.channel.k8s.io")
WEBSOCKET_COMMAND: Final = (V5, V4, BASE64[0], V1, BASE64[1], "")
"""Of these a client may have one; the last is for clients that name none."""
PORT_FORWARD: Final = "portforward.k8s.io"
TUNNEL: Final = f"{SPDY}+{PORT_FORWARD}"
WEBSOCKET_PORTS: Final = (
    V4, BASE64[0], f"v4.{PORT_FORWARD}", PORT_FORWARD, V1, BASE64[1], "",
)  # fmt: skip
VERSION_HEADER: Final = "x-stream-protocol-version"
_LARGEST: Final = 0xFFFF


class Channel(IntEnum):
    """What a command and a client say to each other, by the numbers of WebSockets."""

    STDIN = 0
    STDOUT = 1
    STDERR = 2
    ERROR = 3
    RESIZE = 4


NAMES: Final = {channel.name.lower(): channel for channel in Channel}
"""The same by the stream types of SPDY."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which channels a command has; that for errors it always has."""

    stdin: bool = False
    stdout: bool = False
    stderr: bool = False
    tty: bool = False

    def channels(self, protocol: str) -> tuple[Channel, ...]:
        """All of them, in the order in which clients open them."""
        asked = (
            (Channel.ERROR, True),
            (Channel.STDIN, self.stdin),
            (Channel.STDOUT, self.stdout),
            (Channel.STDERR, self.stderr and not self.tty),
            (Channel.RESIZE, self.tty and protocol not in (V2, V1, BASE64[1], "")),
        )
        return tuple(channel for channel, there in asked if there)


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a command ended: its exit code, or why there is none."""

    code: int = 0
    error: str = ""

    def told(self, protocol: str) -> bytes:
        """What the channel for errors is sent; nothing when all went well before version 4."""
        if protocol in (V5, V4, BASE64[0]):
            return json.dumps(self._status()).encode()
        if self.error:
            return self.error.encode()
        return b"" if not self.code else f"{self._text()}\n".encode()

    def _text(self) -> str:
        return f"command terminated with non-zero exit code: {self.code}"

    def _status(self) -> dict[str, object]:
        if self.error:
            details = {"causes": [{"message": self.error}]}
            return {
                "metadata": {}, "status": "Failure", "message": self.error,
                "reason": "InternalError", "details": details, "code": 500,
            }  # fmt: skip
        if self.code:
            cause = {"reason": "ExitCode", "message": str(self.code)}
            return {
                "metadata": {}, "status": "Failure", "message": self._text(),
                "reason": "NonZeroExitCode", "details": {"causes": [cause]},
            }  # fmt: skip
        return {"metadata": {}, "status": "Success"}


def chosen(offered: Sequence[str], known: Sequence[str]) -> str | None:
    """The first of the client's protocols that is known; None when there is none.

    A client that offers none has the unnamed one where that is known, and else the last one.
    """
    if not offered:
        return known[-1]
    return next((one for one in offered if one in known), None)


def terminal_size(text: bytes) -> tuple[int, int] | None:
    """Columns and rows of a message on the channel for sizes; None for one that has none."""
    try:
        found = json.loads(text)
        width, height = found["Width"], found["Height"]
    except (ValueError, KeyError, TypeError):
        return None
    if not (isinstance(width, int) and isinstance(height, int)):
        return None
    if not (0 <= width <= _LARGEST and 0 <= height <= _LARGEST):
        return None
    return width, height
