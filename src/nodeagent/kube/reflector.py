"""Keeps a store equal to what the API server has, whatever the connection does.

What comes next is decided in ``reflector_core``; here are the requests, the deadlines and the
reports (docs/behaviour/api-source.md).
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

import anyio
import msgspec
from anyio import TASK_STATUS_IGNORED
from anyio.abc import TaskStatus

from nodeagent.aio import jitter
from nodeagent.journal import Journal
from nodeagent.kube.client import KubeClient
from nodeagent.kube.errors import ApiError, KubeError, UndecodableError, UnreachableError
from nodeagent.kube.object_store import ObjectStore
from nodeagent.kube.objects import (
    Bad,
    KubeObject,
    Listed,
    key_of,
    read_event,
    read_head,
    read_status,
)
from nodeagent.kube.reflector_core import Failure, Plan, ReflectorCore, Step, failure_of
from nodeagent.log import Log

T = TypeVar("T", bound=KubeObject)

INITIAL_EVENTS_END: Final = "k8s.io/initial-events-end"
WATCH_SECONDS: Final = (30, 40)
"""After how many seconds, at random, the server is asked to end a watch.

It sends a bookmark just before. So a connection that says nothing is known to be dead soon, and
whoever goes on from the bookmark never falls behind what the server remembers.
"""
LATE_SECONDS: Final = 8.0
"""How long a watch may be late with its end."""
OPEN_SECONDS: Final = 10.0
"""How long the beginning of a watch may take."""
QUIET_SECONDS: Final = 8.0
"""The longest pause while a server tells all that there is."""
LIST_SECONDS: Final = 30.0
"""For one page of a list."""
MOST_INITIAL_BYTES: Final = 512 * 1024 * 1024
"""Of a watch that tells all there is."""
MOST_PAGES: Final = 100
MOST_EMPTY_PAGES: Final = 10
MOST_TROUBLES: Final = 10
"""Causes that are told until the server answers again."""


@dataclass(frozen=True, slots=True)
class Reflected:
    """What is reflected.

    Attributes:
        path: of the collection.
        name: what messages call it, such as ``pods``.
        query: selectors.
        journal: where failures are recorded, or None.
        watch_list: whether to ask for a WatchList.
        watch_seconds: after how many seconds, at random, the server is asked to end a watch.
        quiet: tell failures at debug level only, and not to the journal: others tell them.
    """

    path: str
    name: str
    query: Mapping[str, str] = field(default_factory=dict)
    journal: Journal | None = None
    watch_list: bool = True
    watch_seconds: tuple[int, int] = WATCH_SECONDS
    quiet: bool = False


class SilenceError(KubeError):
    """Nothing came for too long."""


class Reflector(Generic[T]):
    """Lists and watches one collection.

    Args:
        client: asks the server.
        reflected: the collection.
        store: is kept equal to it.
        changed: called when the store has changed, and after the first list in any case.
        version: last version known from before.

    Attributes:
        listed: whether all that there is has been seen since the start.
        trouble: why the server cannot be asked, "" while it can.
        trouble_since: loop time of the first failure in a row; None without one.
        lists: how often all was asked for.
        watches: how often changes were asked for.
    """

    def __init__(
        self,
        client: KubeClient,
        reflected: Reflected,
        store: ObjectStore[T],
        changed: Callable[[], None],
        *,
        version: str = "",
    ) -> None:
        self._client = client
        self._reflected = reflected
        self._store = store
        self._changed = changed
        self._core = ReflectorCore(version, watch_list=reflected.watch_list)
        self._pages: Listed[T] = Listed("", "")
        self._page_count = 0
        self._opened: float | None = None
        self._called = anyio.Event()
        self._log = Log("kube").bind(resource=reflected.name)
        self.listed = False
        self._told: set[str] = set()
        self.trouble = ""
        self.trouble_since: float | None = None
        self.lists = self.watches = 0

    @property
    def version(self) -> str:
        """The version up to which everything is known."""
        return self._core.version

    def retry_now(self) -> None:
        """Ask at once instead of waiting: there is reason to believe that the server is back."""
        self._called.set()

    async def run(self, *, task_status: TaskStatus[None] = TASK_STATUS_IGNORED) -> None:
        """Reflect until cancelled; no failure of the server ends it."""
        task_status.started()
        while True:
            await self.step()

    async def step(self) -> None:
        """One request, with the wait before it."""
        plan = self._core.plan
        await self._wait(plan.delay)
        self._opened = None
        try:
            if plan.step is Step.LIST:
                await self._list(plan)
            else:
                await self._watch(plan)
        except KubeError as error:
            self._failed(plan, error)

    async def _wait(self, delay: float) -> None:
        self._called = anyio.Event()
        if delay:
            with anyio.move_on_after(jitter(delay, 1.0)):
                await self._called.wait()

    def _failed(self, plan: Plan, error: KubeError) -> None:
        now = anyio.current_time()
        silent = isinstance(error, SilenceError)
        failure = Failure.SILENT if silent else failure_of(error)
        if silent:
            self._client.drop_connections()
        retry_after = error.retry_after if isinstance(error, ApiError) else None
        self._core.failed(
            failure,
            now,
            open_for=None if self._opened is None else now - self._opened,
            retry_after=retry_after or 0.0,
        )
        after = self._core.plan
        self._log.debug("api_request_failed", step=plan.step.name, cause=str(error))
        expected = plan.step is Step.WATCH_LIST and failure is Failure.REFUSED
        if not expected and failure not in (Failure.EXPIRED, Failure.AHEAD):
            self._in_trouble(plan, error, after)

    def _in_trouble(self, plan: Plan, error: KubeError, after: Plan) -> None:
        verb = "list" if plan.step is Step.LIST else "watch"
        cause = f"cannot {verb} {self._reflected.name}: {error}"
        if self.trouble_since is None:
            self.trouble_since = anyio.current_time()
        self.trouble = cause
        if cause in self._told or len(self._told) >= MOST_TROUBLES:
            return
        self._told.add(cause)
        if self._reflected.quiet:
            return
        remedy = _remedy(error, self._reflected.name)
        self._log.warning("api_unanswered", cause=cause, remedy=remedy, next=after.step.name)
        self._record("ApiTrouble", cause)

    def _answered(self) -> None:
        if self.trouble and not self._reflected.quiet:
            self._log.info("api_answers_again", before=self.trouble)
            self._record("ApiAnswers", f"after: {self.trouble}")
        self.trouble, self.trouble_since = "", None
        self._told.clear()

    def _record(self, what: str, why: str) -> None:
        if self._reflected.journal is not None:
            self._reflected.journal.record("kube", what, "", why, resource=self._reflected.name)

    # Lists.

    async def _list(self, plan: Plan) -> None:
        query = dict(self._reflected.query)
        if plan.limit:
            query["limit"] = str(plan.limit)
        if plan.token:
            query["continue"] = plan.token
        elif plan.version:
            query["resourceVersion"] = plan.version
        if not plan.token:
            self._pages, self._page_count = Listed("", ""), 0
            self.lists += 1
        data = await self._within(LIST_SECONDS, query)
        page = self._store.reader.read_list(data)
        self._page_count += 1
        self._pages.items += page.items
        self._pages.bad += page.bad
        if page.token:
            most = MOST_PAGES if self._pages.items else MOST_EMPTY_PAGES
            if page.token == plan.token or self._page_count >= most:
                raise UndecodableError("a list without end")
            self._core.page(page.token)
            return
        self._replace(self._pages)
        self._pages = Listed("", "")
        self._core.listed(page.version)

    async def _within(self, seconds: float, query: Mapping[str, str]) -> bytes:
        with anyio.move_on_after(seconds):
            return await self._client.get_bytes(self._reflected.path, query=query, timeout=seconds)
        msg = f"no complete answer within {seconds:g} s"
        raise SilenceError(msg)

    def _replace(self, listed: Listed[T]) -> None:
        changed = self._store.replace(listed)
        if changed or not self.listed:
            self.listed = True
            self._changed()

    # Watches.

    async def _watch(self, plan: Plan) -> None:
        seconds = random.randint(*self._reflected.watch_seconds)
        query = {
            **self._reflected.query,
            "watch": "true",
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(seconds),
        }
        if plan.version:
            query["resourceVersion"] = plan.version
        if plan.step is Step.WATCH_LIST:
            query |= {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
        self.watches += 1
        with anyio.CancelScope(deadline=anyio.current_time() + OPEN_SECONDS) as scope:
            async with self._client.watch(self._reflected.path, query) as lines:
                self._opened = anyio.current_time()
                end = self._opened + seconds + LATE_SECONDS
                if plan.step is Step.WATCH_LIST:
                    await self._read_all(lines, scope, end)
                if self._core.plan.step is Step.WATCH:
                    self._answered()
                    scope.deadline = end
                    await self._read_changes(lines)
        if scope.cancelled_caught:
            raise SilenceError(_silence(self._opened))
        now = anyio.current_time()
        self._core.ended(now - (self._opened if self._opened is not None else now), now)

    async def _read_all(
        self, lines: AsyncIterator[bytes], scope: anyio.CancelScope, end: float
    ) -> None:
        """Read what there is, up to the bookmark that ends it, or to the end of the stream."""
        events: list[tuple[str, msgspec.Raw]] = []
        size = 0
        scope.deadline = min(end, anyio.current_time() + QUIET_SECONDS)
        async for line in lines:
            scope.deadline = min(end, anyio.current_time() + QUIET_SECONDS)
            event, raw = self._event(line)
            if event != "BOOKMARK":
                events.append((event, raw))
                size += len(line)
                if size > MOST_INITIAL_BYTES:
                    raise UndecodableError("a list without end")
                continue
            head = read_head(raw)
            if (head.metadata.annotations or {}).get(INITIAL_EVENTS_END) == "true":
                self.lists += 1
                self._replace(self._initial(events, head.version))
                self._core.listed(head.version)
                return

    def _initial(self, events: list[tuple[str, msgspec.Raw]], version: str) -> Listed[T]:
        """What there is after these events: some may tell of changes while all was being told."""
        listed: Listed[T] = Listed(version, "")
        items: dict[str, T] = {}
        bad: dict[str, Bad] = {}
        for event, raw in events:
            found = self._store.reader.read_named(raw)
            if isinstance(found, Bad) and found.foreign:
                listed.add(found)
                continue
            key = found.key if isinstance(found, Bad) else key_of(found)
            bad.pop(key, None)
            if event == "DELETED":
                items.pop(key, None)
            elif isinstance(found, Bad):
                bad[key] = found
            else:
                items[key] = found
        listed.items += items.values()
        listed.bad += bad.values()
        return listed

    async def _read_changes(self, lines: AsyncIterator[bytes]) -> None:
        async for line in lines:
            event, raw = self._event(line)
            if event == "BOOKMARK":
                self._core.moved(read_head(raw).version)
                continue
            version, changed = self._store.apply(event, raw, self._core.version)
            self._core.moved(version)
            if changed:
                self._changed()

    def _event(self, line: bytes) -> tuple[str, msgspec.Raw]:
        """The event of a line.

        Raises:
            ApiError: it tells an error.
            UndecodableError: it is no event.
        """
        event, raw = read_event(line)
        if event == "ERROR":
            raise read_status(raw)
        if event not in ("ADDED", "MODIFIED", "DELETED", "BOOKMARK"):
            msg = f"a watch event of type {event[:40]!r}"
            raise UndecodableError(msg)
        return event, raw


def _silence(opened: float | None) -> str:
    if opened is None:
        return f"a watch was not opened within {OPEN_SECONDS:g} s"
    return "a watch has fallen silent: its connection seems dead"


def _remedy(error: KubeError, name: str) -> str:
    match error:
        case ApiError() if error.unauthorized:
            return "check the credentials in the kubeconfig"
        case ApiError() if error.forbidden:
            return f"grant the agent 'list' and 'watch' on {name}"
        case UnreachableError() | SilenceError():
            return "what is known is kept; it is tried again"
        case UndecodableError():
            return "check that the address is that of an API server; what is known is kept"
        case _:
            return "what is known is kept; it is tried again"
