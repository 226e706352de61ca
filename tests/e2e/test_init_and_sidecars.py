"""Init containers and sidecars on containerd: what starts and stops when, and what shows."""

from pathlib import Path
from typing import Any

import pytest
from tests.e2e.lab.agent import Agent, full_name
from tests.e2e.lab.containerd_lab import Lab
from tests.e2e.lab.diary import Diary, once, until_told, write
from tests.e2e.lab.manifests import Json, container, pod
from tests.e2e.lab.waiting import until

pytestmark = [pytest.mark.realtime, pytest.mark.timeout(240)]


@pytest.fixture
def diary(tmp_path: Path) -> Diary:
    """Where the containers of a test write."""
    return Diary(tmp_path)


def _sidecar(name: str, diary: Diary) -> Json:
    return container(name, command=until_told(name), restartPolicy="Always", **diary.mount)


def _pod(diary: Diary, *containers: Json, **spec: Any) -> str:
    return pod("web", *containers, volumes=[diary.volume], **spec)


def test_init_containers_and_sidecars_start_in_order_and_stop_in_reverse(
    lab: Lab, agent: Agent, diary: Diary
) -> None:
    inits = [
        container("one", command=once("one", pause=2), **diary.mount),
        _sidecar("s1", diary),
        container("two", command=once("two"), **diary.mount),
        _sidecar("s2", diary),
    ]
    main = container("main", command=until_told("main"), **diary.mount)
    agent.put("web", _pod(diary, main, initContainers=inits))
    early = agent.wait_pod("web", lambda it: it.init("one").state == "running", what="init")
    assert early.phase == "Pending"
    assert early.conditions["Initialized"] == "False"
    assert early.container("main").reason == "PodInitializing"

    web = agent.wait_pod("web")
    assert web.conditions["Initialized"] == "True"
    for name in ("one", "two"):
        assert (web.init(name).state, web.init(name).reason) == ("terminated", "Completed")
        assert web.init(name).ready
    assert {web.init(name).state for name in ("s1", "s2")} == {"running"}
    assert all(web.init(name).ready for name in ("s1", "s2"))
    one, s1, two, s2 = (web.init(name) for name in ("one", "s1", "two", "s2"))
    moments = [one.started, one.finished, s1.started, two.started, two.finished, s2.started]
    moments.append(web.container("main").started)
    assert all(moments)
    assert moments == sorted(moments)
    assert one.finished > one.started  # it took two seconds
    assert {view.restarts for view in (*web.inits.values(), *web.containers.values())} == {0}
    assert until("five starts", lambda: len(diary.lines()) == 5)
    assert diary.lines() == ["one", "s1", "two", "s2", "main"]
    assert "stdout" not in agent.container_log(web, "one").read_text()

    agent.remove("web")
    agent.wait_gone("web")
    until("nothing runs", lambda: not lab.cri.running(full_name("web")))
    assert diary.lines()[5:] == ["stop-main", "stop-s2", "stop-s1"]


def test_an_init_container_that_fails_is_tried_again(agent: Agent, diary: Diary) -> None:
    script = f"{write('try')}; test $(wc -l </diary/lines) -ge 3"
    inits = [container("one", command=("sh", "-c", script), **diary.mount)]
    agent.put("web", _pod(diary, container(), initContainers=inits))
    agent.wait_pod(
        "web", lambda it: it.init("one").reason == "CrashLoopBackOff", what="CrashLoopBackOff"
    )
    web = agent.wait_pod("web")
    assert web.init("one").restarts == 2
    assert (web.init("one").last_exit_code, web.init("one").last_reason) == (1, "Error")
    assert diary.lines() == ["try"] * 3
    assert agent.container_log(web, "one", attempt=2).exists()


def test_an_init_container_that_fails_for_good_fails_the_pod(
    lab: Lab, agent: Agent, diary: Diary
) -> None:
    inits = [
        _sidecar("side", diary),
        container("bad", command=once("bad", code=7), **diary.mount),
    ]
    main = container("main", command=once("main"), **diary.mount)
    agent.put("web", _pod(diary, main, initContainers=inits, restartPolicy="Never"))
    web = agent.wait_pod("web", lambda it: it.phase == "Failed", what="Failed")
    assert (web.init("bad").exit_code, web.init("bad").reason) == (7, "Error")
    assert web.conditions["Initialized"] == web.conditions["Ready"] == "False"
    assert web.container("main").reason == "PodInitializing"
    until("nothing runs", lambda: not lab.cri.running(full_name("web")))
    assert sorted(diary.lines()) == ["bad", "side", "stop-side"]
    agent.pod_stays("web", web, seconds=3)


