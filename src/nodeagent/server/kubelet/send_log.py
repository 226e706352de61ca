"""Sends a container's log to whoever asked for it.

docs/behaviour/server.md, "Container logs".
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

from anyio import to_thread

from nodeagent.server.kubelet.log_files import LogFile, open_log
from nodeagent.server.kubelet.log_lines import LogLines
from nodeagent.server.kubelet.log_request import LogRequest
from nodeagent.server.kubelet.log_watch import Follower, LogWatch


class LogSender:
    """Sends one log.

    Args:
        path: the log.
        request: what is wanted of it.
        watch: tells when it changes.
        running: whether its container still runs.
        send: gives the client further bytes, and waits until they are on their way.
    """

    def __init__(
        self,
        path: Path,
        request: LogRequest,
        *,
        watch: LogWatch,
        running: Callable[[], bool],
        send: Callable[[bytes], Awaitable[None]],
    ) -> None:
        self._path = path
        self._request = request
        self._watch = watch
        self._running = running
        self._send = send
        self._lines = LogLines(request)

    async def run(self) -> None:
        """Send it; returns at its end, or when the container has ended.

        Raises:
            LogFileError: it cannot be read; nothing was sent.
            UnsupportedLogError: it is no log.
        """
        if not self._request.follow:
            file = await to_thread.run_sync(open_log, self._path, self._request.tail)
            try:
                await self._to_end(file)
                await self._send(self._lines.finish())
            finally:
                file.close()
            return
        async with self._watch.following(self._path, lambda: not self._running()) as follower:
            file = await to_thread.run_sync(open_log, self._path, self._request.tail)
            await self._send(b"")
            await self._follow(file, follower)

    async def _follow(self, file: LogFile, follower: Follower) -> None:
        try:
            while True:
                running = self._running()
                # Read after it was asked: what a container wrote last is there by now.
                if await self._to_end(file):
                    return
                if newer := await to_thread.run_sync(file.successor):
                    # Nobody writes to the old one once the new one is there.
                    if await self._to_end(file):
                        newer.close()
                        return
                    await self._send(self._lines.next_file())
                    file.close()
                    file = newer
                    continue
                if await to_thread.run_sync(file.start_again):
                    continue
                if not running:
                    await self._send(self._lines.finish())
                    return
                await follower.news()
        finally:
            file.close()

    async def _to_end(self, file: LogFile) -> bool:
        """Send all there is at present; whether nothing more is wanted."""
        while not self._lines.done:
            piece = await to_thread.run_sync(file.read, self._lines)
            if piece.output:
                await self._send(piece.output)
            if piece.at_end:
                break
        return self._lines.done
