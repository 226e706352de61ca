"""One call over a connection of its own."""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING

from anyio import CancelScope

from nodeagent.rpc import wire
from nodeagent.rpc.channel import call_headers, decode, named, raise_if_cut
from nodeagent.rpc.errors import Internal
from nodeagent.rpc.link import Call, Link

if TYPE_CHECKING:
    import socket

    from nodeagent.rpc.channel import Reply
    from nodeagent.rpc.wire import Message


async def call_once(
    connected: socket.socket,
    method: str,
    request: Message,
    reply: type[Reply],
    *,
    authority: str,
    user_agent: str,
    limit: int,
) -> Reply:
    """Make one call over a connected socket, and close it.

    There is no deadline but the caller's scope.

    Args:
        connected: a non-blocking stream socket; it is closed in any case.
        method: the full name of the method, with its leading slash.
        request: the message to send.
        reply: the type of the answer.
        authority: whom the call is for, ``host:port``.
        user_agent: who calls.
        limit: bytes that the answer may have.

    Raises:
        RpcError: the call failed, or the other side does not speak gRPC.
    """
    headers = call_headers(method, authority=authority, user_agent=user_agent)
    loop = asyncio.get_running_loop()
    with named(method):
        try:
            _, link = await loop.create_connection(Link, sock=connected)
        except BaseException:
            connected.close()
            raise
        call: Call | None = None
        data: bytes | None = None
        try:
            with CancelScope() as scope:
                call = Call(link, scope)
                await call.send(headers, wire.encode(request))
                data = await call.receive(limit)
                if data is not None:
                    await call.finish()
        finally:
            if call is not None:
                call.drop()
            link.abort()
        raise_if_cut(call, scope, method, math.inf)
        if data is None:
            raise Internal("the reply is empty")
        return decode(data, reply)
