"""Fixtures for all tests: the event loop, and guards that make leaks and stalls fail."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings

from nodeagent.testing.virtual_time import VirtualTimeLoop

# How long an example takes says nothing on a loaded machine; pytest's timeout ends what hangs.
settings.register_profile("nodeagent", deadline=None)
settings.load_profile("nodeagent")

# A slow machine is no failure: examples are bounded in number, not in time.
settings.register_profile("nodeagent", deadline=None)
settings.load_profile("nodeagent")


@pytest.fixture
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    """Virtual time, unless the test is marked ``realtime``."""
    if request.node.get_closest_marker("realtime") is not None:
        return "asyncio", {}
    return "asyncio", {"loop_factory": VirtualTimeLoop}
