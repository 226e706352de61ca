"""Objects of one type as a server sends them, decoded one by one: one that cannot be read is
named, and never spoils the others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

import msgspec
from msgspec.structs import replace

from nodeagent.api import ListMeta, ObjectMeta
from nodeagent.api.codec import convert, dec_hook
from nodeagent.kube.errors import ApiError, UndecodableError

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
