"""Volumes read back from inside containers (docs/behaviour/volumes.md)."""

import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.e2e.lab.agent import Agent
from tests.e2e.lab.containerd_lab import Lab
from tests.e2e.lab.manifests import container, pod, then_wait
from tests.e2e.lab.waiting import until

pytestmark = [pytest.mark.realtime, pytest.mark.timeout(240)]

GROUP = 4321


def _mount(volume: str, path: str, **more: Any) -> dict[str, Any]:
    return {"name": volume, "mountPath": path, **more}


def _mounted_below(path: Path) -> list[str]:
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    return [point for line in lines if (point := line.split()[4]).startswith(f"{path}/")]


def test_memory_and_disk_belong_to_the_group_and_go_with_the_pod(lab: Lab, agent: Agent) -> None:
    main = container(
        volumeMounts=[_mount("mem", "/mem"), _mount("disk", "/disk")],
        securityContext={"runAsUser": 1234, "runAsGroup": 1234},
    )
    volumes = [
        {"name": "mem", "emptyDir": {"medium": "Memory", "sizeLimit": "8Mi"}},
        {"name": "disk", "emptyDir": {}},
    ]
    agent.put("web", pod("web", main, volumes=volumes, securityContext={"fsGroup": GROUP}))
    cid = agent.wait_pod("web").container().id
    where = lab.cri.exec(cid, "sh", "-c", "grep ' /mem ' /proc/mounts").stdout
    assert where.startswith("tmpfs /mem tmpfs ")
    assert "size=8192k" in where
    for path in ("/mem", "/disk"):
        assert lab.cri.exec(cid, "stat", "-c", "%a %g", path).stdout == f"2777 {GROUP}\n"
        assert lab.cri.exec(cid, "sh", "-c", f"echo x >{path}/file").exit_code == 0
        assert lab.cri.exec(cid, "stat", "-c", "%u %g", f"{path}/file").stdout == f"1234 {GROUP}\n"
    full = lab.cri.exec(cid, "dd", "if=/dev/zero", "of=/mem/big", "bs=1M", "count=9")
    assert "No space left on device" in full.stderr
    pods = agent.root_dir / "pods"
    assert len(_mounted_below(pods)) == 1

    agent.kill9()
    agent.start()
    agent.wait_pod("web")
    assert lab.cri.exec(cid, "cat", "/mem/file").stdout == "x\n"
    agent.remove("web")
    agent.wait_gone("web")
    until("no directory left", lambda: not list(pods.iterdir()), timeout=60)
    assert _mounted_below(pods) == []


def test_fields_of_the_pod_are_files_that_follow_it(lab: Lab, agent: Agent) -> None:
    items = [
        {"path": "name", "fieldRef": {"fieldPath": "metadata.name"}, "mode": 0o400},
        {"path": "deep/labels", "fieldRef": {"fieldPath": "metadata.labels"}},
        {"path": "note", "fieldRef": {"fieldPath": "metadata.annotations['note']"}},
        {
            "path": "memory",
            "resourceFieldRef": {
                "containerName": "main",
                "resource": "limits.memory",
                "divisor": "1Mi",
            },
        },
    ]
    volumes = [
        {"name": "own", "downwardAPI": {"items": items}},
        {"name": "all", "projected": {"sources": [{"downwardAPI": {"items": items[:1]}}]}},
    ]
    main = container(
        volumeMounts=[_mount("own", "/own"), _mount("all", "/all")],
        resources={"limits": {"memory": "64Mi"}},
    )

    manifest = yaml.safe_load(pod("web", main, volumes=volumes))
    manifest["metadata"] |= {"labels": {"z": "1", "app": "web"}, "annotations": {"note": 'a"b'}}
    agent.put("web", yaml.safe_dump(manifest))
    cid = agent.wait_pod("web").container().id

    def read(path: str) -> str:
        return lab.cri.exec(cid, "cat", path).stdout

    assert read("/own/name") == read("/all/name") == agent.full_name("web")
    assert read("/own/deep/labels") == 'app="web"\nz="1"'
    assert read("/own/note") == 'a"b'
    assert read("/own/memory") == "64"
    assert lab.cri.exec(cid, "stat", "-L", "-c", "%a", "/own/name").stdout == "400\n"
    assert lab.cri.exec(cid, "readlink", "/own/name").stdout == "..data/name\n"
    refused = lab.cri.exec(cid, "sh", "-c", "echo x >/own/new")
    assert "Read-only file system" in refused.stderr


