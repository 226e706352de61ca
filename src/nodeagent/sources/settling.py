"""When a changed file may be read: not while someone writes it. Pure: times are arguments.

The kernel says when a writer has closed a file; where it says nothing, a file counts as written
once it has not changed for a while (docs/behaviour/sources.md, "Settling").
"""

from __future__ import annotations

import enum
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

HINT_DELAY: Final = 0.05
"""Seconds from a change that is whole at once (a rename, a removal) to the look at it."""
CLOSED_QUIET: Final = 0.2
"""Seconds without a change after which a file that its writer has closed is read."""
CLOSED_LONGEST: Final = 5.0
"""Seconds after which a file is read that is closed and written again all the time."""
DOUBTFUL_QUIET: Final = 1.0
"""The same as ``CLOSED_QUIET`` for an empty file, and for names that programs give to files
which they rename when they have written them."""
OPEN_QUIET: Final = 5.0
"""Seconds without a change after which a file is read although its writer holds it open."""
OPEN_LONGEST: Final = 30.0
"""Seconds of writing after which a file is read as it is."""
UNSEEN_QUIET: Final = 0.3
"""Seconds for which a file of which no event tells must look the same."""
OLD: Final = 1.0
"""Seconds; a file last changed longer ago needs no such proof."""

_TEMPORARY: Final = re.compile(r"sed[A-Za-z0-9]{6}|tmp[a-z0-9_]{8}")


class Change(enum.Enum):
    """What an event says of a file."""

    CREATED = enum.auto()  # it is new: empty and open, or a link to something whole
    WRITTEN = enum.auto()  # by someone who still has it open
    CLOSED = enum.auto()  # by someone who wrote it
    PLACED = enum.auto()  # renamed to this name, so it is whole
    GONE = enum.auto()  # removed or renamed away
    TOUCHED = enum.auto()  # its mode or owner has changed


@dataclass(slots=True)
class _Activity:
    """What goes on with one file since it was last read."""

    state: Change
    since: float
    last: float
    number: int
    closed_since: float = math.inf
    due: float | None = None
    """What the last look has made of it."""


@dataclass(frozen=True, slots=True)
class FileFacts:
    """What a look at a changed file, before reading it, has shown.

    Attributes:
        keys: the paths under which changes of it are told: its own, and where its link leads.
        name: its name.
        stamp: changes when the file does.
        size: bytes.
        links: hard links.
        age: seconds since it was last changed by the wall clock; negative if that says nothing.
    """

    keys: tuple[str, ...]
    name: str
    stamp: tuple[int, ...]
    size: int = 1
    links: int = 1
    age: float = -1.0


class Settling:
    """Knows which files are being written. All times are loop time."""

    def __init__(self) -> None:
        self._active: dict[str, _Activity] = {}
        self._unseen: dict[str, tuple[tuple[int, ...], float, float]] = {}
        self._look_at = math.inf
        self._number = 0

    def note(self, key: str, change: Change, now: float) -> None:
        """Note what an event says of a file."""
        self._number += 1
        if change in (Change.GONE, Change.TOUCHED, Change.CREATED):
            self.look_soon(now)
        if change is Change.TOUCHED:
            return
        activity = self._active.get(key)
        if activity is None or change in (Change.GONE, Change.CREATED):
            activity = self._active[key] = _Activity(change, now, now, self._number)
        elif change is Change.PLACED and activity.state is not Change.PLACED:
            activity.since = now
        if change is Change.CLOSED:
            activity.closed_since = min(activity.closed_since, now)
        activity.state, activity.last, activity.due = change, now, None
        activity.number = self._number

    def look_soon(self, now: float) -> None:
        """Something has changed that is no one file's."""
        self._look_at = min(self._look_at, now + HINT_DELAY)

    def lost_track(self, now: float) -> None:
        """Events were lost: how files look is all that counts."""
        self._active.clear()
        self._number += 1
        self.look_soon(now)

    def due(self) -> float:
        """When it makes sense to look; inf for not before something happens."""
        return min(self._look_at, min(map(_due, self._active.values()), default=math.inf))

    def begin(self) -> int:
        """A look begins; the number of the last change that it takes into account."""
        self._look_at = math.inf
        return self._number

    def readable_at(self, file: FileFacts, now: float) -> float:
        """From when on a changed file may be read."""
        found = [a for a in map(self._active.get, file.keys) if a is not None]
        active = [a for a in found if a.state is not Change.GONE]
        told = max((_readable(activity, file) for activity in active), default=now)
        behind = [key for key in file.keys[1:] if key in self._active]
        if active and (len(file.keys) == 1 or behind):
            return told
        # A new link says nothing of what it leads to.
        return max(told, self._unseen_until(file, now))

    def _unseen_until(self, file: FileFacts, now: float) -> float:
        """When a file of which no event tells has looked the same for long enough."""
        if file.age >= OLD:
            return now
        stamp, since, began = self._unseen.get(file.keys[0], (None, now, now))
        if stamp != file.stamp:
            since = now
            self._unseen[file.keys[0]] = (file.stamp, since, began)
        return min(since + UNSEEN_QUIET, began + OPEN_LONGEST)

    def changed_since(self, keys: Iterable[str], number: int) -> bool:
        """Whether an event after that one tells of a file, so that what was read may be half."""
        found = map(self._active.get, keys)
        return any(activity.number > number for activity in found if activity is not None)

    def end(self, number: int, waiting: Mapping[str, float]) -> None:
        """A look has ended.

        Args:
            number: the answer of ``begin``.
            waiting: of the files that could not be read yet, by key, when they can be. What
                went on with any other is over.
        """
        for key, activity in list(self._active.items()):
            if activity.number > number:
                continue
            if key in waiting:
                activity.due = waiting[key]
            else:
                del self._active[key]
        self._unseen = {key: seen for key, seen in self._unseen.items() if key in waiting}
        self._look_at = min(self._look_at, min(waiting.values(), default=math.inf))


def _due(activity: _Activity) -> float:
    if activity.due is not None:
        return activity.due
    if activity.state is Change.GONE:
        return math.inf
    return _ready(activity, CLOSED_QUIET)


def _readable(activity: _Activity, file: FileFacts) -> float:
    if activity.state is Change.CREATED and (file.size > 0 or file.links > 1):
        # It was made with content in it: a link to something whole.
        return activity.since + HINT_DELAY
    doubtful = file.size == 0 or _TEMPORARY.fullmatch(file.name) is not None
    return _ready(activity, DOUBTFUL_QUIET if doubtful else CLOSED_QUIET)


def _ready(activity: _Activity, closed_quiet: float) -> float:
    if activity.state is Change.PLACED:
        return activity.since + HINT_DELAY
    if activity.state is Change.CLOSED:
        return min(activity.last + closed_quiet, activity.closed_since + CLOSED_LONGEST)
    return min(activity.last + OPEN_QUIET, activity.since + OPEN_LONGEST)
