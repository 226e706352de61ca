"""Images and pulls (docs/behaviour/images.md)."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.unit.runtime.fakes import (
    IMAGE,
    UID,
    EventLog,
    FakeRuntime,
    make_container,
    make_pod,
    make_settings,
)

from nodeagent.api import Pod
from nodeagent.journal import Journal
from nodeagent.model import ContainerError, PodUID
from nodeagent.proto.runtime import v1
from nodeagent.rpc import Internal, NotFound, Unknown
from nodeagent.runtime import ImageSettings, RuntimeManager
from nodeagent.runtime.metrics import size_bucket

pytestmark = pytest.mark.anyio

NEW = "example.test/new:v1"


def pod_with(image: str = NEW, policy: str = "IfNotPresent", uid: str = UID) -> Pod:
    return make_pod(make_container(image=image, image_pull_policy=policy), uid=uid)


async def sync(
    manager: RuntimeManager, runtime: FakeRuntime, pod: Pod | None = None
) -> ContainerError | None:
    pod = pod or pod_with()
    status = await runtime.status(PodUID(pod.metadata.uid))
    return (await manager.sync_pod(pod, status, {})).errors.get("web")


@pytest.mark.parametrize(
    ("policy", "present", "pulls"),
    [
        ("Always", True, 1),
        ("Always", False, 1),
        ("IfNotPresent", True, 0),
        ("IfNotPresent", False, 1),
        ("Never", True, 0),
    ],
)
async def test_ip3_ip4_ip5_the_policy_decides_whether_to_pull(
    runtime: FakeRuntime, manager: RuntimeManager, policy: str, present: bool, pulls: int
) -> None:
    if present:
        runtime.add_image(NEW)
    assert await sync(manager, runtime, pod_with(policy=policy)) is None
    assert len(runtime.pulled) == pulls
    image = runtime.newest("web").config.image
    assert image == v1.ImageSpec(image=f"sha256:{NEW}", user_specified_image=NEW)


async def test_ip6_an_absent_image_that_is_never_pulled_is_an_error(
    runtime: FakeRuntime, manager: RuntimeManager, events: EventLog
) -> None:
    """events.md, EV44."""
    error = await sync(manager, runtime, pod_with(policy="Never"))
    assert error is not None
    assert error.reason == "ErrImageNeverPull"
    assert error.message == f'Container image "{NEW}" is not present with pull policy of Never'
    assert events.last("ErrImageNeverPull").kind == "Warning"
    assert runtime.pulled == []


@pytest.mark.parametrize(
    ("image", "pulled"),
    [
        ("busybox", "busybox:latest"),
        ("host.test:5000/a/b", "host.test:5000/a/b:latest"),
        ("busybox:1", "busybox:1"),
        (f"busybox@sha256:{'a' * 64}", f"busybox@sha256:{'a' * 64}"),
    ],
)
async def test_ip1_an_image_without_tag_and_digest_is_the_latest(
    runtime: FakeRuntime, manager: RuntimeManager, image: str, pulled: str
) -> None:
    await sync(manager, runtime, pod_with(image))
    assert runtime.pulled == [pulled]


@pytest.mark.parametrize("image", ["Busy/Box:1", "a b", "busybox:", "a" * 64 + "@x"])
async def test_ip2_a_name_that_is_none_is_an_error(
    runtime: FakeRuntime, manager: RuntimeManager, events: EventLog, image: str
) -> None:
    """events.md, EV44."""
    error = await sync(manager, runtime, pod_with(image))
    assert error is not None
    assert error.reason == "InvalidImageName"
    assert "couldn't parse image name" in error.message
    assert events.last("InspectFailed").kind == "Warning"
    assert runtime.pulled == []


async def test_iq1_a_pull_emits_its_events(
    runtime: FakeRuntime, manager: RuntimeManager, events: EventLog
) -> None:
    """events.md, EV40."""
    runtime.pull_seconds = 3.0
    await sync(manager, runtime)
    assert events.reasons[-4:] == ["Pulling", "Pulled", "Created", "Started"]
    assert events.last("Pulling").message == f'Pulling image "{NEW}"'
    # The pull takes three seconds of the loop, and the machine adds what it needs.
    assert re.fullmatch(
        f'Successfully pulled image "{NEW}" in 3[.0-9]*s '
        r"\(3[.0-9]*s including waiting\)\. Image size: 1000 bytes\.",
        events.last("Pulled").message,
    )
    assert events.last("Pulled").field_path == "spec.containers{web}"


async def test_ib1_ib2_a_failed_pull_backs_off_longer_and_longer(
    runtime: FakeRuntime, manager: RuntimeManager, events: EventLog
) -> None:
    runtime.fail("pull_image", Unknown("manifest unknown"), times=7)
    waits: list[float] = []
    for _ in range(7):
        error = await sync(manager, runtime)
        assert error == ContainerError("ErrImagePull", "manifest unknown")
        began = anyio.current_time()
        error = await sync(manager, runtime)
        assert error is not None
        assert error.reason == "ImagePullBackOff"
        assert error.message == (f'Back-off pulling image "{NEW}": ErrImagePull: manifest unknown')
        assert error.until is not None
        waits.append(error.until - began)
        await anyio.sleep(error.until - anyio.current_time())
    assert [round(w) for w in waits] == [10, 20, 40, 80, 160, 300, 300]
    assert await sync(manager, runtime) is None
    assert len(runtime.pulled) == 8
    assert events.last("BackOff").kind == "Normal"
    assert f'Failed to pull image "{NEW}": manifest unknown' in [e.message for e in events.events]


async def test_a_back_off_is_about_one_pod_and_one_image(
    runtime: FakeRuntime, manager: RuntimeManager
) -> None:
    runtime.fail("pull_image", Unknown("manifest unknown"))
    assert await sync(manager, runtime) is not None
    assert await sync(manager, runtime, pod_with(uid="other")) is None


async def test_ib3_a_success_ends_the_back_off(
    runtime: FakeRuntime, manager: RuntimeManager
) -> None:
    runtime.fail("pull_image", Unknown("manifest unknown"))
    await sync(manager, runtime)
    await anyio.sleep(10)
    assert await sync(manager, runtime) is None
    runtime.images.clear()
    runtime.exit("web", 1)
    runtime.fail("pull_image", Unknown("manifest unknown"))
    error = await sync(manager, runtime)
    assert error is not None
    assert error.reason == "ErrImagePull"
    error = await sync(manager, runtime)
    assert error is not None
    assert error.until is not None
    assert round(error.until - anyio.current_time()) == 10


@pytest.mark.parametrize(
    ("word", "words"),
    [
        ("RegistryUnavailable", "the registry is unavailable"),
        ("SignatureValidationFailed", "the signature validation failed"),
    ],
)
async def test_iq2_the_runtime_may_name_the_reason(
    runtime: FakeRuntime, manager: RuntimeManager, events: EventLog, word: str, words: str
) -> None:
    runtime.fail("pull_image", Unknown(f"{word}: more"))
    text = f"image pull failed for {NEW} because {words}: more"
    assert await sync(manager, runtime) == ContainerError(word, text)
    assert f'Failed to pull image "{NEW}": {word}: more' in [e.message for e in events.events]
    error = await sync(manager, runtime)
    assert error is not None
    assert error.message == f'Back-off pulling image "{NEW}": {word}: {text}'


async def test_ip7_an_image_that_cannot_be_inspected_is_an_error(
    runtime: FakeRuntime, manager: RuntimeManager
) -> None:
    runtime.fail("image_status", Internal("broken"))
    error = await sync(manager, runtime)
    assert error is not None
    assert error.reason == "ImageInspectError"
    text = "rpc error: code = Internal desc = broken"
    assert error.message == f'Failed to inspect image "{NEW}": {text}'


async def test_iq2_a_code_that_is_known_is_told(
    runtime: FakeRuntime, manager: RuntimeManager, events: EventLog
) -> None:
    runtime.fail("pull_image", NotFound("no such manifest"))
    error = await sync(manager, runtime)
    text = "rpc error: code = NotFound desc = no such manifest"
    assert error == ContainerError("ErrImagePull", text)
    assert f'Failed to pull image "{NEW}": {text}' in [e.message for e in events.events]


def manager_with(
    runtime: FakeRuntime, root: Path, journal: Journal, **images: Any
) -> RuntimeManager:
    settings = dataclasses.replace(
        make_settings(root),
        images=dataclasses.replace(ImageSettings(), **images),
    )
    return RuntimeManager(runtime, runtime, settings, journal=journal)


async def pull_many(manager: RuntimeManager, runtime: FakeRuntime, count: int) -> list[object]:
    errors: list[object] = []

    async def one(uid: str) -> None:
        error = await sync(manager, runtime, pod_with(f"example.test/{uid}:1", uid=uid))
        errors.append(error and error.message)

    async with anyio.create_task_group() as tasks:
        for number in range(count):
            tasks.start_soon(one, f"u{number}")
    return errors


@pytest.mark.parametrize(
    ("options", "most"),
    [
        ({}, 1),
        ({"serialize_pulls": False}, 5),
        ({"serialize_pulls": False, "max_parallel_pulls": 2}, 2),
    ],
)
async def test_iq3_iq4_pulls_run_side_by_side_only_as_configured(
    runtime: FakeRuntime,
    journal: Journal,
    tmp_path: Path,
    options: dict[str, Any],
    most: int,
) -> None:
    runtime.pull_seconds = 10.0
    manager = manager_with(runtime, tmp_path, journal, **options)
    assert await pull_many(manager, runtime, 5) == [None] * 5
    assert runtime.most_pulls == most


async def test_iq6_pulls_that_come_too_fast_fail_at_once(
    runtime: FakeRuntime, journal: Journal, tmp_path: Path
) -> None:
    manager = manager_with(
        runtime, tmp_path, journal, serialize_pulls=False, pull_qps=0.01, pull_burst=2
    )
    errors = await pull_many(manager, runtime, 3)
    assert sorted(map(str, errors)) == ["None", "None", "pull QPS exceeded"]


async def test_iq5_a_hung_pull_does_not_hold_up_the_others(
    runtime: FakeRuntime, journal: Journal, tmp_path: Path
) -> None:
    manager = manager_with(runtime, tmp_path, journal, pull_patience=60.0)
    runtime.hang("pull_image")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(sync, manager, runtime, pod_with(uid="hung"))
        await anyio.sleep(1)
        runtime.unhang()
        assert await sync(manager, runtime) is None
        tasks.cancel_scope.cancel()


async def test_iq11_a_cancelled_pull_leaves_nothing_behind(
    runtime: FakeRuntime, journal: Journal, tmp_path: Path
) -> None:
    manager = manager_with(runtime, tmp_path, journal)
    runtime.hang("pull_image")
    with anyio.move_on_after(5) as scope:
        await sync(manager, runtime)
    assert scope.cancelled_caught
    runtime.unhang()
    assert await sync(manager, runtime) is None


async def test_ib4_a_missing_image_is_not_held_against_the_container(
    runtime: FakeRuntime, manager: RuntimeManager
) -> None:
    pod = pod_with(IMAGE, "Always")
    await sync(manager, runtime, pod)
    runtime.exit("web", 1)
    runtime.fail("pull_image", Unknown("registry down"), times=2)
    for reason in ("ErrImagePull", "ImagePullBackOff"):
        error = await sync(manager, runtime, pod)
        assert error is not None
        assert error.reason == reason
    await anyio.sleep(10)
    error = await sync(manager, runtime, pod)
    assert error is not None
    assert error.reason == "ErrImagePull"


@pytest.mark.parametrize(
    ("size", "label"),
    [(0, "N/A"), (1, "0-10MB"), (50 * 1024**2, "10MB-100MB"), (10**13, "GT100GB")],
)
def test_sizes_are_counted_in_steps(size: int, label: str) -> None:
    assert size_bucket(size) == label
