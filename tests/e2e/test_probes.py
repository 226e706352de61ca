"""Probes of containers on containerd: exec, HTTP, TCP, gRPC; startup, readiness, liveness."""

import time
from typing import Any

import pytest
from tests.e2e.lab import images
from tests.e2e.lab.agent import Agent
from tests.e2e.lab.containerd_lab import Lab
from tests.e2e.lab.manifests import container, pod, then_wait
from tests.e2e.lab.views import PodView
from tests.e2e.lab.waiting import stays, until

pytestmark = [pytest.mark.realtime, pytest.mark.timeout(240)]


def probe(*command: str, **fields: Any) -> dict[str, Any]:
    """A probe once a second; a command unless ``fields`` name another action."""
    action = {"exec": {"command": list(command)}} if command else {}
    return {"periodSeconds": 1, "timeoutSeconds": 5, "failureThreshold": 2, **action, **fields}


def is_ready(view: PodView) -> bool:
    return view.conditions.get("Ready") == "True"


def is_unready(view: PodView) -> bool:
    return view.phase == "Running" and view.conditions.get("Ready") == "False"


def test_a_failed_liveness_restarts_with_the_probes_grace(lab: Lab, agent: Agent) -> None:
    """The container ignores SIGTERM and its pod would wait for a minute; the probe does not."""
    alive = probe("test", "!", "-e", "/tmp/ill", terminationGracePeriodSeconds=1)
    stubborn = container(
        command=("sh", "-c", "trap '' TERM; while true; do sleep 1; done"), livenessProbe=alive
    )
    agent.put("web", pod("web", stubborn, terminationGracePeriodSeconds=60))
    before = agent.wait_pod("web")
    agent.pod_stays("web", before, seconds=4)
    lab.cri.exec(before.container().id, "touch", "/tmp/ill")
    began = time.monotonic()
    after = agent.wait_pod("web", lambda it: it.running and it.container().restarts == 1)
    assert time.monotonic() - began < 30
    assert after.container().last_exit_code == 137
    agent.wait_journal("web", "Killing", "Container main failed liveness probe, will be restarted")
    agent.wait_journal("web", "Unhealthy", "Liveness probe failed")
    agent.pod_stays("web", after, seconds=4)
    agent.remove("web")


def test_startup_gates_liveness_and_readiness(lab: Lab, agent: Agent) -> None:
    main = container(
        startupProbe=probe("test", "-e", "/tmp/started", failureThreshold=60),
        livenessProbe=probe("touch", "/tmp/alive-was-asked"),
        readinessProbe=probe("touch", "/tmp/ready-was-asked"),
    )
    agent.put("slow", pod("slow", main))
    slow = agent.wait_pod("slow", is_unready, what="up and not ready")
    cid = slow.container().id

    def asked() -> list[str]:
        found = lab.cri.exec(cid, "sh", "-c", "ls /tmp").stdout.split()
        return sorted(name for name in found if name.endswith("asked"))

    stays("nobody else is asked", lambda: asked() == [], seconds=4)
    lab.cri.exec(cid, "touch", "/tmp/started")
    agent.wait_pod("slow")
    until("liveness", lambda: asked() == ["alive-was-asked", "ready-was-asked"])
    agent.pod_stays("slow", slow, seconds=2)


def test_a_container_that_does_not_start_in_time_is_restarted(agent: Agent) -> None:
    main = container(startupProbe=probe("false", failureThreshold=3))
    agent.put("never", pod("never", main))
    never = agent.wait_pod("never", lambda it: it.container().restarts >= 1, what="restarted")
    assert never.conditions["Ready"] == "False"
    agent.wait_journal("never", "Killing", "Container main failed startup probe")


def test_readiness_flips_and_survives_the_agent(lab: Lab, agent: Agent) -> None:
    main = container(readinessProbe=probe("test", "-e", "/tmp/ready", failureThreshold=1))
    agent.put("web", pod("web", main))
    web = agent.wait_pod("web", is_unready, what="up and not ready")
    cid = web.container().id
    assert not web.container().ready
    lab.cri.exec(cid, "touch", "/tmp/ready")
    agent.wait_pod("web", is_ready, what="ready")
    # The result is on disk within five seconds of its change, and at the end.
    assert agent.terminate() == 0
    agent.start()
    agent.wait_pod("web", lambda it: it.phase == "Running", what="adopted")
    stays("ready", lambda: (it := agent.pod("web")) is not None and is_ready(it), seconds=4)
    lab.cri.exec(cid, "rm", "/tmp/ready")
    flipped = agent.wait_pod("web", is_unready, what="not ready again")
    assert flipped.container().restarts == 0
    assert "containers with unready status: [main]" in flipped.why


