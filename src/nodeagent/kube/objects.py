"""Objects of one type as a server sends them: decoded one by one, and kept.

One object that cannot be read never spoils the others: it is named, and its last good version
stays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Generic, Protocol, TypeVar

import msgspec
from msgspec.structs import replace

from nodeagent.api import ListMeta, ObjectMeta
from nodeagent.api.codec import convert, dec_hook
from nodeagent.api.times import parse_time
from nodeagent.kube.errors import ApiError, UndecodableError

_MOST_FOREIGN: Final = 20
"""Kinds that do not belong here, and what is no object, are told of so many times."""

UNREADABLE = (msgspec.MsgspecError, RecursionError, ValueError)
"""What reading damaged JSON may raise."""


class KubeObject(Protocol):
    """What all objects have. They are msgspec Structs."""

    @property
    def kind(self) -> str:
        """The kind; "" in lists of some servers."""
        ...

    @property
    def metadata(self) -> ObjectMeta:
        """Name and version."""
        ...


T = TypeVar("T", bound=KubeObject)


class _HeadMeta(msgspec.Struct, rename="camel", frozen=True, gc=False):
    name: str | None = ""
    namespace: str | None = ""
    uid: str | None = ""
    resource_version: str | None = ""
    annotations: dict[str, str] | None = None
    deletion_timestamp: Any = None
    deletion_grace_period_seconds: Any = None


class Head(msgspec.Struct, frozen=True, gc=False):
    """Who an object is: read before, and apart from, all the rest."""

    kind: str | None = ""
    metadata: _HeadMeta = _HeadMeta()

    @property
    def key(self) -> str:
        """``namespace/name``, or the name alone of what has no namespace."""
        return object_key(self.metadata.name or "", self.metadata.namespace or "")

    @property
    def version(self) -> str:
        """The resource version, "" without one."""
        return self.metadata.resource_version or ""


class _Event(msgspec.Struct, gc=False):
    type: str
    object: msgspec.Raw


class _Details(msgspec.Struct, rename="camel"):
    retry_after_seconds: float | None = None


class _Status(msgspec.Struct):
    code: int | None = None
    reason: str | None = None
    message: str | None = None
    details: _Details | None = None


class _List(msgspec.Struct, Generic[T]):
    kind: str
    metadata: ListMeta
    items: list[T] | None = None


class _RawList(msgspec.Struct):
    kind: str
    metadata: ListMeta
    items: list[msgspec.Raw] | None = None


_event_decoder = msgspec.json.Decoder(_Event)
_head_decoder = msgspec.json.Decoder(Head)
_status_decoder = msgspec.json.Decoder(_Status)
_raw_list_decoder = msgspec.json.Decoder(_RawList, dec_hook=dec_hook)


def object_key(name: str, namespace: str = "") -> str:
    """How an object is called among those of its type."""
    return f"{namespace}/{name}" if namespace else name


def key_of(item: KubeObject) -> str:
    """The key of an object."""
    return object_key(item.metadata.name, item.metadata.namespace)


@dataclass(frozen=True, slots=True)
class Bad:
    """An object that cannot be used: who it is, as far as that can be read, and why not.

    Attributes:
        key: who it is.
        cause: why not.
        foreign: it is of another kind, so nothing is missing without it.
        head: what can be read of it.
    """

    key: str
    cause: str
    foreign: bool = False
    head: Head | None = None


class WrongKindError(UndecodableError):
    """An object is of another kind."""


@dataclass(slots=True)
class Listed(Generic[T]):
    """A page of a list, or all of it.

    Attributes:
        version: of the list.
        token: of the next page; "" after the last.
        items: what could be read.
        bad: what could not.
    """

    version: str
    token: str
    items: list[T] = field(default_factory=list)
    bad: list[Bad] = field(default_factory=list)

    def add(self, item: T | Bad) -> None:
        """Add an object, or one that cannot be used."""
        if isinstance(item, Bad):
            self.bad.append(item)
        else:
            self.items.append(item)


def read_event(line: bytes) -> tuple[str, msgspec.Raw]:
    """Type and object of a line of a watch.

    Raises:
        UndecodableError: it is no event.
    """
    try:
        event = _event_decoder.decode(line)
    except UNREADABLE as error:
        msg = f"a watch event cannot be read: {error}"
        raise UndecodableError(msg) from error
    return event.type, event.object


def read_status(raw: msgspec.Raw) -> ApiError:
    """The error that an ERROR event tells."""
    try:
        status = _status_decoder.decode(raw)
    except UNREADABLE as error:
        return ApiError(500, "InternalError", f"an error that cannot be read: {error}")
    after = status.details.retry_after_seconds if status.details else None
    message = " ".join((status.message or "").split())[:500]
    return ApiError(status.code or 500, status.reason or "", message, after)


def read_head(raw: msgspec.Raw) -> Head:
    """Who an object is.

    Raises:
        UndecodableError: it is no object at all.
    """
    try:
        return _head_decoder.decode(raw)
    except UNREADABLE as error:
        raise UndecodableError(str(error)) from error


class ObjectReader(Generic[T]):
    """Decodes objects of one type.

    Args:
        wanted: the API type.
        kind: its kind.
        fault: why an object cannot be used though it can be read; "" for nothing.
    """

    def __init__(
        self, wanted: type[T], kind: str, fault: Callable[[T], str] = lambda _item: ""
    ) -> None:
        self.kind = kind
        self._fault = fault
        self._wanted = wanted
        self._one = msgspec.json.Decoder(wanted, dec_hook=dec_hook)
        self._list: msgspec.json.Decoder[_List[Any]] = msgspec.json.Decoder(
            _List[wanted],  # type: ignore[valid-type]
            dec_hook=dec_hook,
        )

    def read(self, raw: msgspec.Raw | bytes) -> T:
        """One object.

        Raises:
            UndecodableError: it cannot be read, is of another kind, has no name or UID, or a
                fault.
        """
        try:
            item = self._one.decode(raw)
        except UNREADABLE:
            try:
                # Rare: a null where our type has a zero value.
                item = convert(msgspec.json.decode(raw), self._wanted)
            except UNREADABLE as error:
                raise UndecodableError(str(error)) from error
        self.check_kind(item.kind)
        if not item.metadata.name or not item.metadata.uid:
            raise UndecodableError("it has no name or no uid")
        if fault := self._fault(item):
            raise UndecodableError(fault)
        return _trimmed(item)

    def check_kind(self, kind: str | None) -> None:
        """Raise WrongKindError for an object of another kind; "" counts as the right one."""
        if kind and kind != self.kind:
            msg = f"a {kind} instead of a {self.kind}"
            raise WrongKindError(msg)

    def read_named(self, raw: msgspec.Raw) -> T | Bad:
        """One object, or why it cannot be used."""
        head = Head()
        try:
            head = read_head(raw)
            self.check_kind(head.kind)
            return self.read(raw)
        except UndecodableError as error:
            return Bad(head.key, str(error), isinstance(error, WrongKindError), head)

    def read_list(self, data: bytes) -> Listed[T]:
        """A list, or a page of one.

        Raises:
            UndecodableError: it is no such list.
        """
        try:
            page = self._list.decode(data)
        except UNREADABLE:
            return self._read_one_by_one(data)
        listed = self._page(page)
        for item in page.items or ():
            if item.kind not in ("", self.kind) or not item.metadata.name or not item.metadata.uid:
                return self._read_one_by_one(data)
            if self._fault(item):
                return self._read_one_by_one(data)
            listed.items.append(_trimmed(item))
        return listed

    def _read_one_by_one(self, data: bytes) -> Listed[T]:
        try:
            page = _raw_list_decoder.decode(data)
        except UNREADABLE as error:
            msg = f"the answer is no {self.kind}List: {error}"
            raise UndecodableError(msg) from error
        listed = self._page(page)
        for raw in page.items or ():
            listed.add(self.read_named(raw))
        return listed

    def _page(self, page: _List[Any] | _RawList) -> Listed[T]:
        """An empty page; whatever is no list must never count as one without items."""
        if page.kind != f"{self.kind}List" or not page.metadata.resource_version:
            msg = f"the answer is no {self.kind}List: kind {page.kind!r}"
            raise UndecodableError(msg)
        return Listed(page.metadata.resource_version, page.metadata.continue_)


def _trimmed(item: T) -> T:
    """Without managedFields, which are larger than all the rest and nobody asks for."""
    if not item.metadata.managed_fields:
        return item
    struct: Any = item
    lean: T = replace(struct, metadata=replace(item.metadata, managed_fields=()))
    return lean


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


def is_newer(version: str, known: str) -> bool:
    """Whether an event of this version comes after ``known``.

    Versions of one resource can be compared as numbers; of what is no number, only equality
    means anything.
    """
    new, old = version_rank(version), version_rank(known)
    if new is not None and old is not None:
        return new > old
    return version != known or not version


def version_rank(version: str) -> tuple[int, str] | None:
    """What orders versions that are numbers, of any length; None for what is no number."""
    if not (version.isascii() and version.isdecimal()):
        return None
    # Not an int: a server may send more digits than Python turns into one.
    digits = version.lstrip("0")
    return len(digits), digits
