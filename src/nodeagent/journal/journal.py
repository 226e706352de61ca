"""A bounded log of small typed records with an index by pod that outlives the pod.

``why``, timelines, the web page, debugging and tests all read this one log. Writing must
stay cheap (about a microsecond), so a record is one struct, packed, and two deque appends. Packed
it takes a third of the memory, and there are tens of thousands; reading unpacks.
"""

from __future__ import annotations

import time
from collections import OrderedDict, deque
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeAlias

import anyio
import msgspec
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from nodeagent.clock import Clock, SystemClock
from nodeagent.log import Log

log = Log("journal")

_AT_LEAST: Final = 16
"""Records of a pod that are not given up for those of other pods."""
_TEXT: Final = 4096
"""Characters of one text in a record."""


def _cut(text: str) -> str:
    return f"{text[:_TEXT]}... ({len(text)} characters)"


class JournalRecord(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """One step: who did what to which pod, when and why.

    ``at`` is monotonic seconds, ``wall_ns`` wall time for display, ``pod`` a pod UID or "",
    ``duration`` seconds or None, ``fields`` further facts (JSON-able: who reads them later finds
    lists for tuples, and text for what JSON does not know).
    """

    seq: int
    at: float
    wall_ns: int
    component: str
    what: str
    pod: str = ""
    why: str = ""
    duration: float | None = None
    fields: dict[str, Any] | None = None


_Entry: TypeAlias = bytes | JournalRecord
"""A packed record; one with values that cannot be packed is kept as it is."""

_pack: Final = msgspec.msgpack.Encoder(enc_hook=str).encode
_unpack: Final = msgspec.msgpack.Decoder(JournalRecord).decode


def _packed(record: JournalRecord) -> _Entry:
    try:
        return _pack(record)
    except (UnicodeEncodeError, TypeError, ValueError, OverflowError, RecursionError):
        return record


def _unpacked(entry: _Entry) -> JournalRecord:
    return _unpack(entry) if isinstance(entry, bytes) else entry


def _latest(entries: deque[_Entry], since: float) -> list[JournalRecord]:
    """The records at or after ``since``, in their order, which is that of time."""
    found = []
    for entry in reversed(entries):
        record = _unpacked(entry)
        if record.at < since:
            break
        found.append(record)
    found.reverse()
    return found


class Journal:
    """The recorder. One per agent; safe to use from the event loop's thread only.

    Args:
        size: records kept over all.
        per_pod: records kept for each pod. All pods together keep at most twice ``size``, or a
            few each if that is more: then those longest without a record lose their oldest.
        pods: pods whose index is kept; the one longest without a record goes first.
        clock: wall clock for display.
        monotonic: seconds for ordering and ages; the agent passes its loop's time.
    """

    def __init__(
        self,
        size: int = 16384,
        *,
        per_pod: int = 256,
        pods: int = 2048,
        clock: Clock | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ring: deque[_Entry] = deque(maxlen=size)
        self._by_pod: OrderedDict[str, deque[_Entry]] = OrderedDict()
        self._names: dict[str, str] = {}
        self._per_pod = per_pod
        self._pods = pods
        self._indexed = 0
        self._size = size
        self._time_ns = (clock or SystemClock()).time_ns
        self._monotonic = monotonic
        self._followers: dict[MemoryObjectSendStream[JournalRecord], str] = {}
        self._slow = {""}
        self._seq = 0
        self.missed = 0
        """Records that a slow follower did not get."""

    def use_time(self, monotonic: Callable[[], float]) -> None:
        """Take ages from another monotonic clock from now on, such as that of an event loop."""
        self._monotonic = monotonic

    def resize(self, size: int) -> None:
        """Keep so many records from now on; the newest stay."""
        if size != self._size:
            self._ring = deque(self._ring, maxlen=size)
            self._size = size

    def record(
        self,
        component: str,
        what: str,
        pod: str = "",
        why: str = "",
        duration: float | None = None,
        **fields: Any,
    ) -> None:
        """Write one record; never blocks, never fails on a slow follower.

        Long texts are cut: what the journal may take is a matter of records, not of what others
        have to say.
        """
        self._seq += 1
        if len(why) > _TEXT:
            why = _cut(why)
        for key, value in fields.items():
            if isinstance(value, str) and len(value) > _TEXT:
                fields[key] = _cut(value)
        record = JournalRecord(
            self._seq,
            self._monotonic(),
            self._time_ns(),
            component,
            what,
            pod,
            why,
            duration,
            fields or None,
        )
        entry = _packed(record)
        self._ring.append(entry)
        if pod:
            index = self._index(pod)
            self._indexed += len(index) < self._per_pod
            index.append(entry)
            if self._indexed > self._most_indexed():
                self._shorten()
        for follower, name in self._followers.items():
            try:
                follower.send_nowait(record)
            except anyio.WouldBlock:
                self.missed += 1
                if name not in self._slow:
                    self._say_slow(name)
            except anyio.BrokenResourceError:
                # Its reader closed the stream early; whoever writes must not suffer for it.
                continue

    def _index(self, pod: str) -> deque[_Entry]:
        index = self._by_pod.get(pod)
        if index is None:
            index = self._by_pod[pod] = deque(maxlen=self._per_pod)
            if len(self._by_pod) > self._pods:
                gone, forgotten = self._by_pod.popitem(last=False)
                self._indexed -= len(forgotten)
                self._names.pop(gone, None)
        else:
            self._by_pod.move_to_end(pod)
        return index

    def _shorten(self) -> None:
        """Halve what the quietest pods keep, until an eighth of all is free again."""
        most = self._most_indexed() * 7 // 8
        for index in self._by_pod.values():
            for _ in range(len(index) - max(len(index) // 2, _AT_LEAST)):
                index.popleft()
                self._indexed -= 1
            if self._indexed <= most:
                return

    def _most_indexed(self) -> int:
        return max(2 * self._size, 2 * _AT_LEAST * len(self._by_pod))

    def name_pod(self, uid: str, namespaced_name: str) -> None:
        """Let readers find ``uid`` as ``namespace/name`` too."""
        self._index(uid)
        self._names[uid] = namespaced_name

    def select(self, pod: str = "", since: float = 0.0) -> list[JournalRecord]:
        """Records in order of writing.

        Args:
            pod: a UID, ``namespace/name`` or a bare name; "" for all records.
            since: monotonic seconds; only records at or after it.
        """
        if not pod:
            return _latest(self._ring, since)
        found = [r for uid in self._uids(pod) for r in _latest(self._by_pod[uid], since)]
        return sorted(found, key=lambda r: r.seq)

    def _uids(self, pod: str) -> Iterator[str]:
        for uid in self._by_pod:
            name = self._names.get(uid, "")
            if pod in (uid, name) or (name and pod == name.partition("/")[2]):
                yield uid

    @property
    def now(self) -> float:
        """The journal's monotonic time, to turn ages into ``since``."""
        return self._monotonic()

    def describe(self, record: JournalRecord) -> dict[str, Any]:
        """A record as JSON-able values, with the pod's name when it is known."""
        shown = {k: v for k, v in msgspec.structs.asdict(record).items() if v not in ("", None)}
        if record.pod and record.pod in self._names:
            shown["name"] = self._names[record.pod]
        return shown

    def _say_slow(self, name: str) -> None:
        self._slow.add(name)
        log.warning(
            "follower_slow",
            follower=name,
            remedy="it misses records: read faster, or ask for a larger backlog",
        )

    @contextmanager
    def follower(
        self, backlog: int = 1024, *, name: str = "a follower of the journal"
    ) -> Iterator[MemoryObjectReceiveStream[JournalRecord]]:
        """A stream of the records written from now on.

        Args:
            backlog: records that it may be behind; it misses those that come then.
            name: what it is called in a warning when it misses some, said once; "" for none.
        """
        send, receive = anyio.create_memory_object_stream[JournalRecord](backlog)
        self._followers[send] = name
        try:
            with receive:
                yield receive
        finally:
            del self._followers[send]
            send.close()

    async def follow(
        self, backlog: int = 1024, *, name: str = "a follower of the journal"
    ) -> AsyncGenerator[JournalRecord, None]:
        """Iterate over the records written from now on (wrap in ``aclosing``).

        Args are those of :meth:`follower`.
        """
        with self.follower(backlog, name=name) as stream:
            async for record in stream:
                yield record
