"""ConfigMaps and Secrets beside pods, read back from inside containers.

docs/behaviour/objects.md, "Without an API server".
"""

import pytest
import yaml
from tests.e2e.lab.agent import Agent
from tests.e2e.lab.containerd_lab import Lab
from tests.e2e.lab.manifests import Json, container, pod
from tests.e2e.lab.waiting import until

pytestmark = [pytest.mark.realtime, pytest.mark.timeout(240)]


def _object(kind: str, name: str, **fields: Json) -> str:
    return yaml.safe_dump({"apiVersion": "v1", "kind": kind, "metadata": {"name": name}, **fields})


def test_an_edit_beside_a_pod_reaches_it_while_it_runs(lab: Lab, agent: Agent) -> None:
    main = container(
        env=[
            {"name": "COLOR", "valueFrom": {"configMapKeyRef": {"name": "paint", "key": "color"}}}
        ],
        volumeMounts=[
            {"name": "paint", "mountPath": "/paint"},
            {"name": "login", "mountPath": "/login"},
        ],
    )
    volumes = [
        {"name": "paint", "configMap": {"name": "paint", "defaultMode": 0o440}},
        {"name": "login", "secret": {"secretName": "login"}},
    ]
    agent.put("web", pod("web", main, volumes=volumes))
    agent.wait_pod("web", lambda it: not it.running)
    agent.put("login", _object("Secret", "login", stringData={"user": "alice"}))
    agent.put("paint", _object("ConfigMap", "paint", data={"color": "red"}))
    cid = agent.wait_pod("web").container().id

    def read(path: str) -> str:
        return lab.cri.exec(cid, "cat", path).stdout

    assert (read("/paint/color"), read("/login/user")) == ("red", "alice")
    assert lab.cri.exec(cid, "stat", "-L", "-c", "%a", "/paint/color").stdout == "440\n"
    assert "tmpfs" in lab.cri.exec(cid, "sh", "-c", "grep ' /login ' /proc/mounts").stdout
    refused = lab.cri.exec(cid, "sh", "-c", "echo x >/login/new")
    assert "Read-only file system" in refused.stderr

    agent.put("paint", _object("ConfigMap", "paint", data={"color": "blue"}))
    until("the edit is there", lambda: read("/paint/color") == "blue", timeout=20)
    assert lab.cri.exec(cid, "sh", "-c", "echo $COLOR").stdout == "red\n"

    agent.put("paint", _object("ConfigMap", "paint", data={"color": 7}))
    agent.wait_log("manifest_refused", "put it in quotes")
    assert read("/paint/color") == "blue"
    assert agent.wait_pod("web").container().id == cid
