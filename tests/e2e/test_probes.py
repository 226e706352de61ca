"""Probes of containers on containerd: exec, HTTP, TCP, gRPC; startup, readiness, liveness."""

import time
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.lab import images
from tests.e2e.lab.agent import Agent
from tests.e2e.lab.containerd_lab import Lab
from tests.e2e.lab.diary import Diary, until_told, write
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
        about = f'namespace="default",pod="{name}-node1",pod_uid="{mended.uid}"'
        for result in ("successful", "failed"):
            count = f'prober_probe_total{{container="main",{about},probe_type="Readiness"'
            assert f'{count},result="{result}"}}' in agent.ask("/metrics"), (name, result)


#: A server whose answers are made by scripts, each named after what it does.
_SITE = r"""
mkdir -p /www/cgi-bin; cd /www/cgi-bin
page() { printf '#!/bin/sh\n' >$1; cat >>$1; chmod +x $1; }
page asked <<'END'
if [ "$HTTP_X_WHO" = me ] && [ "$HTTP_HOST" = site.test ] && [ "$QUERY_STRING" = a=b%20c ] \
  && [ "$HTTP_USER_AGENT" = kube-probe/1.36 ] && [ "$HTTP_ACCEPT" = '*/*' ]; then
  printf 'Status: 204 No Content\r\n\r\n'
else
  printf 'Status: 500 Not what was expected\r\n\r\n'; env
fi
END
page here <<'END'
printf 'Status: 302 Found\r\nLocation: /cgi-bin/asked?a=b%%20c\r\n\r\n'
END
page away <<'END'
printf 'Status: 302 Found\r\nLocation: http://elsewhere.test/\r\n\r\ngone away'
END
page round <<'END'
printf 'Status: 302 Found\r\nLocation: /cgi-bin/round\r\n\r\n'
END
page stalls <<'END'
sleep 30
END
page floods <<'END'
printf 'Status: 200 OK\r\n\r\n'; exec yes
END
httpd -p 80 -h /www
"""

#: Path, further fields, and what is said about an answer that is not good or not only good.
_ANSWERS: dict[str, tuple[str, dict[str, Any], str]] = {
    "asked": ("/cgi-bin/asked?a=b%20c", {}, ""),
    "here": ("/cgi-bin/here", {}, ""),
    "away": ("/cgi-bin/away", {}, "Readiness probe warning: Probe terminated redirects"),
    "floods": ("/cgi-bin/floods", {}, ""),
    "round": ("/cgi-bin/round", {}, "stopped after 10 redirects"),
    "stalls": ("/cgi-bin/stalls", {}, "context deadline exceeded"),
    "nothing": ("/nothing", {}, "HTTP probe failed with statuscode: 404"),
    "tls": ("/", {"scheme": "HTTPS"}, "server gave HTTP response to HTTPS client"),
}
_GOOD = {"asked", "here", "away", "floods"}


def test_what_http_servers_answer(agent: Agent) -> None:
    """All containers of the pod share its address, so one server answers for all of them."""
    headers = [{"name": "X-Who", "value": "me"}, {"name": "Host", "value": "site.test"}]
    asking = [
        container(
            name,
            readinessProbe=probe(
                httpGet={"path": path, "port": 80, "httpHeaders": headers, **more},
                timeoutSeconds=2,
                failureThreshold=1,
            ),
        )
        for name, (path, more, _) in _ANSWERS.items()
    ]
    server = container("server", command=then_wait(_SITE))
    agent.put("site", pod("site", server, *asking, terminationGracePeriodSeconds=1))
    for name, (_, _, text) in _ANSWERS.items():
        if text:
            reason = "ProbeWarning" if name in _GOOD else "Unhealthy"
            agent.wait_journal("site", reason, f"{{{name}}}", text)
    site = agent.wait_pod(
        "site", lambda it: all(it.container(name).ready for name in _GOOD), what="ready"
    )
    assert {name for name in _ANSWERS if site.container(name).ready} == _GOOD
    assert all(view.restarts == 0 for view in site.containers.values())
    assert site.conditions["Ready"] == "False"


def test_a_pod_that_ends_is_asked_only_whether_it_is_ready(
    lab: Lab, agent: Agent, tmp_path: Path
) -> None:
    """Its hook makes it ill, and a liveness that still counted would end it before its time."""
    diary = Diary(tmp_path)
    ill = f"touch /tmp/ill; {write('hook')}; sleep 6; {write('hook-done')}"
    main = container(
        command=until_told("main"),
        livenessProbe=probe(
            "sh", "-c", f"{write('alive')}; test ! -e /tmp/ill", failureThreshold=1
        ),
        readinessProbe=probe("sh", "-c", f"{write('ready')}; test ! -e /tmp/ill"),
        lifecycle={"preStop": {"exec": {"command": ["sh", "-c", ill]}}},
        **diary.mount,
    )
    agent.put("web", pod("web", main, volumes=[diary.volume]))
    agent.wait_pod("web")
    until("liveness", lambda: diary.lines().count("alive") >= 2)
    agent.remove("web")
    until("the end", lambda: "stop-main" in diary.lines())
    lines = diary.lines()
    during = lines[lines.index("hook") : lines.index("hook-done")]
    assert "ready" in during
    # One may have been under way as the pod was told to end.
    assert during.count("alive") <= 1
    agent.wait_gone("web")
    assert "failed liveness probe" not in agent.ask("/debug/journal?pod=default/web-node1")


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
