"""Pods outlive the agent; what it finds after a start is adopted, not made again."""

import signal

import pytest
from tests.e2e.lab.agent import Agent, full_name
from tests.e2e.lab.containerd_lab import Lab
from tests.e2e.lab.manifests import container, pod
from tests.e2e.lab.waiting import stays, until

from nodeagent.proto.runtime import v1 as pb

pytestmark = [pytest.mark.realtime, pytest.mark.timeout(240)]


_READY = pb.PodSandboxState.SANDBOX_READY


def _running_ids(lab: Lab, name: str) -> set[str]:
    return {item.id for item in lab.cri.running(full_name(name))}


def test_a_killed_agent_finds_its_pods_again(lab: Lab, agent: Agent) -> None:
    agent.put("web", pod("web", container("main"), container("other")))
    first = agent.wait_pod("web")
    lab.cri.process(first.container().id).kill(signal.SIGKILL)
    before = agent.wait_pod(
        "web", lambda it: it.running and it.container().restarts == 1, what="restarted"
    )
    agent.kill9()
    assert _running_ids(lab, "web") == {view.id for view in before.containers.values()}
    agent.start()
    agent.wait_pod("web")
    agent.pod_stays("web", before)
    assert _running_ids(lab, "web") == {view.id for view in before.containers.values()}
    assert len(lab.cri.sandboxes(full_name("web"))) == 1


def test_a_death_while_the_agent_is_away_is_noticed_and_counted(lab: Lab, agent: Agent) -> None:
    agent.put("web", pod("web"))
    before = agent.wait_pod("web")
    agent.kill9()
    lab.cri.process(before.container().id).kill(signal.SIGKILL)
    until("the death", lambda: not _running_ids(lab, "web"))
    agent.start()
    after = agent.wait_pod("web", lambda it: it.running and it.container().restarts == 1)
    assert after.uid == before.uid


def test_a_manifest_removed_while_the_agent_is_away_stops_its_pod(lab: Lab, agent: Agent) -> None:
    agent.put("web", pod("web"))
    agent.put("stays", pod("stays"))
    agent.wait_pod("web")
    other = agent.wait_pod("stays")
    agent.kill9()
    agent.remove("web")
    agent.start()
    until("the end of the pod", lambda: not _running_ids(lab, "web"), timeout=60)
    agent.wait_pod("stays")
    agent.pod_stays("stays", other, seconds=2)


def test_sigterm_ends_the_agent_and_leaves_pods_running(lab: Lab, agent: Agent) -> None:
    agent.put("web", pod("web"))
    before = agent.wait_pod("web")
    assert agent.terminate() == 0
    assert _running_ids(lab, "web") == {before.container().id}
    agent.start()
    agent.wait_pod("web")
    agent.pod_stays("web", before, seconds=2)


def test_pods_stop_with_the_agent_when_asked_to(lab: Lab, agent: Agent) -> None:
    agent.kill9()
    agent.start("--stop-pods-on-exit")
    agent.put("web", pod("web"))
    agent.put("more", pod("more"))
    agent.wait_pod("web")
    agent.wait_pod("more")
    assert agent.terminate(timeout=60) == 0
    assert lab.cri.running() == []


def test_a_restart_of_containerd_disturbs_no_pod(lab: Lab, agent: Agent) -> None:
    agent.put("web", pod("web"))
    before = agent.wait_pod("web")
    lab.containerd.stop()
    lab.containerd.start()
    until("CRI", lab.cri.ready)
    agent.pod_stays("web", before, seconds=3)
    lab.cri.process(before.container().id).kill(signal.SIGKILL)
    agent.wait_pod("web", lambda it: it.running and it.container().restarts == 1, what="restarted")


def test_an_agent_killed_while_it_starts_pods_makes_nothing_twice(lab: Lab, agent: Agent) -> None:
    names = [f"pod-{number}" for number in range(8)]
    for name in names:
        agent.put(name, pod(name))
    for seen in (1, 4, 8):  # strike while there are sandboxes, and containers, half made
        until(f"{seen} sandboxes or containers", lambda: _things(lab) >= seen)  # noqa: B023
        agent.restart()
    for name in names:
        agent.wait_pod(name)
    # A start that was cut off may have been given up by containerd and done again, but never
    # does a second container run, also not a moment later.
    stays("one of each", lambda: all(_is_single(lab, name) for name in names), seconds=3)


def _is_single(lab: Lab, name: str) -> bool:
    ready = [it for it in lab.cri.sandboxes(full_name(name)) if it.state == _READY]
    return len(ready) == 1 and len(_running_ids(lab, name)) == 1


def _things(lab: Lab) -> int:
    return len(lab.cri.sandboxes()) + len(lab.cri.containers())


def test_many_pods_start_and_stop_together(lab: Lab, agent: Agent) -> None:
    names = [f"pod-{number}" for number in range(20)]
    agent.put("many", "---\n".join(pod(name, container("a"), container("b")) for name in names))
    for name in names:
        agent.wait_pod(name)
    assert len(lab.cri.running()) == 40
    addresses = {view.pod_ip for view in agent.pods()}
    assert len(addresses) == 20
    agent.remove("many")
    until("all stopped", lambda: not lab.cri.running(), timeout=90)
