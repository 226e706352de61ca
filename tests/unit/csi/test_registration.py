"""Drivers that register themselves by a socket (docs/behaviour/csi.md, "Registration")."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from prometheus_client import CollectorRegistry

from nodeagent.aio import background
from nodeagent.csi.client import NodeInfo
from nodeagent.csi.drivers import CsiDrivers
from nodeagent.csi.metrics import CsiMetrics
from nodeagent.csi.node_storage import NOT_INITIALIZED, NodeStorage
from nodeagent.csi.registration import CSI_PLUGIN, Plugin, PluginRefusedError, PluginWatcher
from nodeagent.csi.registry import DriverMissingError, DriverRegistry
from nodeagent.journal import Journal
from nodeagent.kube import ApiError
from nodeagent.rpc import Internal, Unavailable
from nodeagent.testing import ApiStore, RecordedMounter, StoreClient
from nodeagent.testing.csi_driver import CsiDriver

pytestmark = pytest.mark.anyio

NAME = "files.example.com"
NODE = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}}


class Bed:
    """The parts that take drivers, on an API server in memory."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.store = ApiStore()
        self.metrics = CollectorRegistry()
        self.journal = Journal()
        self.client = StoreClient(self.store)
        self.registry = DriverRegistry()
        self.ready = 0
        metrics = CsiMetrics(self.metrics)
        self.storage = NodeStorage(self.client, "n1", self.journal, self._on_ready)
        self.watcher = PluginWatcher(
            home / "reg",
            {CSI_PLUGIN: CsiDrivers(self.registry, self.storage, metrics)},
            self.journal,
            metrics,
        )

    def _on_ready(self) -> None:
        self.ready += 1

    def driver(self, name: str = NAME, **fields: Any) -> CsiDriver:
        return CsiDriver(name, self.home / "data", RecordedMounter(), **fields)

    @property
    def plugins(self) -> Path:
        return self.home / "reg"

    def node(self) -> dict[str, Any]:
        return self.store.get("nodes", "n1")

    def csi_node(self) -> dict[str, Any]:
        return self.store.get("csinodes", "n1")

    def drivers(self) -> list[dict[str, Any]]:
        try:
            return list(self.csi_node()["spec"]["drivers"])
        except ApiError:
            return []

    def figure(self, state: str) -> list[str]:
        return [
            sample.labels["socket_path"]
            for metric in self.metrics.collect()
            for sample in metric.samples
            if sample.name == "plugin_manager_total_plugins" and sample.labels["state"] == state
        ]


@asynccontextmanager
async def bed(home: Path, node: dict[str, Any] | None = None) -> AsyncIterator[Bed]:
    made = Bed(home)
    made.store.create(node or NODE)
    async with background() as tasks:
        await tasks.start(made.storage.run)
        await tasks.start(made.registry.run)
        await tasks.start(made.watcher.run)
        yield made


async def until(true: Callable[[], object], seconds: float = 30.0) -> None:
    with anyio.fail_after(seconds):
        while not true():
            await anyio.sleep(0.01)


async def test_a_driver_is_shown_with_its_node_id_its_place_and_its_limit(tmp_path: Path) -> None:
    """YR2, YN3, YN4, YN5."""
    info = NodeInfo("here-1", 7, {"zone.example.com": "b", "rack.example.com": "4"})
    async with bed(tmp_path) as it:
        driver = it.driver(info=info)
        async with driver.serving(it.plugins):
            await until(lambda: driver.told)
            assert [(told.registered, told.error) for told in driver.told] == [(True, "")]
            assert it.registry.find(NAME).endpoint == str(it.plugins / f"{NAME}.sock")
            (shown,) = it.drivers()
            assert shown == {
                "name": NAME,
                "nodeID": "here-1",
                "topologyKeys": ["rack.example.com", "zone.example.com"],
                "allocatable": {"count": 7},
            }
            (owner,) = it.csi_node()["metadata"]["ownerReferences"]
            assert (owner["kind"], owner["name"]) == ("Node", "n1")
            assert owner["uid"] == it.node()["metadata"]["uid"]
            metadata = it.node()["metadata"]
            ids = json.loads(metadata["annotations"]["csi.volume.kubernetes.io/nodeid"])
            assert ids == {NAME: "here-1"}
            assert metadata["labels"]["zone.example.com"] == "b"
            for state in ("desired_state_of_world", "actual_state_of_world"):
                assert it.figure(state) == [str(it.plugins / f"{NAME}.sock")]


