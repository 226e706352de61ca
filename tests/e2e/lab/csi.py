"""A storage driver that runs beside the agent, in a thread of the tests, with real mounts."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from anyio.from_thread import start_blocking_portal
from tests.e2e.lab.waiting import until

from nodeagent.testing.csi_driver import CsiDriver
from nodeagent.volumes.mounter import SystemMounter

DRIVER = "d.io"


class LabDriver:
    """One driver; a context. It can go and come back over the same volumes.

    Args:
        base: a directory of its own.
        plugins: where the agent looks for plugins.
        fields: of the driver.
    """

    def __init__(self, base: Path, plugins: Path, **fields: Any) -> None:
        self.driver = CsiDriver(DRIVER, base / "driver", SystemMounter(), **fields)
        self._plugins = plugins
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
        self.driver.release()

    def start(self) -> None:
        """Serve, and return when the agent has taken the driver."""
        told = len(self.driver.told)
        self._plugins.mkdir(parents=True, exist_ok=True)
        portal = self._stack.enter_context(start_blocking_portal())
        serving = self.driver.serving(self._plugins)
        self._stack.enter_context(portal.wrap_async_context_manager(serving))
        until("the driver is registered", lambda: self._taken(told))

    def _taken(self, told: int) -> bool:
        return any(one.registered for one in self.driver.told[told:])

    def stop(self) -> None:
        """Serve no longer."""
        self._stack.close()

    def wait_calls(self, *names: str, timeout: float = 90) -> None:
        """Wait until the last calls are these, whatever is asked besides."""
        count = len(names)
        until(
            f"calls end with {names}",
            lambda: self.driver.names()[-count:] == list(names),
            timeout=timeout,
        )
