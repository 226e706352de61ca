"""Whole agents without an API server whose pods refer to ConfigMaps and Secrets beside them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from ring import Ring, simulated
from test_faults_sources import agent, manifests_check
from tests.unit.sources.web_lab import serving

from nodeagent.embedded import SimulatedBackend
from nodeagent.journal import JournalRecord

pytestmark = pytest.mark.anyio

HIDDEN = "xyzzy-plugh"

POD = """apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  containers:
    - name: main
      image: busybox:1.36
      envFrom: [{configMapRef: {name: settings}}]
      env:
        - name: PASSWORD
          valueFrom: {secretKeyRef: {name: login, key: password}}
"""
MAP = """apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {COLOR: %s}
"""
SECRET = f"""apiVersion: v1
kind: Secret
metadata: {{name: login}}
stringData: {{password: {HIDDEN}}}
"""


class Standalone(Ring):
    """An agent on a directory of manifests."""

    manifests: Path
    backend: SimulatedBackend

    def write(self, name: str, *documents: str) -> None:
        (self.manifests / name).write_text("---\n".join(documents))

    def environment(self, pod: str = "web-n1") -> dict[str, str]:
        (container,) = self.containers(pod, running=True)
        return {pair.key: pair.value.decode() for pair in container.config.envs}

    def waits_for(self, text: str) -> Callable[[], bool]:
        return lambda: text in str(self.pod("web-n1"))

    def records(self, what: str) -> list[JournalRecord]:
        return [r for r in self.agent.journal.select() if r.what == what]

    async def restart_container(self, pod: str = "web-n1") -> None:
        (container,) = self.containers(pod, running=True)
        self.backend.end(container, 1)
        await self.until(lambda: self.ids(pod) not in ([], [container.id]))


@asynccontextmanager
async def standalone(tmp_path: Path, *documents: str) -> AsyncIterator[Standalone]:
    manifests, backend = tmp_path / "m", SimulatedBackend()
    manifests.mkdir(exist_ok=True)
    if documents:
        (manifests / "all.yaml").write_text("---\n".join(documents))
    async with (
        simulated(tmp_path, backend) as (runtime, endpoint),
        agent(runtime, endpoint, tmp_path, static_pod_path=manifests) as ring,
    ):
        node = Standalone(ring.agent, runtime, ring.source)
        node.manifests, node.backend = manifests, backend
        yield node


async def test_os1_objects_beside_a_pod_give_its_variables(tmp_path: Path) -> None:
    async with standalone(tmp_path, POD, MAP % "red", SECRET) as node:
        await node.running("web-n1")
        found = node.environment()
        assert (found["COLOR"], found["PASSWORD"]) == ("red", HIDDEN)
        assert manifests_check(node) == ""


async def test_os7_a_pod_waits_for_its_objects_and_goes_on_by_itself(tmp_path: Path) -> None:
    async with standalone(tmp_path, POD) as node:
        await node.until(node.waits_for('configmap "settings" not found'))
        assert "CreateContainerConfigError" in str(node.status("web-n1").state)
        node.write("settings.yaml", MAP % "red")
        await node.until(node.waits_for('secret "login" not found'))
        began = anyio.current_time()
        node.write("login.yaml", SECRET)
        await node.running("web-n1")
        assert anyio.current_time() - began < 5


async def test_os2_a_container_that_starts_anew_sees_the_edit(tmp_path: Path) -> None:
    async with standalone(tmp_path, POD, SECRET) as node:
        node.write("settings.yaml", MAP % "red")
        await node.running("web-n1")
        node.write("settings.yaml", MAP % "blue")
        await node.until(lambda: len(node.records("ObjectChanged")) > 1)
        assert node.environment()["COLOR"] == "red"
        await node.restart_container()
        assert node.environment()["COLOR"] == "blue"


async def test_os3_a_bad_edit_is_told_and_changes_nothing(tmp_path: Path) -> None:
    async with standalone(tmp_path, POD, SECRET) as node:
        node.write("settings.yaml", MAP % "red")
        await node.running("web-n1")
        (running,) = node.ids("web-n1")
        node.write("settings.yaml", MAP % "7")
        told = "settings.yaml: data[COLOR]: expected a string, got a number; put it in quotes"
        await node.until(lambda: told in manifests_check(node))
        assert [r.why for r in node.records("LastGoodKept")] == ["ConfigMap default/settings"]
        assert node.ids("web-n1") == [running]
        await node.restart_container()
        assert node.environment()["COLOR"] == "red"


async def test_os8_config_maps_survive_a_restart_and_secrets_are_not_written(
    tmp_path: Path,
) -> None:
    async with standalone(tmp_path, POD) as node:
        node.write("settings.yaml", MAP % "red")
        node.write("login.yaml", SECRET)
        await node.running("web-n1")
    (tmp_path / "m" / "settings.yaml").write_text(MAP % "7")
    saved = tmp_path / "root" / "checkpoints" / "manifests.json"
    assert "settings" in saved.read_text()
    assert saved.stat().st_mode & 0o777 == 0o600
    async with standalone(tmp_path) as node:
        await node.running("web-n1")
        assert node.environment()["COLOR"] == "red"
    kept = [p.read_bytes() for p in (tmp_path / "root").rglob("*") if p.is_file()]
    assert HIDDEN.encode() not in b"".join(kept)


async def test_os9_a_secret_is_never_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    async with standalone(tmp_path, POD, MAP % "red", SECRET) as node:
        await node.running("web-n1")
        node.write("all.yaml", POD, MAP % "red", SECRET.replace("stringData", "data"))
        await node.until(lambda: "not base64 text" in manifests_check(node))
        node.write("all.yaml", POD, MAP % "red", SECRET + "  x: {\n")
        await node.until(lambda: "not base64 text" not in manifests_check(node))
        await anyio.sleep(120)
        told = [str(r) for r in node.agent.journal.select()]
        assert HIDDEN not in "".join((*told, str(node.agent.pods()), manifests_check(node)))
    out = capsys.readouterr()
    assert HIDDEN not in out.out + out.err + caplog.text
    assert HIDDEN not in "".join(str(vars(record)) for record in caplog.records)


async def test_os10_of_a_hundred_edits_in_a_second_the_last_one_counts(tmp_path: Path) -> None:
    async with standalone(tmp_path, POD, SECRET) as node:
        node.write("settings.yaml", MAP % "red")
        await node.running("web-n1")
        for number in range(100):
            new = tmp_path / "m" / ".new"
            new.write_text(MAP % f"color-{number}")
            new.replace(tmp_path / "m" / "settings.yaml")
            await anyio.sleep(0.01)
        await anyio.sleep(3)
        await node.restart_container()
        assert node.environment()["COLOR"] == "color-99"


async def test_os11_objects_may_come_from_a_url(tmp_path: Path) -> None:
    async with serving() as web, simulated(tmp_path) as (runtime, endpoint):
        web.body = "---\n".join((POD, MAP % "red", SECRET))
        url = {"static_pod_url": web.url, "http_check_frequency": 5.0}
        async with agent(runtime, endpoint, tmp_path, **url) as ring:
            node = Standalone(ring.agent, runtime, ring.source)
            await node.running("web-n1")
            assert node.environment()["PASSWORD"] == HIDDEN


async def test_os12_what_cannot_be_had_without_a_server_is_refused(tmp_path: Path) -> None:
    claim = "  volumes: [{name: v, persistentVolumeClaim: {claimName: x}}]\n"
    async with standalone(tmp_path, POD + claim) as node:
        await node.until(lambda: manifests_check(node) != "")
        assert "spec: static pods may not reference persistentvolumeclaims" in manifests_check(node)
        node.write("all.yaml", POD + "  serviceAccountName: builder\n", MAP % "red", SECRET)
        await node.running("web-n1")
        (told,) = node.records("ManifestWarning")
        assert "spec.serviceAccountName: ignored: without an API server" in told.why


VOLUMES = """apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  volumes:
    - name: settings
      configMap: {name: settings}
    - name: all
      projected:
        sources:
          - configMap: {name: settings, optional: true}
          - secret: {name: login}
  containers:
    - name: main
      image: busybox:1.36
      volumeMounts:
        - {name: settings, mountPath: /settings}
        - {name: all, mountPath: /all}
