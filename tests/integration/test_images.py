"""Images in the whole ring: what pods show while they wait for one, and what is remembered."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from ring import Ring, agent_on, phase, simulated

from nodeagent.agent import NodeAgent
from nodeagent.api import LocalObjectReference, Pod
from nodeagent.config import AgentConfig
from nodeagent.embedded import SimulatedBackend
from nodeagent.embedded.fault_rules import Fail, Fault, Hang
from nodeagent.errors import StartError
from nodeagent.rpc import Code
from nodeagent.testing import FaultPlan, MemorySource, make_container, make_pod

pytestmark = pytest.mark.anyio

SLOW = "registry.test/slow:1"
FINE = "registry.test/fine:1"


@asynccontextmanager
async def node(
    tmp_path: Path, *pods: Pod, plan: FaultPlan | None = None, **settings: Any
) -> AsyncIterator[Ring]:
    async with (
        simulated(tmp_path, SimulatedBackend(), hooks=plan or FaultPlan()) as (runtime, endpoint),
        agent_on(runtime, endpoint, tmp_path, MemorySource(*pods), **settings) as ring,
    ):
        yield ring


def pod(name: str, image: str, policy: str = "IfNotPresent", **spec: Any) -> Pod:
    return make_pod(name, make_container(image=image, image_pull_policy=policy), **spec)


def waiting(ring: Ring, name: str) -> tuple[str, str]:
    shown = ring.pod(name)
    if shown is None or not shown.status.container_statuses:
        return "", ""
    state = shown.status.container_statuses[0].state.waiting
    return (state.reason, state.message) if state is not None else ("", "")


async def test_pods_behind_a_stalled_pull_say_what_they_wait_for(tmp_path: Path) -> None:
    plan = FaultPlan()
    stall = plan.add(Fault("PullImage", Hang(), image=SLOW))
    async with node(tmp_path, pod("slow", SLOW), plan=plan) as ring:
        await ring.until(lambda: stall.waiting)
        ring.source.add(pod("next", FINE))
        await ring.until(lambda: waiting(ring, "next")[1])
        reason, message = waiting(ring, "next")
        assert reason == "ContainerCreating"
        assert message.startswith("waiting since ")
        assert f'"{SLOW}" of pod default/slow has been pulled since' in message
        assert f'pulling image "{SLOW}" since' in waiting(ring, "slow")[1]
        # It gives its turn up in time, and the others go on.
        await ring.running("next")
        assert phase(ring.pod("slow")) == "Pending"
        what = [r.what for r in ring.agent.journal.select("default/slow")]
        assert what.count("ImagePullProgress") >= 3
        stall.release()
        await ring.running("slow")
        assert waiting(ring, "slow") == ("", "")


async def test_a_refused_pull_backs_off_with_its_cause_and_goes_on_by_itself(
    tmp_path: Path,
) -> None:
    plan = FaultPlan()
    refusal = plan.add(
        Fault("PullImage", Fail(Code.UNKNOWN, "toomanyrequests: slow down"), image=FINE)
    )
    async with node(tmp_path, pod("web", FINE), plan=plan) as ring:
        await ring.until(lambda: waiting(ring, "web")[0] == "ErrImagePull")
        assert waiting(ring, "web")[1] == "toomanyrequests: slow down"
        await ring.until(lambda: waiting(ring, "web")[0] == "ImagePullBackOff")
        assert waiting(ring, "web")[1] == (
            f'Back-off pulling image "{FINE}": ErrImagePull: toomanyrequests: slow down'
        )
        await ring.until(lambda: refusal.fired >= 3)
        refusal.remove()
        await ring.running("web")
        assert ring.status("web").restart_count == 0


async def test_what_was_pulled_is_remembered_on_disk(tmp_path: Path) -> None:
    async with node(tmp_path, pod("web", FINE)) as ring:
        await ring.running("web")
        records = tmp_path / "root" / "image_manager"
        (path,) = (records / "pulled").iterdir()
        content = json.loads(path.read_bytes())
        assert content["credentialMapping"] == {"registry.test/fine": {"nodePodsAccessible": True}}
        assert list((records / "pulling").iterdir()) == []


async def test_a_pod_with_a_pull_secret_that_is_not_there_says_so_and_runs(
    tmp_path: Path,
) -> None:
    wanted = pod("web", FINE, image_pull_secrets=(LocalObjectReference(name="gone"),))
    async with node(tmp_path, wanted) as ring:
        await ring.running("web")
        told = [r for r in ring.agent.journal.select("default/web") if r.component == "event"]
        assert "FailedToRetrieveImagePullSecret" in [r.what for r in told]


@pytest.mark.realtime
async def test_a_credential_provider_is_asked_for_its_images(tmp_path: Path) -> None:
    bin_dir, asked = tmp_path / "bin", tmp_path / "asked"
    bin_dir.mkdir()
    answer = {
        "apiVersion": "credentialprovider.kubelet.k8s.io/v1",
        "kind": "CredentialProviderResponse",
        "cacheKeyType": "Registry",
        "auth": {"registry.test": {"username": "u", "password": "p"}},
    }
    (bin_dir / "keys").write_text(f"#!/bin/sh\ncat > {asked}\necho '{json.dumps(answer)}'\n")
    (bin_dir / "keys").chmod(0o755)
    async with node(
        tmp_path,
        pod("web", FINE),
        image_credential_provider_config=provider_config(tmp_path),
        image_credential_provider_bin_dir=bin_dir,
    ) as ring:
        await ring.running("web")
        assert json.loads(asked.read_bytes())["image"] == "registry.test/fine"


def provider_config(directory: Path) -> Path:
    path = directory / "providers.yaml"
    path.write_text(
        "apiVersion: kubelet.config.k8s.io/v1\n"
        "kind: CredentialProviderConfig\n"
        "providers:\n"
        "- name: keys\n"
        "  apiVersion: credentialprovider.kubelet.k8s.io/v1\n"
        "  matchImages: ['registry.test']\n"
        "  defaultCacheDuration: 1h\n"
    )
    return path


async def test_a_credential_provider_that_is_not_there_keeps_the_agent_from_starting(
    tmp_path: Path,
) -> None:
    (tmp_path / "bin").mkdir()
    async with simulated(tmp_path) as (_, endpoint):
        config = AgentConfig(
            container_runtime_endpoint=endpoint,
            root_dir=tmp_path / "root",
            pod_logs_dir=tmp_path / "logs",
            image_credential_provider_config=provider_config(tmp_path),
            image_credential_provider_bin_dir=tmp_path / "bin",
        )
        with pytest.raises(StartError, match="the credential provider keys has no program"):
            async with NodeAgent(config):
                pass


async def test_a_container_that_was_stopped_for_a_new_image_does_not_run_meanwhile(
    tmp_path: Path,
) -> None:
    plan = FaultPlan()
    stall = plan.add(Fault("PullImage", Hang(), image=SLOW))
    async with node(tmp_path, pod("web", FINE), plan=plan) as ring:
        await ring.running("web")
        ring.source.add(pod("web", SLOW))
        await ring.until(lambda: stall.waiting)
        await ring.until(lambda: f'pulling image "{SLOW}" since' in waiting(ring, "web")[1], 30)
        shown = ring.pod("web")
        assert shown is not None
        (status,) = shown.status.container_statuses
        assert not status.ready
        assert status.last_state.terminated is not None
        stall.release()
        await ring.until(lambda: ring.status("web").state.running is not None)
