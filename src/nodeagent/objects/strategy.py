"""How objects come to the node: one interface for watching, fetching, and manifests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol, TypeAlias

from anyio import TASK_STATUS_IGNORED
from anyio.abc import TaskStatus

from nodeagent.api.objects import ConfigMap, Secret
from nodeagent.kube import paths
from nodeagent.objects.refs import CONFIG_MAP, SECRET, ObjectRef, ObjectValue

Notify: TypeAlias = Callable[[ObjectRef], None]
"""An object is new, different or gone. Never waits."""

TYPES: Final[dict[str, type[ConfigMap | Secret]]] = {CONFIG_MAP: ConfigMap, SECRET: Secret}
PLURALS: Final = {CONFIG_MAP: "configmaps", SECRET: "secrets"}


def ignore(_ref: ObjectRef) -> None:
    """Tell nobody."""


def path_of(ref: ObjectRef) -> str:
    """Where the API server has the object."""
    return paths.namespaced(ref.namespace, PLURALS[ref.kind], ref.name)


def not_registered(ref: ObjectRef) -> str:
    """What is said of an object that no pod refers to."""
    return f'object "{ref.namespace}"/"{ref.name}" not registered'


class Strategy(Protocol):
    """Gets objects.

    Attributes:
        notify: is told of objects that have changed since they were read.
    """

    notify: Notify

    async def get(self, ref: ObjectRef) -> ObjectValue | None:
        """An object; None when there is none.

        Raises:
            SyncError: nobody can tell now.
        """
        ...

    def added(self, ref: ObjectRef) -> None:
        """A pod refers to the object now that did not before."""
        ...

    def dropped(self, ref: ObjectRef) -> None:
        """No pod refers to the object any more."""
        ...

    def retry_now(self) -> None:
        """There is reason to believe that the API server is back."""
        ...

    async def run(self, *, task_status: TaskStatus[None] = TASK_STATUS_IGNORED) -> None:
        """Do what has to be done between reads, until cancelled."""
        ...
