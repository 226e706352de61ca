"""``nodeagent plan``: docs/configuration.md, "Plan"."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from nodeagent.api import Pod
from nodeagent.api.documents import OBJECTS, decode_manifest
from nodeagent.api.references import STANDALONE
from nodeagent.cli import app, plan_state
from nodeagent.cli.plan_state import StateUnknownError, read_agent, status_of
from nodeagent.model import ContainerState
from nodeagent.sources.checkpoint import ManifestCheckpoint
from nodeagent.sources.keeping import FileVerdicts
from nodeagent.sources.merge import merge_snapshot
from nodeagent.sources.object_selection import select_objects
from nodeagent.sources.selection import select
from nodeagent.testing.builders import make_pod

POD = """apiVersion: v1
kind: Pod
metadata: {{name: {name}{uid}}}
spec:
  containers:
  - name: main
    image: busybox:{tag}
    env: [{{name: TOKEN, value: "{value}"}}]
"""
CONFIG = "{apiVersion: v1, kind: ConfigMap, metadata: {name: c}, data: {a: %s}}"
NOTHING = "unix:///nowhere/cri.sock"


def pod(name: str = "web", tag: str = "1", uid: str = "", value: str = "x") -> str:
    return POD.format(name=name, tag=tag, uid=f", uid: {uid}" if uid else "", value=value)


class Home:
    """A node's state, and manifests that lie somewhere else."""

    def __init__(self, path: Path) -> None:
        self.root = path / "root"
        self.there = path / "manifests"
        self.new = path / "new"
        for directory in (self.there, self.new):
            directory.mkdir()

    def in_force(self, files: Mapping[str, str]) -> tuple[Pod, ...]:
        """Have an agent of node n1 run these; the pods that it would show."""
        judged = []
        for name, text in sorted(files.items()):
            path = self.there / name
            path.write_text(text)
            verdicts = decode_manifest(text.encode(), name, kinds=OBJECTS)
            judged.append(FileVerdicts(path, tuple(verdicts)))
        pods = select(judged, {}, "n1", allowed=STANDALONE).pods
        objects = select_objects(judged, {}, "n1").objects
        file = self.root / "checkpoints" / "manifests.json"
        ManifestCheckpoint(file, "n1").save(pods.values(), objects.values())
        held = [document.pod for document in pods.values()]
        return tuple(merge_snapshot("file", {}, held, first=True, seen_at="").pods.values())

    def put(self, name: str, text: str) -> Path:
        path = self.new / name
        path.write_text(text)
        return path


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def run(
    capsys: pytest.CaptureFixture[str], home: Home, *args: str | Path
) -> tuple[int, list[str], list[str]]:
    """Exit code, what is said of pods, and notes and errors."""
    endpoint = f"--container-runtime-endpoint={NOTHING}"
    code = app.invoke(["plan", f"--root-dir={home.root}", endpoint, *map(str, args)])
    told = capsys.readouterr()
    lines = (told.out + told.err).splitlines()
    aside = [line for line in lines if line.startswith(("note:", "error:", "nodeagent:"))]
    return code, [line for line in lines if line not in aside], aside


