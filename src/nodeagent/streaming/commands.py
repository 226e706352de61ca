"""Serving a command's channels: between a client and what runs the command."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, Protocol

import anyio

from nodeagent.streaming.channels import Channels, ChannelsError
from nodeagent.streaming.protocols import Channel, Outcome, terminal_size

_WAITING: Final = 16
"""Parts of input that may wait for a command that does not read; then its client waits."""
_MOST_SIZE: Final = 1024
Say = Callable[[Channel, bytes], Awaitable[None]]
"""Passes on what a command writes."""
GONE: Final = (anyio.BrokenResourceError, anyio.ClosedResourceError, ChannelsError)


class Command(Protocol):
    """A command that runs, or a container's first process.

    Of all its methods only ``write`` and ``follow`` may wait.
    """

    async def follow(self, say: Say) -> Outcome:
        """Pass on what it writes until it has ended; how it did."""
        ...

    async def write(self, data: bytes) -> None:
        """Give it input; what it will not read any more is dropped."""
        ...

    def end_input(self) -> None:
        """There is no more input."""
        ...

    def resize(self, columns: int, rows: int) -> None:
        """Its terminal has that size now."""
        ...


async def serve_command(channels: Channels, command: Command) -> None:
    """Join a client with a command until that has ended, or the client has gone."""
    async with anyio.create_task_group() as tg:

        async def say(channel: Channel, data: bytes) -> None:
            try:
                await channels.send(channel, data)
            except GONE:
                tg.cancel_scope.cancel()  # the client has lost interest

        tg.start_soon(_take_input, channels, command, tg.cancel_scope)
        outcome = await command.follow(say)
        await tell(channels, outcome)
        tg.cancel_scope.cancel()


async def tell(channels: Channels, outcome: Outcome) -> None:
    """Say how a command ended, and goodbye."""
    try:
        for channel in (Channel.STDOUT, Channel.STDERR):
            await channels.end(channel)
        if told := outcome.told(channels.protocol):
            await channels.send(Channel.ERROR, told)
        await channels.end(Channel.ERROR)
        await channels.close()
    except GONE:
        return  # nobody is left to hear it


async def _take_input(channels: Channels, command: Command, end: anyio.CancelScope) -> None:
    """Give the command what the client says; ends all when the client goes."""
    sender, receiver = anyio.create_memory_object_stream[bytes | None](_WAITING)

    async def write() -> None:
        async for data in receiver:
            if data is None:
                command.end_input()
            else:
                await command.write(data)

    async with sender, receiver, anyio.create_task_group() as tg:
        tg.start_soon(write)
        size = b""
        try:
            while (said := await channels.receive()) is not None:
                if said.channel is Channel.STDIN:
                    if said.data:
                        await sender.send(said.data)
                    if said.end:
                        await sender.send(None)
                elif said.channel is Channel.RESIZE:
                    size = _resized(size + said.data, command)
        except ChannelsError:
            pass  # as good as gone
        end.cancel()


def _resized(text: bytes, command: Command) -> bytes:
    """Tell the command a size as soon as it is whole; returns what is still to be completed."""
    *whole, rest = text.replace(b"}", b"}\n").split(b"\n")
    for one in whole:
        if (found := terminal_size(one)) is not None:
            command.resize(*found)
    return rest[-_MOST_SIZE:]
