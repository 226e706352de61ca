"""``nodeagent validate``: docs/configuration.md, "Commands"."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nodeagent.api.problems import FieldProblem
from nodeagent.cli import app
from nodeagent.cli.columns import with_column

POD = """apiVersion: v1
kind: Pod
metadata: {{name: {name}}}
spec:
  containers:
  - name: main
    image: busybox
{more}"""


def pod(name: str = "web", more: str = "") -> str:
    return POD.format(name=name, more=more)


def judged(capsys: pytest.CaptureFixture[str], *args: str | Path) -> tuple[int, list[str]]:
    code = app.invoke(["validate", "--hostname-override=n1", *map(str, args)])
    return code, capsys.readouterr().out.splitlines()


def test_what_would_run_is_said_to(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "web.yaml").write_text(pod())
    told = (0, [f"ok: Pod default/web ({tmp_path}/web.yaml)"])
    assert judged(capsys, tmp_path) == told
    assert judged(capsys, tmp_path / "web.yaml") == told


def test_every_error_comes_with_its_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "web.yaml").write_text(
        pod(more="    imagePullPolicy: Sometimes\n    cmd: [x]\n    ports: [{containerPort: 0}]\n")
    )
    code, told = judged(capsys, tmp_path)
    assert code == 1
    assert [line for line in told if "imagePullPolicy" in line and "(line 8, column 5)" in line]
    assert [
        line for line in told if "ports[0].containerPort" in line and "(line 10, column 14)" in line
    ]
    assert [t for t in told if t.startswith("warning: web.yaml: spec.containers[0].cmd: unknown")]
    assert not [line for line in told if line.startswith("ok")]


def test_all_files_are_judged_together(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.yaml").write_text(pod("a"))
    (tmp_path / "b.yaml").write_text(pod("a") + "---\n" + pod("b"))
    code, told = judged(capsys, tmp_path)
    twice = "duplicate: a.yaml already gives the pod default/a"
    assert code == 1
    assert told == [
        f"ok: Pod default/a ({tmp_path}/a.yaml)",
        f"error: b.yaml: document 1: metadata.name: {twice} (line 3, column 12)",
        f"ok: Pod default/b ({tmp_path}/b.yaml)",
    ]


def test_fields_that_would_keep_a_pod_waiting_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "web.yaml").write_text(
        pod(more="  volumes: [{name: data, gcePersistentDisk: {pdName: x}}]\n")
    )
    code, told = judged(capsys, tmp_path)
    assert code == 1
    assert told == [
        (
            "error: web.yaml: spec.volumes[0].gcePersistentDisk: not supported by this version "
            "(line 8, column 26)"
        )
    ]


def test_objects_beside_pods_are_judged_unless_there_is_a_cluster(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "all.yaml"
    file.write_text(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\ndata: {a: b}\n---\n"
        + pod(more="    envFrom: [{configMapRef: {name: settings}}]\n")
    )
    assert judged(capsys, file) == (
        0,
        [f"ok: ConfigMap default/settings ({file})", f"ok: Pod default/web ({file})"],
    )
    code, told = judged(capsys, "--cluster", file)
    assert code == 1
    assert [line for line in told if "static pods may not reference configmaps" in line]


def test_nothing_secret_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "secret.yaml"
    file.write_text(
        "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: {a: [hunter2]}\n"
    )
    for more in ([], ["--json"]):
        code, told = judged(capsys, *more, file)
        assert code == 1
        assert "hunter2" not in "".join(told)


def test_paths_that_cannot_be_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "gone.yaml").symlink_to(tmp_path / "nowhere")
    code, told = judged(capsys, tmp_path, tmp_path / "none")
    assert code == 1
    assert f"error: {tmp_path}/none: does not exist" in told
    assert [line for line in told if "gone.yaml: the link leads to" in line]
    empty = tmp_path / "empty"
    empty.mkdir()
    assert judged(capsys, empty) == (0, ["no manifests there"])
    assert app.invoke(["validate"]) == 2


def test_json_has_all_of_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "web.yaml").write_text(pod(more="    cmd: [x]\n"))
    code, told = judged(capsys, "--json", tmp_path)
    (each,) = json.loads("\n".join(told))
    assert code == 0
    assert (each["kind"], each["name"], each["line"], each["ok"]) == ("Pod", "default/web", 1, True)
    assert each["errors"] == []
    assert each["warnings"][0].startswith("web.yaml: spec.containers[0].cmd: unknown field")


KUBELET = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
OWN = "apiVersion: nodeagent.dev/v1alpha1\nkind: NodeAgentConfiguration\n"
PORT = "    ports: [{containerPort: 80, hostPort: 80}]\n"
SYSCTL = "  securityContext: {sysctls: [{name: net.core.somaxconn, value: '1'}]}\n"


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (
            "  nodeSelector: {disk: ssd}\n",
            (
                "spec.nodeSelector: this node would refuse it: NodeAffinity: Predicate "
                "NodeAffinity failed: node(s) didn't match Pod's node affinity/selector "
                "(line 8, column 3)"
            ),
        ),
        ("  nodeName: n2\n", None),
        (
            SYSCTL,
            (
                "spec.securityContext.sysctls: this node would refuse it: SysctlForbidden: "
                'forbidden sysctl: "net.core.somaxconn" not allowlisted (line 8, column 21)'
            ),
        ),
        (
            "    resources: {requests: {memory: 100Pi}}\n",
            "spec: this node would refuse it: OutOfmemory: Node didn't have enough resource",
        ),
    ],
)
def test_what_this_node_would_refuse_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], more: str, told: str | None
) -> None:
    (tmp_path / "web.yaml").write_text(pod(more=more))
    code, lines = judged(capsys, tmp_path)
    if told is None:  # a pod of a file is this node's, whatever it says
        assert code == 0
        return
    assert code == 1
    assert lines[0].startswith(f"error: web.yaml: {told}")
    _, lines = judged(capsys, "--json", tmp_path)
    (each,) = json.loads("\n".join(lines))
    assert not each["ok"]
    assert each["refused"][0].startswith(f"web.yaml: {told}")


def test_a_port_of_the_host_is_one_pods_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "web.yaml").write_text(pod("a", PORT) + "---\n" + pod("b", PORT))
    code, lines = judged(capsys, tmp_path)
    assert code == 1
    assert lines[0] == f"ok: Pod default/a ({tmp_path}/web.yaml)"
    assert lines[1].endswith(
        "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports "
        "(line 14, column 3)"
    )


def test_the_configuration_says_what_the_node_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, config = tmp_path / "web.yaml", tmp_path / "config.yaml"
    config.write_text(
        KUBELET
        + "allowedUnsafeSysctls: [net.core.*]\nmaxPods: 1\n---\n"
        + OWN
        + "nodeLabels: {disk: ssd}\n"
    )
    file.write_text(pod(more=SYSCTL + "  nodeSelector: {disk: ssd}\n"))
    assert judged(capsys, file)[0] == 1
    assert judged(capsys, file, f"--config={config}")[0] == 0
    file.write_text(pod("a") + "---\n" + pod("b"))
    assert judged(capsys, file)[0] == 0
    code, lines = judged(capsys, file, f"--config={config}")
    assert code == 1
    assert "OutOfpods: Node didn't have enough resource: pods" in lines[1]
    config.write_text(KUBELET + "maxPods: -1\n")
    assert judged(capsys, file, f"--config={config}") == (2, [])


def test_in_a_cluster_labels_are_those_of_the_node_object(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "web.yaml").write_text(pod(more="  nodeSelector: {disk: ssd}\n"))
    code, lines = judged(capsys, "--cluster", tmp_path)
    assert code == 0
    assert lines[0].startswith("warning: web.yaml: spec.nodeSelector: this node would refuse it")
    assert "; the Node object may say otherwise (line 8, column 3)" in lines[0]


@pytest.mark.parametrize(
    ("path", "line", "column"),
    [
        ("spec.containers[0].image", "  - {name: a, image: b}", 15),
        ("spec.containers[0].image", "    image: b", 5),
        ("spec.containers[0]", "  - name: a", 5),
        ("metadata.labels[app/x]", "    app/x: b", 5),
        ("a.name", "[{name: a}, {name: b}]", 1),
        ("", "  x: 1", 3),
        ("spec.os", '{"spec": {"os": 1}}', 11),
    ],
)
def test_the_column_is_that_of_the_key(path: str, line: str, column: int) -> None:
    told = with_column(FieldProblem(path, "bad", 2), ["", line])
    assert told.column == column
    assert with_column(told, []) == told
    assert with_column(FieldProblem(path, "bad"), [line]).column == 0
