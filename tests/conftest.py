"""Fixtures for all tests: the event loop, and guards that make leaks and stalls fail."""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from blockbuster import BlockBuster
from hypothesis import settings

from nodeagent.testing.virtual_time import VirtualTimeLoop

# How long an example takes says nothing on a loaded machine; pytest's timeout ends what hangs.
settings.register_profile("exploring", deadline=None)
# The same examples in every run, so that a change is judged by what it changes. What nobody has
# thought of is for `pytest --hypothesis-profile=exploring`, and for `make fuzz`.
settings.register_profile("repeatable", settings.get_profile("exploring"), derandomize=True)
settings.load_profile("repeatable")


class _Everything(frozenset[str]):
    """The set of all names."""

    def __contains__(self, _name: object) -> bool:
        return True


_EVERY_FUNCTION = _Everything()

_TURNS_TO_CLOSE = 10
"""Turns of the loop that connections get to be closed by callbacks of the libraries below."""


@pytest.fixture
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    """Virtual time, unless the test is marked ``realtime``."""
    if request.node.get_closest_marker("realtime") is not None:
        return "asyncio", {}
    return "asyncio", {"loop_factory": VirtualTimeLoop}


@pytest.fixture(autouse=True)
def logging_as_before() -> Generator[None]:
    """Commands set up the package's logging; the next test finds it as this one did."""
    logger = logging.getLogger("nodeagent")
    before = list(logger.handlers), logger.level, logger.propagate
    yield
    logger.handlers[:], logger.propagate = before[0], before[2]
    logger.setLevel(before[1])


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """An async test fails when it leaves a task behind or blocks the loop inside nodeagent."""
    if inspect.iscoroutinefunction(pyfuncitem.obj):
        pyfuncitem.obj = _guarded(pyfuncitem.obj)
    return (yield)


def _guarded(test: Any) -> Any:
    @functools.wraps(test)
    async def guarded(*args: Any, **kwargs: Any) -> None:
        before = asyncio.all_tasks()
        guard = BlockBuster("nodeagent")
        guard.activate()
        for function in guard.functions.values():
            # The test itself may look into files; what runs beside it may not.
            function.can_block_in(Path(inspect.getfile(test)).name, {test.__name__})
            function.can_block_in("embedded_lab.py", _EVERY_FUNCTION)
        # Never waits for a disk: the kernel knows where a process is.
        for harmless in ("os.getcwd", "os.path.abspath"):
            guard.functions[harmless].deactivate()
        try:
            await test(*args, **kwargs)
        finally:
            guard.deactivate()
        for _ in range(_TURNS_TO_CLOSE):
            if asyncio.all_tasks() <= before:
                return
            await asyncio.sleep(0)
        left = asyncio.all_tasks() - before
        assert not left, f"the test left tasks behind: {left}"

    return guarded
