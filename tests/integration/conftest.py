"""Integration tests import the helpers that lie beside them, and leave no mounts behind."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodeagent.volumes.mounter import SystemMounter

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(autouse=True)
def nothing_stays_mounted(request: pytest.FixtureRequest) -> Iterator[None]:
    """An agent that ends leaves the volumes of its pods mounted, as it should."""
    yield
    if "tmp_path" in request.fixturenames:
        mounter = SystemMounter()
        for point in reversed(mounter.mounts(request.getfixturevalue("tmp_path"))):
            mounter.unmount(Path(point.path), lazy=True)
