"""Whether a node has room for a pod beside those that it has. Pure.

Rows and their tests: docs/behaviour/admission.md, "Resources".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from nodeagent.api import Pod, PodSpec, Quantity
from nodeagent.api.aggregate import is_extended, pod_requests
from nodeagent.api.node import Node
from nodeagent.pods.rejection import OUT_OF, Rejection

PODS: Final = "pods"
CPU: Final = "cpu"
MEMORY: Final = "memory"
_FIRST: Final = (CPU, MEMORY, "ephemeral-storage")

Amounts: TypeAlias = Mapping[str, int]
"""Whole units by resource: thousandths of a processor, bytes, pieces."""


@dataclass(frozen=True, slots=True)
class Insufficient:
    """A resource of which there is too little."""

    resource: str
    requested: int
    used: int
    capacity: int

    @property
    def missing(self) -> int:
        """What would have to become free."""
        return self.requested - (self.capacity - self.used)

    @property
    def rejection(self) -> Rejection:
        """The pod is rejected for it."""
        return Rejection(
            f"{OUT_OF}{self.resource}",
            f"Node didn't have enough resource: {self.resource}, requested: {self.requested}, "
            f"used: {self.used}, capacity: {self.capacity}",
        )


def units(name: str, quantity: Quantity) -> int:
    """An amount in whole units of its resource."""
    return quantity.milli_value() if name == CPU else quantity.value()


def is_counted(name: str) -> bool:
    """Whether pods can use a resource up. Names that mean nothing are ignored."""
    return name in _FIRST or "/" in name or name.startswith(("hugepages-", "attachable-volumes-"))


class RequestBook:
    """What pods request; each spec is added up once.

    Admission of many pods asks for the same sums again and again.
    """

    def __init__(self) -> None:
        self._known: dict[str, tuple[PodSpec, Amounts]] = {}

    def of(self, pod: Pod) -> Amounts:
        """What the pod requests."""
        known = self._known.get(pod.metadata.uid)
        if known is not None and known[0] is pod.spec:
            return known[1]
        amounts = requests_of(pod)
        self._known[pod.metadata.uid] = (pod.spec, amounts)
        return amounts

    def keep(self, pods: Iterable[Pod]) -> None:
        """Forget all other pods."""
        wanted = {pod.metadata.uid for pod in pods}
        if len(self._known) > 2 * len(wanted):
            self._known = {uid: known for uid, known in self._known.items() if uid in wanted}


def requests_of(pod: Pod) -> Amounts:
    """What the pod as a whole requests, by resource that counts."""
    return {
        name: units(name, quantity)
        for name, quantity in pod_requests(pod.spec).items()
        if is_counted(name)
    }


def insufficient(
    pod: Pod, others: Iterable[Pod], node: Node, book: RequestBook | None = None
) -> tuple[Insufficient, ...]:
    """The resources of which the node has too little for the pod; empty when it fits.

    Args:
        pod: the pod that wants to run.
        others: the pods that hold resources.
        node: what it can give, in ``status.allocatable``.
        book: remembers sums.
    """
    return tuple(_insufficient(pod, tuple(others), node, book or RequestBook()))


def _insufficient(
    pod: Pod, others: tuple[Pod, ...], node: Node, book: RequestBook
) -> Iterator[Insufficient]:
    allocatable = node.status.allocatable
    limit = units(PODS, allocatable[PODS]) if PODS in allocatable else 0
    if len(others) + 1 > limit:
        yield Insufficient(PODS, 1, len(others), limit)
    wanted = book.of(pod)
    names = [name for name in _FIRST if wanted.get(name, 0) > 0]
    names += sorted(name for name in wanted.keys() - set(_FIRST) if wanted[name] > 0)
    for name in names:
        if is_extended(name) and name not in allocatable:
            continue  # whoever added it to other nodes has to know what it means
        used = sum(book.of(other).get(name, 0) for other in others)
        capacity = units(name, allocatable[name]) if name in allocatable else 0
        if wanted[name] > capacity - used:
            yield Insufficient(name, wanted[name], used, capacity)