def test_a_directory_stands_for_all_manifests(
    home: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    home.in_force({"a.yaml": pod("a"), "b.yaml": pod("b"), "c.yaml": pod("c")})
    home.put("a.yaml", "# a remark\n" + pod("a"))
    home.put("b.yaml", pod("b", tag="2"))
    code, told, _ = run(capsys, home, home.new)
    assert code == 0
    assert told == [
        (
            "default/b-n1 (b.yaml): replace: a pod from a file with another content is another "
            "pod, with a UID of its own"
        ),
        '  spec.containers[main].image: "busybox:1" -> "busybox:2"',
        "  container main: restart",
        "default/c-n1 (c.yaml): remove: no manifest gives it any more",
        "  container main: stop",
        (
            "pods: 0 created, 0 updated in place, 0 with containers restarted, 1 replaced, "
            "1 removed, 0 kept as they are, 1 unchanged"
        ),
    ]


def test_a_file_stands_for_the_file_of_its_name(
    home: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    home.in_force({"a.yaml": pod("a"), "b.yaml": pod("b")})
    code, told, _ = run(capsys, home, home.put("a.yaml", pod("a", tag="2")))
    assert code == 0
    assert told[-1].endswith("1 replaced, 0 removed, 0 kept as they are, 1 unchanged")
    code, told, _ = run(capsys, home, home.put("c.yaml", pod("c")))
    assert told[:2] == ["default/c-n1 (c.yaml): create", "  container main: start"]
    assert told[-1].endswith("0 removed, 0 kept as they are, 2 unchanged")


def test_files_that_do_not_go_together_are_told_as_the_agent_would(
    home: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    home.in_force({"a.yaml": pod("a")})
    code, _told, aside = run(capsys, home, home.put("z.yaml", pod("a", tag="2")))
    assert code == 1
    assert "metadata.name: duplicate: a.yaml already gives the pod default/a" in aside[0]


def test_a_bad_file_changes_nothing_and_is_an_error(
    home: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    home.in_force({"a.yaml": pod("a")})
    home.put("a.yaml", pod("a").replace("image", "imago"))
    code, told, aside = run(capsys, home, home.new)
    assert code == 1
    assert (
        told[0]
        == "warning: a.yaml: spec.containers[0].imago: unknown field, did you mean image? (line 7)"
    )
    assert told[1] == "default/a-n1 (a.yaml): keep: a.yaml is bad: the pod runs on as it was"
    assert aside[0] == "error: a.yaml: spec.containers[0].image: required (line 6)"


def test_values_of_variables_are_shown_only_when_asked_for(
    home: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    home.in_force({"a.yaml": pod("a", value="old-secret")})
    home.put("a.yaml", pod("a", value="new-secret"))
    path = "  spec.containers[main].env[TOKEN].value: "
    _, told, _ = run(capsys, home, home.new)
    assert path + "(not shown) -> (not shown)" in told
    _, told, _ = run(capsys, home, home.new, "--json")
    assert "secret" not in "".join(told)
    _, told, _ = run(capsys, home, home.new, "--show-values")
    assert path + '"old-secret" -> "new-secret"' in told


def test_exit_codes(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    home.in_force({"a.yaml": pod("a")})
    home.put("a.yaml", pod("a"))
    assert run(capsys, home, home.new, "--exit-code")[0] == 0
    home.put("a.yaml", pod("a", tag="2"))
    assert run(capsys, home, home.new)[0] == 0
    assert run(capsys, home, home.new, "--exit-code")[0] == 3
    home.put(
        "b.yaml", pod("b").replace("env:", "volumeDevices: [{name: v, devicePath: /d}]\n    x:")
    )
    assert run(capsys, home, home.new, "--exit-code")[0] == 1
    assert run(capsys, home, home.new / "nowhere")[0] == 1
    assert run(capsys, home)[0] == 2


def test_json_names_every_pod_field_and_container(
    home: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    home.in_force({"a.yaml": pod("a", uid="u1"), "c.yaml": CONFIG % "p"})
    home.put("a.yaml", pod("a", tag="2", uid="u1"))
    home.put("c.yaml", CONFIG % "q")
    _, told, _ = run(capsys, home, home.new, "--json")
    whole: dict[str, Any] = json.loads("\n".join(told))
    assert whole["pods"] == [
        {
            "outcome": "restart",
            "namespace": "default",
            "name": "a-n1",
            "uid": "u1",
            "file": "a.yaml",
            "why": "Container main definition changed, will be restarted",
            "changes": [
                {
                    "field": "spec.containers[main].image",
                    "before": "busybox:1",
                    "after": "busybox:2",
                }
            ],
            "containers": [
                {
                    "name": "main",
                    "step": "restart",
                    "why": "Container main definition changed, will be restarted",
                }
            ],
            "unsupported": [],
        }
    ]
    assert [(o["kind"], o["name"], o["what"]) for o in whole["objects"]] == [
        ("ConfigMap", "c", "update: a")
    ]
    assert (whole["ok"], whole["changes"], len(whole["notes"])) == (True, True, 1)


def test_what_cannot_be_found_out_is_said(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    home.put("a.yaml", pod("a"))
    _, _, aside = run(capsys, home, home.new)
    checkpoint = home.root / "checkpoints" / "manifests.json"
    assert aside == [
        f"note: {checkpoint} does not exist: no manifest is in force there",
        (
            f"note: the container runtime cannot be asked ({NOTHING}: there is no such socket): it "
            "is assumed that everything in force runs"
        ),
    ]
    home.in_force({"a.yaml": pod("a")})
    _, told, aside = run(capsys, home, home.new, "--hostname-override=n2")
    assert aside[0] == f"note: {checkpoint} is of node n1: nothing of it counts"
    assert told[0] == "default/a-n2 (a.yaml): create"
    checkpoint.write_text("damaged")
    _, _, aside = run(capsys, home, home.new)
    assert aside[0].startswith(f"note: {checkpoint}: ")
    assert checkpoint.read_text() == "damaged", "a plan changes nothing"


def test_a_running_agent_tells_what_runs(
    home: Home, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pods = home.in_force({"a.yaml": pod("a"), "b.yaml": pod("b"), "c.yaml": pod("c")})
    (home.root / "checkpoints" / "manifests.json").unlink()
    monkeypatch.setattr(plan_state, "read_agent", lambda _url: pods)
    home.put("a.yaml", pod("a"))
    home.put("b.yaml", pod("b", tag="2"))
    _, told, aside = run(capsys, home, home.new, "--agent=http://127.0.0.1:1")
    assert aside == []
    assert [line.partition(":")[0] for line in told if not line.startswith(" ")] == [
        "default/b-n1 (b.yaml)",
        "default/c-n1",
        "pods",
    ]
    _, told, _ = run(capsys, home, home.new / "b.yaml", "--agent=http://127.0.0.1:1")
    assert told[-1].endswith("1 replaced, 0 removed, 0 kept as they are, 0 unchanged")


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("ftp://x", "must be the http URL of an agent's read-only port"),
        ("http://127.0.0.1:1", "Connection refused"),
    ],
)
def test_an_agent_that_does_not_answer(
    url: str, why: str, home: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(StateUnknownError, match=why):
        read_agent(url)
    code, told, aside = run(capsys, home, home.new, f"--agent={url}")
    assert (code, told, len(aside)) == (1, [], 1)
    assert aside[0].startswith(f"nodeagent: {url}")


def test_containers_of_which_nothing_is_said_are_taken_to_run() -> None:
    status = status_of(make_pod("web"))
    assert [c.state for c in status.containers] == [ContainerState.RUNNING]
