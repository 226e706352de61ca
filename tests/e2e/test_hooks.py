"""Lifecycle hooks and the end of containers on containerd."""

import signal
import time
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from tests.e2e.lab import images
from tests.e2e.lab.agent import Agent, full_name
from tests.e2e.lab.containerd_lab import Lab
from tests.e2e.lab.diary import Diary, until_told, write
from tests.e2e.lab.manifests import Json, container, pod
from tests.e2e.lab.waiting import until

pytestmark = [pytest.mark.realtime, pytest.mark.timeout(240)]


@pytest.fixture
def diary(tmp_path: Path) -> Diary:
    """Where the containers of a test write."""
    return Diary(tmp_path)


def _exec(script: str) -> Json:
    return {"exec": {"command": ["sh", "-c", script]}}


def _hooked(diary: Diary, **hooks: Json) -> Json:
    return container(command=until_told("main"), lifecycle=hooks, **diary.mount)


def _pod(diary: Diary, *containers: Json, **spec: Any) -> str:
    return pod("web", *containers, volumes=[diary.volume], **spec)


def _gone(lab: Lab, agent: Agent) -> float:
    """Remove the pod and wait until nothing of it runs; returns the seconds that took."""
    began = time.monotonic()
    agent.remove("web")
    until("nothing runs", lambda: not lab.cri.running(full_name("web")), timeout=90)
    return time.monotonic() - began


def test_hooks_run_in_the_container_after_its_start_and_before_its_end(
    lab: Lab, agent: Agent, diary: Diary
) -> None:
    main = _hooked(
        diary,
        postStart=_exec(f"sleep 1; {write('post-start')}"),
        preStop=_exec(f"{write('pre-stop')}; sleep 1; {write('pre-stop-done')}"),
    )
    last = container("last", command=until_told("last"), **diary.mount)
    agent.put("web", _pod(diary, main, last))
    agent.wait_pod("web")
    assert until("three lines", lambda: len(diary.lines()) == 3)
    assert diary.lines() == ["main", "post-start", "last"]
    _gone(lab, agent)
    ends = [line for line in diary.lines()[3:] if line != "stop-last"]
    assert ends == ["pre-stop", "pre-stop-done", "stop-main"]


def test_a_hook_that_fails_after_the_start_kills_the_container_and_shows_why(
    lab: Lab, agent: Agent, diary: Diary
) -> None:
    main = _hooked(diary, postStart=_exec("echo no luck >&2; exit 5"))
    agent.put("web", _pod(diary, main))
    shown = agent.wait_pod(
        "web", lambda it: it.container().reason == "PostStartHookError", what="the hook's error"
    )
    assert "exited with 5: no luck" in shown.container().message
    agent.wait_journal("web", "FailedPostStartHook", "PostStartHook failed")
    later = agent.wait_pod("web", lambda it: it.container().restarts >= 1, what="a restart")
    assert later.container().last_exit_code == 0  # it took its signal well
    assert "stop-main" in diary.lines()


_CGI = r"""#!/bin/sh
        echo "$HTTP_X_WHO $HTTP_USER_AGENT" >>/served/lines
        printf 'Status: 500 No\r\n\r\n'"""


def test_a_container_serves_the_requests_of_its_own_hooks(
    lab: Lab, agent: Agent, tmp_path: Path
) -> None:
    served = tmp_path / "served"
    served.mkdir(mode=0o777)
    served.chmod(0o777)
    serve = f"""
        trap 'exit 0' TERM
        mkdir -p /www/cgi-bin
        cat >/www/cgi-bin/hook <<'END'
        {_CGI}
        END
        chmod +x /www/cgi-bin/hook
        httpd -f -p 8080 -h /www & wait
    """
    ask = {
        "httpGet": {
            "path": "/cgi-bin/hook",
            "port": "web",
            "httpHeaders": [{"name": "X-Who", "value": "me"}],
        }
    }
    main = container(
        command=("sh", "-c", dedent(serve)),
        ports=[{"name": "web", "containerPort": 8080}],
        lifecycle={"preStop": ask},
        volumeMounts=[{"name": "served", "mountPath": "/served"}],
        readinessProbe={"tcpSocket": {"port": "web"}, "periodSeconds": 1},
    )
    volume = {"name": "served", "hostPath": {"path": str(served)}}
    agent.put("web", pod("web", main, volumes=[volume]))
    agent.wait_pod("web")
    _gone(lab, agent)
    (line,) = (served / "lines").read_text().splitlines()
    assert line.startswith("me kube-lifecycle/")


def test_a_hook_that_outlives_the_grace_is_cut_and_the_container_killed(
    lab: Lab, agent: Agent, diary: Diary
) -> None:
    main = _hooked(diary, preStop=_exec(f"{write('pre-stop')}; sleep 1000"))
    agent.put("web", _pod(diary, main, terminationGracePeriodSeconds=4))
    agent.wait_pod("web")
    took = _gone(lab, agent)
    assert 3.5 < took < 30
    agent.wait_journal("web", "FailedPreStopHook", "not completed in grace period of 4s")
    assert diary.lines() == ["main", "pre-stop", "stop-main"]


