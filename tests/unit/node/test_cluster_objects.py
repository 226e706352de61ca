"""Objects of the cluster that pods refer to."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

import anyio
import pytest

from nodeagent.api.meta import ObjectMeta
from nodeagent.api.runtime_class import RuntimeClass
from nodeagent.api.service import Service, ServicePort, ServiceSpec
from nodeagent.kube import ApiError, paths
from nodeagent.kube.reach import Reach
from nodeagent.node.cluster_objects import ClusterRuntimeClasses, ClusterServices
from nodeagent.sources.api_source import PATIENCE
from nodeagent.wiring.cluster_objects import ServicesWhileAway

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


def test_services_that_pods_asked_for_are_remembered_until_somebody_knows_better() -> None:
    spec = ServiceSpec(cluster_ip="10.0.0.1", ports=(ServicePort(name="web", port=80),))
    made = {
        f"{name}/db": Service(metadata=ObjectMeta(name="db", namespace=name, uid="u"), spec=spec)
        for name in ("a", "b")
    }
    before = ClusterServices(Seen(made))
    assert before.snapshot() == []
    before.in_namespaces(["a"])
    saved = json.loads(json.dumps(before.snapshot()))

    seen: Seen[Service] = Seen({}, synced=False)
    services = ClusterServices(seen)
    services.restore(saved, 0.0)
    (found,) = services.in_namespaces(["a", "b"])
    assert (found.metadata.namespace, found.metadata.name, found.spec) == ("a", "db", spec)
    assert services.snapshot() == saved
    seen.synced = True
    assert services.in_namespaces(["a"]) == []
    assert services.snapshot() == []


@pytest.mark.anyio
async def test_services_are_done_without_while_they_cannot_be_had() -> None:
    reach = Reach()
    began = anyio.current_time()
    services = ClusterServices(Seen({}, synced=False))
    away = ServicesWhileAway(services, reach, lambda: began)
    told = []
    await anyio.sleep(PATIENCE - 1)
    told.append(away.synced)
    await anyio.sleep(1)
    told.append(away.synced)
    with pytest.raises(ApiError), reach.asking("watch", paths.SERVICES):
        raise ApiError(403, "Forbidden", "services is forbidden")
    # What is not permitted has to be said.
    told.append(away.synced)
    assert told == [False, True, False]
