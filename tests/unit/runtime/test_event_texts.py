"""Events of the runtime side, word for word (docs/behaviour/events.md, "Reasons")."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import anyio
import pytest
from tests.unit.runtime.fakes import (
    IMAGE,
    NOT_READY,
    Event,
    EventLog,
    FakeRuntime,
    make_container,
    make_pod,
    make_settings,
)

from nodeagent.api import Pod
from nodeagent.proto.runtime import v1
from nodeagent.rpc import Internal
from nodeagent.rpc import Unknown as UnknownError
from nodeagent.runtime import RuntimeManager

pytestmark = pytest.mark.anyio

WEB = "spec.containers{web}"
NAMES = "web_default(uid-1)"


async def sync(manager: RuntimeManager, runtime: FakeRuntime, pod: Pod | None = None) -> None:
    await manager.sync_pod(pod or make_pod(), await runtime.status(), {})


async def test_ev41_ev45_a_container_is_created_and_started(
    runtime: FakeRuntime, manager: RuntimeManager, events: EventLog
) -> None:
    await sync(manager, runtime)
    assert events.events[1:] == [
        Event(
            "Normal",
            "Pulled",
            f'Container image "{IMAGE}" already present on machine and can be accessed by the pod',
            WEB,
        ),
        Event("Normal", "Created", "Container created", WEB),
        Event("Normal", "Started", "Container started", WEB),
    ]


async def test_ev54_without_cluster_dns_the_pod_and_the_node_say_so(
    runtime: FakeRuntime, manager: RuntimeManager, events: EventLog
) -> None:
    await sync(manager, runtime)
    text = (
        "kubelet does not have ClusterDNS IP configured and cannot create Pod using "
        '"ClusterFirst" policy. Falling back to "Default" policy.'
    )
    assert events.node == [("Warning", "MissingClusterDNS", text)]
    assert events.last("MissingClusterDNS") == Event(
        "Warning", "MissingClusterDNS", f'pod: "{NAMES}". {text}', ""
    )


async def test_ev42_ev43_ev44_a_pull_that_fails_and_the_wait_after_it(
    runtime: FakeRuntime, manager: RuntimeManager, events: EventLog
) -> None:
    runtime.fail("pull_image", UnknownError("manifest unknown"))
    pod = make_pod(make_container(image="x.test/y:1"))
    await sync(manager, runtime, pod)
    assert events.events[1:] == [
        Event("Normal", "Pulling", 'Pulling image "x.test/y:1"', WEB),
        Event("Warning", "Failed", 'Failed to pull image "x.test/y:1": manifest unknown', WEB),
        Event("Warning", "Failed", "Error: ErrImagePull", WEB),
    ]
    await sync(manager, runtime, pod)
    assert events.events[4:] == [
        Event("Normal", "BackOff", 'Back-off pulling image "x.test/y:1"', WEB),
        Event("Warning", "Failed", "Error: ImagePullBackOff", WEB),
    ]


async def test_ev46_why_a_container_does_not_start(
    runtime: FakeRuntime, manager: RuntimeManager, events: EventLog
) -> None:
    runtime.fail("create_container", Internal("no such device"))
    await sync(manager, runtime)
    assert events.last("Failed") == Event("Warning", "Failed", "Error: no such device", WEB)


async def test_ev46_the_id_of_a_container_is_not_news(
    runtime: FakeRuntime, manager: RuntimeManager, events: EventLog
) -> None:
    runtime.fail("start_container", Internal("task c2: no such file"))
    await sync(manager, runtime)
    assert events.last("Failed").message == "Error: task web: no such file"


async def test_ev47_a_container_that_crashes_again_waits(
    runtime: FakeRuntime, manager: RuntimeManager, events: EventLog
) -> None:
    for _ in range(2):
        await sync(manager, runtime)
        runtime.exit("web", 1)
    await anyio.sleep(1)
    await sync(manager, runtime)
    assert events.last("BackOff") == Event(
        "Warning", "BackOff", f"Back-off restarting failed container web in pod {NAMES}", WEB
    )


async def test_ev48_a_container_that_is_stopped(
    runtime: FakeRuntime, manager: RuntimeManager, events: EventLog
) -> None:
    await sync(manager, runtime)
    await manager.kill_pod(make_pod(), await runtime.status(), None)
    assert events.last("Killing") == Event("Normal", "Killing", "Stopping container web", WEB)


async def test_ev48_a_container_in_an_unknown_state(
    runtime: FakeRuntime, manager: RuntimeManager, events: EventLog
) -> None:
    await sync(manager, runtime)
    runtime.newest("web").state = v1.ContainerState.CONTAINER_UNKNOWN
    await sync(manager, runtime)
    text = 'Container is in "unknown" state, try killing it before restart'
    assert events.last("Killing").message == text


async def test_ev49_a_sandbox_that_is_replaced(
    runtime: FakeRuntime, manager: RuntimeManager, events: EventLog
) -> None:
    await sync(manager, runtime)
    runtime.sandboxes["s1"].state = NOT_READY
    await sync(manager, runtime)
    text = "Pod sandbox changed, it will be killed and re-created."
    assert events.last("SandboxChanged") == Event("Normal", "SandboxChanged", text, "")


async def test_ev50_a_sandbox_that_cannot_be_made(
    runtime: FakeRuntime, manager: RuntimeManager, events: EventLog
) -> None:
    runtime.fail("run_pod_sandbox", Internal("no network"))
    await sync(manager, runtime)
    text = "Failed to create pod sandbox: no network"
    assert events.last("FailedCreatePodSandBox") == Event(
        "Warning", "FailedCreatePodSandBox", text, ""
    )


async def test_ev51_a_sandbox_that_cannot_be_looked_at(
    runtime: FakeRuntime, manager: RuntimeManager, events: EventLog
) -> None:
    runtime.fail("pod_sandbox_status", Internal("shim is gone"))
    await sync(manager, runtime)
    text = "Unable to get pod sandbox status: shim is gone"
    assert events.last("FailedPodSandBoxStatus") == Event(
        "Warning", "FailedPodSandBoxStatus", text, ""
    )
    assert "FailedCreatePodSandBox" not in events.reasons


async def test_ev54_what_does_not_fit_into_the_resolver_file(
    runtime: FakeRuntime, events: EventLog, tmp_path: Path
) -> None:
    servers = tuple(f"10.0.0.{n}" for n in range(1, 5))
    settings = dataclasses.replace(make_settings(tmp_path), cluster_dns=servers)
    manager = RuntimeManager(runtime, runtime, settings, events=events)
    await sync(manager, runtime)
    assert events.last("DNSConfigForming") == Event(
        "Warning",
        "DNSConfigForming",
        "Nameserver limits were exceeded, some nameservers have been omitted, "
        "the applied nameserver line is: 10.0.0.1 10.0.0.2 10.0.0.3",
        "",
    )
    assert events.node == []


@pytest.mark.parametrize(
    ("searches", "domain", "text"),
    [
        (["a.test"] * 30, "", ""),
        (
            [f"a{n}.test" for n in range(33)],
            "",
            "Resolv.conf file '{}' contains search line consisting of more than 32 domains!",
        ),
        (
            [f"a{n}.test" for n in range(30)],
            "cluster.local",
            "Resolv.conf file '{}' contains search line consisting of more than 29 domains!",
        ),
        (
            ["a" * 254],
            "",
            'Resolv.conf file "{}" contains a search path which length is more than allowed 253!',
        ),
        (
            [f"{n:0200}" for n in range(12)],
            "",
            (
                "Resolv.conf file '{}' contains search line which length is more than allowed 2048"
                " chars!"
            ),
        ),
    ],
    ids=["good", "many", "many-with-domain", "long", "line"],
)
async def test_ev65_a_resolver_file_that_is_too_large_for_pods(
    runtime: FakeRuntime,
    events: EventLog,
    tmp_path: Path,
    searches: list[str],
    domain: str,
    text: str,
) -> None:
    file = tmp_path / "resolv.conf"
    file.write_text(f"search {' '.join(searches)}\n")
    settings = dataclasses.replace(make_settings(tmp_path), resolv_conf=file, cluster_domain=domain)
    manager = RuntimeManager(runtime, runtime, settings, events=events)
    async with anyio.create_task_group() as tasks:
        await tasks.start(manager.run)
        tasks.cancel_scope.cancel()
    expected = [("Warning", "CheckLimitsForResolvConf", text.format(file))] if text else []
    assert events.node == expected


async def test_ev65_a_resolver_file_that_cannot_be_read(
    runtime: FakeRuntime, events: EventLog, tmp_path: Path
) -> None:
    settings = dataclasses.replace(make_settings(tmp_path), resolv_conf=tmp_path)
    manager = RuntimeManager(runtime, runtime, settings, events=events)
    async with anyio.create_task_group() as tasks:
        await tasks.start(manager.run)
        tasks.cancel_scope.cancel()
    (told,) = events.node
    assert told[:2] == ("Warning", "CheckLimitsForResolvConf")
    assert str(tmp_path) in told[2]
