"""Fixtures of the end-to-end tests: one laboratory per session, one agent per test."""

from collections.abc import Iterator

import pytest
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
    lab_session.cri.remove_everything()
