"""How storage drivers want to be treated, also while nobody can be asked.

docs/behaviour/csi.md, "Without the API server".
"""

from __future__ import annotations

from typing import Any

from nodeagent.api import ObjectMeta
from nodeagent.api.codec import convert, to_builtins
from nodeagent.api.storage import CSIDriver
from nodeagent.kube.informer import Informer
from nodeagent.volumes.plugin import Stage, VolumeError


class KnownDrivers:
    """The CSIDrivers of the cluster: a section of the checkpoint.

    Args:
        seen: the CSIDriver objects.
    """

    def __init__(self, seen: Informer[CSIDriver]) -> None:
        self._seen = seen
        self._before: dict[str, CSIDriver] | None = None

    def find(self, name: str) -> CSIDriver | None:
        """What the cluster says of a driver; None when it says nothing.

        Raises:
            VolumeError: that is not known yet.
        """
        if self._seen.synced:
            return self._seen.get(name)
        if self._before is not None:
            return self._before.get(name)
        text = "the CSIDrivers of the cluster are not known yet"
        raise VolumeError(text, stage=Stage.ATTACH, quiet=True)

    def limit_period(self, name: str) -> float | None:
        """Seconds after which a driver wants to be asked for its limit again; None for never."""
        try:
            found = self.find(name)
        except VolumeError:
            return None
        return None if found is None else found.spec.node_allocatable_update_period_seconds

    def snapshot(self) -> list[dict[str, Any]] | None:
        """The drivers, as far as they are known."""
        if self._seen.synced:
            found = self._seen.objects
            return [_bare(found[name]) for name in sorted(found)]
        if self._before is None:
            return None
        return [_bare(one) for _, one in sorted(self._before.items())]

    def restore(self, saved: Any, shift: float) -> None:
        """Take over what was known when an earlier agent ended."""
        del shift
        self._before = {one.metadata.name: one for one in convert(saved, list[CSIDriver])}


def _bare(driver: CSIDriver) -> dict[str, Any]:
    slim = CSIDriver(metadata=ObjectMeta(name=driver.metadata.name), spec=driver.spec)
    found: dict[str, Any] = to_builtins(slim)
    return found
