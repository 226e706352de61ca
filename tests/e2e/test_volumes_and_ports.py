"""What pods share with each other and with the host: volumes and ports."""

import signal
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.lab.agent import Agent
from tests.e2e.lab.containerd_lab import Lab
from tests.e2e.lab.manifests import container, pod, then_wait
from tests.e2e.lab.ports import free_port
from tests.e2e.lab.waiting import until

pytestmark = [pytest.mark.realtime, pytest.mark.timeout(240)]


def _mount(volume: str, path: str, **more: Any) -> dict[str, Any]:
    return {"name": volume, "mountPath": path, **more}


def test_an_empty_dir_is_shared_by_containers_and_lives_as_long_as_the_pod(
    lab: Lab, agent: Agent
) -> None:
    writer = container(
        "writer", command=then_wait("echo hello >/out/note"), volumeMounts=[_mount("v", "/out")]
    )
    reader = container("reader", volumeMounts=[_mount("v", "/in")])
    agent.put("web", pod("web", writer, reader, volumes=[{"name": "v", "emptyDir": {}}]))
    web = agent.wait_pod("web")
    cid = web.container("reader").id
    assert until("the note", lambda: lab.cri.exec(cid, "cat", "/in/note").stdout) == "hello\n"
    assert lab.cri.exec(cid, "sh", "-c", "echo more >/in/kept").exit_code == 0

    lab.cri.process(cid).kill(signal.SIGKILL)
    again = agent.wait_pod("web", lambda it: it.running and it.container("reader").restarts == 1)
    assert lab.cri.exec(again.container("reader").id, "cat", "/in/kept").stdout == "more\n"

    kept = list(agent.root_dir.rglob("kept"))
    assert len(kept) == 1
    agent.remove("web")
    agent.wait_gone("web")
    until("no directory left", lambda: not kept[0].exists(), timeout=60)


def test_a_host_path_is_read_and_written_in_both_directions(
    lab: Lab, agent: Agent, tmp_path: Path
) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    (shared / "from-host").write_text("host\n")
    main = container(volumeMounts=[_mount("v", "/data"), _mount("v", "/frozen", readOnly=True)])
    volume = {"name": "v", "hostPath": {"path": str(shared), "type": "Directory"}}
    agent.put("web", pod("web", main, volumes=[volume]))
    cid = agent.wait_pod("web").container().id
    assert lab.cri.exec(cid, "cat", "/data/from-host").stdout == "host\n"
    assert lab.cri.exec(cid, "sh", "-c", "echo pod >/data/from-pod").exit_code == 0
    assert (shared / "from-pod").read_text() == "pod\n"
    refused = lab.cri.exec(cid, "sh", "-c", "echo x >/frozen/file")
    assert refused.exit_code != 0
    assert "Read-only file system" in refused.stderr


def test_a_missing_host_path_holds_the_pod_and_is_named(agent: Agent, tmp_path: Path) -> None:
    missing = tmp_path / "later"
    volume = {"name": "v", "hostPath": {"path": str(missing), "type": "Directory"}}
    main = container(volumeMounts=[_mount("v", "/data")])
    agent.put("web", pod("web", main, volumes=[volume]))
    held = agent.wait_pod(
        "web", lambda it: str(missing) in it.container().message, what="the missing path"
    )
    assert (held.phase, held.container().reason) == ("Pending", "ContainerCreating")
    missing.mkdir()
    agent.wait_pod("web", timeout=90)


_SERVE = then_wait("mkdir /www; echo hello >/www/index.html; httpd -p 8080 -h /www")


def _page(port: int) -> str | None:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=5) as answer:
            return bytes(answer.read()).decode()
    except OSError:
        return None


def test_a_host_port_leads_to_the_pod_while_it_runs(agent: Agent) -> None:
    port = free_port()
    ports = [{"containerPort": 8080, "hostPort": port}]
    agent.put("web", pod("web", container(command=_SERVE, ports=ports)))
    agent.wait_pod("web")
    assert until("an answer on the host port", lambda: _page(port)) == "hello\n"
    agent.remove("web")
    agent.wait_gone("web")
    until("a closed host port", lambda: _page(port) is None)


def test_a_pod_on_the_host_network_listens_on_the_host(lab: Lab, agent: Agent) -> None:
    port = free_port()
    serve = then_wait(f"mkdir /www; echo host >/www/index.html; httpd -p 127.0.0.1:{port} -h /www")
    agent.put("web", pod("web", container(command=serve), hostNetwork=True))
    cid = agent.wait_pod("web").container().id
    assert until("an answer", lambda: _page(port)) == "host\n"
    namespaces = lab.cri.oci_spec(cid)["linux"]["namespaces"]
    assert "network" not in {item["type"] for item in namespaces if not item.get("path")}
