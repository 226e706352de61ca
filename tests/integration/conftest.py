"""Integration tests import the helpers that lie beside them, and leave no mounts behind."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodeagent.testing.mounter import RecordedMounter
from nodeagent.volumes.mounter import SystemMounter

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(autouse=True)
def nothing_stays_mounted(request: pytest.FixtureRequest) -> Iterator[None]:
    """An agent that ends leaves the volumes of its pods mounted, as it should."""
    # Asked for first, so that it is there when this ends.
    used = "tmp_path" in request.fixturenames
    below = request.getfixturevalue("tmp_path") if used else None
    yield
    if below is not None:
        mounter = SystemMounter()
        for point in reversed(mounter.mounts(below)):
            mounter.unmount(Path(point.path), lazy=True)


@pytest.fixture
def recorded_mounts(monkeypatch: pytest.MonkeyPatch) -> RecordedMounter:
    """Mounts of agents are only written down: what is in memory lies on the disk."""
    mounter = RecordedMounter()
    monkeypatch.setattr("nodeagent.volumes.manager.SystemMounter", lambda: mounter)
    return mounter
