"""docs/behaviour/objects.md, "Strategies": objects that are watched."""

from __future__ import annotations

import anyio
import pytest
from tests.unit.objects.objects_lab import change, config_map, refers, secret, uid, watching

from nodeagent.kube import ApiError
from nodeagent.model import SyncError
from nodeagent.testing import ApiStore, StoreClient

pytestmark = pytest.mark.anyio


async def test_ob10_one_watch_for_each_object_that_is_referred_to() -> None:
    store = ApiStore()
    store.create(config_map(a="1"))
    store.create(config_map("other"))
    store.create(secret(password="xyz"))
    one = refers("one", maps=("settings",))
    two = refers("two", maps=("settings",), secrets=("login",))
    async with watching(store, one, two) as (objects, strategy):
        found = await objects.get_config_map("default", "settings")
        assert found is not None
        assert found.data == {"a": "1"}
        login = await objects.get_secret("default", "login")
        assert login is not None
        assert login.data == {"password": b"xyz"}
        assert strategy.watching == 2
        asked = [r for r in store.requests if r.method == "WATCH"]
        assert {(r.path, r.query["fieldSelector"]) for r in asked} == {
            ("/api/v1/namespaces/default/configmaps", "metadata.name=settings"),
            ("/api/v1/namespaces/default/secrets", "metadata.name=login"),
        }
        objects.unregister(uid(one))
        assert strategy.watching == 2
        objects.unregister(uid(two))
        assert strategy.watching == 0


async def test_ob3_what_no_pod_refers_to_cannot_be_read() -> None:
    async with watching(ApiStore()) as (objects, _):
        with pytest.raises(SyncError, match=r'^object "default"/"settings" not registered$'):
            await objects.get_config_map("default", "settings")


async def test_ob11_an_object_that_is_not_there_is_no_error() -> None:
    pod = refers(maps=("settings",), secrets=("login",))
    async with watching(ApiStore(), pod) as (objects, _):
        assert await objects.get_config_map("default", "settings") is None
        assert await objects.get_secret("default", "login") is None


async def test_ob11_a_server_that_is_silent_is_waited_for_one_second() -> None:
    store = ApiStore()
    store.create(config_map(a="1"))
    client = StoreClient(store)
    client.fall_silent()
    async with watching(store, refers(maps=("settings",)), client=client) as (objects, _):
        began = anyio.current_time()
        said = r"^failed to sync configmap cache: timed out waiting for the condition"
        with pytest.raises(SyncError, match=said):
            await objects.get_config_map("default", "settings")
        assert anyio.current_time() - began == pytest.approx(1.0)


async def test_ob11_the_reason_why_an_object_cannot_be_had_is_told() -> None:
    store = ApiStore()
    for method in ("GET", "WATCH"):
        store.refuse(method, "secrets", ApiError(403, "Forbidden", "not yours"), times=50)
    async with watching(store, refers(secrets=("login",))) as (objects, _):
        with pytest.raises(
            SyncError, match=r'^failed to sync secret cache: .*"default/login".*not yours'
        ):
            await objects.get_secret("default", "login")


async def test_ob12_a_change_is_told_to_whoever_has_read_the_object() -> None:
    store = ApiStore()
    store.create(config_map(a="1"))
    told: list[tuple[str, str, str]] = []
    async with watching(store, refers(maps=("settings",))) as (objects, _):
        objects.subscribe(lambda *what: told.append(what))
        await objects.get_config_map("default", "settings")
        assert told == []
        for number in range(100):
            change(store, "settings", a=str(number))
        await anyio.sleep(1)
        # Nobody has read it since, so nobody has to be told again.
        assert told == [("default", "ConfigMap", "settings")]
        found = await objects.get_config_map("default", "settings")
        assert found is not None
        assert found.data == {"a": "99"}
        store.delete("configmaps", "settings")
        await anyio.sleep(1)
        assert len(told) == 2
        assert await objects.get_config_map("default", "settings") is None
        store.create(config_map(a="2"))
        await anyio.sleep(1)
        assert len(told) == 3


async def test_ob12_who_could_not_read_an_object_learns_that_it_can() -> None:
    store = ApiStore()
    store.create(config_map(a="1"))
    client, told = StoreClient(store), list[str]()
    client.cut()
    async with watching(store, refers(maps=("settings",)), client=client) as (objects, _):
        objects.subscribe(lambda _namespace, _kind, name: told.append(name))
        with pytest.raises(SyncError):
            await objects.get_config_map("default", "settings")
        client.heal()
        objects.retry_now()
        await anyio.sleep(0.5)
        assert told == ["settings"]


async def test_ob13_an_immutable_object_is_read_once() -> None:
    store = ApiStore()
    store.create({**config_map(a="1"), "immutable": True})
    async with watching(store, refers(maps=("settings",))) as (objects, strategy):
        first = await objects.get_config_map("default", "settings")
        assert first is not None
        assert strategy.watching == 0
        store.delete("configmaps", "settings")
        await anyio.sleep(600)
        assert await objects.get_config_map("default", "settings") is first
        assert store.watching == 0


async def test_ob14_what_is_not_read_for_long_is_not_watched() -> None:
    store = ApiStore()
    store.create(config_map(a="1"))
    async with watching(store, refers(maps=("settings",))) as (objects, strategy):
        await objects.get_config_map("default", "settings")
        await anyio.sleep(240)
        assert strategy.watching == 1
        await anyio.sleep(180)
        assert strategy.watching == 0
        change(store, "settings", a="2")
        found = await objects.get_config_map("default", "settings")
        assert found is not None
        assert found.data == {"a": "2"}
        assert strategy.watching == 1


async def test_ob15_an_object_that_cannot_be_read_is_told_and_its_last_version_stays() -> None:
    store = ApiStore()
    pod = refers(maps=("settings", "broken"))
    bad = {**config_map("broken"), "data": ["no", "map"]}
    bad["metadata"]["uid"] = "uid-broken"
    store.put("configmaps", ("default", "broken"), bad)
    store.create(config_map(a="1"))
    async with watching(store, pod) as (objects, _):
        with pytest.raises(SyncError, match=r'^configmap "broken" cannot be read: '):
            await objects.get_config_map("default", "broken")
        good = await objects.get_config_map("default", "settings")
        worse = {**store.get("configmaps", "settings"), "data": 7}
        store.put("configmaps", ("default", "settings"), worse)
        await anyio.sleep(1)
        assert await objects.get_config_map("default", "settings") is good


async def test_ob16_failures_of_many_watches_are_not_told_one_by_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    store, client = ApiStore(), StoreClient(ApiStore())
    client.cut()
    names = tuple(f"map-{number}" for number in range(50))
    async with watching(store, refers(maps=names), client=client):
        await anyio.sleep(60)
    assert "map-7" not in capsys.readouterr().err


async def test_ob4_a_secret_does_not_show_what_is_in_it() -> None:
    store = ApiStore()
    store.create(secret(password="xyzzy"))
    async with watching(store, refers(secrets=("login",))) as (objects, _):
        found = await objects.get_secret("default", "login")
        assert repr(found) == "Secret(default/login)"
