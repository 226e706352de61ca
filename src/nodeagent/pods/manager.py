"""What the sources want: pods and mirror pods, by UID and by full name."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from nodeagent.api import Pod
from nodeagent.model import FullName, PodUID, full_name
from nodeagent.model.annotations import CONFIG_HASH, CONFIG_MIRROR, CONFIG_SOURCE
from nodeagent.pods.status import is_static

TERMINAL_PHASES: Final = frozenset({"Succeeded", "Failed"})


def pod_uid(pod: Pod) -> PodUID:
    """The pod's UID."""
    return PodUID(pod.metadata.uid)


def pod_full_name(pod: Pod) -> FullName:
    """The pod's full name, ``<name>_<namespace>``."""
    return full_name(pod.metadata.name, pod.metadata.namespace)


def pod_source(pod: Pod) -> str:
    """The source that the pod came from; "" when it does not say."""
    return pod.metadata.annotations.get(CONFIG_SOURCE, "")


def is_mirror(pod: Pod) -> bool:
    """Whether the pod is the API's copy of a static pod."""
    return CONFIG_MIRROR in pod.metadata.annotations


def mirrors(mirror: Pod, pod: Pod) -> bool:
    """Whether a mirror pod shows this static pod, and not an earlier version of it."""
    shown = mirror.metadata.annotations.get(CONFIG_MIRROR)
    return (
        pod_full_name(mirror) == pod_full_name(pod)
        and shown is not None
        and shown == pod.metadata.annotations.get(CONFIG_HASH)
    )


def is_terminal(phase: str) -> bool:
    """Whether a pod in this phase never runs again."""
    return phase in TERMINAL_PHASES


@dataclass(frozen=True, slots=True)
class PodAndMirror:
    """A pod with its mirror, found from either of them.

    ``pod`` is None for a mirror without a static pod, ``was_mirror`` tells which was given.
    """

    pod: Pod | None
    mirror: Pod | None
    was_mirror: bool


class PodManager:
    """The desired pods of this node (docs/behaviour/workers.md, "Pod manager").

    A mirror pod is linked to the static pod of its full name, whichever comes first. No
    lookup by UID ever gives a mirror pod.
    """

    def __init__(self) -> None:
        self._pods: dict[PodUID, Pod] = {}
        self._mirrors: dict[PodUID, Pod] = {}
        self._pod_by_name: dict[FullName, Pod] = {}
        self._mirror_by_name: dict[FullName, Pod] = {}

    def set_pods(self, pods: Iterable[Pod]) -> None:
        """Forget everything and take these pods and mirrors instead."""
        self._pods.clear()
        self._mirrors.clear()
        self._pod_by_name.clear()
        self._mirror_by_name.clear()
        for pod in pods:
            self.add(pod)

    def add(self, pod: Pod) -> None:
        """Take a pod or mirror pod, or a newer version of it."""
        by_uid, by_name = self._indexes(pod)
        uid, name = pod_uid(pod), pod_full_name(pod)
        before = by_uid.get(uid)
        if before is not None and pod_full_name(before) != name:
            self._drop_name(by_name, before)
        by_uid[uid] = pod
        by_name[name] = pod

    update = add

    def remove(self, pod: Pod) -> None:
        """Forget a pod or mirror pod; one that is not known is no error."""
        by_uid, by_name = self._indexes(pod)
        known = by_uid.pop(pod_uid(pod), None)
        self._drop_name(by_name, known or pod)

    def _indexes(self, pod: Pod) -> tuple[dict[PodUID, Pod], dict[FullName, Pod]]:
        if is_mirror(pod):
            return self._mirrors, self._mirror_by_name
        return self._pods, self._pod_by_name

    @staticmethod
    def _drop_name(by_name: dict[FullName, Pod], pod: Pod) -> None:
        # Two UIDs can follow each other under one name: the old one's removal, when it
        # comes late, must not hide the new one.
        name = pod_full_name(pod)
        current = by_name.get(name)
        if current is not None and current.metadata.uid == pod.metadata.uid:
            del by_name[name]

    def get_pods(self) -> list[Pod]:
        """Every pod, without mirrors, in order of arrival."""
        return list(self._pods.values())

    def get_mirrors(self) -> list[Pod]:
        """Every mirror pod."""
        return list(self._mirrors.values())

    def get_by_uid(self, uid: PodUID) -> Pod | None:
        """The pod with that UID; never a mirror."""
        return self._pods.get(uid)

    def get_by_full_name(self, name: FullName) -> Pod | None:
        """The newest pod of that full name; never a mirror."""
        return self._pod_by_name.get(name)

    def get_mirror_by_full_name(self, name: FullName) -> Pod | None:
        """The mirror pod of that full name."""
        return self._mirror_by_name.get(name)

    def get_mirror_of(self, pod: Pod) -> Pod | None:
        """The mirror pod with this pod's full name."""
        return self._mirror_by_name.get(pod_full_name(pod))

    def get_pod_and_mirror(self, pod: Pod) -> PodAndMirror:
        """Resolve a pod or mirror to both halves, as they are known now."""
        name = pod_full_name(pod)
        if is_mirror(pod):
            return PodAndMirror(self._pod_by_name.get(name), pod, was_mirror=True)
        return PodAndMirror(pod, self._mirror_by_name.get(name), was_mirror=False)

    def translate(self, uid: PodUID) -> PodUID:
        """The static pod's UID for its mirror's UID; any other UID comes back unchanged."""
        mirror = self._mirrors.get(uid)
        pod = None if mirror is None else self._pod_by_name.get(pod_full_name(mirror))
        return uid if pod is None else pod_uid(pod)

    def static_to_mirror(self) -> dict[PodUID, PodUID]:
        """Each static pod's mirror UID; "" while it has none."""
        return {
            uid: PodUID("") if (mirror := self.get_mirror_of(pod)) is None else pod_uid(mirror)
            for uid, pod in self._pods.items()
            if is_static(pod)
        }

    def orphaned_mirrors(self) -> list[Pod]:
        """Mirror pods whose full name no pod has."""
        return [m for name, m in self._mirror_by_name.items() if name not in self._pod_by_name]
