"""One HTTP/1.1 connection of a client: requests in, answers out, until either has enough."""

from __future__ import annotations

import asyncio
from typing import Final

import anyio
import h11

from nodeagent.log import Log
from nodeagent.server.app import App, Request, Response

log = Log("server")

_IDLE: Final = 15.0
"""Seconds that a client has for its next request, and for the whole of it."""
_SEND: Final = 30.0
"""Seconds that a client has to take an answer."""
_LINGER: Final = 1.0
_MOST_HEADERS: Final = 16 * 1024
_MOST_BODY: Final = 64 * 1024
_CHUNK: Final = 64 * 1024


class _Refused(Exception):  # noqa: N818 - an answer, not an error
    """The request gets this status, and the connection ends."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.text = text


class Connection:
    """Answers the requests of one client, one after the other.

    Args:
        app: gives the answers.
        reader: what the client sends.
        writer: to the client.
    """

    def __init__(
        self, app: App, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._app = app
        self._reader = reader
        self._writer = writer
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=_MOST_HEADERS)
        self._waiting = anyio.CancelScope()
        self._finishing = False

    def finish(self) -> None:
        """Take no further request; one that is being answered still is."""
        self._finishing = True
        self._waiting.cancel()

    def close(self) -> None:
        """Close it; what was written is still sent when the client takes it."""
        self._writer.close()

    async def serve(self) -> None:
        """Serve until the client goes, is too slow, or does not speak HTTP."""
        try:
            while not self._finishing and await self._serve_one():
                self._http.start_next_cycle()
        except _Refused as refused:
            log.debug("bad_request", cause=refused.text)
            await self._refuse(refused)
        except OSError as error:
            log.debug("client_gone", cause=repr(error))

    async def _serve_one(self) -> bool:
        """Answer one request; whether there may be another."""
        request = await self._next_request()
        if request is None:
            return False
        try:
            response = await self._app.answer(request)
        except Exception as error:  # noqa: BLE001 - a broken handler breaks its answer only
            log.fault("request_failed", error, method=request.method, path=request.path)
            response = Response(500, b"500: Internal Server Error")
        await self._send(response, body=request.method != "HEAD")
        return self._http.our_state is h11.DONE and self._http.their_state is h11.DONE

    async def _next_request(self) -> Request | None:
        """The next request, read to its end; None when there is none.

        Raises:
            _Refused: it is no HTTP, or too large.
        """
        found: Request | None = None
        size = 0
        with anyio.CancelScope(deadline=anyio.current_time() + _IDLE) as self._waiting:
            while True:
                event = await self._event()
                if isinstance(event, h11.Request):
                    found = _request(event)
                elif isinstance(event, h11.Data):
                    size += len(event.data)
                    if size > _MOST_BODY:
                        raise _Refused(413, "the body is too large")
                elif isinstance(event, h11.EndOfMessage):
                    return found
                else:
                    return None
        return None

    async def _event(self) -> object:
        """The next event; never that data is needed."""
        try:
            while True:
                event = self._http.next_event()
                if event is not h11.NEED_DATA:
                    return event
                if self._http.they_are_waiting_for_100_continue:
                    self._writer.write(self._bytes(_continue()))
                self._http.receive_data(await self._reader.read(_CHUNK))
        except h11.RemoteProtocolError as error:
            raise _Refused(error.error_status_hint, str(error)) from error

    async def _send(self, response: Response, *, body: bool = True, close: bool = False) -> None:
        headers = {
            "Content-Type": response.content_type,
            "Content-Length": str(len(response.body)),
            **response.headers,
        }
        if close or self._finishing:
            headers["Connection"] = "close"
        head = h11.Response(status_code=response.status, headers=list(headers.items()))
        data = self._bytes(head)
        if body and response.body:
            data += self._bytes(h11.Data(data=response.body))
        data += self._bytes(h11.EndOfMessage())
        self._writer.write(data)
        with anyio.move_on_after(_SEND) as scope:
            await self._writer.drain()
        if scope.cancelled_caught:
            self._writer.transport.abort()
            raise TimeoutError("the client does not take its answer")

    def _bytes(self, event: h11.Event) -> bytes:
        return self._http.send(event) or b""

    async def _refuse(self, refused: _Refused) -> None:
        if self._http.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            return
        text = f"{refused.status}: {refused.text}\n".encode(errors="backslashreplace")
        try:
            await self._send(Response(refused.status, text), close=True)
            # What a client still sends into a closed socket would cost it the answer.
            with anyio.move_on_after(_LINGER):
                while await self._reader.read(_CHUNK):
                    pass
        except OSError as error:
            log.debug("client_gone", cause=repr(error))


def _request(event: h11.Request) -> Request:
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in event.headers}
    method, target = event.method.decode("latin-1"), event.target.decode("latin-1")
    try:
        return Request.of(method, target, headers)
    except ValueError as error:
        raise _Refused(400, str(error)) from error


def _continue() -> h11.InformationalResponse:
    return h11.InformationalResponse(status_code=100, headers=[])
