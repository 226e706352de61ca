"""What a container knows, who it runs as, and what it may do, on containerd."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.lab import images
from tests.e2e.lab.agent import NODE_NAME, Agent, full_name
from tests.e2e.lab.containerd_lab import Lab
from tests.e2e.lab.manifests import WAITING, Json, container, pod
from tests.e2e.lab.views import PodView

pytestmark = [pytest.mark.realtime, pytest.mark.timeout(240)]


def _environment(lab: Lab, cid: str) -> dict[str, str]:
    text = lab.cri.exec(cid, "cat", "/proc/1/environ").stdout
    return dict(entry.split("=", 1) for entry in text.split("\0") if entry)


def _status(lab: Lab, cid: str) -> dict[str, str]:
    lines = lab.cri.exec(cid, "cat", "/proc/1/status").stdout.splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def _refused(agent: Agent, reason: str = "CreateContainerConfigError") -> str:
    """Wait until the container waits with that reason; returns its message."""
    held = agent.wait_pod("web", lambda it: it.container().reason == reason, what=reason)
    assert held.phase == "Pending"
    return held.container().message


def _field(name: str, path: str) -> Json:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def _amount(name: str, resource: str, divisor: str) -> Json:
    ref = {"resource": resource, "divisor": divisor}
    return {"name": name, "valueFrom": {"resourceFieldRef": ref}}


# --- what it knows ------------------------------------------------------------------------


def test_arguments_and_variables_are_byte_exact(lab: Lab, agent: Agent) -> None:
    odd = " a  b 'c' \"d\" =e $f $$g ${h} `i` \\n\nnext\ttab é 🦊 "
    args = ["", odd, "$(A) $$(A) $(NONE)", "-n", "*"]
    env = [
        {"name": "A", "value": "1"},
        {"name": "ODD", "value": odd.replace("$", "$$")},
        {"name": "REF", "value": "$(A)-$(LATER)"},
        {"name": "LATER", "value": "x"},
    ]
    main = container(command=(*WAITING, "sh"), args=args, env=env)
    agent.put("web", pod("web", main))
    cid = agent.wait_pod("web").container().id
    words = lab.cri.exec(cid, "cat", "/proc/1/cmdline").stdout.split("\0")
    expected = ["", odd.replace("$$", "$"), "1 $(A) $(NONE)", "-n", "*", ""]
    assert words[-6:] == expected
    found = _environment(lab, cid)
    assert {name: found[name] for name in ("A", "ODD", "REF", "LATER")} == {
        "A": "1",
        "ODD": odd,
        "REF": "1-$(LATER)",
        "LATER": "x",
    }


def test_a_container_learns_of_its_pod_and_node(lab: Lab, agent: Agent) -> None:
    env = [
        _field("NAME", "metadata.name"),
        _field("NAMESPACE", "metadata.namespace"),
        _field("UID_", "metadata.uid"),
        _field("NODE", "spec.nodeName"),
        _field("IP", "status.podIP"),
        _field("IPS", "status.podIPs"),
        _field("HOST", "status.hostIP"),
        _amount("CPU", "limits.cpu", "1m"),
        _amount("MEMORY", "limits.memory", "1Mi"),
        _amount("NONE", "requests.ephemeral-storage", "1"),
        _amount("CORES", "limits.cpu", "1"),
        _amount("HOSTS_STORAGE", "limits.ephemeral-storage", "1"),
        {"name": "ALL", "value": "$(NAME) at $(IP)"},
    ]
    limits = {"limits": {"cpu": "250m", "memory": "64Mi"}}
    agent.put("web", pod("web", container(env=env, resources=limits)))
    web = agent.wait_pod("web")
    found = _environment(lab, web.container().id)
    assert found["NAME"] == full_name("web")
    assert (found["NAMESPACE"], found["UID_"], found["NODE"]) == ("default", web.uid, NODE_NAME)
    assert found["IP"] == found["IPS"] == web.pod_ip
    assert found["HOST"]
    assert (found["CPU"], found["MEMORY"], found["NONE"]) == ("250", "64", "0")
    assert found["CORES"] == "1"  # rounded up
    assert int(found["HOSTS_STORAGE"]) > 2**20  # without a limit: what the node has
    assert found["ALL"] == f"{full_name('web')} at {web.pod_ip}"


def _from_file(key: str, *, optional: bool = False) -> Json:
    ref = {"volumeName": "data", "path": "env", "key": key, "optional": optional}
    return {"name": key, "valueFrom": {"fileKeyRef": ref}}


def _with_file(*env: Json) -> str:
    mount: Json = {"volumeMounts": [{"name": "data", "mountPath": "/data"}]}
    script = "printf \"# made here\\nTOKEN='a b\\nc'\\n\" >/data/env"
    init = container("init", command=("sh", "-c", script), **mount)
    return pod(
        "web",
        container(env=list(env)),
        initContainers=[init],
        volumes=[{"name": "data", "emptyDir": {}}],
    )


def test_an_init_container_hands_variables_on_in_a_file(lab: Lab, agent: Agent) -> None:
    agent.put("web", _with_file(_from_file("TOKEN"), _from_file("NONE", optional=True)))
    found = _environment(lab, agent.wait_pod("web").container().id)
    assert found["TOKEN"] == "a b\nc"
    assert "NONE" not in found


def test_a_variable_that_is_not_in_the_file_holds_the_container_and_says_so(agent: Agent) -> None:
    agent.put("web", _with_file(_from_file("NONE")))
    assert 'key "NONE" not found in file "env" of volume "data"' in _refused(agent)


# --- who it is ----------------------------------------------------------------------------


def _running(agent: Agent, *containers: Json, **spec: Any) -> PodView:
    agent.put("web", pod("web", *containers, **spec))
    return agent.wait_pod("web")


def test_users_and_groups_are_those_of_the_container_else_of_the_pod(
    lab: Lab, agent: Agent
) -> None:
    web = _running(
        agent,
        container("shared"),
        container("own", securityContext={"runAsUser": 1234, "runAsGroup": 2345}),
        container("user", securityContext={"runAsUser": 1234}),
        container("image", image=images.WITH_USER),
        securityContext={"runAsUser": 1000, "fsGroup": 3000, "supplementalGroups": [4000]},
    )
    ids = {name: _status(lab, view.id) for name, view in web.containers.items()}
    assert {name: found["Uid"].split()[0] for name, found in ids.items()} == {
        "shared": "1000",
        "own": "1234",
        "user": "1234",
        "image": "1000",
    }
    assert ids["own"]["Gid"].split()[0] == "2345"
    assert ids["user"]["Gid"].split()[0] == "0"
    for found in ids.values():
        assert {"3000", "4000"} <= set(found["Groups"].split())


def test_a_group_alone_is_that_of_root(lab: Lab, agent: Agent) -> None:
    """The image names no user, and runtimes refuse a group without one."""
    web = _running(
        agent,
        container("own", securityContext={"runAsGroup": 2345}),
        container("shared"),
        securityContext={"runAsGroup": 3456},
    )
    for name, group in (("own", "2345"), ("shared", "3456")):
        status = _status(lab, web.container(name).id)
        assert (status["Uid"].split()[0], status["Gid"].split()[0]) == ("0", group)


_NON_NUMERIC = (
    "container has runAsNonRoot and image has non-numeric user (user), "
    "cannot verify user is non-root"
)


@pytest.mark.parametrize(
    ("image", "context", "message"),
    [
        (images.BUSYBOX, {}, "container has runAsNonRoot and image will run as root"),
        (images.BUSYBOX, {"runAsUser": 0}, "container's runAsUser breaks non-root policy"),
        (
            images.WITH_NAMED_USER,
            {},
            _NON_NUMERIC,
        ),
    ],
)
def test_a_container_that_must_not_be_root_and_would_be_is_held(
    agent: Agent, image: str, context: Json, message: str
) -> None:
    held = container(image=image, securityContext={"runAsNonRoot": True, **context})
    agent.put("web", pod("web", held))
    uid = agent.wait_pod("web", lambda it: bool(it.uid), what="known").uid
    where = f'(pod: "{full_name("web")}_default({uid})", container: main)'
    assert _refused(agent) == f"{message} {where}"


def test_a_container_that_must_not_be_root_and_is_not_runs(lab: Lab, agent: Agent) -> None:
    web = _running(
        agent,
        container("number", image=images.WITH_USER),
        container("named", image=images.WITH_NAMED_USER, securityContext={"runAsUser": 7}),
        securityContext={"runAsNonRoot": True},
    )
    assert _status(lab, web.container("number").id)["Uid"].split()[0] == "1000"
    assert _status(lab, web.container("named").id)["Uid"].split()[0] == "7"


# --- what it may do -----------------------------------------------------------------------

_NET_ADMIN, _CHOWN, _NET_RAW = 1 << 12, 1 << 0, 1 << 13


def test_capabilities_are_added_and_dropped(lab: Lab, agent: Agent) -> None:
    web = _running(
        agent,
        container("usual"),
        container("more", securityContext={"capabilities": {"add": ["NET_ADMIN"]}}),
        container("less", securityContext={"capabilities": {"drop": ["NET_RAW"]}}),
        container("none", securityContext={"capabilities": {"drop": ["ALL"]}}),
    )
    held = {name: int(_status(lab, view.id)["CapEff"], 16) for name, view in web.containers.items()}
    assert held["usual"] & _CHOWN
    assert not held["usual"] & _NET_ADMIN
    assert held["more"] == held["usual"] | _NET_ADMIN
    assert held["less"] == held["usual"] & ~_NET_RAW
    assert held["none"] == 0


def test_the_root_file_system_and_the_kernels_are_closed_as_asked(lab: Lab, agent: Agent) -> None:
    web = _running(
        agent,
        container("usual"),
        container("closed", securityContext={"readOnlyRootFilesystem": True}),
    )
    usual, closed = web.container("usual").id, web.container("closed").id
    assert lab.cri.exec(usual, "touch", "/new").exit_code == 0
    assert "Read-only file system" in lab.cri.exec(closed, "touch", "/new").stderr
    assert lab.cri.exec(closed, "sh", "-c", "echo x >/dev/termination-log").exit_code == 0
    assert lab.cri.exec(usual, "sh", "-c", "echo 1 >/proc/sys/vm/swappiness").exit_code != 0
    assert lab.cri.exec(usual, "cat", "/proc/kcore").stdout == ""


def test_no_new_privileges_and_seccomp_are_as_asked(lab: Lab, agent: Agent) -> None:
    strict = {"allowPrivilegeEscalation": False, "seccompProfile": {"type": "RuntimeDefault"}}
    web = _running(agent, container("usual"), container("strict", securityContext=strict))
    usual = _status(lab, web.container("usual").id)
    found = _status(lab, web.container("strict").id)
    assert (usual["NoNewPrivs"], usual["Seccomp"]) == ("0", "0")
    assert (found["NoNewPrivs"], found["Seccomp"]) == ("1", "2")


def test_a_seccomp_profile_of_the_node_is_applied(lab: Lab, agent: Agent) -> None:
    profiles = agent.root_dir / "seccomp"
    profiles.mkdir()
    rule = {"names": ["mkdir", "mkdirat"], "action": "SCMP_ACT_ERRNO"}
    profile = {"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [rule]}
    (profiles / "no-mkdir.json").write_text(json.dumps(profile))
    local = {"type": "Localhost", "localhostProfile": "no-mkdir.json"}
    web = _running(agent, container(securityContext={"seccompProfile": local}))
    result = lab.cri.exec(web.container().id, "mkdir", "/tmp/x")
    assert "Operation not permitted" in result.stderr


def test_a_privileged_container_has_the_devices_and_capabilities_of_the_host(
    lab: Lab, agent: Agent
) -> None:
    web = _running(
        agent, container("usual"), container("all", securityContext={"privileged": True})
    )
    usual, everything = web.container("usual").id, web.container("all").id
    assert lab.cri.exec(usual, "test", "-e", "/dev/kmsg").exit_code != 0
    assert lab.cri.exec(everything, "test", "-e", "/dev/kmsg").exit_code == 0
    own = int(_own_status()["CapBnd"], 16)
    assert int(_status(lab, everything)["CapEff"], 16) == own


def _own_status() -> dict[str, str]:
    lines = Path("/proc/self/status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def _own_oom_score() -> int:
    return int(Path("/proc/self/oom_score_adj").read_text())


def _oom_score(lab: Lab, cid: str) -> int:
    return int(lab.cri.oci_spec(cid)["process"]["oomScoreAdj"])


def test_who_asks_for_less_memory_is_killed_sooner_when_there_is_none(
    lab: Lab, agent: Agent
) -> None:
    amounts = {"cpu": "10m", "memory": "32Mi"}
    agent.put("best-effort", pod("best-effort"))
    guaranteed = {"limits": amounts, "requests": amounts}
    agent.put("guaranteed", pod("guaranteed", container(resources=guaranteed)))
    total = int(Path("/proc/meminfo").read_text().split()[1]) * 1024
    small = {"requests": {"memory": str(total // 100)}}
    large = {"requests": {"memory": str(total // 10)}}
    side = container("side", restartPolicy="Always", resources=small)
    both = [container("large", resources=large), container("none")]
    agent.put("burstable", pod("burstable", *both, initContainers=[side]))
    assert _oom_score(lab, agent.wait_pod("best-effort").container().id) == 1000
    # The laboratory's containerd has no right to go below its own.
    assert _oom_score(lab, agent.wait_pod("guaranteed").container().id) in (-997, _own_oom_score())
    burstable = agent.wait_pod("burstable")
    found = {name: _oom_score(lab, view.id) for name, view in burstable.containers.items()}
    assert found["none"] == 999
    assert found["large"] == 1000 - 1000 * (total // 10) // total
    assert _oom_score(lab, burstable.init("side").id) == 1000 - 1000 * (total // 100) // total


def test_limits_of_the_pod_are_those_of_a_container_without_its_own(lab: Lab, agent: Agent) -> None:
    web = _running(
        agent,
        container("none"),
        container("own", resources={"limits": {"memory": "32Mi"}}),
        resources={"limits": {"memory": "128Mi", "cpu": "1"}, "requests": {"memory": "64Mi"}},
    )
    limits = {
        name: lab.cri.oci_spec(view.id)["linux"]["resources"]["memory"]["limit"] // 2**20
        for name, view in web.containers.items()
    }
    assert limits == {"none": 128, "own": 32}


def test_a_pod_that_asks_for_huge_pages_that_the_node_does_not_have_is_rejected(
    agent: Agent,
) -> None:
    amounts = {"hugepages-16Mi": "16Mi", "memory": "32Mi", "cpu": "1"}
    agent.put("web", pod("web", container(resources={"limits": amounts, "requests": amounts})))
    view = agent.wait_pod("web", lambda it: it.phase == "Failed", what="rejected")
    assert "UnexpectedAdmissionError" in view.why
    assert "(res: hugepages-16Mi, q: 16777216)" in view.why
