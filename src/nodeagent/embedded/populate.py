"""Dead sandboxes and containers by the thousand, as old nodes have them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from nodeagent.embedded import views
from nodeagent.embedded.records import ContainerRecord, Exit, SandboxRecord
from nodeagent.embedded.state import new_id
from nodeagent.embedded.wire import field_bytes
from nodeagent.model import ContainerID, PodUID, SandboxID
from nodeagent.proto.runtime import v1

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from nodeagent.embedded.core import Core

PADDING: Final = "embedded.nodeagent/padding"
_IMAGE: Final = "example.com/dead:1"
_SECOND: Final = 10**9


@dataclass(frozen=True, slots=True)
class OldPod:
    """A pod that dead containers are of; the UID is made from the name when it is empty."""

    name: str
    namespace: str = "default"
    uid: str = ""


def populate(
    core: Core,
    containers: int,
    *,
    per_pod: int = 5,
    pods: Sequence[OldPod] = (),
    container: str = "main",
    exit_code: int = 0,
    list_bytes: int = 0,
    age: float = 3600.0,
) -> list[ContainerRecord]:
    """Add exited containers, each pod's in one sandbox that is not ready.

    Args:
        core: of the runtime that is to have them.
        containers: how many.
        per_pod: how many of each pod; they are attempts of one container.
        pods: whose they are; pods ``dead-0``, ``dead-1``, ... that nobody wants when empty.
        container: the containers' name.
        exit_code: how they ended.
        list_bytes: pad them with an annotation until the answer of ListContainers, with all
            that is there, has this size or at most a few hundred bytes more.
        age: seconds ago that they were created; they ended a second later.

    Returns:
        Them, in order of creation.
    """
    created = core.clock.time_ns() - round(age * _SECOND)
    attempts = Counter(sandbox.pod_uid for sandbox in core.state.sandboxes.values())
    core.images.pull(_IMAGE)
    image = core.images.require(_IMAGE).id
    made: list[ContainerRecord] = []
    for number, pod in enumerate(_of(containers, per_pod, pods)):
        uid = PodUID(pod.uid or f"uid-{pod.name}")
        sandbox = _sandbox(core, pod, uid, attempts[uid], created)
        first, attempts[uid] = attempts[uid] * per_pod, attempts[uid] + 1
        for attempt in range(min(per_pod, containers - number * per_pod)):
            record = _container(sandbox, container, first + attempt, image, created)
            record.mark_exited(Exit(exit_code, created + _SECOND))
            core.state.add_container(record, sandbox)
            made.append(record)
    if list_bytes:
        _pad(core, made, list_bytes)
    return made


def list_size(core: Core) -> int:
    """Bytes that the answer of ListContainers has."""
    containers = core.state.containers.values()
    return sum(len(field_bytes(views.list_container(one))) for one in containers)


def _of(containers: int, per_pod: int, pods: Sequence[OldPod]) -> Iterator[OldPod]:
    for number in range(-(-containers // per_pod)):
        name = f"dead-{number}"
        yield pods[number % len(pods)] if pods else OldPod(name, uid=f"uid-{name}")


def _sandbox(core: Core, pod: OldPod, uid: PodUID, attempt: int, created: int) -> SandboxRecord:
    config = v1.PodSandboxConfig(
        metadata=v1.PodSandboxMetadata(
            name=pod.name, namespace=pod.namespace, uid=uid, attempt=attempt
        ),
        labels={
            "io.kubernetes.pod.name": pod.name,
            "io.kubernetes.pod.namespace": pod.namespace,
            "io.kubernetes.pod.uid": uid,
        },
    )
    record = SandboxRecord(SandboxID(new_id()), config, "", created, ready=False)
    core.state.add_sandbox(record)
    return record


def _container(
    sandbox: SandboxRecord, name: str, attempt: int, image: str, created: int
) -> ContainerRecord:
    labels = {**sandbox.config.labels, "io.kubernetes.container.name": name}
    config = v1.ContainerConfig(
        metadata=v1.ContainerMetadata(name=name, attempt=attempt),
        image=v1.ImageSpec(image=_IMAGE),
        labels=labels,
        annotations={"io.kubernetes.container.restartCount": str(attempt)},
    )
    return ContainerRecord(
        id=ContainerID(new_id()),
        sandbox_id=sandbox.id,
        pod_uid=PodUID(sandbox.metadata.uid),
        config=config,
        image_id=image,
        log_path="",
        created_at=created,
    )


def _pad(core: Core, records: Sequence[ContainerRecord], wanted: int) -> None:
    """Make the list as large as wanted, each container by about the same."""
    missing = wanted - list_size(core)
    for left, record in zip(range(len(records), 0, -1), records, strict=True):
        if missing <= 0:
            return
        before = len(field_bytes(views.list_container(record)))
        record.config.annotations[PADDING] = "." * -(-missing // left)
        record.listed = None
        missing -= len(field_bytes(views.list_container(record))) - before