def test_a_part_of_a_volume_is_mounted_and_made_if_missing(lab: Lab, agent: Agent) -> None:
    name = {"name": "NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}
    main = container(
        env=[name],
        volumeMounts=[
            _mount("v", "/whole"),
            _mount("v", "/part", subPath="a/b"),
            _mount("v", "/mine", subPathExpr="of-$(NAME)"),
        ],
    )
    agent.put("web", pod("web", main, volumes=[{"name": "v", "emptyDir": {}}]))
    web = agent.wait_pod("web")
    cid = web.container().id
    assert lab.cri.exec(cid, "sh", "-c", "echo 1 >/part/file; echo 2 >/mine/file").exit_code == 0
    assert lab.cri.exec(cid, "cat", "/whole/a/b/file").stdout == "1\n"
    own = agent.full_name("web")
    assert lab.cri.exec(cid, "cat", f"/whole/of-{own}/file").stdout == "2\n"

    lab.cri.process(cid).kill(signal.SIGKILL)
    again = agent.wait_pod("web", lambda it: it.running and it.container().restarts == 1)
    assert lab.cri.exec(again.container().id, "cat", "/part/file").stdout == "1\n"
    pods = agent.root_dir / "pods"
    assert len(_mounted_below(pods)) == 2

    agent.kill9()
    agent.remove("web")
    agent.start()
    agent.wait_gone("web")
    # What the runtime has of a pod that nobody knows keeps its directory, until it is garbage.
    until("no directory left", lambda: not list(pods.iterdir()), timeout=180)
    assert _mounted_below(pods) == []


def test_a_container_that_turns_its_part_into_a_link_to_the_root_gets_nothing(
    lab: Lab, agent: Agent
) -> None:
    attack = then_wait("rm -rf /whole/part; ln -s / /whole/part; touch /whole/done")
    attacker = container("attacker", command=attack, volumeMounts=[_mount("v", "/whole")])
    victim = container("victim", volumeMounts=[_mount("v", "/in", subPath="part")])
    agent.put("web", pod("web", attacker, victim, volumes=[{"name": "v", "emptyDir": {}}]))
    web = agent.wait_pod("web", lambda it: it.container("attacker").state == "running")
    cid = web.container("attacker").id
    until("the link", lambda: lab.cri.exec(cid, "ls", "/whole/done").exit_code == 0)
    victim_now = agent.wait_pod("web", lambda it: it.container("victim").state != "").container(
        "victim"
    )
    if victim_now.state == "running":
        lab.cri.process(victim_now.id).kill(signal.SIGKILL)
    held = agent.wait_pod(
        "web", lambda it: "leads out of the volume" in it.container("victim").message, timeout=90
    ).container("victim")
    assert held.reason == "CreateContainerConfigError"
    assert 'for volumeMount "v" of container "victim": a link in subPath "part"' in held.message


@pytest.mark.parametrize(
    ("mount", "says"),
    [
        ({"subPathExpr": "$(NOBODY)/x"}, "missing value for NOBODY"),
        ({"subPath": "file/below"}, "failed to create subPath directory for volumeMount"),
    ],
)
def test_a_part_that_cannot_be_is_a_configuration_error(
    agent: Agent, tmp_path: Path, mount: dict[str, str], says: str
) -> None:
    (tmp_path / "file").write_text("x")
    main = container(volumeMounts=[_mount("v", "/in", **mount)])
    agent.put("web", pod("web", main, volumes=[{"name": "v", "hostPath": {"path": str(tmp_path)}}]))
    held = agent.wait_pod("web", lambda it: says in it.container().message)
    assert held.container().reason == "CreateContainerConfigError"


def test_a_mount_of_somebody_else_keeps_an_orphans_directory(agent: Agent) -> None:
    main = container(volumeMounts=[_mount("v", "/in")])
    agent.put("web", pod("web", main, volumes=[{"name": "v", "emptyDir": {}}]))
    agent.wait_pod("web")
    (volume,) = agent.root_dir.glob("pods/*/volumes/kubernetes.io~empty-dir/v")
    theirs = volume / "theirs"
    theirs.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "theirs", str(theirs)], check=True)
    try:
        (theirs / "data").write_text("precious")
        agent.remove("web")
        agent.wait_gone("web")
        agent.wait_log("still mounted", str(theirs))
        assert (theirs / "data").read_text() == "precious"
    finally:
        subprocess.run(["umount", str(theirs)], check=True)
    until("no directory left", lambda: not volume.exists(), timeout=150)
