"""Looking at what a node's status is made of: machine, addresses, runtime, figures."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest
from prometheus_client import CollectorRegistry
from tests.unit.node.node_bed import MACHINE, World

from nodeagent.config import AgentConfig
from nodeagent.journal import Journal
from nodeagent.node import addresses
from nodeagent.node.addresses import address_fault, find_addresses, host_address, is_local
from nodeagent.node.facts import FoundAddresses
from nodeagent.node.gather import NodeGatherer, NodeInputs
from nodeagent.node.machine import go_architecture, read_machine
from nodeagent.node.metrics import NodeMetrics
from nodeagent.node.pod_cidr import PodCidr, StandalonePodCidr
from nodeagent.proto.runtime import v1
from nodeagent.rpc import Unavailable


class TestMachine:
    def test_ns2_what_files_say(self, tmp_path: Path) -> None:
        files = {
            "proc/meminfo": "MemTotal:  2048 kB\nMemFree: 1 kB\nSwapTotal:   1024 kB\n",
            "etc/machine-id": "abc\n",
            "sys/class/dmi/id/product_uuid": "UUID\n",
            "proc/sys/kernel/random/boot_id": "boot\n",
            "etc/os-release": 'NAME=x\nPRETTY_NAME="Some Linux 1 (one)"\n',
            "sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages": "7\n",
            "sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages": "0\n",
        }
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        found = read_machine(tmp_path, tmp_path)
        assert (found.memory, found.swap) == (2048 * 1024, 1024 * 1024)
        assert (found.machine_id, found.system_uuid, found.boot_id) == ("abc", "UUID", "boot")
        assert found.os_image == "Some Linux 1 (one)"
        assert found.huge_pages == ((2 * 1024**2, 7), (1024**3, 0))
        assert found.storage > 0
        assert found.cpus > 0
        assert found.kernel_version

    def test_ns2_a_machine_that_says_nothing(self, tmp_path: Path) -> None:
        found = read_machine(None, tmp_path)
        assert (found.memory, found.storage, found.huge_pages) == (0, 0, ())
        assert (found.machine_id, found.system_uuid, found.os_image) == ("", "", "Linux")

    def test_ns2_without_hardware_ids_the_installation_counts(self, tmp_path: Path) -> None:
        (tmp_path / "etc").mkdir()
        (tmp_path / "etc/machine-id").write_text("abc\n")
        assert read_machine(None, tmp_path).system_uuid == "abc"

    def test_names_of_architectures(self) -> None:
        named = [go_architecture(m) for m in ("x86_64", "aarch64", "riscv64", "s390x")]
        assert named == ["amd64", "arm64", "riscv64", "s390x"]


@pytest.fixture
def network(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A machine with two addresses, one of each family, and what its name resolves to."""
    world: dict[str, Any] = {
        "local": {"10.0.0.5", "fd00::5"},
        "names": {},
        "routes": {socket.AF_INET: "10.0.0.5", socket.AF_INET6: "fd00::5"},
    }

    def resolve(name: str, _port: None, **_: Any) -> list[Any]:
        if name not in world["names"]:
            raise socket.gaierror("unknown")
        return [(0, 0, 0, "", (address, 0)) for address in world["names"][name]]

    monkeypatch.setattr(addresses, "is_local", lambda text: text in world["local"])
    monkeypatch.setattr(
        addresses, "default_route_address", lambda f=socket.AF_INET: world["routes"].get(f, "")
    )
    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    return world


@pytest.mark.usefixtures("network")
class TestAddresses:
    def test_na1_given_addresses(self) -> None:
        assert find_addresses(["10.0.0.5"], "n").ips == ("10.0.0.5",)
        assert find_addresses(["fd00::5", "10.0.0.5"], "n").ips == ("fd00::5", "10.0.0.5")

    @pytest.mark.parametrize(
        ("given", "said"),
        [
            ("10.0.0.9", 'node IP: "10.0.0.9" not found in the host\'s network interfaces'),
            ("127.0.0.1", 'node IP: "127.0.0.1" is a loopback address'),
            ("224.0.0.1", 'node IP: "224.0.0.1" is a multicast address'),
            ("fe80::1", 'node IP: "fe80::1" is a link-local address'),
        ],
    )
    def test_na1_an_address_that_others_cannot_use(self, given: str, said: str) -> None:
        assert find_addresses(["10.0.0.5", given], "n") == FoundAddresses(error=said)

    def test_unspecified_is_no_address(self) -> None:
        """NA1."""
        assert address_fault("0.0.0.0") == 'node IP: "0.0.0.0" is an unspecified address'

    def test_na2_a_name_that_is_an_address(self) -> None:
        assert find_addresses([], "10.0.0.77").ips == ("10.0.0.77",)

    def test_na2_what_the_name_resolves_to(self, network: dict[str, Any]) -> None:
        network["names"]["n"] = ["127.0.1.1", "8.8.8.8", "fd00::5", "10.0.0.5"]
        assert find_addresses([], "n").ips == ("10.0.0.5",)
        assert find_addresses(["::"], "n").ips == ("fd00::5",)
        assert find_addresses(["0.0.0.0"], "n").ips == ("10.0.0.5",)
        network["names"]["n"] = ["fd00::5"]
        assert find_addresses([], "n").ips == ("fd00::5",)

    def test_na2_na3_the_default_route_and_nothing(self, network: dict[str, Any]) -> None:
        assert find_addresses([], "n").ips == ("10.0.0.5",)
        assert find_addresses(["::"], "n").ips == ("fd00::5",)
        network["routes"].clear()
        found = find_addresses([], "n")
        assert found.ips == ()
        assert "--node-ip" in found.error

    def test_the_address_of_pods_on_the_network_of_the_host(self, network: dict[str, Any]) -> None:
        assert host_address(["10.0.0.9", "fd00::9"]) == "10.0.0.9"
        assert host_address([]) == host_address(["0.0.0.0"]) == "10.0.0.5"
        assert host_address(["::"]) == "fd00::5"
        network["routes"].clear()
        assert (host_address([]), host_address(["::"])) == ("127.0.0.1", "::1")