"""


def mounted(node: Standalone, volume: str) -> Path:
    """Where the pod's volume lies on the host."""
    (container,) = node.containers("web-n1", running=True)
    paths = [Path(m.host_path) for m in container.config.mounts]
    return next(path for path in paths if path.name == volume)


@pytest.mark.usefixtures("recorded_mounts")
async def test_os2_an_edit_reaches_the_volumes_of_a_pod_that_runs(tmp_path: Path) -> None:
    async with standalone(tmp_path, VOLUMES, SECRET) as node:
        node.write("settings.yaml", MAP % "red")
        await node.running("web-n1")
        settings, everything = mounted(node, "settings"), mounted(node, "all")
        assert (settings / "COLOR").read_text() == "red"
        assert (everything / "password").read_text() == HIDDEN
        (running,) = node.ids("web-n1")
        node.write("settings.yaml", MAP % "blue")
        began = anyio.current_time()
        await node.until(lambda: (settings / "COLOR").read_text() == "blue")
        await node.until(lambda: (everything / "COLOR").read_text() == "blue")
        assert anyio.current_time() - began < 5
        (tmp_path / "m" / "settings.yaml").unlink()
        # The one volume may do without it, the other keeps what it has.
        await node.until(lambda: not (everything / "COLOR").exists())
        assert (settings / "COLOR").read_text() == "blue"
        assert node.ids("web-n1") == [running]


@pytest.mark.usefixtures("recorded_mounts")
async def test_os7_a_volume_waits_for_its_object(tmp_path: Path) -> None:
    async with standalone(tmp_path, VOLUMES) as node:
        await node.until(node.waits_for('configmap "settings" not found'))
        node.write("settings.yaml", MAP % "red")
        await node.until(node.waits_for('secret "login" not found'))
        node.write("login.yaml", SECRET)
        await node.running("web-n1")


@pytest.mark.usefixtures("recorded_mounts")
async def test_os10_a_volume_is_never_a_mixture(tmp_path: Path) -> None:
    """Two keys that say the same in each version say the same at any time."""
    both = MAP.replace("{COLOR: %s}", "{COLOR: %s, again: %s}")
    async with standalone(tmp_path, VOLUMES, SECRET) as node:
        node.write("settings.yaml", both % ("color-x", "color-x"))
        await node.running("web-n1")
        settings = mounted(node, "settings")
        seen: set[str] = set()
        for number in range(100):
            new, text = tmp_path / "m" / ".new", f"color-{number}"
            new.write_text(both % (text, text))
            new.replace(tmp_path / "m" / "settings.yaml")
            await anyio.sleep(0.01)
            version = (settings / "..data").resolve()
            found = {(version / key).read_text() for key in ("COLOR", "again")}
            assert len(found) == 1
            seen |= found
        await node.until(lambda: (settings / "COLOR").read_text() == "color-99")
