"""One container that is to be started."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from nodeagent.api import Container, Pod
from nodeagent.model import PodRuntimeStatus, PodUID
from nodeagent.model.volumes import MountedVolume
from nodeagent.runtime.sandboxes import ReadySandbox


@dataclass(frozen=True, slots=True)
class StartRequest:
    """One container to start.

    Attributes:
        pod: its pod.
        container: its spec.
        status: what the runtime reported before this sync.
        sandbox: where it goes.
        volumes: the pod's volumes by name.
        place: the pod's place among those that wait for their turn.
    """

    pod: Pod
    container: Container
    status: PodRuntimeStatus
    sandbox: ReadySandbox
    volumes: Mapping[str, MountedVolume]
    place: int

    @property
    def uid(self) -> PodUID:
        """The pod's UID."""
        return PodUID(self.pod.metadata.uid)

    @property
    def ips(self) -> tuple[str, ...]:
        """The pod's addresses."""
        return self.sandbox.ips or self.status.ips