def test_an_address_of_an_interface_is_known() -> None:
    assert is_local("127.0.0.1")
    assert not is_local("192.0.2.77")


pytest_async = pytest.mark.anyio


def gatherer(inputs: NodeInputs) -> NodeGatherer:
    return NodeGatherer("n1", AgentConfig(node_name="n1"), MACHINE, "fake", inputs)


@pytest_async
async def test_ns5_na5_answers_are_remembered_and_stand_in_for_those_that_do_not_come() -> None:
    asked: list[str] = []
    world = World(images=[v1.Image(repo_tags=["a:1"], size=1)])

    async def list_images() -> Sequence[v1.Image]:
        asked.append("images")
        return await world.list_images()

    def find(given: Sequence[str], name: str) -> FoundAddresses:
        asked.append(f"addresses {list(given)} {name}")
        return FoundAddresses(ips=("10.0.0.1",))

    looking = gatherer(
        NodeInputs(
            list_images=list_images, find_addresses=find, runtime_version=world.runtime_version
        )
    )
    assert looking.known().images is None
    for _ in range(3):
        facts = await looking.facts()
    assert asked == ["images", "addresses [] n1"]
    assert facts.images is not None
    assert (facts.images[0].names, facts.runtime_version) == (("a:1",), "2.0")
    await anyio.sleep(31)
    world.hangs = True
    began = anyio.current_time()
    facts = await looking.facts()
    assert facts.images is not None
    assert [i.names for i in facts.images] == [("a:1",)]
    assert anyio.current_time() - began == pytest.approx(2)


@pytest_async
async def test_ns5_a_list_that_fails_is_asked_for_again() -> None:
    answers: list[Any] = [OSError("gone"), [v1.Image(repo_tags=["a:1"], size=1)]]

    async def list_images() -> Sequence[v1.Image]:
        answer: Any = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        found: Sequence[v1.Image] = answer
        return found

    looking = gatherer(
        NodeInputs(list_images=list_images, find_addresses=lambda _g, _n: FoundAddresses())
    )
    assert (await looking.facts()).images is None
    assert (await looking.facts()).images is not None


class Runtime:
    def __init__(self) -> None:
        self.told: list[str] = []
        self.broken = False

    async def update_runtime_config(self, config: v1.RuntimeConfig) -> None:
        if self.broken:
            raise Unavailable("away")
        assert config.network_config is not None
        self.told.append(config.network_config.pod_cidr)


@pytest_async
async def test_np7_the_runtime_is_told_new_addresses_of_pods() -> None:
    runtime = Runtime()
    cidr = PodCidr(runtime, Journal())
    assert not await cidr.set("")
    assert await cidr.set("10.1.0.0/24")
    assert not await cidr.set("10.1.0.0/24")
    runtime.broken = True
    assert not await cidr.set("10.2.0.0/24")
    runtime.broken = False
    assert await cidr.set("10.2.0.0/24")
    assert runtime.told == ["10.1.0.0/24", "10.2.0.0/24"]


@pytest_async
async def test_np7_an_agent_that_stands_alone_tells_the_runtime_once() -> None:
    runtime = Runtime()
    runtime.broken = True
    standalone = StandalonePodCidr(PodCidr(runtime, Journal()), "10.1.0.0/24")
    async with anyio.create_task_group() as tasks:
        await tasks.start(standalone.run)
        await anyio.sleep(60)
        runtime.broken = False
        await anyio.sleep(600)
        tasks.cancel_scope.cancel()
    assert runtime.told == ["10.1.0.0/24"]


@pytest_async
async def test_nm1_nm2_figures() -> None:
    registry = CollectorRegistry()
    begin = anyio.current_time()
    metrics = NodeMetrics(registry, "n1")

    def value(name: str) -> float | None:
        return registry.get_sample_value(f"kubelet_node_startup_{name}duration_seconds")

    await anyio.sleep(1)
    metrics.registration_begins()
    await anyio.sleep(2)
    metrics.registered()
    await anyio.sleep(4)
    for _ in range(2):
        metrics.ready()
        await anyio.sleep(8)
    metrics.registration_begins()
    metrics.registered()
    assert registry.get_sample_value("kubelet_node_name", {"node": "n1"}) == 1
    assert value("pre_kubelet_") == begin
    assert value("pre_registration_") == 1
    assert value("registration_") == 2
    assert value("post_registration_") == 4
    assert value("") == begin + 7
