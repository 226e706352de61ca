"""Names that the runtime keeps for us: labels, annotations, log directories.

Labels and annotations on sandboxes and containers are the source of truth after a restart
of the agent (docs/behaviour/runtime.md, "Labels and annotations").
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from nodeagent.api import Container, Pod
from nodeagent.cri.inspection import HASH_ANNOTATION, RESTART_COUNT_ANNOTATION
from nodeagent.cri.pods import (
    CONTAINER_NAME_LABEL,
    POD_NAME_LABEL,
    POD_NAMESPACE_LABEL,
    POD_UID_LABEL,
)
from nodeagent.cri.termination import (
    TERMINATION_PATH_ANNOTATION,
    TERMINATION_POLICY_ANNOTATION,
)

POD_NAME: Final = POD_NAME_LABEL
POD_NAMESPACE: Final = POD_NAMESPACE_LABEL
POD_UID: Final = POD_UID_LABEL
CONTAINER_NAME: Final = CONTAINER_NAME_LABEL

HASH: Final = HASH_ANNOTATION
RESTART_COUNT: Final = RESTART_COUNT_ANNOTATION
TERMINATION_MESSAGE_PATH: Final = TERMINATION_PATH_ANNOTATION
TERMINATION_MESSAGE_POLICY: Final = TERMINATION_POLICY_ANNOTATION
PRE_STOP_HANDLER: Final = "io.kubernetes.container.preStopHandler"
PORTS: Final = "io.kubernetes.container.ports"
DELETION_GRACE: Final = "io.kubernetes.pod.deletionGracePeriod"
TERMINATION_GRACE: Final = "io.kubernetes.pod.terminationGracePeriod"


@dataclass(frozen=True, slots=True)
class PodNames:
    """What identifies a pod in messages, labels and paths."""

    name: str
    namespace: str
    uid: str

    @classmethod
    def of(cls, pod: Pod) -> PodNames:
        """The names of a pod that has a spec."""
        meta = pod.metadata
        return cls(meta.name, meta.namespace, meta.uid)

    def __str__(self) -> str:
        return f"{self.name}_{self.namespace}({self.uid})"

    @property
    def log_directory(self) -> str:
        """The base name of the pod's log directory, ``<namespace>_<name>_<uid>``."""
        return f"{self.namespace}_{self.name}_{self.uid}"

    @property
    def labels(self) -> dict[str, str]:
        """The labels that every sandbox of the pod carries."""
        return {POD_NAME: self.name, POD_NAMESPACE: self.namespace, POD_UID: self.uid}


def uid_of_log_directory(base_name: str) -> str:
    """The pod UID in a log directory's name; "" when it is not one of ours."""
    namespace, _, rest = base_name.partition("_")
    _, separator, uid = rest.rpartition("_")
    return uid if namespace and separator else ""


def find_container(pod: Pod, name: str) -> Container | None:
    """The container of any kind with that name."""
    spec = pod.spec
    for group in (spec.containers, spec.init_containers, spec.ephemeral_containers):
        for container in group:
            if container.name == name:
                return container
    return None


def field_path(pod: Pod, container: str) -> str:
    """Where the container stands in the spec, as events name it."""
    for kind, group in (
        ("containers", pod.spec.containers),
        ("initContainers", pod.spec.init_containers),
        ("ephemeralContainers", pod.spec.ephemeral_containers),
    ):
        if any(c.name == container for c in group):
            return f"spec.{kind}{{{container}}}"
    return ""


def read_int(annotations: Mapping[str, str], key: str) -> int | None:
    """A whole number from an annotation; None when it is absent or none."""
    try:
        return int(annotations[key])
    except (KeyError, ValueError):
        return None
