"""docs/behaviour/objects.md, "References": what a pod refers to, and who refers to what."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from nodeagent.api import Pod
from nodeagent.api.codec import convert
from nodeagent.model import PodUID
from nodeagent.objects import ObjectRef, pod_references
from nodeagent.objects.refs import ReferenceCount

SPEC = {
    "imagePullSecrets": [{"name": "pull"}, {"name": ""}],
    "initContainers": [
        {"name": "i", "image": "x", "envFrom": [{"configMapRef": {"name": "whole"}}]}
    ],
    "containers": [
        {
            "name": "c",
            "image": "x",
            "envFrom": [{"secretRef": {"name": "whole"}}],
            "env": [
                {"name": "A", "value": "1"},
                {"name": "B", "valueFrom": {"configMapKeyRef": {"name": "one", "key": "k"}}},
                {"name": "C", "valueFrom": {"secretKeyRef": {"name": "one", "key": "k"}}},
                {"name": "D", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            ],
        }
    ],
    "ephemeralContainers": [
        {"name": "e", "image": "x", "envFrom": [{"secretRef": {"name": "debug"}}]}
    ],
    "volumes": [
        {"name": "a", "configMap": {"name": "files"}},
        {"name": "b", "secret": {"secretName": "files"}},
        {"name": "c", "emptyDir": {}},
        {"name": "d", "csi": {"driver": "x", "nodePublishSecretRef": {"name": "driver"}}},
        {
            "name": "e",
            "projected": {
                "sources": [
                    {"configMap": {"name": "part"}},
                    {"secret": {"name": "part"}},
                    {"serviceAccountToken": {"path": "token"}},
                ]
            },
        },
    ],
}


def test_ob1_a_pod_refers_by_variables_volumes_and_pull_secrets() -> None:
    pod = convert({"metadata": {"name": "web", "namespace": "shop"}, "spec": SPEC}, Pod)
    found = pod_references(pod)
    assert {ref.namespace for ref in found} == {"shop"}
    maps = sorted(ref.name for ref in found if ref.kind == "ConfigMap")
    assert maps == ["files", "one", "part", "whole"]
    secrets = sorted(ref.name for ref in found if ref.kind == "Secret")
    assert secrets == ["debug", "driver", "files", "one", "part", "pull", "whole"]


def ref(name: str) -> ObjectRef:
    return ObjectRef("ConfigMap", "default", name)


def test_ob2_what_is_new_and_what_nobody_needs_is_told() -> None:
    count = ReferenceCount()
    a, b, nothing = PodUID("a"), PodUID("b"), frozenset[ObjectRef]()
    x, y = frozenset({ref("x")}), frozenset({ref("y")})
    assert count.set(a, x | y) == (x | y, nothing)
    assert count.set(b, y) == (y, nothing)
    assert count.set(a, x) == (nothing, nothing)
    assert count.users(ref("y")) == {b}
    assert count.set(b, nothing) == (nothing, y)
    assert count.pods() == {a}
    assert ref("x") in count
    assert ref("y") not in count


@given(st.lists(st.tuples(st.sampled_from("abc"), st.frozensets(st.sampled_from("xyz")))))
def test_the_count_is_what_the_pods_refer_to(steps: list[tuple[str, frozenset[str]]]) -> None:
    count = ReferenceCount()
    truth: dict[PodUID, frozenset[ObjectRef]] = {}
    alive: set[ObjectRef] = set()
    for pod, names in steps:
        uid, refs = PodUID(pod), frozenset(map(ref, names))
        added, dropped = count.set(uid, refs)
        assert added == refs - truth.get(uid, frozenset())
        truth[uid] = refs
        now = {r for each in truth.values() for r in each}
        assert dropped == alive - now
        alive = now
        assert {r for r in map(ref, "xyz") if r in count} == now
        assert len(count) == len(now)
