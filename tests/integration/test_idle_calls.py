"""docs/behaviour/pleg.md, "Relist": an idle agent makes two list calls a second and no more."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import anyio
import pytest
from ring import ring

from nodeagent.testing import make_pod

pytestmark = pytest.mark.anyio


async def test_an_idle_agent_makes_two_list_calls_a_second(tmp_path: Path) -> None:
    pods = [make_pod(f"web{n}") for n in range(10)]
    async with ring(tmp_path, *pods) as running:
        for n in range(10):
            await running.running(f"web{n}")
        await anyio.sleep(30)  # every look that the starts have caused is over
        before = Counter(running.runtime.core.calls)
        await anyio.sleep(30)
        made = Counter(running.runtime.core.calls) - before
        assert made.pop("Status") <= 7
        assert set(made) == {"ListPodSandbox", "ListContainers"}
        # Once a minute garbage is looked for, which takes two more.
        assert made["ListPodSandbox"] <= 31 + 2
        # Every ten seconds the sizes of logs are looked at, which takes one more.
        assert made["ListContainers"] <= 31 + 2 + 3
