"""Fixtures of the end-to-end tests: one laboratory and control plane per session."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.cluster.control_plane import ControlPlane, open_control_plane
from tests.e2e.lab.agent import Agent
from tests.e2e.lab.containerd_lab import Lab, open_lab


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
    """The control plane that all tests share; who ends a server of it starts it again."""
    with open_control_plane(lab_session.base / "control-plane") as plane:
        yield plane
