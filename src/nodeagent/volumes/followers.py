"""Which pods have volumes with the content of which objects."""

from __future__ import annotations

from nodeagent.api import Pod, Volume
from nodeagent.model import PodUID
from nodeagent.volumes.content_kinds import references
from nodeagent.volumes.objects import CLUSTER_TRUST_BUNDLE


class Followers:
    """Remembers which pods an object matters to."""

    def __init__(self) -> None:
        self._uids: dict[tuple[str, str, str], set[PodUID]] = {}

    def follow(self, pod: Pod) -> None:
        """Note what the volumes of a pod refer to."""
        uid, namespace = PodUID(pod.metadata.uid), pod.metadata.namespace
        for volume in pod.spec.volumes:
            for kind, name in references(volume):
                where = "" if kind == CLUSTER_TRUST_BUNDLE else namespace
                self._uids.setdefault((where, kind, name), set()).add(uid)

    def of(self, namespace: str, kind: str, name: str) -> list[PodUID]:
        """The pods that an object matters to, and those that go by no name."""
        uids = {*self._uids.get((namespace, kind, name), ())}
        uids.update(self._uids.get((namespace, kind, ""), ()))
        return list(uids)

    def forget(self, uid: PodUID) -> None:
        """The pod is gone."""
        for key in [key for key, uids in self._uids.items() if uid in uids]:
            self._uids[key].discard(uid)
            if not self._uids[key]:
                del self._uids[key]


def refers(spec: Volume, kind: str, name: str) -> bool:
    """Whether a volume has content of an object; what goes by no name may have that of any."""
    return any(k == kind and n in ("", name) for k, n in references(spec))
