"""containerd's own event service tells the agent what happens to its containers.

docs/behaviour/pleg.md, "Event feeds". The containerd of the laboratory has no CRI events.
"""

import pytest
from tests.e2e.lab.agent import Agent
from tests.e2e.lab.containerd_lab import Lab
from tests.e2e.lab.manifests import pod

pytestmark = [pytest.mark.realtime, pytest.mark.timeout(240)]


def test_an_exit_reaches_the_agent_through_containerds_events(lab: Lab, agent: Agent) -> None:
    agent.put("web", pod("web"))
    before = agent.wait_pod("web")
    lab.cri.process(before.containers["main"].id).kill()
    agent.wait_journal("web", "LookRequested", "/tasks/exit")
    agent.wait_journal("web", "ContainerDied")
    agent.wait_pod("web", lambda view: view.running and view.containers["main"].restarts == 1)
    status, text = agent.healthz("/healthz?verbose")
    assert status == 200
    assert "[+]pleg ok (events from containerd)" in text
