"""The objects of one type that a server has, kept as its lists and events tell.

One object that cannot be read never spoils the others: it is named, and its last good version
stays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Generic, TypeVar

import msgspec
from msgspec.structs import replace

from nodeagent.api.times import parse_time
from nodeagent.kube.errors import UndecodableError
from nodeagent.kube.objects import (
    Bad,
    Head,
    KubeObject,
    Listed,
    ObjectReader,
    is_newer,
    key_of,
    read_head,
)

T = TypeVar("T", bound=KubeObject)

_MOST_FOREIGN: Final = 20
"""Kinds that do not belong here, and what is no object, are told of so many times."""


class ObjectStore(Generic[T]):
    """The objects of one type that a server has, by key.

    Args:
        reader: decodes them.
        report: is told of an object that cannot be used, once for each cause.
        accepts: whether an object belongs here; the selectors of a server should see to that.

    Attributes:
        bad: the objects whose present version cannot be used, and why, by key.
    """

    def __init__(
        self,
        reader: ObjectReader[T],
        report: Callable[[Bad], None],
        accepts: Callable[[T], bool] = lambda _item: True,
    ) -> None:
        self.reader = reader
        self._accepts = accepts
        self._report = report
        self._objects: dict[str, T] = {}
        self._foreign: set[str] = set()
        self.bad: dict[str, str] = {}

    @property
    def objects(self) -> Mapping[str, T]:
        """The objects now."""
        return self._objects

    def seed(self, items: Iterable[T]) -> None:
        """Start with what is known from before: it stays for objects that cannot be read."""
        self._objects = {key_of(item): item for item in items}

    @property
    def incomplete(self) -> bool:
        """Whether the server has objects that cannot be read, and of which nothing is known."""
        return any(key not in self._objects for key in self.bad)

    def replace(self, listed: Listed[T]) -> bool:
        """Take over a complete list; whether anything has changed."""
        before, after, was_incomplete = self._objects, {}, self.incomplete
        for item in filter(self._accepts, listed.items):
            key = key_of(item)
            old = before.get(key)
            # An unchanged object stays the same one: to compare two that are one costs nothing.
            if old is not None:
                after[key] = old if _same(old, item) else _sharing(old, item)
            else:
                after[key] = item
        known, self.bad = self.bad, {}
        for bad in listed.bad:
            self._refuse(bad, known)
            if bad.key not in before or bad.key in after or bad.foreign:
                continue
            if (kept := _salvaged(before[bad.key], bad.head)) is not None:
                after[bad.key] = kept
        self._objects = after
        same = len(before) == len(after) and all(before.get(k) is v for k, v in after.items())
        return not same or self.incomplete != was_incomplete

    def apply(self, event: str, raw: msgspec.Raw, after: str) -> tuple[str, bool]:
        """Take over an event.

        Args:
            event: ADDED, MODIFIED or DELETED.
            raw: the object.
            after: the version that is known; what is not newer is a repetition.

        Returns:
            The version of the event, "" without one, and whether anything has changed.
        """
        key = ""
        try:
            head = read_head(raw)
            key = head.key
            self.reader.check_kind(head.kind)
        except UndecodableError as error:
            # What is no object, or no object of ours, cannot be one that is missing.
            self._refuse(Bad(key, str(error), foreign=True), self.bad)
            return "", False
        if event == "DELETED":
            return head.version, self._remove(head)
        if not is_newer(head.version, after):
            return "", False
        return head.version, self._put(head, raw)

    def _remove(self, head: Head) -> bool:
        was_bad = self.bad.pop(head.key, None) is not None
        old = self._objects.get(head.key)
        if old is None or (head.metadata.uid and old.metadata.uid != head.metadata.uid):
            return was_bad
        del self._objects[head.key]
        return True

    def _put(self, head: Head, raw: msgspec.Raw) -> bool:
        """Take over one object; whether it differs from what is known."""
        old = self._objects.get(head.key)
        if old is not None and head.version and head.version == old.metadata.resource_version:
            return False
        item = self.reader.read_named(raw)
        if isinstance(item, Bad):
            self._refuse(item, self.bad)
            return self._salvage(head)
        self.bad.pop(head.key, None)
        if not self._accepts(item):
            return self._objects.pop(head.key, None) is not None
        self._objects[head.key] = item if old is None else _sharing(old, item)
        return True

    def _salvage(self, head: Head) -> bool:
        """Take over what little can be read of an object; whether that is news."""
        old = self._objects.get(head.key)
        kept = None if old is None else _salvaged(old, head)
        if kept is old:
            return False
        if kept is None:
            del self._objects[head.key]
        else:
            self._objects[head.key] = kept
        return True

    def _refuse(self, bad: Bad, known: Mapping[str, str]) -> None:
        if bad.foreign:
            if bad.cause not in self._foreign and len(self._foreign) < _MOST_FOREIGN:
                self._foreign.add(bad.cause)
                self._report(bad)
            return
        told = known.get(bad.key) == bad.cause
        self.bad[bad.key] = bad.cause
        if not told:
            self._report(bad)


def _salvaged(old: T, head: Head | None) -> T | None:
    """The last good version, with the deletion that its newest version, else unreadable, tells.

    None when that is another object of the same name: the old one is gone.
    """
    if head is None:
        return old
    new, meta = head.metadata, old.metadata
    if new.uid and new.uid != meta.uid:
        return None
    try:
        deleted = None if new.deletion_timestamp is None else parse_time(new.deletion_timestamp)
    except (ValueError, TypeError):
        return old
    seconds = new.deletion_grace_period_seconds
    grace = seconds if isinstance(seconds, int) else meta.deletion_grace_period_seconds
    if deleted is None or (deleted, grace) == (
        meta.deletion_timestamp,
        meta.deletion_grace_period_seconds,
    ):
        return old
    struct: Any = old
    ending = replace(meta, deletion_timestamp=deleted, deletion_grace_period_seconds=grace)
    kept: T = replace(struct, metadata=ending)
    return kept


def _sharing(old: T, new: T) -> T:
    """The new object with the old one's spec if they are equal: mostly only a status changes."""
    before, after = getattr(old, "spec", None), getattr(new, "spec", None)
    if before is None or before != after:
        return new
    struct: Any = new
    shared: T = replace(struct, spec=before)
    return shared


def _same(old: KubeObject, new: KubeObject) -> bool:
    before, after = old.metadata, new.metadata
    return (before.uid, before.resource_version) == (after.uid, after.resource_version) and bool(
        after.resource_version
    )
