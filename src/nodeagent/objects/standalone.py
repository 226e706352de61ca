"""Objects of a node without an API server: from manifests that lie beside the pods."""

from __future__ import annotations

from collections.abc import Iterable

import anyio
from anyio import TASK_STATUS_IGNORED
from anyio.abc import TaskStatus

from nodeagent.log import Log
from nodeagent.objects.refs import ObjectRef, ObjectValue
from nodeagent.objects.strategy import Notify, ignore

log = Log("objects")


class StandaloneObjects:
    """What the sources of manifests have in force.

    Of an object that two sources give, the one of the source that was named first counts.
    """

    def __init__(self) -> None:
        self._by_source: dict[str, dict[ObjectRef, ObjectValue]] = {}
        self._objects: dict[ObjectRef, ObjectValue] = {}
        self._hidden: frozenset[ObjectRef] = frozenset()
        self.notify: Notify = ignore

    def expect(self, source: str) -> None:
        """A source will give objects; the earlier it is named the more it counts."""
        self._by_source.setdefault(source, {})

    def put(self, source: str, objects: Iterable[ObjectValue]) -> None:
        """All objects that a source has now."""
        self._by_source[source] = {_ref(value): value for value in objects}
        before, merged, hidden = self._objects, dict[ObjectRef, ObjectValue](), set[ObjectRef]()
        for given in self._by_source.values():
            for ref, value in given.items():
                if merged.setdefault(ref, value) is not value:
                    hidden.add(ref)
        for ref in sorted(hidden - self._hidden):
            log.warning(
                "object_given_twice",
                object=str(ref),
                cause="two sources of manifests give it",
                effect="that of the files counts",
            )
        self._hidden = frozenset(hidden)
        self._objects = merged
        for ref in before.keys() | merged.keys():
            if before.get(ref) is not merged.get(ref):
                self.notify(ref)

    async def get(self, ref: ObjectRef) -> ObjectValue | None:
        """An object, or None."""
        return self._objects.get(ref)

    def added(self, ref: ObjectRef) -> None:
        """Nothing to prepare."""

    def dropped(self, ref: ObjectRef) -> None:
        """Nothing to forget."""

    def retry_now(self) -> None:
        """Nothing waits."""

    async def run(self, *, task_status: TaskStatus[None] = TASK_STATUS_IGNORED) -> None:
        """Nothing to do."""
        task_status.started()
        await anyio.sleep_forever()


def _ref(value: ObjectValue) -> ObjectRef:
    return ObjectRef(value.kind, value.metadata.namespace, value.metadata.name)
