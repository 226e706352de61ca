"""Which ConfigMaps and Secrets a pod refers to, and which pods refer to one. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple, TypeAlias

from nodeagent.api import Container, EphemeralContainer, Pod, PodSpec, Volume
from nodeagent.api.objects import ConfigMap, Secret
from nodeagent.model import PodUID

CONFIG_MAP: Final = "ConfigMap"
SECRET: Final = "Secret"  # noqa: S105 - the name of a kind

ObjectValue: TypeAlias = ConfigMap | Secret


class ObjectRef(NamedTuple):
    """One ConfigMap or Secret by name."""

    kind: str
    namespace: str
    name: str

    @property
    def resource(self) -> str:
        """``configmap`` or ``secret``, as errors call it."""
        return self.kind.lower()

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"


def pod_references(pod: Pod) -> frozenset[ObjectRef]:
    """All that the pod refers to: variables, volumes, pull secrets."""
    namespace = pod.metadata.namespace
    return frozenset(ObjectRef(kind, namespace, name) for kind, name in _of_spec(pod.spec) if name)


def _of_spec(spec: PodSpec) -> Iterator[tuple[str, str]]:
    for pull in spec.image_pull_secrets:
        yield SECRET, pull.name
    for container in (*spec.init_containers, *spec.containers, *spec.ephemeral_containers):
        yield from _of_container(container)
    for volume in spec.volumes:
        yield from _of_volume(volume)


def _of_container(container: Container | EphemeralContainer) -> Iterator[tuple[str, str]]:
    for whole in container.env_from:
        if whole.config_map_ref is not None:
            yield CONFIG_MAP, whole.config_map_ref.name
        if whole.secret_ref is not None:
            yield SECRET, whole.secret_ref.name
    for source in (v.value_from for v in container.env if v.value_from is not None):
        if source.config_map_key_ref is not None:
            yield CONFIG_MAP, source.config_map_key_ref.name
        if source.secret_key_ref is not None:
            yield SECRET, source.secret_key_ref.name


def _of_volume(volume: Volume) -> Iterator[tuple[str, str]]:
    if volume.config_map is not None:
        yield CONFIG_MAP, volume.config_map.name
    if volume.secret is not None:
        yield SECRET, volume.secret.secret_name
    if volume.csi is not None and volume.csi.node_publish_secret_ref is not None:
        yield SECRET, volume.csi.node_publish_secret_ref.name
    for part in volume.projected.sources if volume.projected is not None else ():
        if part.config_map is not None:
            yield CONFIG_MAP, part.config_map.name
        if part.secret is not None:
            yield SECRET, part.secret.name


class ReferenceCount:
    """Which pod refers to what."""

    def __init__(self) -> None:
        self._by_pod: dict[PodUID, frozenset[ObjectRef]] = {}
        self._users: dict[ObjectRef, set[PodUID]] = {}

    def set(
        self, uid: PodUID, refs: frozenset[ObjectRef]
    ) -> tuple[frozenset[ObjectRef], frozenset[ObjectRef]]:
        """A pod refers to these objects and to no others.

        Returns:
            What it did not refer to before, and what nobody refers to any more.
        """
        before = self._by_pod.get(uid, frozenset())
        if refs:
            self._by_pod[uid] = refs
        else:
            self._by_pod.pop(uid, None)
        for ref in refs - before:
            self._users.setdefault(ref, set()).add(uid)
        return refs - before, frozenset(self._drop(uid, before - refs))

    def _drop(self, uid: PodUID, refs: Iterable[ObjectRef]) -> Iterator[ObjectRef]:
        for ref in refs:
            users = self._users[ref]
            users.discard(uid)
            if not users:
                del self._users[ref]
                yield ref

    def users(self, ref: ObjectRef) -> frozenset[PodUID]:
        """The pods that refer to an object."""
        return frozenset(self._users.get(ref, ()))

    def pods(self) -> frozenset[PodUID]:
        """The pods that refer to anything."""
        return frozenset(self._by_pod)

    def __contains__(self, ref: object) -> bool:
        return ref in self._users

    def __len__(self) -> int:
        return len(self._users)
