"""Objects of the cluster that pods refer to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from nodeagent.api.meta import ObjectMeta
from nodeagent.api.runtime_class import RuntimeClass
from nodeagent.api.service import Service
from nodeagent.node.cluster_objects import ClusterRuntimeClasses, ClusterServices

T = TypeVar("T")


@dataclass
class Seen(Generic[T]):
    objects: Mapping[str, T]
    synced: bool = True

    def get(self, name: str, namespace: str = "") -> T | None:
        return self.objects.get(f"{namespace}/{name}" if namespace else name)


def test_a_runtime_class_leads_to_its_handler() -> None:
    gvisor = RuntimeClass(metadata=ObjectMeta(name="gvisor"), handler="runsc")
    classes = ClusterRuntimeClasses(Seen({"gvisor": gvisor}))
    assert classes.handler("gvisor") == "runsc"
    assert classes.handler("kata") is None


def test_a_runtime_class_is_remembered_until_somebody_knows_better() -> None:
    gvisor = RuntimeClass(metadata=ObjectMeta(name="gvisor"), handler="runsc")
    saved = ClusterRuntimeClasses(Seen({"gvisor": gvisor})).snapshot()
    seen: Seen[RuntimeClass] = Seen({}, synced=False)
    classes = ClusterRuntimeClasses(seen)
    classes.restore(saved, 0.0)
    assert classes.handler("gvisor") == "runsc"
    assert classes.handler("kata") is None
    assert classes.snapshot() == saved == {"gvisor": "runsc"}
    seen.synced = True
    assert classes.handler("gvisor") is None
    assert classes.snapshot() == {}


def test_services_are_found_by_namespace() -> None:
    made = [Service(metadata=ObjectMeta(name=n, namespace=n)) for n in ("a", "b", "c")]
    services = ClusterServices(Seen({f"{s.metadata.name}": s for s in made}, synced=False))
    assert not services.synced
    found = services.in_namespaces(("a", "c", "a"))
    assert [s.metadata.name for s in found] == ["a", "c"]
