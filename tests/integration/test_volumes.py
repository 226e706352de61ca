"""Volumes of pods of a whole agent (docs/behaviour/volumes.md, "Manager", "Content", "subPath")."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_standalone_objects import MAP, Standalone, standalone

pytestmark = pytest.mark.anyio

POD = """apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  containers:
    - name: main
      image: busybox:1.36
      volumeMounts:
        - {name: settings, mountPath: /settings%s}
  volumes:
    - name: settings
      configMap: {name: settings}
"""


def volume(node: Standalone) -> Path:
    """Where the container has it from."""
    (container,) = node.containers("web-n1", running=True)
    (path,) = [m.host_path for m in container.config.mounts if m.container_path == "/settings"]
    return Path(path)


def said(file: Path) -> str:
    try:
        return file.read_text()
    except FileNotFoundError:
        return ""


async def test_an_edit_of_a_config_map_beside_a_pod_reaches_its_files(tmp_path: Path) -> None:
    async with standalone(tmp_path, POD % "") as node:
        says = 'volume "settings": configmap "settings" not found'
        await node.until(node.waits_for(says))
        assert "ContainerCreating" in str(node.status("web-n1").state)
        events = [r.why for r in node.records("FailedMount")]
        says = 'MountVolume.SetUp failed for volume "settings" : configmap "settings" not found'
        assert any(says in text for text in events), events
        node.write("settings.yaml", MAP % "red")
        await node.running("web-n1")
        file = volume(node) / "COLOR"
        assert said(file) == "red"
        (container,) = node.containers("web-n1", running=True)
        node.write("settings.yaml", MAP % "blue")
        await node.until(lambda: said(file) == "blue")
        assert node.ids("web-n1") == [container.id]
        assert container.config.mounts[0].readonly


async def test_another_agent_goes_on_with_the_files_and_removes_them(tmp_path: Path) -> None:
    async with standalone(tmp_path, POD % "") as node:
        node.write("settings.yaml", MAP % "red")
        await node.running("web-n1")
        file = volume(node) / "COLOR"
    (tmp_path / "m" / "settings.yaml").write_text(MAP % "green")
    async with standalone(tmp_path) as node:
        await node.until(lambda: said(file) == "green")
        (tmp_path / "m" / "all.yaml").unlink()
        await node.until(lambda: not list((tmp_path / "root" / "pods").iterdir()))


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (", subPathExpr: $(NOBODY)", "missing value for NOBODY"),
        (
            ", subPath: nothing",
            'failed to prepare subPath for volumeMount "settings" of container "main"',
        ),
    ],
)
async def test_a_part_that_cannot_be_is_a_configuration_error(
    tmp_path: Path, more: str, says: str
) -> None:
    async with standalone(tmp_path, POD % more, MAP % "red") as node:
        await node.until(node.waits_for(says))
        assert "CreateContainerConfigError" in str(node.status("web-n1").state)
