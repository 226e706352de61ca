"""The in-memory API server answers as the real one does."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import anyio
import pytest
from msgspec import json

from nodeagent.api import Pod, PodList
from nodeagent.kube import ApiError, PatchKind, UnreachableError, paths
from nodeagent.testing import ApiStore, StoreClient, make_pod
from nodeagent.testing.api_patch import apply_patch
from nodeagent.testing.api_store import Request

pytestmark = pytest.mark.anyio


class Clock:
    """Stands still at a moment."""

    moment = datetime(2026, 1, 1, tzinfo=UTC)

    def now(self) -> datetime:
        return self.moment

    def time_ns(self) -> int:
        return int(self.moment.timestamp() * 1e9)


@pytest.fixture
def store() -> ApiStore:
    return ApiStore(Clock())


def test_a_new_pod_gets_identity_defaults_and_no_status(store: ApiStore) -> None:
    made = store.create(make_pod("web", uid="ignored", node_name="n1"))
    assert made["metadata"]["uid"] != "ignored"
    assert made["metadata"]["creationTimestamp"] == "2026-01-01T00:00:00Z"
    assert made["metadata"]["generation"] == 1
    assert made["metadata"]["resourceVersion"] == "1001"
    assert made["status"] == {"phase": "Pending", "qosClass": "BestEffort"}
    assert made["spec"]["priority"] == 0
    assert made["spec"]["containers"][0]["terminationMessagePath"] == "/dev/termination-log"


def test_a_name_is_taken_once(store: ApiStore) -> None:
    store.create(make_pod("web"))
    with pytest.raises(ApiError) as refused:
        store.create(make_pod("web"))
    assert refused.value.already_exists
    assert str(refused.value) == 'pods "web" already exists'


def test_fields_that_we_do_not_know_are_kept(store: ApiStore) -> None:
    pod = {
        "kind": "Pod",
        "metadata": {"name": "new"},
        "spec": {"containers": [{"name": "c", "image": "i", "zest": 1}], "future": {"a": [1]}},
    }
    made = store.create(pod)
    assert made["spec"]["future"] == {"a": [1]}
    assert made["spec"]["containers"][0]["zest"] == 1


def test_status_and_spec_are_written_by_their_own_paths(store: ApiStore) -> None:
    store.create(make_pod("web"))

    def both(pod: dict[str, Any]) -> None:
        pod["status"]["phase"] = "Running"
        pod["spec"]["activeDeadlineSeconds"] = 7

    changed = store.edit("pods", "web", both)
    assert changed["status"]["phase"] == "Pending"
    assert changed["metadata"]["generation"] == 2
    changed = store.edit("pods", "web", both, status=True)
    assert changed["status"]["phase"] == "Running"
    assert changed["metadata"]["generation"] == 2


def test_a_write_that_changes_nothing_is_no_write(store: ApiStore) -> None:
    store.create(make_pod("web"))
    before = store.version
    store.edit("pods", "web", lambda _pod: None)
    assert store.version == before


@pytest.mark.parametrize(
    ("field", "value", "code"),
    [("uid", "another", 422), ("resourceVersion", "1", 409)],
    ids=["uid", "version"],
)
def test_a_patch_for_another_object_is_refused(
    store: ApiStore, field: str, value: str, code: int
) -> None:
    store.create(make_pod("web"))
    patch = {"metadata": {field: value}, "status": {"phase": "Running"}}
    request = Request("PATCH", paths.pod("default", "web", "status"), {}, patch)
    with pytest.raises(ApiError) as refused:
        store.handle(request)
    assert refused.value.status == code


def test_a_bound_pod_goes_with_grace_and_only_a_shorter_one_counts(store: ApiStore) -> None:
    store.create(make_pod("web", node_name="n1", grace=30))
    store.delete("pods", "web")
    meta = store.get("pods", "web")["metadata"]
    assert meta["deletionTimestamp"] == "2026-01-01T00:00:30Z"
    assert meta["deletionGracePeriodSeconds"] == 30
    assert meta["generation"] == 2
    store.delete("pods", "web", grace=60)
    store.delete("pods", "web")
    assert store.get("pods", "web")["metadata"] == meta
    store.delete("pods", "web", grace=5)
    assert store.get("pods", "web")["metadata"]["deletionTimestamp"] == "2026-01-01T00:00:05Z"
    store.delete("pods", "web", grace=0)
    assert store.all("pods") == []


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_pod_that_is_over_goes_at_once(store: ApiStore, phase: str) -> None:
    store.create(make_pod("web", node_name="n1"), status={"phase": phase})
    store.delete("pods", "web")
    assert store.all("pods") == []


def test_a_pod_without_a_node_goes_at_once(store: ApiStore) -> None:
    store.create(make_pod("web"))
    store.delete("pods", "web")
    assert store.all("pods") == []


def test_finalizers_hold_an_object(store: ApiStore) -> None:
    pod = store.create(
        {
            "kind": "Pod",
            "metadata": {"name": "web", "finalizers": ["x/y"]},
            "spec": {"containers": [{"name": "c", "image": "i"}]},
        }
    )
    store.delete("pods", "web", grace=0)
    held = store.get("pods", "web")
    assert held["metadata"]["deletionGracePeriodSeconds"] == 0
    assert held["metadata"]["uid"] == pod["metadata"]["uid"]
    store.edit("pods", "web", lambda item: item["metadata"].pop("finalizers"))
    assert store.all("pods") == []


def test_a_mirror_pod_belongs_to_its_node(store: ApiStore) -> None:
    mirror = make_pod("m", node_name="n1", annotations={"kubernetes.io/config.mirror": "hash"})
    with pytest.raises(ApiError) as refused:
        store.create(mirror)
    assert refused.value.forbidden
    node = store.create({"kind": "Node", "metadata": {"name": "n1"}})
    owner = {
        "apiVersion": "v1",
        "kind": "Node",
        "name": "n1",
        "uid": node["metadata"]["uid"],
        "controller": True,
    }
    body = {
        "kind": "Pod",
        "metadata": {
            "name": "m",
            "annotations": {"kubernetes.io/config.mirror": "hash"},
            "ownerReferences": [owner],
        },
        "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": "i"}]},
    }
    store.create(body)
    with pytest.raises(ApiError):
        store.edit("pods", "m", lambda pod: pod["metadata"].update(annotations={}))


async def test_pages_show_one_moment(store: ApiStore) -> None:
    client = StoreClient(store)
    for name in "abcde":
        store.create(make_pod(name))
    first = await client.get(paths.PODS, PodList, query={"limit": "2"})
    store.delete("pods", "c")
    query = {"limit": "2", "continue": first.metadata.continue_}
    second = await client.get(paths.PODS, PodList, query=query)
    assert [p.metadata.name for p in (*first.items, *second.items)] == ["a", "b", "c", "d"]
    assert first.metadata.remaining_item_count == 3
    store.expire()
    query = {"continue": second.metadata.continue_}
    with pytest.raises(ApiError) as refused:
        await client.get(paths.PODS, PodList, query=query)
    assert refused.value.gone


async def test_selectors_choose(store: ApiStore) -> None:
    client = StoreClient(store)
    store.create(make_pod("a", node_name="n1", labels={"app": "x"}))
    store.create(make_pod("b", node_name="n2", labels={"app": "y"}, namespace="other"))

    async def names(path: str = paths.PODS, **query: str) -> list[str]:
        found = await client.get(path, PodList, query=query)
        return [p.metadata.name for p in found.items]

    assert await names(fieldSelector="spec.nodeName=n1") == ["a"]
    assert await names(fieldSelector="spec.nodeName!=n1") == ["b"]
    assert await names(labelSelector="app in (y,z)") == ["b"]
    assert await names(labelSelector="app=x,!gone") == ["a"]
    assert await names(paths.pods_in("other")) == ["b"]
    with pytest.raises(ApiError, match=r"field label not supported: spec\.hostname"):
        await names(fieldSelector="spec.hostname=x")


async def _events(client: StoreClient, count: int, **query: str) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    async with client.watch(paths.PODS, query) as lines:
        async for line in lines:
            event = json.decode(line)
            meta = event["object"].get("metadata") or {}
            found.append((event["type"], meta.get("name") or str(event["object"].get("code", ""))))
            if len(found) == count:
                break
    return found


async def test_a_watch_tells_what_enters_changes_and_leaves_the_selection(store: ApiStore) -> None:
    client = StoreClient(store)
    version = str(store.version)
    store.create(make_pod("a", labels={"app": "x"}))
    store.create(make_pod("b"))
    store.edit("pods", "b", lambda pod: pod["metadata"].update(labels={"app": "x"}))
    store.edit("pods", "a", lambda pod: pod["metadata"].update(annotations={"k": "v"}))
    store.edit("pods", "a", lambda pod: pod["metadata"].update(labels={}))
    store.delete("pods", "b")
    told = await _events(client, 5, resourceVersion=version, labelSelector="app=x")
    assert told == [
        ("ADDED", "a"),
        ("ADDED", "b"),
        ("MODIFIED", "a"),
        ("DELETED", "a"),
        ("DELETED", "b"),
    ]


async def test_a_watch_list_ends_its_beginning_with_a_bookmark(store: ApiStore) -> None:
    client = StoreClient(store)
    store.create(make_pod("a"))
    query = {"sendInitialEvents": "true", "allowWatchBookmarks": "true"}
    assert await _events(client, 2, **query) == [("ADDED", "a"), ("BOOKMARK", "")]
    store.watch_list = False
    with pytest.raises(ApiError) as refused:
        await _events(client, 2, **query)
    assert refused.value.status == 422


async def test_an_expired_version_is_told_in_the_stream_or_before(store: ApiStore) -> None:
    client = StoreClient(store)
    old = str(store.version)
    store.create(make_pod("a"))
    store.expire()
    assert await _events(client, 1, resourceVersion=old) == [("ERROR", "410")]
    store.expire_in_stream = False
    with pytest.raises(ApiError) as refused:
        await _events(client, 1, resourceVersion=old)
    assert refused.value.gone


async def test_a_silent_watch_gets_bookmarks_and_ends_in_time(store: ApiStore) -> None:
    client = StoreClient(store)
    began = anyio.current_time()
    query = {"allowWatchBookmarks": "true", "timeoutSeconds": "150", "resourceVersion": "1000"}
    assert await _events(client, 99, **query) == [("BOOKMARK", "")] * 3
    assert anyio.current_time() - began == pytest.approx(150)
    assert store.watching == 0


async def test_a_half_open_watch_says_nothing_until_it_is_dropped(store: ApiStore) -> None:
    client = StoreClient(store)
    async with client.watch(paths.PODS, {"resourceVersion": "1000"}) as lines:
        client.fall_silent()
        client.heal()
        store.create(make_pod("a"))
        with anyio.move_on_after(30) as waited:
            await anext(lines)
        assert waited.cancelled_caught
    async with client.watch(paths.PODS, {"resourceVersion": "1000"}) as lines:
        assert json.decode(await anext(lines))["type"] == "ADDED"
        client.drop_connections()
        with pytest.raises(UnreachableError):
            await anext(lines)


async def test_a_server_that_is_away_is_unreachable(store: ApiStore) -> None:
    client = StoreClient(store)
    client.cut()
    with pytest.raises(UnreachableError):
        await client.get(paths.PODS, PodList)
    client.heal()
    client.fall_silent()
    began = anyio.current_time()
    with pytest.raises(UnreachableError):
        await client.get(paths.PODS, PodList, timeout=5)
    assert anyio.current_time() - began == pytest.approx(5)


async def test_refusals_and_counts(store: ApiStore) -> None:
    client = StoreClient(store)
    store.create(make_pod("a"))
    store.refuse("GET", "/pods/a$", ApiError(429, "TooManyRequests", "busy", 3.0))
    with pytest.raises(ApiError) as refused:
        await client.get(paths.pod("default", "a"), Pod)
    assert refused.value.retry_after == 3.0
    await client.get(paths.pod("default", "a"), Pod)
    assert store.count("GET", "/pods/") == 2


async def test_leases_are_made_by_put_and_tokens_by_post(store: ApiStore) -> None:
    client = StoreClient(store)
    lease = {"spec": {"holderIdentity": "n1", "leaseDurationSeconds": 40}}
    made = await client.put(paths.lease("n1"), lease | {"metadata": {"name": "n1"}}, dict[str, Any])
    assert made["spec"]["holderIdentity"] == "n1"
    body = {"kind": "ServiceAccount", "metadata": {"name": "default"}}
    await client.post(paths.namespaced("default", "serviceaccounts"), body, dict[str, Any])
    pod = store.create(make_pod("web"))
    bound = {"kind": "Pod", "name": "web", "uid": pod["metadata"]["uid"]}
    request = {"spec": {"audiences": ["a"], "expirationSeconds": 600, "boundObjectRef": bound}}
    where = paths.token("default", "default")
    answer = await client.post(where, request, dict[str, Any])
    assert answer["status"]["expirationTimestamp"] == "2026-01-01T00:10:00Z"
    bound["uid"] = "another"
    with pytest.raises(ApiError) as refused:
        await client.post(where, request, dict[str, Any])
    assert refused.value.conflict


async def test_a_signing_request_is_answered_through_its_subresources(store: ApiStore) -> None:
    client = StoreClient(store)
    body = {"metadata": {"generateName": "csr-"}, "spec": {"request": "Zg=="}}
    made = await client.post(paths.CSRS, body, dict[str, Any])
    name = made["metadata"]["name"]
    store.edit(
        "certificatesigningrequests",
        name,
        lambda csr: csr.update(status={"certificate": "Y2VydA=="}),
        status=True,
    )
    read = await client.get(paths.csr(name), dict[str, Any])
    assert read["status"] == {"certificate": "Y2VydA=="}


_NODE = {
    "status": {
        "conditions": [{"type": "Ready", "status": "True"}, {"type": "Odd", "status": "False"}],
        "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
        "images": [{"names": ["a"]}],
    }
}


@pytest.mark.parametrize(
    ("patch", "wanted"),
    [
        (
            {"conditions": [{"type": "Ready", "status": "False"}]},
            {
                "conditions": [
                    {"type": "Ready", "status": "False"},
                    {"type": "Odd", "status": "False"},
                ]
            },
        ),
        (
            {"addresses": [{"$patch": "replace"}, {"type": "Hostname", "address": "n1"}]},
            {"addresses": [{"type": "Hostname", "address": "n1"}]},
        ),
        ({"images": [{"names": ["b"]}]}, {"images": [{"names": ["b"]}]}),
        (
            {"conditions": [{"type": "Odd", "$patch": "delete"}]},
            {"conditions": [{"type": "Ready", "status": "True"}]},
        ),
        (
            {
                "$setElementOrder/conditions": [{"type": "Odd"}, {"type": "Ready"}],
                "conditions": [{"type": "Ready", "reason": "R"}],
            },
            {
                "conditions": [
                    {"type": "Odd", "status": "False"},
                    {"type": "Ready", "status": "True", "reason": "R"},
                ]
            },
        ),
        ({"images": None, "phase": "x"}, {"images": None, "phase": "x"}),
    ],
)
def test_strategic_patches_merge_lists_by_key(patch: Any, wanted: Any) -> None:
    patched = apply_patch(PatchKind.STRATEGIC, _NODE, {"status": patch})
    expected = {k: v for k, v in {**_NODE["status"], **wanted}.items() if v is not None}
    assert patched == {"status": expected}


def test_scalar_lists_merge_and_lose() -> None:
    pod = {"metadata": {"finalizers": ["a", "b"]}}
    patch = {"metadata": {"finalizers": ["c"], "$deleteFromPrimitiveList/finalizers": ["a"]}}
    patched = apply_patch(PatchKind.STRATEGIC, pod, patch)
    assert patched == {"metadata": {"finalizers": ["b", "c"]}}


def test_merge_and_json_patches() -> None:
    item = {"a": {"b": 1, "c": [1, 2]}}
    assert apply_patch(PatchKind.MERGE, item, {"a": {"b": None, "c": [3]}}) == {"a": {"c": [3]}}
    steps = [
        {"op": "test", "path": "/a/b", "value": 1},
        {"op": "add", "path": "/a/c/-", "value": 3},
        {"op": "move", "from": "/a/b", "path": "/d"},
        {"op": "remove", "path": "/a/c/0"},
    ]
    assert apply_patch(PatchKind.JSON, item, steps) == {"a": {"c": [2, 3]}, "d": 1}
    assert item == {"a": {"b": 1, "c": [1, 2]}}
    with pytest.raises(ApiError) as refused:
        apply_patch(PatchKind.JSON, item, [{"op": "remove", "path": "/x"}])
    assert refused.value.status == 422


@pytest.mark.parametrize("path", ["/api/v1/nothing", "/apis/x/v1/pods", "/api/v1/pods/web", "/"])
def test_unknown_paths_are_not_found(store: ApiStore, path: str) -> None:
    with pytest.raises(ApiError) as refused:
        store.handle(Request("GET", path, {}))
    assert refused.value.not_found