def test_a_container_that_ends_during_its_hook_does_not_stall_the_stop(
    lab: Lab, agent: Agent, diary: Diary
) -> None:
    main = _hooked(diary, preStop={"sleep": {"seconds": 600}})
    agent.put("web", _pod(diary, main, terminationGracePeriodSeconds=900, restartPolicy="Never"))
    cid = agent.wait_pod("web").container().id
    agent.remove("web")
    agent.wait_journal("web", "Killing")
    lab.cri.process(cid).kill(signal.SIGKILL)
    until("the pod is gone", lambda: not lab.cri.sandboxes(full_name("web")), timeout=60)


def test_who_ignores_the_signal_is_killed_when_the_grace_is_over(lab: Lab, agent: Agent) -> None:
    deaf = container(command=("sh", "-c", "trap '' TERM; while true; do sleep 1; done"))
    agent.put("web", pod("web", deaf, terminationGracePeriodSeconds=3))
    agent.wait_pod("web")
    assert 2.5 < _gone(lab, agent) < 30


def test_the_signal_is_that_of_the_image(lab: Lab, agent: Agent, diary: Diary) -> None:
    script = f"trap '{write('usr1')}; exit 0' USR1; trap '' TERM; sleep 1000000 & wait"
    main = container(image=images.WITH_STOP_SIGNAL, command=("sh", "-c", script), **diary.mount)
    agent.put("web", _pod(diary, main))
    agent.wait_pod("web")
    _gone(lab, agent)
    assert diary.lines() == ["usr1"]


_LAST_WORDS = {
    "own": ("echo no database >/dev/termination-log; exit 3", "File", 3, "no database\n"),
    "own-and-well": ("echo all well >/dev/termination-log", "File", 0, "all well\n"),
    "log": ("echo said; echo more; exit 3", "FallbackToLogsOnError", 3, "said\nmore\n"),
    "log-of-errors": ("echo bad >&2; exit 3", "FallbackToLogsOnError", 3, "bad\n"),
    "log-and-well": ("echo said", "FallbackToLogsOnError", 0, ""),
    "log-not-asked": ("echo said; exit 3", "File", 3, ""),
    "own-before-log": (
        "echo own >/dev/termination-log; echo said; exit 3",
        "FallbackToLogsOnError",
        3,
        "own\n",
    ),
    "long-log": (
        "i=0; while [ $i -lt 200 ]; do echo line-$i; i=$((i+1)); done; exit 1",
        "FallbackToLogsOnError",
        1,
        "".join(f"line-{n}\n" for n in range(120, 200)),
    ),
}


def test_the_last_words_of_a_container_show(agent: Agent) -> None:
    containers = [
        container(name, command=("sh", "-c", script), terminationMessagePolicy=policy)
        for name, (script, policy, _, _) in _LAST_WORDS.items()
    ]
    agent.put("web", pod("web", *containers, restartPolicy="Never"))
    done = agent.wait_pod("web", lambda it: it.phase == "Failed", what="the end of all")
    for name, (_, _, code, message) in _LAST_WORDS.items():
        shown = done.container(name)
        reason = "Error" if code else "Completed"
        assert (shown.exit_code, shown.reason, shown.message) == (code, reason, message), name


def test_last_words_may_be_those_of_a_user_at_a_place_of_its_own(agent: Agent) -> None:
    words = [
        container(
            name,
            command=("sh", "-c", f"printf '%s' {name} >/dev/words-of-{name}; exit 1"),
            terminationMessagePath=f"/dev/words-of-{name}",
            securityContext={"runAsUser": user},
        )
        for name, user in (("user", 10000), ("root", 0))
    ]
    long = container(
        "long",
        command=("sh", "-c", "yes abcdefg | head -c 8000 >/dev/termination-log; exit 1"),
    )
    agent.put("web", pod("web", *words, long, restartPolicy="Never"))
    done = agent.wait_pod("web", lambda it: it.phase == "Failed", what="the end of all")
    assert [done.container(name).message for name in ("user", "root")] == ["user", "root"]
    # The last 4096 bytes, which is a third of the 12 KiB that all messages of the pod may have.
    assert done.container("long").message == "abcdefg\n" * 512


def test_a_container_that_takes_too_much_memory_shows_it(agent: Agent) -> None:
    main = container(
        command=("sh", "-c", "tail /dev/zero"), resources={"limits": {"memory": "16Mi"}}
    )
    agent.put("web", pod("web", main, restartPolicy="Never"))
    done = agent.wait_pod("web", lambda it: it.container().exit_code is not None, what="the end")
    assert done.phase == "Failed"
    assert (done.container().reason, done.container().exit_code) == ("OOMKilled", 137)
