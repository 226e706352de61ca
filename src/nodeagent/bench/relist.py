"""What it costs to read the two list responses of a relist in which nothing changed.

The same bytes are read three ways: interned (as the agent does it), decoded afresh by
betterproto2, and parsed by the C implementation of the protobuf package when that is
installed. Items come in a new random order each time, as runtimes send them.

A fourth figure is for runtimes written in Go, containerd among them: they also write the labels
and annotations of an item in a new order each time, so that its bytes differ while it does not.
"""

from __future__ import annotations

import gc
import random
import statistics
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

from nodeagent.cri import InternTable
from nodeagent.proto.runtime import v1

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_REPEATS: Final = 30
_SLOW_REPEATS: Final = 7
_EPOCH_NS: Final = 1_700_000_000_000_000_000

M = TypeVar("M", v1.PodSandbox, v1.Container)

Lists = tuple[bytes, bytes]
"""An encoded ListPodSandboxResponse and an encoded ListContainersResponse."""


def run(pods: int, containers_per_pod: int) -> dict[str, float | int | str | None]:
    """Measure; all times are medians in milliseconds for both lists together.

    Args:
        pods: how many sandboxes there are, at least 1.
        containers_per_pod: how many containers each of them has, at least 1.

    Returns:
        ``interned_ms``, ``interned_reordered_ms`` (labels and annotations in a new order too),
        ``decode_ms``, ``c_protobuf_ms`` (None without the protobuf package),
        ``decode_per_interned`` and ``decode_per_reordered`` (how many times interning is faster
        than decoding), and what was measured: ``pods``, ``containers``, ``bytes``,
        ``bytes_per_container``, ``c_protobuf_implementation``.

    Raises:
        ValueError: there is nothing to measure.
    """
    if pods < 1 or containers_per_pod < 1:
        msg = f"{pods} pods with {containers_per_pod} containers: both must be at least 1"
        raise ValueError(msg)
    sandboxes = [_sandbox(pod) for pod in range(pods)]
    containers = [
        _container(pod, number) for pod in range(pods) for number in range(containers_per_pod)
    ]
    dice = random.Random(0)
    lists = [_shuffled(sandboxes, containers, dice) for _ in range(_REPEATS)]
    interned = _median_ms(_interned_reader(), lists)
    reordered = _median_ms(
        _interned_reader(),
        [
            _shuffled(_reordered(sandboxes, dice), _reordered(containers, dice), dice)
            for _ in range(_REPEATS)
        ],
    )
    decoded = _median_ms(_decode, lists[:_SLOW_REPEATS])
    c_reader, implementation = _c_reader()
    sizes = [len(bytes(item)) for item in containers]
    return {
        "pods": pods,
        "containers": len(containers),
        "bytes": sum(map(len, lists[0])),
        "bytes_per_container": round(statistics.mean(sizes)),
        "interned_ms": interned,
        "interned_reordered_ms": reordered,
        "decode_ms": decoded,
        "decode_per_interned": round(decoded / interned, 1),
        "decode_per_reordered": round(decoded / reordered, 1),
        "c_protobuf_ms": None if c_reader is None else _median_ms(c_reader, lists),
        "c_protobuf_implementation": implementation,
    }


def _median_ms(read: Callable[[Lists], object], lists: Sequence[Lists]) -> float:
    read(lists[-1])  # the first list is always new, and caches are cold
    times = []
    was_enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        for each in lists:
            began = time.perf_counter_ns()
            read(each)
            times.append(time.perf_counter_ns() - began)
    finally:
        if was_enabled:
            gc.enable()
    return round(statistics.median(times) / 1e6, 4)


def _interned_reader() -> Callable[[Lists], object]:
    sandboxes, containers = InternTable(v1.PodSandbox), InternTable(v1.Container)
    return lambda lists: (sandboxes.decode(lists[0]), containers.decode(lists[1]))


def _decode(lists: Lists) -> object:
    return v1.ListPodSandboxResponse.parse(lists[0]), v1.ListContainersResponse.parse(lists[1])


def _c_reader() -> tuple[Callable[[Lists], object] | None, str | None]:
    try:
        from google.protobuf.internal import api_implementation

        from nodeagent.bench.c_protobuf import list_classes
    except ImportError:
        return None, None
    sandbox_list, container_list = list_classes()

    def read(lists: Lists) -> object:
        return sandbox_list.FromString(lists[0]), container_list.FromString(lists[1])

    return read, api_implementation.Type()


def _shuffled(
    sandboxes: Sequence[v1.PodSandbox], containers: Sequence[v1.Container], dice: random.Random
) -> Lists:
    return (
        bytes(v1.ListPodSandboxResponse(items=dice.sample(sandboxes, len(sandboxes)))),
        bytes(v1.ListContainersResponse(containers=dice.sample(containers, len(containers)))),
    )


def _reordered(items: Sequence[M], dice: random.Random) -> list[M]:
    """The same items with labels and annotations in a new order."""

    def shuffled(entries: dict[str, str]) -> dict[str, str]:
        return dict(dice.sample(list(entries.items()), len(entries)))

    return [
        replace(item, labels=shuffled(item.labels), annotations=shuffled(item.annotations))
        for item in items
    ]


def _hex(*seed: Any) -> str:
    return f"{random.Random(repr(seed)).getrandbits(256):064x}"


def _uid(pod: int) -> str:
    text = _hex("uid", pod)
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:32]}"


def _labels(pod: int) -> dict[str, str]:
    return {
        "io.kubernetes.pod.name": f"web-frontend-{pod:04d}-node-1",
        "io.kubernetes.pod.namespace": "production",
        "io.kubernetes.pod.uid": _uid(pod),
    }


def _sandbox(pod: int) -> v1.PodSandbox:
    return v1.PodSandbox(
        id=_hex("sandbox", pod),
        metadata=v1.PodSandboxMetadata(
            name=f"web-frontend-{pod:04d}-node-1", uid=_uid(pod), namespace="production"
        ),
        created_at=_EPOCH_NS + pod,
        labels={**_labels(pod), "app": "web-frontend", "tier": "front"},
        annotations={
            "kubernetes.io/config.hash": _hex("hash", pod)[:32],
            "kubernetes.io/config.seen": "2024-01-01T00:00:00.000000000Z",
            "kubernetes.io/config.source": "file",
        },
    )


def _container(pod: int, number: int) -> v1.Container:
    image = f"sha256:{_hex('image', number)}"
    return v1.Container(
        id=_hex("container", pod, number),
        pod_sandbox_id=_hex("sandbox", pod),
        metadata=v1.ContainerMetadata(name=f"container-{number}"),
        image=v1.ImageSpec(image=image),
        image_ref=image,
        state=v1.ContainerState.CONTAINER_RUNNING,
        created_at=_EPOCH_NS + pod,
        labels={**_labels(pod), "io.kubernetes.container.name": f"container-{number}"},
        annotations={
            "io.kubernetes.container.hash": _hex("spec", number)[:8],
            "io.kubernetes.container.restartCount": "0",
            "io.kubernetes.container.terminationMessagePath": "/dev/termination-log",
            "io.kubernetes.container.terminationMessagePolicy": "File",
            "io.kubernetes.pod.terminationGracePeriod": "30",
        },
    )
