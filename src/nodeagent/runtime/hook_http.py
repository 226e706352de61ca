"""Hooks that make an HTTP request (docs/behaviour/runtime.md, "Hooks")."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import anyio

from nodeagent.api import Container, HTTPGetAction
from nodeagent.http_action import (
    PLAIN,
    REQUESTS,
    AddressError,
    Reply,
    Requests,
    address_of,
    choose_host,
    headers_of,
    join,
    resolve_port,
    shown,
    unreached,
)

if TYPE_CHECKING:
    from multidict import CIMultiDict
    from yarl import URL

USER_AGENT: Final = "kube-lifecycle/1.36"
_CLOSE_SECONDS: Final = 2.0


class RequestFailed(Exception):  # noqa: N818 - it is what happened
    """Nobody answered; says why."""


@dataclass(frozen=True, slots=True)
class HookRequest:
    """A request, and the container whose ports it may name."""

    action: HTTPGetAction
    container: Container


async def make_request(request: HookRequest, address: str) -> str:
    """Make a hook's request; any answer is good. Only the caller's scope bounds it.

    Args:
        request: what to ask.
        address: the pod's address.

    Returns:
        ``host:port`` when TLS was asked for and a server without it answered, else "".

    Raises:
        RequestFailed: there is no answer.
    """
    action = request.action
    try:
        host = choose_host(action.host, address)
        port = resolve_port(action.port, request.container)
    except AddressError as error:
        raise RequestFailed(str(error)) from error
    requests = Requests()
    try:
        return await _ask(requests, address_of(action, host, port), action)
    finally:
        with anyio.move_on_after(_CLOSE_SECONDS, shield=True):
            await requests.aclose()


async def _ask(requests: Requests, where: str, action: HTTPGetAction) -> str:
    from yarl import URL

    url, headers = URL(where, encoded=True), headers_of(action, USER_AGENT)
    try:
        await _follow(requests, url, headers)
    except RequestFailed as error:
        if url.scheme != "https" or PLAIN not in str(error):
            raise
        # Whoever answers in plain text is not told the secret that was meant for TLS.
        headers.popall("Authorization", None)
        await _follow(requests, url.with_scheme("http").with_port(url.port), headers)
        return join(url.host or "", url.port or 0)
    return ""


async def _follow(requests: Requests, url: URL, headers: CIMultiDict[str]) -> None:
    import aiohttp

    first = url
    for _ in range(REQUESTS):
        try:
            reply = await requests.get(url, headers)
        except aiohttp.ClientConnectorError as error:
            msg = f'Get "{shown(url)}": {unreached(url, error)}'
            raise RequestFailed(msg) from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            msg = f'Get "{shown(url)}": {str(error) or repr(error)}'
            raise RequestFailed(msg) from error
        if isinstance(reply, Reply):
            return
        url = reply
    msg = f'Get "{shown(first)}": stopped after {REQUESTS} redirects'
    raise RequestFailed(msg)