async def test_a_driver_whose_socket_goes_is_forgotten(tmp_path: Path) -> None:
    """YR3, YN6."""
    async with bed(tmp_path) as it:
        driver = it.driver()
        async with driver.serving(it.plugins, tmp_path / "csi.sock"):
            await until(lambda: driver.told)
            assert it.registry.find(NAME).endpoint == str(tmp_path / "csi.sock")
        await until(lambda: not it.registry.has(NAME))
        with pytest.raises(DriverMissingError, match="not found in the list of registered CSI"):
            it.registry.find(NAME)
        await until(lambda: it.drivers() == [])
        await until(
            lambda: (
                "csi.volume.kubernetes.io/nodeid"
                not in it.node()["metadata"].get("annotations", {})
            )
        )
        await until(lambda: it.figure("actual_state_of_world") == [])


async def test_a_driver_that_comes_back_is_registered_again(tmp_path: Path) -> None:
    async with bed(tmp_path) as it:
        for number in (1, 2, 3):
            driver = it.driver(info=NodeInfo(f"here-{number}", 0, {}))
            async with driver.serving(it.plugins):
                await until(lambda: driver.told)  # noqa: B023
                assert it.drivers()[0]["nodeID"] == f"here-{number}"


async def test_a_socket_in_place_of_another_is_a_new_plugin(tmp_path: Path) -> None:
    """YR3."""
    async with bed(tmp_path) as it:
        first, second = it.driver(), it.driver(info=NodeInfo("here-2", 0, {}))
        async with first.serving(it.plugins):
            await until(lambda: first.told)
            # A driver that died without removing its socket.
            (it.plugins / f"{NAME}.sock").rename(it.plugins / ".old")
            async with second.serving(it.plugins):
                await until(lambda: second.told)
                await until(lambda: it.drivers() and it.drivers()[0]["nodeID"] == "here-2")


async def test_two_drivers_are_both_shown(tmp_path: Path) -> None:
    """YR1, YR4, YN3."""
    async with bed(tmp_path) as it:
        one, two = it.driver("one.example.com"), it.driver("two.example.com")
        async with one.serving(it.plugins):
            (it.plugins / "deep").mkdir()
            async with two.serving(it.plugins / "deep"):
                await until(lambda: one.told and two.told)
                assert {d["name"] for d in it.drivers()} == {"one.example.com", "two.example.com"}
                annotation = it.node()["metadata"]["annotations"]["csi.volume.kubernetes.io/nodeid"]
                assert json.loads(annotation) == {
                    "one.example.com": "node-1",
                    "two.example.com": "node-1",
                }


async def test_a_driver_of_another_version_is_told_why_it_is_refused(tmp_path: Path) -> None:
    """YR5."""
    async with bed(tmp_path) as it:
        driver = it.driver(versions=("0.3.0",))
        async with driver.serving(it.plugins):
            await until(lambda: driver.told)
            told = driver.told[0]
            assert not told.registered
            assert told.error.startswith(
                "RegisterPlugin error -- plugin validation failed with err: "
            )
            assert "0.3.0" in told.error
            assert not it.registry.has(NAME)


async def test_a_driver_that_contradicts_the_node_is_refused(tmp_path: Path) -> None:
    """YN5."""
    node = {**NODE, "metadata": {"name": "n1", "labels": {"zone.example.com": "a"}}}
    async with bed(tmp_path, node) as it:
        driver = it.driver(info=NodeInfo("x", 0, {"zone.example.com": "b"}))
        async with driver.serving(it.plugins):
            await until(lambda: driver.told)
            assert "topology value collision" in driver.told[0].error
            assert it.drivers() == []


