"""Volumes that the kernel really mounts (docs/behaviour/volumes.md, "Manager", "subPath")."""

from __future__ import annotations

from pathlib import Path

import pytest
from real_mounts import SCENARIOS, run_apart


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_in_a_mount_namespace_of_its_own(scenario: str, tmp_path: Path) -> None:
    run_apart(scenario, tmp_path)