@pytest.mark.parametrize(("code", "phase"), [(0, "Succeeded"), (3, "Failed")])
def test_a_job_ends_with_its_regular_containers_and_takes_sidecars_along(
    lab: Lab, agent: Agent, diary: Diary, code: int, phase: str
) -> None:
    main = container("main", command=once("main", code=code, pause=1), **diary.mount)
    side = _sidecar("side", diary)
    agent.put("web", _pod(diary, main, initContainers=[side], restartPolicy="Never"))
    agent.wait_pod("web", lambda it: it.phase == phase, what=phase)
    until("nothing runs", lambda: not lab.cri.running(full_name("web")))
    assert diary.lines() == ["side", "main", "stop-side"]
    done = agent.wait_pod(
        "web", lambda it: it.init("side").state == "terminated", what="the sidecar's end"
    )
    assert (done.container("main").exit_code, done.init("side").exit_code) == (code, 0)
    assert done.container("main").finished <= done.init("side").finished
    assert done.conditions["Ready"] == done.conditions["ContainersReady"] == "False"


def test_a_sidecar_that_ends_is_started_again_and_nothing_else(
    lab: Lab, agent: Agent, diary: Diary
) -> None:
    inits = [_sidecar("side", diary), container("one", command=once("one"), **diary.mount)]
    main = container("main", command=until_told("main"), **diary.mount)
    agent.put("web", _pod(diary, main, initContainers=inits))
    before = agent.wait_pod("web")
    lab.cri.stop_container(before.init("side").id, grace=5)
    after = agent.wait_pod(
        "web",
        lambda it: it.init("side").restarts == 1 and it.init("side").state == "running",
        what="the sidecar again",
    )
    assert after.container() == before.container()
    assert after.init("one") == before.init("one")
    until("five lines", lambda: len(diary.lines()) == 5)
    assert diary.lines() == ["side", "one", "main", "stop-side", "side"]


def test_the_next_container_waits_until_a_sidecar_has_started(agent: Agent, diary: Diary) -> None:
    side = container(
        "side",
        command=("sh", "-c", f"{write('side')}; sleep 3; {write('up')}; touch /up; sleep 1000000"),
        restartPolicy="Always",
        startupProbe={
            "exec": {"command": ["test", "-e", "/up"]},
            "periodSeconds": 1,
            "failureThreshold": 30,
        },
        **diary.mount,
    )
    main = container("main", command=until_told("main"), **diary.mount)
    agent.put("web", _pod(diary, main, initContainers=[side], terminationGracePeriodSeconds=1))
    agent.wait_pod("web")
    assert until("three lines", lambda: len(diary.lines()) == 3)
    assert diary.lines() == ["side", "up", "main"]


def test_one_exit_code_starts_the_whole_pod_again(lab: Lab, agent: Agent, diary: Diary) -> None:
    rule = {"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [42]}}
    script = f"{write('zz')}; test $(grep -c zz /diary/lines) -ge 2 || exit 42; sleep 1000000"
    watcher = container(
        "zz",
        command=("sh", "-c", script),
        restartPolicy="Never",
        restartPolicyRules=[rule],
        **diary.mount,
    )
    main = container("main", command=until_told("main"), **diary.mount)
    inits = [container("one", command=once("one"), **diary.mount)]
    agent.put(
        "web",
        _pod(
            diary,
            main,
            watcher,
            initContainers=inits,
            restartPolicy="Never",
            terminationGracePeriodSeconds=1,
        ),
    )
    agent.wait_journal("web", "RestartAllContainers")
    web = agent.wait_pod("web", lambda it: it.running and it.container("zz").restarts == 1)
    assert (web.init("one").restarts, web.container("main").restarts) == (1, 1)
    assert web.conditions["AllContainersRestarting"] == "False"
    assert web.container("main").started <= web.container("zz").started

    def starts() -> list[str]:
        return [line for line in diary.lines() if line != "stop-main"]

    until("six starts", lambda: len(starts()) == 6)
    # Both of these run when they write, so either may be the first to get to it.
    lives = [starts()[:3], starts()[3:]]
    assert [(first, sorted(others)) for first, *others in lives] == [("one", ["main", "zz"])] * 2
    assert len(lab.cri.sandboxes(full_name("web"))) == 1