async def test_a_driver_that_does_not_know_its_node_yet_is_asked_again(tmp_path: Path) -> None:
    """YR6."""
    asked = 0

    async def before(method: str) -> None:
        nonlocal asked
        if method == "NodeGetInfo":
            asked += 1
            if asked < 4:
                raise Unavailable("still starting")

    async with bed(tmp_path) as it:
        driver = it.driver(before=before)
        async with driver.serving(it.plugins):
            await until(lambda: driver.told)
            assert [told.registered for told in driver.told] == [True]
            assert asked == 4


async def test_a_driver_that_fails_is_told_so_and_tried_again_later(tmp_path: Path) -> None:
    """YR2, YR6."""
    broken = True

    async def before(method: str) -> None:
        if method == "NodeGetInfo" and broken:
            raise Internal("no metadata service")

    async with bed(tmp_path) as it:
        driver = it.driver(before=before)
        async with driver.serving(it.plugins):
            await until(lambda: driver.told)
            assert "no metadata service" in driver.told[0].error
            broken = False
            await until(lambda: driver.told[-1].registered)
            assert it.registry.has(NAME)


async def test_files_that_are_no_sockets_and_hidden_ones_are_left_alone(tmp_path: Path) -> None:
    """YR1."""
    async with bed(tmp_path) as it:
        (it.plugins / "readme").write_text("hello")
        (it.plugins / ".h").mkdir()
        hidden, driver = it.driver("h.example.com"), it.driver()
        async with (
            hidden.serving(it.plugins / ".h"),
            driver.serving(it.plugins),
        ):
            await until(lambda: driver.told)
            await anyio.sleep(2)
            assert hidden.told == []
            assert len(it.figure("desired_state_of_world")) == 1


async def test_the_csi_node_of_an_older_node_of_that_name_is_replaced(tmp_path: Path) -> None:
    """YN1."""
    made = Bed(tmp_path)
    made.store.create(NODE)
    owner = {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "of-long-ago"}
    old = {"name": "gone.example.com", "nodeID": "x"}
    made.store.create(
        {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "CSINode",
            "metadata": {"name": "n1", "ownerReferences": [owner]},
            "spec": {"drivers": [old]},
        }
    )
    async with background() as tasks:
        await tasks.start(made.storage.run)
        await until(lambda: made.ready)
    (now,) = made.csi_node()["metadata"]["ownerReferences"]
    assert now["uid"] == made.node()["metadata"]["uid"]
    assert made.drivers() == []


async def test_without_its_csi_node_the_node_is_not_ready(tmp_path: Path) -> None:
    """YN2."""
    made = Bed(tmp_path)
    async with background() as tasks:
        await tasks.start(made.storage.run)
        await anyio.sleep(3)
        assert made.storage.error == NOT_INITIALIZED
        made.store.create(NODE)
        made.storage.retry_now()
        await until(lambda: made.ready)
        assert made.storage.error == ""


async def test_a_plugin_of_a_type_that_nobody_takes_is_told_so(tmp_path: Path) -> None:
    """YR7."""
    watcher = PluginWatcher(tmp_path / "reg", {}, Journal(), CsiMetrics(CollectorRegistry()))
    driver = CsiDriver(NAME, tmp_path, RecordedMounter())
    async with background() as tasks:
        await tasks.start(watcher.run)
        async with driver.serving(tmp_path / "reg"):
            await until(lambda: driver.told)
    socket = tmp_path / "reg" / f"{NAME}.sock"
    said = f"no handler registered for plugin type: CSIPlugin at socket {socket}"
    assert driver.told[0].error == f"RegisterPlugin error -- {said}"


@pytest.mark.parametrize("name", ["", "-x", "a/b", "x" * 64])
async def test_a_name_that_cannot_be_one_is_refused(tmp_path: Path, name: str) -> None:
    """YR5."""
    made = Bed(tmp_path)
    taker = CsiDrivers(made.registry, made.storage, CsiMetrics(CollectorRegistry()))
    with pytest.raises(PluginRefusedError, match="is not the name of a CSI driver"):
        taker.validate(Plugin(name, "/x", ("1.0.0",)))
