"""The API source follows the server (docs/behaviour/api-source.md)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from tests.unit.sources.api_lab import NODE, ApiLab

from nodeagent.api.codec import encode, to_builtins
from nodeagent.kube import ApiError, paths
from nodeagent.kube.reflector import LATE_SECONDS, OPEN_SECONDS, WATCH_SECONDS
from nodeagent.testing import ApiStore, make_pod
from nodeagent.testing.api_store import Request
from nodeagent.testing.api_watch import ApiWatch

pytestmark = pytest.mark.anyio


async def test_wa1_wa21_the_pods_of_this_node_are_published() -> None:
    lab = ApiLab()
    lab.add("a")
    lab.add("b", namespace="other")
    lab.store.create(make_pod("c", node_name="another"))
    lab.store.create(make_pod("d"))
    async with lab.running():
        await lab.names("a", "b")
        assert lab.store.requests[0].query["fieldSelector"] == f"spec.nodeName={NODE}"
        assert lab.source.synced


async def test_wa1_the_start_does_not_wait_and_an_empty_node_is_published() -> None:
    lab = ApiLab()
    lab.client.cut()
    async with lab.running():
        await anyio.sleep(5)
        assert lab.snapshots == []
        lab.client.heal()
        await lab.names()


async def test_wa2_wa24_changes_follow_in_the_same_stream() -> None:
    lab = ApiLab()
    lab.add("a")
    async with lab.running():
        await lab.names("a")
        lab.add("b")
        await lab.names("a", "b")
        lab.mark("a", app="x")
        await lab.until(lambda: lab.snapshots[-1].pods[0].metadata.labels == {"app": "x"})
        lab.store.delete("pods", "b", grace=0)
        await lab.names("a")
        assert lab.asked() == [("WATCH", "", "")]


async def test_wa2_what_changes_while_all_is_told_counts() -> None:
    """A server may send changes before the bookmark that ends the first events."""
    lab = ApiLab()
    gone = lab.add("gone")
    again = lab.add("again")
    lab.add("stays")
    open_watch = lab.store.watch

    def changing(path: str, query: Mapping[str, str]) -> ApiWatch:
        watch = open_watch(path, query)
        if "sendInitialEvents" in query:
            end = watch._out.pop()
            watch.tell("DELETED", gone)
            watch.tell("DELETED", again)
            watch.tell("ADDED", {**again, "metadata": {**again["metadata"], "uid": "another"}})
            watch._out.append(end)
        return watch

    lab.store.watch = changing  # type: ignore[method-assign]
    async with lab.running():
        await lab.names("again", "stays")
        assert "another" in {pod.metadata.uid for pod in lab.snapshots[0].pods}
        assert lab.source.informer.reflector.lists == 1


async def test_wa6_a_watch_that_tells_without_end_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lab = ApiLab()
    for number in range(20):
        lab.add(f"p{number:02d}")
    monkeypatch.setattr("nodeagent.kube.reflector.MOST_INITIAL_BYTES", 2000)
    async with lab.running():
        await lab.until(lambda: bool(lab.snapshots))
        assert [method for method, *_ in lab.asked()][:2] == ["WATCH", "LIST"]
        assert lab.told("ApiTrouble") == ["cannot watch pods: a list without end"]


@pytest.mark.parametrize("version", ["9" * 5000, "\u0663", ""])
async def test_wa18_a_version_that_is_no_number_of_ours_ends_nothing(version: str) -> None:
    lab = ApiLab()
    lab.add("a")
    async with lab.running():
        await lab.names("a")
        odd = make_pod("odd", node_name=NODE, uid="odd")
        told = to_builtins(odd)
        told["metadata"]["resourceVersion"] = version
        for watch in lab.store._watches:
            watch.tell("ADDED", told)
        await lab.names("a", "odd")


async def test_wa24_changes_while_the_ring_is_busy_come_together() -> None:
    lab = ApiLab()
    busy = anyio.Event()

    async def slow(snapshot: Any) -> None:
        await busy.wait()
        await ApiLab.publish(lab, snapshot)

    lab.publish = slow  # type: ignore[method-assign]
    async with lab.running():
        await anyio.sleep(1)
        for name in "abc":
            lab.add(name)
        await anyio.sleep(1)
        busy.set()
        await lab.names("a", "b", "c")
        assert len(lab.snapshots) == 2


@pytest.mark.parametrize("watch_list", [True, False], ids=["refused", "not wanted"])
async def test_wa3_wa4_a_server_without_watch_lists_is_listed(watch_list: bool) -> None:
    lab = ApiLab(ApiStore(watch_list=False), watch_list=watch_list)
    lab.add("a")
    async with lab.running():
        await lab.names("a")
        lab.add("b")
        await lab.names("a", "b")
    wanted = [("LIST", "0", "500"), ("WATCH", "1001", "")]
    assert lab.asked() == [("WATCH", "", "")] * watch_list + wanted
    assert lab.told("ApiTrouble") == []


async def test_wa4_pages_are_put_together() -> None:
    lab = ApiLab(watch_list=False)
    names = [f"p{number:04d}" for number in range(1203)]
    for name in names:
        lab.add(name)
    async with lab.running():
        await lab.names(*names)
    assert len(lab.snapshots) == 1
    lists = [asked for asked in lab.asked() if asked[0] == "LIST"]
    assert [version for _, version, _ in lists] == ["0", "", ""]


async def test_wa5_a_list_that_expires_between_pages_comes_in_one_piece() -> None:
    lab = ApiLab(watch_list=False)
    for number in range(600):
        lab.add(f"p{number:04d}")
    expired = ApiError(410, "Expired", "The provided continue parameter is too old")
    admit = lab.store.admit

    def admit_but_once(request: Any) -> None:
        admit(request)
        if request.query.get("continue"):
            raise expired

    lab.store.admit = admit_but_once  # type: ignore[method-assign]
    async with lab.running():
        await lab.until(lambda: bool(lab.snapshots))
    assert len(lab.snapshots[-1].pods) == 600
    assert lab.asked()[2] == ("LIST", "", "")


async def test_wa5_a_server_that_was_set_back_is_taken_as_it_is() -> None:
    lab = ApiLab(watch_list=False)
    lab.add("a")
    async with lab.running():
        await lab.names("a")
        fresh = ApiLab(ApiStore(start=5))
        fresh.add("old")
        lab.client.cut()
        await anyio.sleep(10)
        # It comes back restored from a backup.
        lab.client._store = fresh.store
        lab.client.heal()
        await lab.names("old")


async def test_wa7_a_watch_is_short_and_goes_on_from_the_last_version() -> None:
    lab = ApiLab()
    async with lab.running():
        await lab.names()
        lab.store.create(make_pod("of-nobody"))
        await anyio.sleep(100)
        watches = lab.store.requests
        assert len(watches) in (3, 4)
        for watch in watches:
            assert WATCH_SECONDS[0] <= int(watch.query["timeoutSeconds"]) <= WATCH_SECONDS[1]
            assert watch.query["allowWatchBookmarks"] == "true"
        assert watches[-1].query["resourceVersion"] == "1001", "a bookmark told it"
        assert lab.told("ApiTrouble") == []


async def test_wa8_bookmarks_publish_nothing() -> None:
    lab = ApiLab()
    async with lab.running():
        await lab.names()
        for _ in range(3):
            lab.store.create(make_pod(f"x{_}"))
            lab.store.bookmark()
            await anyio.sleep(1)
        assert len(lab.snapshots) == 1
        assert lab.source.informer.reflector.version == "1003"


@pytest.mark.parametrize("in_stream", [True, False], ids=["in the stream", "as a status"])
async def test_wa9_an_expired_version_is_made_good_by_all_there_is(in_stream: bool) -> None:
    lab = ApiLab()
    lab.store.expire_in_stream = in_stream
    lab.add("a")
    async with lab.running():
        await lab.names("a")
        lab.client.cut()
        lab.add("b")
        lab.store.delete("pods", "a", grace=0)
        lab.store.expire()
        lab.client.heal()
        await lab.names("b")
        assert lab.told("ObjectUnusable") == []


async def test_wa9_an_error_event_410_in_an_open_watch() -> None:
    lab = ApiLab()
    async with lab.running():
        await lab.names()
        lab.store.end_watches(ApiError(410, "Expired", "too old resource version"))
        lab.add("a")
        await lab.names("a")


async def test_wa10_retry_after_is_respected() -> None:
    lab = ApiLab()
    async with lab.running():
        await lab.names()
        lab.store.refuse("WATCH", "", ApiError(429, "TooManyRequests", "busy", 50.0))
        began = anyio.current_time()
        lab.store.end_watches()
        await anyio.sleep(0.1)
        lab.add("a")
        await lab.names("a")
        assert anyio.current_time() - began >= 50


async def test_wa11_a_broken_watch_is_resumed_without_a_list() -> None:
    lab = ApiLab()
    lab.add("a")
    async with lab.running():
        await lab.names("a")
        lab.client.drop_connections()
        lab.add("b")
        await lab.names("a", "b")
        assert lab.asked() == [("WATCH", "", ""), ("WATCH", "1001", "")]
        assert "sendInitialEvents" not in lab.store.requests[1].query


async def test_wa12_wa13_a_server_that_fails_is_asked_less_and_less() -> None:
    lab = ApiLab()
    lab.store.refuse("*", "", ApiError(500, "InternalError", "etcd is sad"), times=10_000)
    async with lab.running():
        await anyio.sleep(600)
        assert len(lab.store.requests) < 60
        assert lab.told("ApiTrouble")
        assert "etcd is sad" in lab.source.trouble


async def test_wa14_a_half_open_connection_is_noticed_within_a_minute() -> None:
    lab = ApiLab()
    async with lab.running():
        await lab.names()
        lab.client.fall_silent()
        lab.client.heal()
        lab.add("a")
        began = anyio.current_time()
        await lab.until(lambda: lab.client.drops == 1)
        await lab.names("a")
        assert anyio.current_time() - began <= WATCH_SECONDS[1] + LATE_SECONDS + 1


async def test_wa14_a_black_hole_is_noticed_within_a_minute_and_left() -> None:
    lab = ApiLab()
    async with lab.running():
        await lab.names()
        lab.client.fall_silent()
        began = anyio.current_time()
        await lab.until(lambda: lab.client.drops > 0)
        assert anyio.current_time() - began <= WATCH_SECONDS[1] + LATE_SECONDS + OPEN_SECONDS
        await anyio.sleep(120)
        assert "silent" in lab.source.trouble or "within" in lab.source.trouble
        lab.add("a")
        lab.client.heal()
        await lab.names("a")
        await anyio.sleep(5)
        assert lab.source.trouble == ""


async def test_wa15_a_server_that_is_back_is_asked_at_once() -> None:
    lab = ApiLab()
    async with lab.running():
        await lab.names()
        lab.client.cut()
        await anyio.sleep(600)
        lab.add("a")
        lab.client.heal()
        lab.source.retry_now()
        began = anyio.current_time()
        await lab.names("a")
        assert anyio.current_time() - began < 1


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        (ApiError(401, "Unauthorized", "Unauthorized"), "check the credentials in the kubeconfig"),
        (
            ApiError(403, "Forbidden", 'User "x" cannot list resource "pods"'),
            "grant the agent 'list' and 'watch' on pods",
        ),
    ],
)
async def test_wa16_a_refusal_names_what_is_missing(
    error: ApiError, remedy: str, caplog: pytest.LogCaptureFixture
) -> None:
    lab = ApiLab()
    lab.store.refuse("*", "", error, times=20)
    async with lab.running():
        await anyio.sleep(60)
        troubles = lab.told("ApiTrouble")
        assert len(troubles) in (1, 2), "watch, then list"
        assert troubles[0] == f"cannot watch pods: {error.message}"
        await lab.names()
        await anyio.sleep(1)
        assert lab.source.trouble == ""
        assert len(lab.told("ApiAnswers")) == 1
    told = [r.__dict__["fields"]["remedy"] for r in caplog.records if r.msg == "api_unanswered"]
    assert set(told) == {remedy}


async def test_wa22_the_same_name_with_a_new_uid_is_another_pod() -> None:
    lab = ApiLab()
    first = lab.add("a")["metadata"]["uid"]
    async with lab.running():
        await lab.names("a")
        lab.store.delete("pods", "a", grace=0)
        second = lab.add("a")["metadata"]["uid"]
        await lab.until(lambda: [p.metadata.uid for p in lab.snapshots[-1].pods] == [second])
        assert first != second


async def test_wa23_odd_pods_are_pods() -> None:
    lab = ApiLab()
    lab.add("odd")
    lab.add("huge", annotations={"note": "x" * (2 << 20)})
    async with lab.running():
        await lab.names("huge", "odd")

        def delete_early(pod: dict[str, Any]) -> None:
            pod["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
            pod["metadata"]["deletionTimestamp"] = "2020-01-01T00:00:00Z"
            pod["metadata"]["resourceVersion"] = "1003"

        odd = lab.store.get("pods", "odd")
        delete_early(odd)
        for watch in lab.store._watches:
            watch.tell("MODIFIED", odd)
        await lab.until(lambda: any(p.metadata.deletion_timestamp for p in lab.snapshots[-1].pods))


async def test_wa19_a_repeated_event_changes_nothing() -> None:
    lab = ApiLab()
    old = lab.add("a")
    async with lab.running():
        await lab.names("a")
        lab.mark("a", app="x")
        await lab.until(lambda: len(lab.snapshots) == 2)
        lab.store.delete("pods", "a", grace=0)
        await lab.names()
        for watch in lab.store._watches:
            watch.tell("MODIFIED", old)
            watch.tell("ADDED", old)
            watch.tell("DELETED", old)
        lab.add("b")
        await lab.names("b")
        assert len(lab.snapshots) == 4


async def test_wa19_an_unchanged_pod_stays_the_same_object_over_a_list() -> None:
    lab = ApiLab(watch_list=False)
    lab.add("a")
    lab.add("b")
    async with lab.running():
        await lab.names("a", "b")
        before = {p.metadata.name: p for p in lab.snapshots[-1].pods}
        lab.client.cut()
        lab.mark("b", app="x")
        lab.client.heal()
        lab.store.expire()
        await lab.until(lambda: len(lab.snapshots) == 2)
        after = {p.metadata.name: p for p in lab.snapshots[-1].pods}
        assert after["a"] is before["a"]
        assert after["b"] is not before["b"]


async def test_wa12_a_watch_that_ends_each_second_keeps_up() -> None:
    lab = ApiLab()
    async with lab.running():
        await lab.names()
        for number in range(20):
            await anyio.sleep(1)
            lab.store.end_watches()
            await anyio.sleep(0.05)
            lab.add(f"p{number}")
        await lab.until(lambda: len(lab.snapshots[-1].pods) == 20, 120)
        assert len(lab.store.requests) < 60


async def test_a_pod_is_never_asked_for_elsewhere() -> None:
    lab = ApiLab()
    async with lab.running():
        await lab.names()
    assert {request.path for request in lab.store.requests} == {paths.PODS}


async def test_wa6_a_list_without_end_is_given_up() -> None:
    lab = ApiLab(watch_list=False)
    for number in range(501):
        lab.add(f"p{number:04d}")
    token = ""
    handle = lab.store.handle

    def endless(request: Any) -> dict[str, Any]:
        answer = handle(replace(request, query={**request.query, "continue": token}))
        answer["metadata"]["continue"] = "the-same"
        return answer

    lab.store.handle = endless  # type: ignore[method-assign]
    async with lab.running():
        await anyio.sleep(300)
        assert lab.snapshots == []
        assert lab.told("ApiTrouble") == ["cannot list pods: a list without end"]
        assert len(lab.store.requests) < 80
        lab.store.handle = handle  # type: ignore[method-assign]
        await lab.until(lambda: bool(lab.snapshots))


BAD: dict[str, dict[str, Any]] = {
    "no uid": {"metadata": {"uid": ""}},
    "a text for a bool": {"spec": {"nodeName": NODE, "hostNetwork": "yes", "containers": []}},
    "another kind": {"kind": "Service"},
}


def worse(pod: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    return {**pod, **change, "metadata": {**pod["metadata"], **change.get("metadata", {})}}


@pytest.mark.parametrize("watch_list", [True, False], ids=["watch list", "list"])
@pytest.mark.parametrize("fault", ["no uid", "a text for a bool"])
async def test_wa18_one_bad_object_spoils_nothing(fault: str, watch_list: bool) -> None:
    lab = ApiLab(watch_list=watch_list)
    lab.add("good")
    bad = lab.add("bad")
    lab.store.put("pods", ("default", "bad"), worse(bad, BAD[fault]))
    async with lab.running():
        await lab.names("good")
        assert list(lab.source.problems()) == ["default/bad"]
        assert "default/bad" in lab.told("ObjectUnusable")[0]
        lab.store.put("pods", ("default", "bad"), bad)
        await lab.names("bad", "good")
        assert lab.source.problems() == {}


ESCAPES: dict[str, dict[str, Any]] = {
    "uid": {"metadata": {"uid": "../../etc"}},
    "dots": {"metadata": {"uid": ".."}},
    "a long uid": {"metadata": {"uid": "u" * 300}},
    "container": {"spec": {"nodeName": NODE, "containers": [{"name": "../../../etc"}]}},
    "init": {"spec": {"nodeName": NODE, "initContainers": [{"name": ".."}]}},
    "volume": {
        "spec": {
            "nodeName": NODE,
            "containers": [{"name": "main"}],
            "volumes": [{"name": "../../../etc", "emptyDir": {}}],
        }
    },
}


@pytest.mark.parametrize("watch_list", [True, False], ids=["watch list", "list"])
@pytest.mark.parametrize("fault", ESCAPES)
async def test_wa18_no_name_leads_out_of_a_directory(fault: str, watch_list: bool) -> None:
    lab = ApiLab(watch_list=watch_list)
    lab.add("good")
    bad = lab.add("bad")
    lab.store.put("pods", ("default", "bad"), worse(bad, ESCAPES[fault]))
    async with lab.running():
        await lab.names("good")
        lab.store.put("pods", ("default", "../../evil"), bad)
        lab.store.put("pods", ("../../evil", "bad"), bad)
        lab.add("next")
        await lab.names("good", "next")
        assert len(lab.told("ObjectUnusable")) == 3
        assert "must" in lab.source.problems()["default/bad"]


@pytest.mark.parametrize("fault", BAD)
async def test_wa18_a_bad_event_keeps_the_last_good_version(fault: str) -> None:
    lab = ApiLab()
    lab.add("good")
    bad = lab.add("bad")
    async with lab.running():
        await lab.names("bad", "good")
        lab.store.put("pods", ("default", "bad"), worse(bad, BAD[fault]))
        lab.add("next")
        await lab.names("bad", "good", "next")
        assert len(lab.told("ObjectUnusable")) == 1
        assert lab.source.informer.reflector.watches == 1, "the stream goes on"


@pytest.mark.parametrize("listed", [True, False])
async def test_wa18_a_deletion_counts_also_when_the_rest_cannot_be_read(listed: bool) -> None:
    lab = ApiLab()
    lab.add("good")
    bad = lab.add("bad")
    async with lab.running():
        await lab.names("bad", "good")
        ending = {"deletionTimestamp": "2026-01-01T00:00:30Z", "deletionGracePeriodSeconds": 30}
        text = {**BAD["a text for a bool"], "metadata": ending}
        if listed:
            lab.store.watch_list = False
            lab.store.expire()
            lab.store.end_watches()
        lab.store.put("pods", ("default", "bad"), worse(bad, text))

        def told() -> bool:
            (pod,) = (p for p in lab.snapshots[-1].pods if p.metadata.name == "bad")
            return pod.metadata.deletion_grace_period_seconds == 30

        await lab.until(told)
        assert list(lab.source.problems()) == ["default/bad"]


async def test_wa18_one_that_cannot_be_read_and_has_taken_a_name_is_another_one() -> None:
    lab = ApiLab()
    bad = lab.add("bad")
    async with lab.running():
        await lab.names("bad")
        text = {**BAD["a text for a bool"], "metadata": {"uid": "another"}}
        lab.store.put("pods", ("default", "bad"), worse(bad, text))
        await lab.names()


@pytest.mark.parametrize("watch_list", [True, False], ids=["watch list", "list"])
@pytest.mark.parametrize("mended", [True, False], ids=["mended", "deleted"])
async def test_wa18_a_pod_of_which_nothing_is_known_is_not_forgotten(
    mended: bool, watch_list: bool
) -> None:
    lab = ApiLab(watch_list=watch_list)
    lab.add("good")
    bad = lab.add("bad")
    lab.store.put("pods", ("default", "bad"), worse(bad, BAD["a text for a bool"]))
    async with lab.running():
        await lab.names("good")
        assert lab.snapshots[-1].remembered, "what runs of it is not cleaned up"
        if mended:
            lab.store.put("pods", ("default", "bad"), bad)
        else:
            lab.store.delete("pods", "bad", grace=0)
        await lab.until(lambda: not lab.snapshots[-1].remembered)
        assert lab.shown() == (["bad", "good"] if mended else ["good"])


async def test_wa18_what_is_no_pod_holds_nothing_up() -> None:
    lab = ApiLab(watch_list=False)
    lab.add("good")

    async def with_another(*_args: Any, **_options: Any) -> bytes:
        await anyio.lowlevel.checkpoint()
        answer = lab.store.handle(Request("GET", paths.PODS, {}))
        other = {"kind": "Service", "metadata": {"name": "good", "namespace": "default"}}
        return encode({**answer, "items": [*answer["items"], other]})

    lab.client.get_bytes = with_another  # type: ignore[method-assign]
    async with lab.running():
        await lab.names("good")
        assert not lab.snapshots[-1].remembered
        assert lab.source.problems() == {}
        assert len(lab.told("ObjectUnusable")) == 1


async def test_a_status_that_changes_leaves_the_spec_the_same_object() -> None:
    lab = ApiLab()
    lab.add("a")
    async with lab.running():
        await lab.names("a")
        lab.store.edit("pods", "a", lambda p: p["status"].update(phase="Running"), status=True)
        await lab.until(lambda: len(lab.snapshots) == 2)
        old, new = (snapshot.pods[0] for snapshot in lab.snapshots)
        assert new.status.phase == "Running"
        assert new.spec is old.spec


async def test_wa18_what_is_no_object_is_passed_over() -> None:
    lab = ApiLab()
    async with lab.running():
        await lab.names()
        for watch in lab.store._watches:
            watch.tell("MODIFIED", ["no object"])  # type: ignore[arg-type]
        lab.add("a")
        await lab.names("a")
        assert lab.source.informer.reflector.watches == 1


async def test_wa17_unknown_fields_and_nulls_do_no_harm() -> None:
    lab = ApiLab()
    pod = to_builtins(make_pod("new", node_name=NODE))
    pod["spec"]["futureField"] = {"deep": [1, {"er": None}]}
    pod["spec"]["volumes"] = None
    pod["metadata"]["labels"] = None
    lab.store.create(pod)
    async with lab.running():
        await lab.names("new")
        assert lab.source.problems() == {}
        assert lab.snapshots[-1].pods[0].spec.volumes == ()


LIES = {
    "html": b"<html><body>502 Bad Gateway</body></html>",
    "truncated": b'{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"9"},"ite',
    "a status": b'{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure"}',
    "nothing": b"{}",
    "empty": b"",
    "no version": b'{"kind":"PodList","apiVersion":"v1","metadata":{},"items":[]}',
    "another list": b'{"kind":"NodeList","apiVersion":"v1","metadata":{"resourceVersion":"9"}}',
    "deep": b"[" * 100_000,
    "not utf-8": b'{"kind":"\xff"}',
}


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
async def test_wa20_what_is_no_list_is_no_empty_list(lie: bytes) -> None:
    lab = ApiLab(watch_list=False)
    lab.add("a")
    async with lab.running():
        await lab.names("a")
        get_bytes = lab.client.get_bytes

        async def lying(*_args: Any, **_options: Any) -> bytes:
            await anyio.lowlevel.checkpoint()
            return lie

        lab.client.get_bytes = lying  # type: ignore[method-assign]
        lab.store.end_watches(ApiError(410, "Expired", "old"))
        await anyio.sleep(60)
        assert len(lab.snapshots) == 1
        assert lab.source.trouble.startswith("cannot list pods: the answer is no PodList")
        lab.client.get_bytes = get_bytes  # type: ignore[method-assign]
        lab.add("b")
        await lab.names("a", "b")


async def test_wa20_an_empty_list_is_one_without_pods() -> None:
    """Go writes a list of nothing as null."""
    lab = ApiLab(watch_list=False)

    async def null(*_args: Any, **_options: Any) -> bytes:
        await anyio.lowlevel.checkpoint()
        return b'{"kind":"PodList","metadata":{"resourceVersion":"1000"},"items":null}'

    lab.client.get_bytes = null  # type: ignore[method-assign]
    async with lab.running():
        await lab.names()


@pytest.mark.parametrize(
    "line", [b"{", b"\xff", b"null", b'{"type":"ODD","object":{}}', b'{"type":"ERROR"}']
)
async def test_a_line_that_is_no_event_costs_a_list_and_no_pod(line: bytes) -> None:
    """WA12: what else is in the stream is not known any more."""
    lab = ApiLab()
    lab.add("a")
    async with lab.running():
        await lab.names("a")
        watch = next(iter(lab.store._watches))
        lines = [line]
        watch.next_nowait = lambda: lines.pop() if lines else None  # type: ignore[method-assign]
        watch.wake()
        await anyio.sleep(0.1)
        lab.add("b")
        await lab.names("a", "b")
        assert lab.source.informer.reflector.lists == 2
