"""Fixtures for the tests of probes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.unit.probes.probe_fakes import Desk


@pytest.fixture(autouse=True)
def _desks_are_cleared() -> Iterator[None]:
    yield
    while Desk.made:
        for channel in Desk.made.pop().channels.values():
            channel.dispose()
