"""Probes that make an HTTP request."""

from __future__ import annotations

import socket
import string
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import anyio

from nodeagent.api import HTTPGetAction
from nodeagent.probes.address import (
    USER_AGENT,
    ProbeError,
    choose_host,
    join,
    quick_socket,
    resolve_port,
    why,
)
from nodeagent.probes.outcome import MAX_TEXT, Outcome, Target, failure, success, unknown

if TYPE_CHECKING:
    import ssl

    import aiohttp
    from multidict import CIMultiDict
    from yarl import URL

REQUESTS: Final = 10
"""Requests that one probe may make, redirects included."""

_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_OWN_HEADERS: Final = {"User-Agent": USER_AGENT, "Accept": "*/*"}
_KEPT: Final = string.punctuation.translate({ord(c): None for c in '"<>\\^`{|}'})
"""What may stand in a path and query as it is."""


class HttpProbe:
    """A request whose answer has a status from 200 to 399 is success.

    Every request has a connection of its own, so that none outlives the server it went to.
    The libraries are loaded with the first request.
    """

    def __init__(self) -> None:
        self._session: aiohttp.ClientSession | None = None
        self._tls: ssl.SSLContext | None = None

    async def aclose(self) -> None:
        """Close the session; no request may be open."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

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
        with anyio.move_on_after(target.timeout):
            return await self._ask(where, headers_of(action))
        late = "context deadline exceeded (Client.Timeout exceeded while awaiting headers)"
        return failure(f'Get "{where}": {late}')

    async def _ask(self, where: str, headers: CIMultiDict[str]) -> Outcome:
        import aiohttp
        from yarl import URL

        url = first = URL(where, encoded=True)
        for _ in range(REQUESTS):
            try:
                reply = await self._request(url, headers)
            except aiohttp.ClientConnectorError as error:
                place = join(url.host or "", url.port or 0)
                text = f"dial tcp {place}: connect: {why(error.os_error)}"
                return failure(f'Get "{url}": {text}')
            except (aiohttp.ClientError, OSError, ValueError) as error:
                return failure(f'Get "{url}": {_explain(error)}')
            if isinstance(reply, Outcome):
                return reply
            url = reply
            if url.scheme not in ("http", "https"):
                return failure(f'Get "{url}": unsupported protocol scheme "{url.scheme}"')
        return failure(f'Get "{first}": stopped after {REQUESTS} redirects')

    async def _request(self, url: URL, headers: CIMultiDict[str]) -> Outcome | URL:
        """Make one request: what it is worth, or where it leads on the same host."""
        async with self._open().get(
            url, headers=headers, allow_redirects=False, ssl=self._tls_for(url)
        ) as reply:
            onward = _redirect(url, reply.status, reply.headers.get("Location", ""))
            if onward is not None and onward.host == url.host:
                return onward
            text = (await _read(reply.content)).decode(errors="replace")
        if not 200 <= reply.status < 400:
            return failure(f"HTTP probe failed with statuscode: {reply.status}")
        if reply.status < 300:
            return success(text)
        warned = success(f"Probe terminated redirects, Response body: {text}")
        return Outcome(warned.result, warned.text, warning=True)

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            import aiohttp

            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(
                    force_close=True,
                    limit=0,
                    use_dns_cache=False,
                    socket_factory=lambda info: quick_socket(info[0]),
                ),
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=None),
                auto_decompress=False,
                skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
                read_bufsize=MAX_TEXT,
                max_line_size=64 * 1024,
                max_field_size=64 * 1024,
            )
        return self._session

    def _tls_for(self, url: URL) -> ssl.SSLContext | bool:
        if url.scheme != "https":
            return True
        if self._tls is None:
            import ssl

            # A probe asks whether the server answers, not who it is.
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
            self._tls = context
        return self._tls


def address_of(action: HTTPGetAction, host: str, port: int) -> str:
    """The URL of an action; what cannot stand in one is escaped, all else stays as it is."""
    scheme = (action.scheme or "HTTP").lower()
    path = action.path.partition("#")[0]
    slash = "" if path.startswith("/") else "/"
    return f"{scheme}://{join(host, port)}{slash}{quote(path, safe=_KEPT)}"


def headers_of(action: HTTPGetAction) -> CIMultiDict[str]:
    """The headers of a request: the action's, and those that it does not replace."""
    from multidict import CIMultiDict

    headers = CIMultiDict((header.name, header.value) for header in action.http_headers)
    for name, value in _OWN_HEADERS.items():
        # An empty one takes ours away.
        if headers.setdefault(name, value) == "":
            del headers[name]
    headers["Connection"] = "close"
    return headers


def _redirect(url: URL, status: int, location: str) -> URL | None:
    if status not in _REDIRECTS or not location:
        return None
    from yarl import URL

    return url.join(URL(location))


async def _read(content: Any) -> bytes:
    """The beginning of a body; the rest of it is not waited for."""
    body = b""
    while len(body) < MAX_TEXT:
        part = await content.read(MAX_TEXT - len(body))
        if not part:
            break
        body += part
    return body


def _explain(error: Exception) -> str:
    import aiohttp

    if isinstance(error, aiohttp.ServerDisconnectedError):
        return "EOF"
    if isinstance(error, aiohttp.ClientResponseError):
        return f"malformed HTTP response: {error.message}"
    if isinstance(error, socket.error) and error.errno:
        return why(error)
    return str(error) or repr(error)
