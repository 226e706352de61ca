"""User ids of pods (docs/behaviour/runtime.md, "User namespaces")."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.unit.runtime.fakes import EventLog, FakeRuntime, make_pod, make_settings

from nodeagent.api import Pod
from nodeagent.model import PodUID, SyncError
from nodeagent.proto.runtime import v1
from nodeagent.runtime import RuntimeManager, sub_ids
from nodeagent.runtime.lookups import Lookups
from nodeagent.runtime.sub_ids import parse_ids, pod_ids
from nodeagent.runtime.user_namespaces import UserNamespaces, mapping

pytestmark = pytest.mark.anyio


def own_users(uid: str = "uid-1", **spec: Any) -> Pod:
    return make_pod(uid=uid, host_users=False, **spec)


async def first_of(spaces: UserNamespaces, uid: str) -> int:
    found = await spaces.of(own_users(uid))
    assert found is not None
    (ids,) = found.uids
    assert found.gids == [ids]
    assert (ids.container_id, ids.length) == (0, 65536)
    return ids.host_id


async def test_a_pod_with_the_hosts_users_gets_nothing(tmp_path: Path) -> None:
    spaces = UserNamespaces(tmp_path, 10)
    assert await spaces.of(make_pod()) is None
    assert await spaces.of(make_pod(host_users=True)) is None
    assert list(tmp_path.iterdir()) == []


async def test_ranges_do_not_overlap_and_stay_the_same_over_a_restart(tmp_path: Path) -> None:
    spaces = UserNamespaces(tmp_path, 10)
    assert [await first_of(spaces, uid) for uid in ("a", "b", "a")] == [65536, 131072, 65536]
    again = UserNamespaces(tmp_path, 10)
    assert [await first_of(again, uid) for uid in ("c", "b")] == [196608, 131072]
    ids = [{"hostId": 65536, "containerId": 0, "length": 65536}]
    record = json.loads((tmp_path / "a" / "userns").read_text())
    assert record == {"uidMappings": ids, "gidMappings": ids}


async def test_pods_side_by_side_get_different_ranges(tmp_path: Path) -> None:
    spaces = UserNamespaces(tmp_path, 50)
    found: list[int] = []

    async def ask(uid: str) -> None:
        found.append(await first_of(spaces, uid))

    async with anyio.create_task_group() as tasks:
        for number in range(30):
            tasks.start_soon(ask, f"p{number}")
    assert len(set(found)) == 30


async def test_a_range_is_free_again_when_its_pod_is_forgotten(tmp_path: Path) -> None:
    async def one(pods: int) -> range:
        return parse_ids("0: kubelet 65536 65536\n", pods)

    spaces = UserNamespaces(tmp_path, 1, one)
    assert await first_of(spaces, "a") == 65536
    with pytest.raises(SyncError, match="all 1 ranges of user ids"):
        await spaces.of(own_users("b"))
    spaces.forget_pod(PodUID("a"))
    assert await first_of(spaces, "b") == 65536


async def test_ids_must_be_enough_for_new_pods_when_more_may_come(tmp_path: Path) -> None:
    set_aside = {"text": "0: kubelet 65536 65536\n"}

    async def some(pods: int) -> range:
        return parse_ids(set_aside["text"], pods)

    spaces = UserNamespaces(tmp_path, 1, some)
    assert await first_of(spaces, "a") == 65536
    spaces.resize(2)
    with pytest.raises(SyncError, match="65536 ids are not enough for 2 pods"):
        await spaces.of(own_users("b"))
    assert await first_of(spaces, "a") == 65536
    set_aside["text"] = "0: kubelet 65536 131072\n"
    assert await first_of(spaces, "b") == 131072


async def test_without_ids_set_aside_all_but_the_lowest_are_for_pods(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sub_ids, "USER", "nobody-of-that-name")
    found = await pod_ids(10)
    assert (found[0], found[-1] + 65536, found.step) == (65536, 2**32 - 65536, 65536)


def test_ids_that_are_set_aside_are_taken() -> None:
    found = parse_ids("0: kubelet 131072 196608\n", 3)
    assert list(found) == [131072, 196608, 262144]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "not exactly one range"),
        ("0: kubelet 65536 65536\n1: kubelet 655360 65536\n", "not exactly one range"),
        ("0: other 65536 65536\n", "not exactly one range"),
        ("0: kubelet 65537 65536\n", "65537 and 65536 are not multiples"),
        ("0: kubelet 65536 65537\n", "65536 and 65537 are not multiples"),
        ("0: kubelet 0 131072\n", "0 and 131072 are not multiples"),
        ("0: kubelet 4294901760 131072\n", "4294901760 and 131072 are not multiples"),
        ("0: kubelet 65536 65536\n", "65536 ids are not enough for 2 pods"),
    ],
)
def test_ids_that_are_of_no_use_are_refused(text: str, why: str) -> None:
    with pytest.raises(SyncError, match=why) as caught:
        parse_ids(text, 2)
    assert caught.value.reason == "CreatePodSandboxError"


@pytest.mark.realtime
@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("echo none", "not exactly one range"),
        ("test $1 = -g && exit 3; echo 0: kubelet 65536 131072", "getsubids ended with code 3"),
        (
            'test $1 = -g && echo "0: kubelet 131072 65536" || echo 0: kubelet 65536 65536',
            "not the same",
        ),
        ("echo 0: kubelet 65536 131072", ""),
    ],
)
async def test_the_host_is_asked_for_ids_of_users_and_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, why: str
) -> None:
    program = tmp_path / "getsubids"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setattr(sub_ids, "_program", lambda: str(program))
    if why:
        with pytest.raises(SyncError, match=why):
            await pod_ids(2)
    else:
        assert list(await pod_ids(2)) == [65536, 131072]


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"uidMappings": [{"hostId": 7}]}', "\0"])
async def test_a_damaged_record_is_ignored(tmp_path: Path, text: str) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "userns").write_text(text)
    assert await first_of(UserNamespaces(tmp_path, 10), "b") == 65536


async def test_a_record_that_cannot_be_written_fails_the_sandbox(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SyncError, match="cannot be recorded"):
        await UserNamespaces(tmp_path / "file", 10).of(own_users())


def manager_with(
    runtime: FakeRuntime, root: Path, handlers: list[v1.RuntimeHandler], events: EventLog
) -> RuntimeManager:
    async def describe() -> v1.StatusResponse:
        return v1.StatusResponse(runtime_handlers=handlers)

    lookups = Lookups(describe=describe)
    return RuntimeManager(runtime, runtime, make_settings(root), events=events, lookups=lookups)


CAN = v1.RuntimeHandler(features=v1.RuntimeHandlerFeatures(user_namespaces=True))


async def test_sandbox_containers_and_mounts_have_the_pods_ids(
    runtime: FakeRuntime, tmp_path: Path, events: EventLog
) -> None:
    manager = manager_with(runtime, tmp_path, [CAN], events)
    assert (await manager.sync_pod(own_users(), await runtime.status(), {})).error() is None
    (sandbox,) = runtime.sandboxes.values()
    config = runtime.newest("web").config
    assert sandbox.config.linux is not None
    assert config.linux is not None
    for context in (sandbox.config.linux.security_context, config.linux.security_context):
        assert context is not None
        assert context.namespace_options is not None
        assert context.namespace_options.userns_options == mapping(65536)
    assert config.mounts
    assert all(m.uid_mappings == mapping(65536).uids for m in config.mounts)


@pytest.mark.parametrize(
    "handlers",
    [
        [],
        [v1.RuntimeHandler()],
        [v1.RuntimeHandler(features=v1.RuntimeHandlerFeatures())],
        [v1.RuntimeHandler(name="other", features=CAN.features)],
    ],
)
async def test_a_runtime_that_cannot_do_it_is_not_asked_to(
    runtime: FakeRuntime, tmp_path: Path, events: EventLog, handlers: list[v1.RuntimeHandler]
) -> None:
    manager = manager_with(runtime, tmp_path, handlers, events)
    result = await manager.sync_pod(own_users(), await runtime.status(), {})
    assert result.sandbox_error is not None
    assert "does not say that it can do user namespaces" in str(result.sandbox_error)
    assert "FailedCreatePodSandBox" in events.reasons
    assert not runtime.sandboxes
