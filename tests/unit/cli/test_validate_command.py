"""``nodeagent validate``: docs/configuration.md, "Commands"."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nodeagent.cli import app

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
    assert [line for line in told if "imagePullPolicy" in line and "(line 8)" in line]
    assert [line for line in told if "ports[0].containerPort" in line and "(line 10)" in line]
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
        f"error: b.yaml: document 1: metadata.name: {twice} (line 3)",
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
        "error: web.yaml: spec.volumes[0].gcePersistentDisk: not supported by this version"
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
