"""``nodeagent gc``: its settings, what it prints, and how it ends (docs/garbage.md)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nodeagent.cli import app
from nodeagent.cli import gc as module
from nodeagent.cli.gc import Report, Wish
from nodeagent.config import AgentConfig
from nodeagent.errors import StartError


class Asked:
    """Takes the place of the work, and remembers what was asked for."""

    def __init__(self) -> None:
        self.config = AgentConfig()
        self.wish = Wish(dry_run=False, everything=False, all_images=False)
        self.report = Report()
        self.error: StartError | None = None

    async def collect(self, config: AgentConfig, wish: Wish) -> Report:
        self.config, self.wish = config, wish
        if self.error is not None:
            raise self.error
        return self.report


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    asked = Asked()
    monkeypatch.setattr(module, "collect", asked.collect)
    asked.report.containers.append(
        {
            "id": "0123456789abcdef",
            "pod": "default/web",
            "name": "main",
            "attempt": 3,
            "why": "of its name the newest 1 are kept",
        }
    )
    asked.report.sandboxes += [
        {"id": f"s{n}", "pod": "default/web", "attempt": n, "why": "the pod has a newer one"}
        for n in (0, 1)
    ]
    asked.report.log_directories.append({"path": "/var/log/pods/default_old_u", "uid": "u"})
    asked.report.images.append(
        {"id": "sha256:1", "name": "registry.test/a:1", "bytes": 12, "why": "never in use"}
    )
    asked.report.notes.append("the file system of images (/images) is used by 90 %")
    return asked


def test_it_says_what_would_go_and_why(asked: Asked, capsys: pytest.CaptureFixture[str]) -> None:
    assert app.invoke(["gc", "--dry-run"]) == 0
    assert asked.wish == Wish(dry_run=True, everything=False, all_images=False)
    assert capsys.readouterr().out.splitlines() == [
        "container  0123456789abc  default/web main attempt 3: of its name the newest 1 are kept",
        "sandbox    s0  default/web attempt 0: the pod has a newer one",
        "sandbox    s1  default/web attempt 1: the pod has a newer one",
        "logs       /var/log/pods/default_old_u: the pod is gone",
        "image      registry.test/a:1  12 bytes: never in use",
        "the file system of images (/images) is used by 90 %",
        "1 container, 2 sandboxes, 1 log directory, 1 image would go; nothing was removed",
    ]


def test_it_ends_with_one_when_something_could_not_be_removed(
    asked: Asked, capsys: pytest.CaptureFixture[str]
) -> None:
    asked.report.node_event("Warning", "FreeDiskSpaceFailed", "too little")
    asked.report.node_event("Warning", "FreeDiskSpaceFailed", "too little")
    assert app.invoke(["gc"]) == 1
    told = capsys.readouterr().out.splitlines()
    assert told[-2:] == [
        "failed     FreeDiskSpaceFailed: too little",
        "1 container, 2 sandboxes, 1 log directory, 1 image were to go",
    ]


def test_it_prints_json(asked: Asked, capsys: pytest.CaptureFixture[str]) -> None:
    assert app.invoke(["gc", "--json", "--dry-run"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["dryRun"] is True
    assert told["images"] == asked.report.images
    assert set(told) == {
        "dryRun", "containers", "sandboxes", "logDirectories", "images", "notes", "failures",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("flags", "wish"),
    [
        ([], Wish(dry_run=False, everything=False, all_images=False)),
        (["--all-images"], Wish(dry_run=False, everything=False, all_images=True)),
        (["--all"], Wish(dry_run=False, everything=True, all_images=True)),
    ],
)
def test_it_is_told_how_far_to_go(asked: Asked, flags: list[str], wish: Wish) -> None:
    assert app.invoke(["gc", *flags]) == 0
    assert asked.wish == wish


def test_settings_come_from_flags_then_from_the_file(asked: Asked, tmp_path: Path) -> None:
    file = tmp_path / "kubelet.yaml"
    file.write_text(
        "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
        "imageGCHighThresholdPercent: 70\nimageGCLowThresholdPercent: 60\n"
        "containerRuntimeEndpoint: unix:///run/other.sock\nsyncFrequency: 5s\n"
    )
    flags = [f"--config={file}", "--image-gc-low-threshold=50", "--root-dir=/state"]
    assert app.invoke(["gc", *flags]) == 0
    config = asked.config
    assert (config.image_gc_high_threshold_percent, config.image_gc_low_threshold_percent) == (
        70,
        50,
    )
    assert config.container_runtime_endpoint == "unix:///run/other.sock"
    assert (config.root_dir, config.sync_frequency) == ("/state", 60.0)


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (["--container-runtime-endpoint=embedded"], "the embedded runtime lives in its agent"),
        (["--image-gc-high-threshold=10"], "--image-gc-low-threshold=80: must be less than"),
        (["--config=/none.yaml"], "cannot be read"),
    ],
)
def test_what_cannot_be_is_one_line(
    asked: Asked, flags: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert app.invoke(["gc", *flags]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert told in line


def test_what_fails_is_one_line(asked: Asked, capsys: pytest.CaptureFixture[str]) -> None:
    asked.error = StartError("the runtime does not answer")
    assert app.invoke(["gc"]) == 1
    assert capsys.readouterr().err == "nodeagent: the runtime does not answer\n"
