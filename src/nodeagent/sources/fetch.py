"""Fetches a manifest URL: bounded in time and size, and careful with credentials."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import anyio

from nodeagent._version import __version__
from nodeagent.kube.failures import cause_of
from nodeagent.sources.manifest_scan import SIZE_LIMIT, too_large

if TYPE_CHECKING:
    import aiohttp
    from yarl import URL

TIMEOUT: Final = 10.0
"""Seconds for all of a fetch, redirects included."""
CONNECT_TIMEOUT: Final = 5.0
"""Seconds for each connection."""
_REDIRECTS: Final = (301, 302, 303, 307, 308)
_MOST_REDIRECTS: Final = 10
_CHUNK: Final = 1 << 16
_CLOSE_SECONDS: Final = 1.0
_HTML: Final = re.compile(
    rb"(?:\xef\xbb\xbf)?\s*<(?:!doctype|html|head|body|\?xml)\b", re.IGNORECASE
)


class FetchError(Exception):
    """A URL could not be fetched; says why, without anything secret."""


@dataclass(frozen=True, slots=True)
class Validators:
    """What makes the next request conditional: of the answer that is remembered."""

    etag: str = ""
    modified: str = ""

    def headers(self) -> list[tuple[str, str]]:
        """The request headers."""
        pairs = [("If-None-Match", self.etag), ("If-Modified-Since", self.modified)]
        return [(name, value) for name, value in pairs if value]


@dataclass(frozen=True, slots=True)
class Answer:
    """What a URL has answered.

    Attributes:
        body: None when it has not changed since the answer that ``validators`` are of.
        validators: for the next request.
    """

    body: bytes | None
    validators: Validators


class Fetcher:
    """Fetches one URL.

    Args:
        url: http or https.
        headers: to send; a name may come several times. They follow no redirect to another
            scheme, host or port, because they may be credentials.
        proxy_for: the proxy for a URL, None for a direct connection.
    """

    def __init__(
        self,
        url: str,
        headers: Sequence[tuple[str, str]] = (),
        *,
        proxy_for: Callable[[str], str | None] = lambda _url: None,
    ) -> None:
        self._url = url
        self._headers = tuple(headers)
        self._proxy_for = proxy_for

    async def fetch(self, known: Validators) -> Answer:
        """Get the URL, or learn that it has not changed.

        Args:
            known: of the answer that is remembered; empty to get one in any case.

        Raises:
            FetchError: there is no good answer.
        """
        import aiohttp

        try:
            with anyio.fail_after(TIMEOUT):
                async with _session() as session:
                    return await self._fetch(session, known)
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise FetchError(_cause(error)) from error

    async def _fetch(self, session: aiohttp.ClientSession, known: Validators) -> Answer:
        from multidict import CIMultiDict
        from yarl import URL

        url, own = URL(self._url), self._headers
        for _ in range(_MOST_REDIRECTS + 1):
            headers = CIMultiDict(
                [("User-Agent", f"nodeagent/{__version__}"), ("Accept-Encoding", "identity")]
            )
            for name, _value in own:
                headers.pop(name, None)
            headers.extend([*own, *known.headers()])
            # aiohttp refuses to choose between two.
            asked = url.with_user(None) if "Authorization" in headers else url
            async with session.get(
                asked, headers=headers, proxy=self._proxy_for(str(url)), allow_redirects=False
            ) as response:
                if response.status not in _REDIRECTS:
                    with _told_of_redirect(url, self._url, withheld=own != self._headers):
                        return await _read(response, known)
                target = _target(url, response)
            if target.origin() != url.origin():
                # They do not come back either when a later redirect leads back.
                own = ()
            url = target
        msg = f"more than {_MOST_REDIRECTS} redirects"
        raise FetchError(msg)


@asynccontextmanager
async def _session() -> AsyncIterator[aiohttp.ClientSession]:
    """A session of one fetch: between fetches no connection waits."""
    import aiohttp

    session = aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=1, force_close=True),
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT),
    )
    try:
        yield session
    finally:
        with anyio.move_on_after(_CLOSE_SECONDS, shield=True):
            await session.close()


@contextmanager
def _told_of_redirect(url: URL, given: str, *, withheld: bool) -> Iterator[None]:
    """Errors say who has answered, if it is not who was asked, and what was kept from them."""
    from yarl import URL

    try:
        yield
    except FetchError as error:
        if url.origin() == URL(given).origin():
            raise
        headers = ", to which the headers were not sent" if withheld else ""
        msg = f"{error} (redirected to {url.host}:{url.port}{headers})"
        raise FetchError(msg) from error


def _status(response: aiohttp.ClientResponse) -> str:
    return f"{response.status} {response.reason or ''}".rstrip()[:100]


def _refused(response: aiohttp.ClientResponse, why: str) -> FetchError:
    return FetchError(f"{_status(response)} {why}")


def _target(url: URL, response: aiohttp.ClientResponse) -> URL:
    """Where a redirect leads."""
    from yarl import URL

    location = response.headers.get("Location")
    if not location:
        raise _refused(response, "without a Location")
    try:
        target = url.join(URL(location))
    except ValueError as error:
        raise _refused(response, "to what is no URL") from error
    if target.scheme not in ("http", "https") or not target.host:
        raise _refused(response, "to what is no http or https URL")
    if url.scheme == "https" and target.scheme == "http":
        raise _refused(response, "from https to http, which is not followed")
    return target


async def _read(response: aiohttp.ClientResponse, known: Validators) -> Answer:
    if response.status == 304 and known.headers():
        return Answer(None, known)
    if response.status != 200:
        raise FetchError(_status(response))
    if (response.content_length or 0) >= SIZE_LIMIT:
        raise FetchError(too_large(response.content_length or 0))
    chunks, size = [], 0
    async for chunk in response.content.iter_chunked(_CHUNK):
        chunks.append(chunk)
        size += len(chunk)
        if size >= SIZE_LIMIT:
            # How much had come is another number each time, and would be news each time.
            raise FetchError(too_large(SIZE_LIMIT).replace(": ", ": at least ", 1))
    body = b"".join(chunks)
    if _HTML.match(body):
        raise FetchError("an HTML or XML page instead of manifests")
    headers = response.headers
    return Answer(body, Validators(headers.get("ETag", ""), headers.get("Last-Modified", "")))


def _cause(error: Exception) -> str:
    """What went wrong, without the URL, which may hold a password."""
    import aiohttp

    match error:
        case aiohttp.ConnectionTimeoutError():
            return f"no connection within {CONNECT_TIMEOUT:g} s"
        case TimeoutError():
            return f"no complete answer within {TIMEOUT:g} s"
        case _:
            return cause_of(error)
