"""Commands of scripts, as clients with streams see them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

from nodeagent.streaming.protocols import Channel, Outcome

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from nodeagent.embedded.backend import ExecResult
    from nodeagent.streaming.commands import Say


class Scripted:
    """A command that only says what it is told to.

    Args:
        result: what it says, after its time.
        ended: it does not outlive this.
    """

    def __init__(self, result: Callable[[], Awaitable[ExecResult]], ended: anyio.Event) -> None:
        self._result = result
        self._ended = ended

    async def follow(self, say: Say) -> Outcome:
        """Wait, and say it."""
        found: ExecResult | None = None
        async with anyio.create_task_group() as tg:

            async def give_up() -> None:
                await self._ended.wait()
                await anyio.lowlevel.checkpoint()
                tg.cancel_scope.cancel()

            tg.start_soon(give_up)
            found = await self._result()
            tg.cancel_scope.cancel()
        if found is None:
            return Outcome(error="the container ended while the command ran")
        for channel, data in ((Channel.STDOUT, found.stdout), (Channel.STDERR, found.stderr)):
            if data:
                await say(channel, data)
        return Outcome(found.exit_code)

    async def write(self, data: bytes) -> None:
        """Nobody reads it."""

    def end_input(self) -> None:
        """Nobody waits for it."""

    def resize(self, columns: int, rows: int) -> None:
        """There is no terminal."""
