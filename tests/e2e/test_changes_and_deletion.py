"""Editing and deleting manifests of running pods."""

from pathlib import Path

import pytest
from tests.e2e.lab import images
from tests.e2e.lab.agent import Agent, full_name
from tests.e2e.lab.containerd_lab import Lab
from tests.e2e.lab.manifests import container, pod
from tests.e2e.lab.views import PodView
from tests.e2e.lab.waiting import until

pytestmark = [pytest.mark.realtime, pytest.mark.timeout(240)]


def _image_version(lab: Lab, view: PodView) -> str:
    return lab.cri.exec(view.container().id, "cat", "/etc/image-version").stdout.strip()


def test_a_new_image_replaces_the_pod(lab: Lab, agent: Agent) -> None:
    agent.put("web", pod("web", container(image=images.BUSYBOX)))
    before = agent.wait_pod("web")
    assert _image_version(lab, before) == "1"
    agent.put("web", pod("web", container(image=images.BUSYBOX_2)))
    after = agent.wait_pod(
        "web", lambda it: it.running and it.container().id != before.container().id, what="new"
    )
    assert _image_version(lab, after) == "2"
    assert after.uid != before.uid
    assert [item.id for item in lab.cri.running(full_name("web"))] == [after.container().id]


def test_a_new_image_restarts_only_its_container_when_the_uid_is_fixed(
    lab: Lab, agent: Agent
) -> None:
    other = container("other")
    agent.put("web", pod("web", container(image=images.BUSYBOX), other, uid="fixed-uid"))
    before = agent.wait_pod("web")
    agent.put("web", pod("web", container(image=images.BUSYBOX_2), other, uid="fixed-uid"))
    after = agent.wait_pod(
        "web", lambda it: it.running and it.container().id != before.container().id, what="new"
    )
    assert _image_version(lab, after) == "2"
    assert after.uid == before.uid == "fixed-uid"
    assert after.container().restarts == 1
    assert after.container("other").id == before.container("other").id
    assert len(lab.cri.sandboxes(full_name("web"))) == 1


def test_a_container_gets_its_grace_period_to_finish(
    lab: Lab, agent: Agent, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    polite = "trap 'sleep 3; echo finished >/out/how; exit 0' TERM; sleep 1000000 & wait"
    agent.put("web", _pod_with_out(out, polite, grace=60))
    agent.wait_pod("web")
    agent.remove("web")
    _wait_stopped(lab, "web")
    assert (out / "how").read_text() == "finished\n"


def test_a_container_that_ignores_the_request_is_killed_after_its_grace_period(
    lab: Lab, agent: Agent, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    stubborn = "trap 'date +%s >/out/asked' TERM; while :; do date +%s >/out/alive; sleep 0.1; done"
    agent.put("web", _pod_with_out(out, stubborn, grace=4))
    agent.wait_pod("web")
    agent.remove("web")
    _wait_stopped(lab, "web")
    asked, alive = (int((out / name).read_text()) for name in ("asked", "alive"))
    assert alive - asked >= 3  # whole seconds of a four-second period


def _wait_stopped(lab: Lab, name: str) -> None:
    """The agent stops listing a pod with its manifest; the runtime knows when it has stopped."""
    until(f"the end of {name}", lambda: not lab.cri.running(full_name(name)), timeout=60)


def _pod_with_out(out: Path, script: str, grace: int) -> str:
    main = container(
        command=("sh", "-c", script), volumeMounts=[{"name": "out", "mountPath": "/out"}]
    )
    volumes = [{"name": "out", "hostPath": {"path": str(out)}}]
    return pod("web", main, volumes=volumes, terminationGracePeriodSeconds=grace)


def test_nothing_of_a_deleted_pod_is_left(lab: Lab, agent: Agent) -> None:
    agent.put("web", pod("web"))
    agent.put("stays", pod("stays"))
    web, other = agent.wait_pod("web"), agent.wait_pod("stays")
    agent.remove("web")
    agent.wait_gone("web")
    pod_dir, log_dir = agent.root_dir / "pods" / web.uid, agent.container_log(web).parent.parent
    until("no sandbox left", lambda: not lab.cri.sandboxes(full_name("web")), timeout=150)
    until("no container left", lambda: not lab.cri.containers(full_name("web")), timeout=150)
    until("no pod directory left", lambda: not pod_dir.exists(), timeout=150)
    until("no log directory left", lambda: not log_dir.exists(), timeout=150)
    agent.pod_stays("stays", other, seconds=1)
