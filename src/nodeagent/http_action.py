"""Requests that probes and lifecycle hooks make: where they go, and what they carry.

Every request has a connection of its own, so that none outlives the server it went to. The
libraries are loaded with the first request.
"""

from __future__ import annotations

import os
import socket
import string
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from nodeagent.api import Container, HTTPGetAction, IntOrString

if TYPE_CHECKING:
    import ssl

    import aiohttp
    from multidict import CIMultiDict
    from yarl import URL

MAX_BODY: Final = 10 * 1024
"""Bytes of an answer that are read."""
REQUESTS: Final = 10
"""Requests that one action may come to, redirects included."""

_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_KEPT: Final = string.punctuation.translate({ord(c): None for c in '"<>\\^`{|}'})
"""What may stand in a path and query as it is."""
PLAIN: Final = "http: server gave HTTP response to HTTPS client"
"""What is said of a server that was asked by TLS and does not know it."""
_NOT_TLS: Final = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST", "PACKET_LENGTH")
"""What the TLS library says when the other side answers in plain text."""
_RESET_ON_CLOSE: Final = struct.pack("ii", 1, 0)
_HIGHEST_PORT: Final = 65535


class AddressError(Exception):
    """There is nowhere to go; says why."""


def resolve_port(port: IntOrString, container: Container) -> int:
    """The number of a port that is given by number, by name, or by a number in quotes.

    Raises:
        AddressError: the container has no port of that name, or the number is no port.
    """
    number = port if isinstance(port, int) else _by_name(port, container)
    if not 0 < number <= _HIGHEST_PORT:
        msg = f"invalid port number: {number}"
        raise AddressError(msg)
    return number


def _by_name(name: str, container: Container) -> int:
    for port in container.ports:
        if port.name == name:
            return port.container_port
    if name.isascii() and name.isdecimal():
        return int(name)
    msg = f"container {container.name} has no port named {name!r}"
    raise AddressError(msg)


def choose_host(wanted: str, address: str) -> str:
    """The host of the action, or else the pod's address.

    Raises:
        AddressError: there is neither.
    """
    if not (wanted or address):
        raise AddressError("the pod has no address yet")
    return wanted or address


def join(host: str, port: int) -> str:
    """``host:port``, with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def quick_socket(family: int = socket.AF_INET) -> socket.socket:
    """A TCP socket that is gone as soon as it is closed: nothing stays in TIME-WAIT here."""
    # The loop turns Nagle's algorithm off only where it sees that this is TCP.
    made = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    made.setblocking(False)  # noqa: FBT003 - the socket's own word
    made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
    return made


def why(error: OSError) -> str:
    """The system's word for an error, in lower case as network tools print it."""
    if isinstance(error, socket.gaierror):
        return str(error.strerror).lower()
    number = error.errno
    return os.strerror(number).lower() if number else str(error).lower()


def address_of(action: HTTPGetAction, host: str, port: int) -> str:
    """The URL of an action; what cannot stand in one is escaped, all else stays as it is."""
    scheme = (action.scheme or "HTTP").lower()
    path = action.path.partition("#")[0]
    slash = "" if path.startswith("/") else "/"
    return f"{scheme}://{join(host, port)}{slash}{quote(path, safe=_KEPT)}"


def shown(url: URL) -> str:
    """A URL in messages: with its port, also when that is the usual one."""
    return f"{url.scheme}://{join(url.host or '', url.port or 0)}{url.raw_path_qs}"


def unreached(url: URL, error: aiohttp.ClientConnectorError) -> str:
    """Why there is no connection to a server."""
    import ssl

    cause = error.os_error
    if not isinstance(cause, ssl.SSLError):
        return f"dial tcp {join(url.host or '', url.port or 0)}: connect: {why(cause)}"
    if any(word in str(cause) for word in _NOT_TLS):
        return PLAIN
    return f"tls: {cause.reason or cause}"


def headers_of(action: HTTPGetAction, user_agent: str) -> CIMultiDict[str]:
    """The headers of a request: the action's, and those that it does not replace."""
    from multidict import CIMultiDict

    headers = CIMultiDict((header.name, header.value) for header in action.http_headers)
    for name, value in (("User-Agent", user_agent), ("Accept", "*/*")):
        # An empty one takes ours away.
        if headers.setdefault(name, value) == "":
            del headers[name]
    headers["Connection"] = "close"
    return headers


def _onward(url: URL, status: int, location: str) -> URL | None:
    """Where an answer leads on the same host; None when it is the answer."""
    if status not in _REDIRECTS or not location:
        return None
    from yarl import URL

    found = url.join(URL(location))
    return found if found.host == url.host else None


async def _read_body(content: Any) -> bytes:
    """The beginning of a body; the rest of it is not waited for."""
    body = b""
    while len(body) < MAX_BODY:
        part = await content.read(MAX_BODY - len(body))
        if not part:
            break
        body += part
    return body


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer: its status, and the beginning of its body."""

    status: int
    body: bytes


class Requests:
    """Makes requests, each on a connection of its own, and trusts every certificate."""

    def __init__(self) -> None:
        self._session: aiohttp.ClientSession | None = None
        self._tls: ssl.SSLContext | None = None

    def load(self) -> None:
        """Load the libraries, which takes long the first time. Blocking."""
        import aiohttp  # noqa: F401 - for the requests to come

    async def aclose(self) -> None:
        """Close the session; no request may be open."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def get(self, url: URL, headers: CIMultiDict[str]) -> Reply | URL:
        """Make one request. Has no deadline of its own.

        Returns:
            The answer, or where it leads on the same host.

        Raises:
            aiohttp.ClientError: there is no proper answer.
            OSError: nobody can be reached.
        """
        async with self._open().get(
            url, headers=headers, allow_redirects=False, ssl=self._tls_for(url)
        ) as reply:
            onward = _onward(url, reply.status, reply.headers.get("Location", ""))
            if onward is not None:
                return onward
            return Reply(reply.status, await _read_body(reply.content))

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
                read_bufsize=MAX_BODY,
                max_line_size=64 * 1024,
                max_field_size=64 * 1024,
            )
        return self._session

    def _tls_for(self, url: URL) -> ssl.SSLContext | bool:
        if url.scheme != "https":
            return True
        if self._tls is None:
            import ssl

            # What is asked is whether the server answers, not who it is.
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
            self._tls = context
        return self._tls
