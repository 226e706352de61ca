"""docs/behaviour/objects.md, "Strategies": objects that are asked for."""

from __future__ import annotations

import anyio
import pytest
from tests.unit.objects.objects_lab import change, config_map, refers, running, uid

from nodeagent.api import ObjectMeta
from nodeagent.api.node import Node
from nodeagent.kube import ApiError
from nodeagent.model import SyncError
from nodeagent.objects import ObjectStore
from nodeagent.objects.fetched import TTL_ANNOTATION, CachedObjects, LiveObjects, ttl_of
from nodeagent.testing import ApiStore, StoreClient

pytestmark = pytest.mark.anyio


SAME = {"name": "settings", "namespace": "default", "uid": "same"}


class Moving(StoreClient):
    """A client whose requests another server answers from some time on."""

    def move(self, store: ApiStore) -> None:
        self._store = store


async def value(objects: ObjectStore, name: str = "settings") -> str | None:
    found = await objects.get_config_map("default", name)
    return None if found is None else found.data["a"]


async def test_ob20_get_asks_each_time_and_for_anything() -> None:
    store = ApiStore()
    store.create(config_map(a="1"))
    async with running(LiveObjects(StoreClient(store))) as objects:
        assert await value(objects) == "1"
        change(store, "settings", a="2")
        assert await value(objects) == "2"
        store.delete("configmaps", "settings")
        assert await value(objects) is None
        store.refuse("GET", "configmaps", ApiError(403, "Forbidden", "not yours"))
        with pytest.raises(SyncError, match=r"^not yours$"):
            await value(objects)


async def test_ob21_a_cached_object_counts_for_a_while() -> None:
    store = ApiStore()
    store.create(config_map(a="1"))
    async with running(
        CachedObjects(StoreClient(store), lambda: 30.0), refers(maps=("settings",))
    ) as objects:
        assert await value(objects) == "1"
        change(store, "settings", a="2")
        await anyio.sleep(29)
        assert await value(objects) == "1"
        await anyio.sleep(1)
        assert await value(objects) == "2"
        asked = [r.query.get("resourceVersion") for r in store.requests if r.method == "GET"]
        assert asked == [None, "0"]


async def test_ob21_an_immutable_object_counts_for_ever() -> None:
    store = ApiStore()
    store.create({**config_map(a="1"), "immutable": True})
    async with running(CachedObjects(StoreClient(store)), refers(maps=("settings",))) as objects:
        assert await value(objects) == "1"
        await anyio.sleep(3600)
        assert await value(objects) == "1"
        assert store.count("GET", "configmaps") == 1


async def test_ob22_a_new_reference_is_a_reason_to_ask() -> None:
    store = ApiStore()
    store.create(config_map(a="1"))
    one = refers("one", maps=("settings",))
    async with running(CachedObjects(StoreClient(store)), one) as objects:
        assert await value(objects) == "1"
        change(store, "settings", a="2")
        objects.register(one)
        assert await value(objects) == "1"
        objects.register(refers("two", maps=("settings",)))
        assert await value(objects) == "2"


async def test_ob23_a_server_that_fails_leaves_what_is_known() -> None:
    store = ApiStore()
    store.create(config_map(a="1"))
    client = StoreClient(store)
    pod = refers(maps=("settings",))
    async with running(CachedObjects(client), pod) as objects:
        client.cut()
        with pytest.raises(SyncError, match=r"^connection refused$"):
            await value(objects)
        client.heal()
        assert await value(objects) == "1"
        client.cut()
        await anyio.sleep(300)
        assert await value(objects) == "1"
        objects.unregister(uid(pod))
        with pytest.raises(SyncError, match=r'^object "default"/"settings" not registered$'):
            await value(objects)


async def test_ob23_an_older_answer_is_ignored() -> None:
    store, lagging = ApiStore(), ApiStore()
    for number in range(5):
        store.create(config_map(f"other-{number}"))
    store.put("configmaps", ("default", "settings"), {**config_map(a="2"), "metadata": SAME})
    lagging.put("configmaps", ("default", "settings"), {**config_map(a="1"), "metadata": SAME})
    client = Moving(store)
    async with running(CachedObjects(client), refers(maps=("settings",))) as objects:
        assert await value(objects) == "2"
        client.move(lagging)
        await anyio.sleep(61)
        assert await value(objects) == "2"


async def test_ob21_what_is_not_there_is_asked_for_again() -> None:
    store = ApiStore()
    async with running(CachedObjects(StoreClient(store)), refers(maps=("settings",))) as objects:
        assert await value(objects) is None
        store.create(config_map(a="1"))
        assert await value(objects) == "1"


@pytest.mark.parametrize(
    ("annotation", "seconds"), [("15", 15.0), ("0", 0.0), ("", 60.0), ("soon", 60.0), ("-1", 60.0)]
)
def test_ob21_the_node_says_for_how_long(annotation: str, seconds: float) -> None:
    node = Node(metadata=ObjectMeta(name="n", annotations={TTL_ANNOTATION: annotation}))
    assert ttl_of(node) == seconds
    assert ttl_of(None) == 60.0
