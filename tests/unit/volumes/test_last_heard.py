"""What the API server said last of volumes (docs/behaviour/csi.md, "Without the API server")."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from nodeagent.api.storage import PersistentVolume
from nodeagent.kube import ApiError, KubeError
from nodeagent.kube.paths import persistent_volume
from nodeagent.model import PodUID
from nodeagent.testing import ApiStore, StoreClient
from nodeagent.volumes.last_heard import LastHeard

pytestmark = pytest.mark.anyio

ONE, TWO = PodUID("one"), PodUID("two")
PATH = persistent_volume("pv")


def store_with_volume() -> ApiStore:
    store = ApiStore()
    notes = {"kubectl.kubernetes.io/last-applied-configuration": "{}", "mine": "kept"}
    store.create(
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": "pv", "annotations": notes},
            "spec": {"capacity": {"storage": "1Gi"}, "csi": {"driver": "d", "volumeHandle": "h"}},
        }
    )
    return store


def over_a_restart(heard: LastHeard, client: StoreClient) -> LastHeard:
    saved: Any = json.loads(msgspec.json.encode(heard.snapshot()))
    after = LastHeard(client)
    after.restore(saved, 0.0)
    return after


async def test_yo1_yo5_what_was_said_last_counts_for_the_pod_that_it_was_said_to() -> None:
    client = StoreClient(store_with_volume())
    heard = LastHeard(client)
    first = await heard.get(PATH, PersistentVolume, ONE)
    assert first.fresh
    client.cut()
    for known in (heard, over_a_restart(heard, client)):
        again = await known.get(PATH, PersistentVolume, ONE)
        assert not again.fresh
        assert again.item.spec == first.item.spec
        assert again.item.metadata.annotations == {"mine": "kept"}
        with pytest.raises(KubeError):
            await known.get(PATH, PersistentVolume, TWO)


async def test_yo1_what_the_server_has_no_longer_is_forgotten() -> None:
    store = store_with_volume()
    client = StoreClient(store)
    heard = LastHeard(client)
    await heard.get(PATH, PersistentVolume, ONE)
    store.delete("persistentvolumes", "pv")
    with pytest.raises(ApiError):
        await heard.get(PATH, PersistentVolume, ONE)
    client.cut()
    with pytest.raises(KubeError):
        await heard.get(PATH, PersistentVolume, ONE)
    assert heard.snapshot() == {}


async def test_yo1_what_is_kept_goes_with_the_last_pod_that_needed_it() -> None:
    client = StoreClient(store_with_volume())
    heard = LastHeard(client)
    for uid in (ONE, TWO):
        await heard.get(PATH, PersistentVolume, uid)
    heard.forget_pod(ONE)
    assert heard.remembered() == {TWO}
    assert not heard.has(PATH, ONE)
    assert heard.has(PATH, TWO)
    heard.forget_pod(TWO)
    assert heard.snapshot() == {}


async def test_yo1_a_change_is_kept() -> None:
    store = store_with_volume()
    client = StoreClient(store)
    heard = LastHeard(client)
    await heard.get(PATH, PersistentVolume, ONE)

    def grow(found: dict[str, Any]) -> None:
        found["spec"]["capacity"] = {"storage": "2Gi"}

    store.edit("persistentvolumes", "pv", grow)
    await heard.get(PATH, PersistentVolume, ONE)
    client.cut()
    found = await heard.get(PATH, PersistentVolume, ONE)
    assert str(found.item.spec.capacity["storage"]) == "2Gi"
