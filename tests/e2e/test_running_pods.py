"""A manifest becomes running containers on containerd: start, exec, logs, restart."""

import re
import signal
from pathlib import Path

import pytest
from tests.e2e.lab import images
from tests.e2e.lab.agent import Agent, full_name
from tests.e2e.lab.containerd_lab import Lab
from tests.e2e.lab.manifests import container, pod, then_wait
from tests.e2e.lab.waiting import until

pytestmark = [pytest.mark.realtime, pytest.mark.timeout(240)]


def test_a_manifest_becomes_a_running_pod(lab: Lab, agent: Agent) -> None:
    agent.put("web", pod("web", container("one"), container("two")))
    web = agent.wait_pod("web")
    assert set(web.containers) == {"one", "two"}
    running = {item.id for item in lab.cri.running(full_name("web"))}
    assert running == {view.id for view in web.containers.values()}
    (sandbox,) = lab.cri.sandboxes(full_name("web"))
    assert web.pod_ip == lab.cri.pod_ip(sandbox.id) != ""
    assert web.conditions["Ready"] == "True"


def test_all_documents_of_a_file_run(agent: Agent) -> None:
    agent.put("both", f"{pod('first')}---\n{pod('second')}")
    agent.wait_pod("first")
    agent.wait_pod("second")


def test_exec_finds_command_args_environment_and_directory_as_the_manifest_says(
    lab: Lab, agent: Agent
) -> None:
    main = container(
        command=("sh", "-c"),
        args=['echo "$GREETING" >/tmp/said; sleep 1000000'],
        env=[{"name": "WHO", "value": "world"}, {"name": "GREETING", "value": "hello $(WHO)"}],
        workingDir="/srv/work",
    )
    agent.put("web", pod("web", main, terminationGracePeriodSeconds=1))
    cid = agent.wait_pod("web").container().id
    said = until("what it said", lambda: lab.cri.exec(cid, "cat", "/tmp/said").stdout)
    assert said == "hello world\n"
    assert lab.cri.exec(cid, "readlink", "/proc/1/cwd").stdout == "/srv/work\n"
    assert lab.cri.exec(cid, "hostname").stdout == full_name("web") + "\n"


def test_image_defaults_hold_where_the_manifest_says_nothing(lab: Lab, agent: Agent) -> None:
    bare = {"name": "main", "image": images.WITH_ENTRYPOINT}
    args = {"name": "args", "image": images.WITH_ENTRYPOINT, "args": ["of-manifest"]}
    agent.put("echo", pod("echo", bare, args, restartPolicy="Never"))
    done = agent.wait_pod("echo", lambda it: it.phase == "Succeeded", what="Succeeded")
    assert "stdout F entrypoint of-image" in agent.container_log(done, "main").read_text()
    assert "stdout F entrypoint of-manifest" in agent.container_log(done, "args").read_text()


def test_resources_reach_the_container(lab: Lab, agent: Agent) -> None:
    resources = {"requests": {"cpu": "250m"}, "limits": {"cpu": "500m", "memory": "64Mi"}}
    agent.put("small", pod("small", container(resources=resources)))
    cid = agent.wait_pod("small").container().id
    applied = lab.cri.oci_spec(cid)["linux"]["resources"]
    assert applied["memory"]["limit"] == 64 * 1024 * 1024
    assert applied["cpu"]["shares"] == 256
    assert applied["cpu"]["quota"] * 2 == applied["cpu"]["period"]


def test_container_output_lands_in_the_pod_log_directory_in_cri_format(agent: Agent) -> None:
    script = then_wait("echo to stdout; echo to stderr >&2")
    agent.put("talk", pod("talk", container(command=script)))
    talk = agent.wait_pod("talk")
    log = agent.container_log(talk)
    lines = until("two lines", lambda: _lines_if(log, 2))
    stamp = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+(Z|[+-]\d\d:\d\d)"
    assert any(re.fullmatch(stamp + " stdout F to stdout", line) for line in lines)
    assert any(re.fullmatch(stamp + " stderr F to stderr", line) for line in lines)


def _lines_if(log: Path, wanted: int) -> list[str] | None:
    lines = log.read_text().splitlines() if log.exists() else []
    return lines if len(lines) >= wanted else None


def test_a_killed_container_is_started_again_in_the_same_sandbox(lab: Lab, agent: Agent) -> None:
    agent.put("web", pod("web", container("main"), container("other")))
    before = agent.wait_pod("web")
    lab.cri.process(before.container().id).kill(signal.SIGKILL)
    after = agent.wait_pod(
        "web", lambda it: it.running and it.container().restarts == 1, what="restarted"
    )
    assert after.container().id != before.container().id
    assert after.container().last_exit_code == 137
    assert after.container("other") == before.container("other")
    assert len(lab.cri.sandboxes(full_name("web"))) == 1
    assert until("the log of the second run", agent.container_log(after, attempt=1).exists)


def test_a_container_that_keeps_crashing_backs_off(agent: Agent) -> None:
    agent.put("crash", pod("crash", container(command=("sh", "-c", "exit 3"))))
    crash = agent.wait_pod(
        "crash",
        lambda it: it.container().reason == "CrashLoopBackOff",
        what="CrashLoopBackOff",
    )
    assert crash.phase == "Running"
    assert crash.container().last_exit_code == 3
    assert "restarting failed container=main" in crash.container().message


@pytest.mark.parametrize(("code", "phase"), [(0, "Succeeded"), (4, "Failed")])
def test_a_pod_that_never_restarts_ends_by_its_exit_code(
    lab: Lab, agent: Agent, code: int, phase: str
) -> None:
    once = container(command=("sh", "-c", f"exit {code}"))
    agent.put("once", pod("once", once, restartPolicy="Never"))
    done = agent.wait_pod("once", lambda it: it.phase == phase, what=phase)
    assert done.container().state == "terminated"
    agent.pod_stays("once", done, seconds=3)
    assert lab.cri.running(full_name("once")) == []


def test_a_sandbox_removed_behind_the_agents_back_is_made_again(lab: Lab, agent: Agent) -> None:
    agent.put("web", pod("web"))
    before = agent.wait_pod("web")
    (sandbox,) = lab.cri.sandboxes(full_name("web"))
    lab.cri.remove_sandbox(sandbox.id)
    agent.wait_pod(
        "web", lambda it: it.running and it.container().id != before.container().id, what="again"
    )
