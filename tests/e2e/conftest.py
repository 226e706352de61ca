"""Fixtures of the end-to-end tests: one laboratory and control plane per session."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.e2e.cluster.address import node_address
from tests.e2e.cluster.control_plane import ControlPlane, open_control_plane
from tests.e2e.cluster.node import ClusterNode
from tests.e2e.lab.agent import Agent
from tests.e2e.lab.containerd_lab import Lab, open_lab


@pytest.fixture
def tmp_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory of the test, with a short name: paths of unix sockets have 107 bytes at most."""
    return tmp_path_factory.mktemp("t")


@pytest.fixture(scope="session")
def lab_session() -> Iterator[Lab]:
    """The laboratory that all tests share."""
    with open_lab() as lab:
        yield lab


@pytest.fixture
def lab(lab_session: Lab) -> Iterator[Lab]:
    """The laboratory, with an empty runtime before and after the test."""
    yield lab_session
    lab_session.clear()


@pytest.fixture
def agent(lab: Lab, tmp_path: Path) -> Iterator[Agent]:
    """A running agent with an empty manifest directory; its pods go with the test."""
    agent = Agent(tmp_path, lab.endpoint)
    agent.start()
    yield agent
    agent.close()


@pytest.fixture(scope="session")
def plane(lab_session: Lab) -> Iterator[ControlPlane]:
    """The control plane that all tests share."""
    with open_control_plane(lab_session.base / "control-plane") as plane:
        yield plane


@pytest.fixture(scope="module")
def node_of_module(
    lab_session: Lab,
    plane: ControlPlane,
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[ClusterNode]:
    """A node that the tests of a module share; the module says its name: ``NODE``."""
    home, name = tmp_path_factory.mktemp("node"), request.module.NODE
    with closing(ClusterNode(home, lab_session.endpoint, plane, name)) as node:
        yield node


@pytest.fixture
def node(node_of_module: ClusterNode, lab: Lab) -> Iterator[ClusterNode]:
    """A running node that is ready and has no pods; it is left so, whatever the test did."""
    node_of_module.revive()
    yield node_of_module
    node_of_module.revive()
    node_of_module.clear()


@pytest.fixture(scope="session")
def address(lab_session: Lab) -> Iterator[str]:
    """An address of this machine that nodes can be reached under."""
    with node_address(lab_session.network.subnet) as address:
        yield address