_SERVERS = """
mkdir -p /www; echo fine >/www/ready
httpd -p 80 -h /www
httpd -f -p 81 & echo $! >/tmp/tcp.pid
grpc-health 82 /tmp/ill &
"""


_ACTIONS: dict[str, tuple[dict[str, Any], str, str, str]] = {
    "exec": (
        {"exec": {"command": ["test", "-e", "/www/ready"]}},
        "rm /www/ready",
        "echo >/www/ready",
        "Readiness probe failed: ",
    ),
    "http": (
        {"httpGet": {"path": "/ready", "port": "web"}},
        "rm /www/ready",
        "echo >/www/ready",
        "HTTP probe failed with statuscode: 404",
    ),
    "tcp": (
        {"tcpSocket": {"port": 81}},
        "kill $(cat /tmp/tcp.pid)",
        "httpd -p 81",
        ":81: connect: connection refused",
    ),
    "grpc": (
        {"grpc": {"port": 82}},
        "touch /tmp/ill",
        "rm /tmp/ill",
        'service unhealthy (responded with \\"NOT_SERVING\\")',
    ),
}


def test_each_action_finds_out(lab: Lab, agent: Agent) -> None:
    for name, (action, _, _, _) in _ACTIONS.items():
        main = container(
            image=images.WITH_GRPC_HEALTH,
            command=then_wait(_SERVERS),
            ports=[{"name": "web", "containerPort": 80}],
            readinessProbe=probe(**action, failureThreshold=1),
        )
        agent.put(name, pod(name, main))
    ids = {name: agent.wait_pod(name).container().id for name in _ACTIONS}
    for name, (_, spoil, _, _) in _ACTIONS.items():
        lab.cri.exec(ids[name], "sh", "-c", spoil)
    for name, (_, _, mend, text) in _ACTIONS.items():
        agent.wait_pod(name, is_unready, what="not ready")
        agent.wait_journal(name, "Unhealthy", text)
        lab.cri.exec(ids[name], "sh", "-c", mend)
    for name in _ACTIONS:
        mended = agent.wait_pod(name, is_ready, what="ready again")
        assert mended.container().restarts == 0


def test_a_sidecar_that_has_not_started_holds_the_rest_back(lab: Lab, agent: Agent) -> None:
    side = {
        **container("side"),
        "restartPolicy": "Always",
        "startupProbe": probe("test", "-e", "/tmp/started", failureThreshold=60),
    }
    agent.put("pair", pod("pair", container("main"), initContainers=[side]))

    def sidecar() -> str:
        running = lab.cri.running("pair-node1")
        assert all(c.metadata is not None and c.metadata.name == "side" for c in running)
        return running[0].id if running else ""

    cid = until("the sidecar", sidecar)
    stays("only the sidecar runs", lambda: bool(sidecar()), seconds=4)
    lab.cri.exec(cid, "touch", "/tmp/started")
    assert agent.wait_pod("pair").container("main").state == "running"


def test_commands_that_hang_or_leave_children_behind_end_in_time(lab: Lab, agent: Agent) -> None:
    ill = [
        container("hangs", readinessProbe=probe("sleep", "1000", timeoutSeconds=1)),
        container(
            "leaves",
            readinessProbe=probe("sh", "-c", "sleep 1000 & exit 0", timeoutSeconds=1),
        ),
        container("floods", readinessProbe=probe("sh", "-c", "yes | head -c 30000000; exit 1")),
    ]
    well = container("well", readinessProbe=probe("test", "-e", "/tmp/ready", failureThreshold=1))
    agent.put("ward", pod("ward", *ill, well, terminationGracePeriodSeconds=1))
    for word in ("sleep 1000", "sleep 1000 & exit 0"):
        agent.wait_journal("ward", "Unhealthy", "command timed out", word)
    ward = agent.wait_pod("ward", lambda it: it.phase == "Running", what="running")
    cid = ward.container("well").id
    lab.cri.exec(cid, "touch", "/tmp/ready")
    agent.wait_pod("ward", lambda it: it.container("well").ready, what="ready", timeout=20)
    lab.cri.exec(cid, "rm", "/tmp/ready")
    agent.wait_pod("ward", lambda it: not it.container("well").ready, what="unready", timeout=20)
