"""Probes that make an HTTP request."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import anyio

from nodeagent.http_action import (
    REQUESTS,
    Reply,
    Requests,
    address_of,
    headers_of,
    shown,
    unreached,
)
from nodeagent.probes.address import USER_AGENT, ProbeError, choose_host, resolve_port, why
from nodeagent.probes.outcome import Outcome, Target, failure, success, unknown, unreachable

if TYPE_CHECKING:
    from multidict import CIMultiDict


class HttpProbe:
    """A request whose answer has a status from 200 to 399 is success.

    Every request has a connection of its own, so that none outlives the server it went to.
    The libraries are loaded with the first request.
    """

    def __init__(self) -> None:
        self._requests = Requests()

    async def aclose(self) -> None:
        """Close what is kept open; no request may be."""
        await self._requests.aclose()

    async def __call__(self, target: Target) -> Outcome:
        """Ask once, following redirects to the same host."""
        action = target.probe.http_get
        assert action is not None
        try:
            host = choose_host(action.host, target.address)
            port = resolve_port(action.port, target.container)
        except ProbeError as error:
            return unknown(str(error))
        where = address_of(action, host, port)
        self._requests.load()  # not in the container's time
        with anyio.move_on_after(target.timeout):
            return await self._ask(where, headers_of(action, USER_AGENT))
        late = "context deadline exceeded (Client.Timeout exceeded while awaiting headers)"
        return failure(f'Get "{where}": {late}')

    async def _ask(self, where: str, headers: CIMultiDict[str]) -> Outcome:
        import aiohttp
        from yarl import URL

        url = first = URL(where, encoded=True)
        for _ in range(REQUESTS):
            try:
                reply = await self._requests.get(url, headers)
            except aiohttp.ClientConnectorError as error:
                text = f'Get "{shown(url)}": {unreached(url, error)}'
                return unreachable(text, error.os_error)
            except (aiohttp.ClientError, OSError, ValueError) as error:
                return failure(f'Get "{shown(url)}": {_explain(error)}')
            if isinstance(reply, Reply):
                return _judge(reply)
            url = reply
            if url.scheme not in ("http", "https"):
                return failure(f'Get "{shown(url)}": unsupported protocol scheme "{url.scheme}"')
        return failure(f'Get "{shown(first)}": stopped after {REQUESTS} redirects')


def _judge(reply: Reply) -> Outcome:
    text = reply.body.decode(errors="replace")
    if not 200 <= reply.status < 400:
        return failure(f"HTTP probe failed with statuscode: {reply.status}")
    if reply.status < 300:
        return success(text)
    warned = success(f"Probe terminated redirects, Response body: {text}")
    return Outcome(warned.result, warned.text, warning=True)


def _explain(error: Exception) -> str:
    import aiohttp

    if isinstance(error, aiohttp.ServerDisconnectedError):
        return "EOF"
    if isinstance(error, aiohttp.ClientResponseError):
        return f"malformed HTTP response: {error.message}"
    if isinstance(error, socket.error) and error.errno:
        return why(error)
    return str(error) or repr(error)
