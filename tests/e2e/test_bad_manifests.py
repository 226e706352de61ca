"""Bad input gets a verdict and disturbs nothing that runs."""

import subprocess
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.lab.agent import Agent, full_name
from tests.e2e.lab.containerd_lab import Lab
from tests.e2e.lab.manifests import container, pod
from tests.e2e.lab.views import PodView

pytestmark = [pytest.mark.realtime, pytest.mark.timeout(240)]

_BROKEN = {
    "half": ("apiVersion: v1\nkind: Pod\nmetadata: {name: half\n", "half.yaml"),
    "no-image": (pod("no-image", {"name": "main"}), "spec.containers[0].image"),
    "wrong-type": (pod("wrong-type", hostNetwork="maybe"), "spec.hostNetwork"),
}


def test_a_bad_edit_keeps_the_pod_and_names_what_is_wrong(agent: Agent) -> None:
    for name in _BROKEN:
        agent.put(name, pod(name))
    before = {name: agent.wait_pod(name) for name in _BROKEN}
    for name, (text, named) in _BROKEN.items():
        agent.put(name, text)
        agent.wait_log(f"{name}.yaml", named)
    for name in _BROKEN:
        agent.pod_stays(name, before[name], seconds=1)


def test_a_bad_edit_keeps_the_pod_also_over_a_restart_of_the_agent(lab: Lab, agent: Agent) -> None:
    agent.put("web", pod("web"))
    before = agent.wait_pod("web")
    agent.put("web", pod("web", {"name": "main"}))
    agent.wait_log("web.yaml", "spec.containers[0].image")
    agent.restart()
    agent.wait_pod("web")
    agent.pod_stays("web", before)
    assert [item.id for item in lab.cri.running(full_name("web"))] == [before.container().id]


def test_a_corrected_edit_takes_effect(agent: Agent) -> None:
    agent.put("web", pod("web"))
    before = agent.wait_pod("web")
    agent.put("web", "kind: Pod\nthis is: [not yaml\n")
    agent.wait_log("web.yaml")
    agent.put("web", pod("web", container(env=[{"name": "NEW", "value": "1"}])))
    agent.wait_pod("web", lambda it: it.running and it.uid != before.uid, what="the new pod")


def test_one_bad_document_does_not_hold_the_others_back(agent: Agent) -> None:
    agent.put("three", "---\n".join([pod("first"), pod("bad", {"name": "x"}), pod("last")]))
    agent.wait_pod("first")
    agent.wait_pod("last")
    assert agent.pod("bad") is None


_UNSUPPORTED: dict[str, dict[str, Any]] = {
    "flocker": {"volumes": [{"name": "v", "flocker": {"datasetName": "d"}}]},
    "quobyte": {"volumes": [{"name": "v", "quobyte": {"registry": "r:1", "volume": "q"}}]},
}


def test_a_pod_with_an_unsupported_field_waits_and_names_the_field(lab: Lab, agent: Agent) -> None:
    for field, spec in _UNSUPPORTED.items():
        agent.put(field, pod(field, **spec))
    for field in _UNSUPPORTED:
        held = agent.wait_pod(field, lambda it: it.phase == "Pending", what="Pending")
        agent.wait_pod(field, partial(_names, field), what="held for that")
        agent.pod_stays(field, held, seconds=1)
        assert lab.cri.sandboxes(full_name(field)) == []


def _names(field: str, view: PodView) -> bool:
    return field in view.container().message.lower()


def test_what_is_mounted_over_the_manifests_is_seen_and_watched(
    agent: Agent, tmp_path: Path
) -> None:
    agent.put("web", pod("web"))
    before = agent.wait_pod("web")
    over = tmp_path / "over"
    over.mkdir()
    (over / "web.yaml").write_text(pod("web"))
    subprocess.run(["mount", "--bind", str(over), str(agent.manifests)], check=True)
    try:
        (over / "db.yaml").write_text(pod("db"))
        agent.wait_pod("db")
        agent.pod_stays("web", before)
        (over / "db.yaml").unlink()
        agent.wait_gone("db")
    finally:
        subprocess.run(["umount", str(agent.manifests)], check=True)
    agent.pod_stays("web", before)
