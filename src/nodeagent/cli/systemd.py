"""Tells systemd that the agent is ready, that it ends, and that it still turns (sd_notify(3)).

docs/configuration.md, "systemd".
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import anyio

from nodeagent.errors import StartError
from nodeagent.log import Log

log = Log("systemd")

CHECKS: Final = ("ping", "syncloop")
"""The health checks that must be good for the watchdog to be told."""
_SHORTEST: Final = 1.0
_TRIES: Final = 2
_BETWEEN_TRIES: Final = 1.0
_ABSTRACT: Final = "@"


@dataclass(frozen=True, slots=True)
class Notifier:
    """What the service manager wants to hear.

    Attributes:
        address: its datagram socket; "" when nobody listens.
        watchdog: seconds within which it wants a sign of life; 0 for never.
    """

    address: str = ""
    watchdog: float = 0.0

    @classmethod
    def of(cls, environment: Mapping[str, str], pid: int) -> Notifier:
        """What the environment of a service says.

        Raises:
            StartError: the watchdog is configured in a way that cannot be kept.
        """
        address = environment.get("NOTIFY_SOCKET", "")
        if not address.startswith(("/", _ABSTRACT)):
            return cls()
        return cls(address, _watchdog(environment, pid))

    def tell(self, state: str) -> bool:
        """Send a state such as ``READY=1``; whether it was taken. Never waits."""
        if not self.address:
            return False
        address = self.address
        if address.startswith(_ABSTRACT):
            address = "\0" + address[1:]
        kind = socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
        try:
            with socket.socket(socket.AF_UNIX, kind) as sender:
                sender.connect(address)
                sender.send(state.encode())
        except OSError as error:
            log.warning("not_told", state=state, cause=error.strerror or error)
            return False
        return True

    async def keep_alive(self, trouble: Callable[[], str]) -> None:
        """Give signs of life until cancelled, as long as the agent is well.

        Args:
            trouble: what is wrong with the agent; "" when nothing is.
        """
        if not self.watchdog:
            return
        while True:
            await anyio.sleep(self.watchdog / 2)
            for left in reversed(range(_TRIES)):
                cause = trouble()
                if not cause and self.tell("WATCHDOG=1"):
                    break
                if left:
                    await anyio.sleep(_BETWEEN_TRIES)
                elif cause:
                    log.error("watchdog_not_told", cause=cause)


def _watchdog(environment: Mapping[str, str], pid: int) -> float:
    text = environment.get("WATCHDOG_USEC", "")
    if not text or environment.get("WATCHDOG_PID", str(pid)) != str(pid):
        return 0.0
    if not (text.isascii() and text.isdigit()) or int(text) == 0:
        msg = f"configure watchdog: WATCHDOG_USEC={text} is no number of microseconds"
        raise StartError(msg)
    seconds = int(text) / 1e6
    if seconds <= _SHORTEST:
        msg = f"configure watchdog timeout too small: {seconds:g}s; set WatchdogSec= to 2s or more"
        raise StartError(msg)
    return seconds


def from_environment() -> Notifier:
    """The notifier of this process.

    Raises:
        StartError: as for ``Notifier.of``.
    """
    found = Notifier.of(os.environ, os.getpid())
    # A program that a probe or hook starts is not the service.
    for name in ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"):
        os.environ.pop(name, None)
    return found
