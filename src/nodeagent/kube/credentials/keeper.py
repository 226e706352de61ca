"""The access in force: read anew when a file of it changes, without a restart."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Final

import anyio
from anyio import to_thread
from anyio.abc import TaskStatus

from nodeagent.aio import jitter
from nodeagent.clock import Clock
from nodeagent.kube.access import Access, AccessError, AccessSource, Signature, signature
from nodeagent.log import Log

log = Log("kube.credentials")

LOOK_PERIOD: Final = 5.0
"""Seconds between two looks at the files."""
_EXPIRY_MARGIN: Final = timedelta(seconds=30)
_SHORTEST_RENEWAL: Final = 5.0
_LONGEST_BACK_OFF: Final = 60.0


class AccessKeeper:
    """Keeps what a source gives, and the last good of it when it gives garbage.

    Args:
        source: is read again when its files change, a token is about to end, or the server
            says that it does not know us.
        clock: tells when a token ends.
        bootstraps: somebody else sees to it that there are files; until then there may be none.

    Attributes:
        access: the one in force; None while there never was one.
        problem: why the newest state of the files is not in force; "" when it is.
        passing: the problem may go away without a change of files.
        waiting_for: what has to happen before there is an access, such as an approval; "" for
            nothing that is known.
        changed: called after another access has come into force.
    """

    def __init__(self, source: AccessSource, clock: Clock, *, bootstraps: bool = False) -> None:
        self.access: Access | None = None
        self.problem = ""
        self.passing = False
        self.waiting_for = ""
        self.changed: Callable[[Access], None] = lambda _access: None
        self._source = source
        self._clock = clock
        self._bootstraps = bootstraps
        self._lock = anyio.Lock()
        self._files: tuple[Path, ...] = ()
        self._seen: Signature = ()
        self._read_at = float("-inf")
        self._back_off = 0.0

    @property
    def source(self) -> str:
        """Where access comes from, for people."""
        return self._source.source

    @property
    def why_none(self) -> str:
        """Why there is no access."""
        return self.waiting_for or self.problem or "credentials have not been read yet"

    async def load(self) -> None:
        """Read the source now; a failure is kept in ``problem``."""
        async with self._lock:
            await self._load()

    async def renew(self, used: Access) -> bool:
        """The server does not know who we are: look for something better than ``used``.

        Returns:
            Whether there is something else now.
        """
        async with self._lock:
            # Others may have waited for the same, and a plugin is not asked at each request.
            if self.access is used and self._age() >= _SHORTEST_RENEWAL:
                await self._load()
        now = self.access
        return now is not None and now is not used and _identity(now) != _identity(used)

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Look after the files, until cancelled."""
        task_status.started()
        while True:
            await anyio.sleep(jitter(LOOK_PERIOD, 0.1))
            async with self._lock:
                if await self._is_due():
                    await self._load()

    async def _is_due(self) -> bool:
        if await to_thread.run_sync(signature, self._files) != self._seen:
            return True
        if self.problem or self.access is None:
            return self._age() >= self._back_off
        expires = self.access.expires
        return expires is not None and expires - self._clock.now() <= _EXPIRY_MARGIN

    def _age(self) -> float:
        return anyio.current_time() - self._read_at

    async def _load(self) -> None:
        self._read_at = anyio.current_time()
        try:
            access = await self._source.load()
        except AccessError as error:
            self.passing = error.passing
            await self._refuse(str(error), error.files)
            return
        except Exception as error:  # noqa: BLE001 - no content of a file may end the agent
            log.fault("credentials_unreadable", error, source=self.source)
            self.passing = True
            await self._refuse(f"{self.source}: {type(error).__name__}", ())
            return
        finally:
            self._read_at = anyio.current_time()
        if self.problem:
            log.info("credentials_good_again", source=self.source)
        self.problem, self._back_off = "", 0.0
        self._files, self._seen = access.files, access.signature
        before, self.access = self.access, access
        if before is None or _identity(before) != _identity(access):
            if before is not None:
                log.info("credentials_changed", source=self.source, server=access.shown)
            self.changed(access)

    def _seen_any(self) -> bool:
        """Whether the first of the files, the one that names the others, is there."""
        return self.access is not None or (bool(self._seen) and self._seen[0] is not None)

    async def _refuse(self, problem: str, files: tuple[Path, ...]) -> None:
        if files:
            self._files = files
            self._seen = await to_thread.run_sync(signature, files)
        self._back_off = min(max(2 * self._back_off, LOOK_PERIOD), _LONGEST_BACK_OFF)
        if problem != self.problem:
            kept = "the last good ones stay in force" if self.access else "there are none"
            if self._bootstraps and not self._seen_any():
                log.debug("credentials_awaited", problem=problem)
            else:
                log.warning("credentials_refused", problem=problem, now=kept)
        self.problem = problem


def _identity(access: Access) -> tuple[str, str]:
    return access.connection, access.authorization
