"""Pulling images in turn, and telling who waits for what (docs/behaviour/images.md, "Pulls")."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime

import anyio

from nodeagent.api import Pod
from nodeagent.clock import Clock
from nodeagent.duration import format_duration
from nodeagent.journal import Journal
from nodeagent.limiter import PatientLimiter
from nodeagent.log import Log
from nodeagent.model import PodUID
from nodeagent.runtime.errors import ContainerStartError, Waiting
from nodeagent.runtime.settings import ImageSettings
from nodeagent.runtime.tokens import TokenBucket

OnNote = Callable[[PodUID], None]
"""Called when what is known about a pod's pulls has changed."""

UsedBytes = Callable[[], Awaitable[int | None]]
"""How much of the image file system is in use; None when nobody knows."""


def no_note(_uid: PodUID) -> None:
    """Tell nobody."""


async def unknown_use() -> int | None:
    """Nobody knows."""
    return None


@dataclass(slots=True, eq=False)
class _Pull:
    """One pull, from the moment it is asked for until it ends."""

    pod: Pod
    container: str
    image: str
    asked: float
    asked_wall: datetime
    began: float | None = None
    began_wall: datetime | None = None
    used: int | None = None

    @property
    def uid(self) -> PodUID:
        return PodUID(self.pod.metadata.uid)

    @property
    def label(self) -> str:
        meta = self.pod.metadata
        return f"{meta.namespace}/{meta.name}"


@dataclass(frozen=True, slots=True)
class PullTimes:
    """Seconds that a pull took, and seconds since it was asked for."""

    took: float
    waited: float


