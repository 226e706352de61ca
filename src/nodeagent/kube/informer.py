"""Objects of one type, always at hand and up to date."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Generic, TypeVar

import anyio
from anyio import TASK_STATUS_IGNORED
from anyio.abc import TaskStatus

from nodeagent.journal import Journal
from nodeagent.kube.client import KubeClient
from nodeagent.kube.object_store import ObjectStore
from nodeagent.kube.objects import Bad, KubeObject, ObjectReader, object_key
from nodeagent.kube.reflector import Reflected, Reflector
from nodeagent.log import Log

T = TypeVar("T", bound=KubeObject)


class Informer(Generic[T]):
    """The objects of a collection.

    Args:
        client: asks the server.
        wanted: the API type.
        kind: its kind.
        reflected: the collection.
        changed: called when objects have changed, and when all have been seen for the first
            time. It must neither block nor raise.
        accepts: whether an object belongs here; the selectors of a server should see to that.
        fault: why an object cannot be used though it can be read; "" for nothing.
    """

    def __init__(
        self,
        client: KubeClient,
        wanted: type[T],
        kind: str,
        reflected: Reflected,
        changed: Callable[[], None] | None = None,
        *,
        accepts: Callable[[T], bool] = lambda _item: True,
        fault: Callable[[T], str] = lambda _item: "",
    ) -> None:
        self._client = client
        self._reflected = reflected
        self._store = ObjectStore(ObjectReader(wanted, kind, fault), self._report, accepts)
        self._callbacks = [changed] if changed is not None else []
        self._log = Log("kube").bind(resource=reflected.name)
        self._journal: Journal | None = reflected.journal
        self._first = anyio.Event()
        self.reflector = Reflector(client, reflected, self._store, self._on_change)

    def seed(self, items: Iterable[T], version: str) -> None:
        """Start from what was known before; call it before :meth:`run`."""
        self._store.seed(items)
        self.reflector = Reflector(
            self._client, self._reflected, self._store, self._on_change, version=version
        )

    def subscribe(self, changed: Callable[[], None]) -> None:
        """Have another function called like ``changed``."""
        self._callbacks.append(changed)

    @property
    def synced(self) -> bool:
        """Whether all objects have been seen since the start."""
        return self._first.is_set()

    async def wait_synced(self) -> None:
        """Return when all objects have been seen."""
        await self._first.wait()

    def get(self, name: str, namespace: str = "") -> T | None:
        """An object, or None."""
        return self._store.objects.get(object_key(name, namespace))

    @property
    def objects(self) -> Mapping[str, T]:
        """All objects by ``namespace/name``."""
        return self._store.objects

    @property
    def bad(self) -> Mapping[str, str]:
        """The objects whose present version cannot be used, and why, by key."""
        return self._store.bad

    @property
    def incomplete(self) -> bool:
        """Whether the server has objects that cannot be read, and of which nothing is known."""
        return self._store.incomplete

    @property
    def trouble(self) -> str:
        """Why the server cannot be asked, "" while it can."""
        return self.reflector.trouble

    def retry_now(self) -> None:
        """Ask at once instead of waiting: there is reason to believe that the server is back."""
        self.reflector.retry_now()

    async def run(self, *, task_status: TaskStatus[None] = TASK_STATUS_IGNORED) -> None:
        """Keep the objects up to date until cancelled."""
        await self.reflector.run(task_status=task_status)

    def _on_change(self) -> None:
        self._first.set()
        for callback in self._callbacks:
            callback()

    def _report(self, bad: Bad) -> None:
        known = bad.key in self._store.objects
        kept = "its last good version counts" if known else "it is left out"
        name = bad.key or "an object without a name"
        self._log.warning("object_unusable", object=name, cause=bad.cause, effect=kept)
        if self._journal is not None:
            why = f"{name}: {bad.cause}; {kept}"
            self._journal.record("kube", "ObjectUnusable", "", why, resource=self._reflected.name)