@dataclass(slots=True, kw_only=True)
class PullQueue:
    """Lets pulls run one at a time, or side by side within a bound, and tells how it goes.

    Args:
        settings: how images are pulled.
        journal: the flight recorder.
        clock: wall time, for what is shown.
        on_note: told when a note about a pod's pull has changed.
        used_bytes: tells how full the image file system is.
    """

    settings: ImageSettings
    journal: Journal
    clock: Clock
    on_note: OnNote = no_note
    used_bytes: UsedBytes = unknown_use
    _log: Log = field(default_factory=lambda: Log("runtime.images"))
    _pulls: list[_Pull] = field(default_factory=list)
    _notes: dict[tuple[PodUID, str], str] = field(default_factory=dict)
    _spans: dict[PodUID, tuple[datetime, datetime]] = field(default_factory=dict)
    _tokens: TokenBucket = field(init=False)
    _limiter: PatientLimiter = field(init=False)

    def __post_init__(self) -> None:
        settings = self.settings
        self._tokens = TokenBucket(settings.pull_qps, settings.pull_burst)
        self._limiter = PatientLimiter(_parallel(settings), settings.pull_patience)

    def reconfigure(self, settings: ImageSettings) -> None:
        """Pull by other settings from now on; pulls that wait begin when there is room."""
        before, self.settings = self.settings, settings
        limits = (settings.pull_qps, settings.pull_burst)
        if limits != (before.pull_qps, before.pull_burst):
            self._tokens = TokenBucket(*limits)
        self._limiter.resize(_parallel(settings))

    def note(self, uid: PodUID, container: str) -> str:
        """What a container waits for when its image is taking long; "" when it is not."""
        return self._notes.get((uid, container), "")

    def span(self, uid: PodUID) -> tuple[datetime, datetime] | None:
        """When a pod asked for its first pull, and when its last one ended; None without any."""
        return self._spans.get(uid)

    def forget_pod(self, uid: PodUID) -> None:
        """Drop what is remembered of a pod that is gone."""
        self._spans.pop(uid, None)

    async def run(
        self, pod: Pod, container: str, image: str, pull: Callable[[], Awaitable[None]]
    ) -> PullTimes:
        """Make one pull when it is its turn.

        Args:
            pod: whose image it is.
            container: the container's name.
            image: the image as the spec names it.
            pull: the pull itself.

        Raises:
            ContainerStartError: from ``pull``; or there were too many, or it took too long.
        """
        now = anyio.current_time()
        mine = _Pull(pod, container, image, now, self.clock.now())
        failure: ContainerStartError | None = None
        with self._listed(mine):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._tell, mine)
                try:
                    await self._in_turn(mine, pull)
                except ContainerStartError as error:
                    failure = error
                tasks.cancel_scope.cancel()
        if failure is not None:
            raise failure
        ended = anyio.current_time()
        began = mine.began if mine.began is not None else ended
        return PullTimes(ended - began, ended - mine.asked)

    async def _in_turn(self, mine: _Pull, pull: Callable[[], Awaitable[None]]) -> None:
        async with self._limiter.slot():
            await self._pull(mine, pull)

    async def _pull(self, mine: _Pull, pull: Callable[[], Awaitable[None]]) -> None:
        mine.began, mine.began_wall = anyio.current_time(), self.clock.now()
        if not self._tokens.take(mine.began):
            raise ContainerStartError(Waiting.IMAGE_PULL, "pull QPS exceeded")
        timeout = self.settings.pull_timeout or None
        with anyio.move_on_after(timeout) as scope:
            await pull()
        if scope.cancelled_caught:
            message = f"the pull did not end within {format_duration(self.settings.pull_timeout)}"
            raise ContainerStartError(Waiting.IMAGE_PULL, message)

    @contextmanager
    def _listed(self, mine: _Pull) -> Iterator[None]:
        self._pulls.append(mine)
        try:
            yield
        finally:
            self._pulls.remove(mine)
            first, _ = self._spans.get(mine.uid, (mine.asked_wall, mine.asked_wall))
            self._spans[mine.uid] = (first, self.clock.now())
            if self._notes.pop((mine.uid, mine.container), ""):
                self.on_note(mine.uid)

    async def _tell(self, mine: _Pull) -> None:
        """Say in status, log and journal how a pull goes that takes long."""
        settings = self.settings
        await anyio.sleep(settings.note_after)
        self._note(mine)
        mine.used = await self._used()
        due = mine.asked + settings.progress_period
        while True:
            await anyio.sleep(max(due - anyio.current_time(), 0))
            due += settings.progress_period
            self._note(mine)
            await self._report(mine)

    def _note(self, mine: _Pull) -> None:
        key = (mine.uid, mine.container)
        text = self._text(mine)
        if self._notes.get(key) != text:
            self._notes[key] = text
            self.on_note(mine.uid)

    def _text(self, mine: _Pull) -> str:
        """How it stands, in words that change only when it does."""
        if mine.began_wall is not None:
            return f'pulling image "{mine.image}" since {_stamp(mine.began_wall)}'
        text = f'waiting since {_stamp(mine.asked_wall)} to pull image "{mine.image}"'
        ahead = self._ahead(mine)
        if ahead is None or ahead.began_wall is None:
            return text
        since = _stamp(ahead.began_wall)
        return f'{text}: "{ahead.image}" of pod {ahead.label} has been pulled since {since}'

    def _ahead(self, mine: _Pull) -> _Pull | None:
        """The pull that has held up the others for longest and still has its turn."""
        patience = self.settings.pull_patience
        now = anyio.current_time()
        running = [p for p in self._pulls if p.began is not None and p is not mine]
        patient = [p for p in running if now - (p.began or 0.0) < patience]
        return min(patient or running, key=lambda p: p.began or 0.0, default=None)

    async def _report(self, mine: _Pull) -> None:
        now = anyio.current_time()
        if mine.began is None:
            waiting = [p for p in self._pulls if p.began is None]
            place = waiting.index(mine) + 1
            why = self._text(mine)
            self._record(mine, "ImagePullWaits", why, now - mine.asked, place=place)
            self._log.info(
                "image_pull_waits",
                image=mine.image,
                pod=mine.label,
                seconds=round(now - mine.asked),
                place=place,
                cause=why,
            )
            return
        elapsed = now - mine.began
        used = await self._used()
        facts = {"disk_bytes": used - mine.used} if used is not None and mine.used else {}
        why = f"pulling {mine.image} for {format_duration(round(elapsed))}"
        self._record(mine, "ImagePullProgress", why, elapsed, **facts)
        self._log.info(
            "image_pull_goes_on",
            image=mine.image,
            pod=mine.label,
            seconds=round(elapsed),
            **facts,
        )

    async def _used(self) -> int | None:
        with anyio.move_on_after(self.settings.note_after):
            return await self.used_bytes()
        return None

    def _record(self, mine: _Pull, what: str, why: str, duration: float, **facts: object) -> None:
        self.journal.record(
            "runtime",
            what,
            mine.uid,
            why,
            duration,
            container=mine.container,
            image=mine.image,
            **facts,
        )


def _parallel(settings: ImageSettings) -> float:
    """How many pulls may run side by side."""
    return 1 if settings.serialize_pulls else settings.max_parallel_pulls or math.inf


def _stamp(moment: datetime) -> str:
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"
