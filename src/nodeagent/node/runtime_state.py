"""Whether the container runtime can be worked with: polled, remembered, explained.

docs/behaviour/workers.md, "Runtime state".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

import anyio
from anyio import TASK_STATUS_IGNORED
from anyio.abc import TaskStatus

from nodeagent.aio import sleep_in_step
from nodeagent.journal import Journal
from nodeagent.log import Log
from nodeagent.model import RuntimeFeatures

log = Log("runtime_state")

NETWORK_UNKNOWN: Final = "network state unknown"
NEVER_CHECKED: Final = "container runtime status check may not have completed yet"
DOWN: Final = "container runtime is down"
_NO_FEATURES: Final = RuntimeFeatures()


@dataclass(frozen=True, slots=True)
class RuntimeInfo:
    """One answer to a status poll; ``""`` means the condition holds.

    Attributes:
        runtime_error: why the runtime is not ready.
        network_error: why its network is not ready.
        features: what it can do.
    """

    runtime_error: str = ""
    network_error: str = ""
    features: RuntimeFeatures = _NO_FEATURES


class RuntimeStatusSource(Protocol):
    """How the runtime is asked for its status."""

    async def __call__(self) -> RuntimeInfo:
        """One poll.

        Raises:
            Exception: the runtime did not answer.
        """
        ...


class RuntimeState:
    """Polls the runtime and says whether pods may be worked on.

    Args:
        poll: one status poll.
        journal: flight recorder.
        period: seconds between polls while all is well.
        retry_period: seconds between polls while it is not, so that recovery is seen soon.
        staleness: seconds without a good answer after which the runtime counts as down.
    """

    def __init__(
        self,
        poll: RuntimeStatusSource,
        journal: Journal,
        *,
        period: float = 5.0,
        retry_period: float = 1.0,
        staleness: float = 30.0,
    ) -> None:
        self._poll = poll
        self._journal = journal
        self._period = period
        self._retry_period = retry_period
        self._staleness = staleness
        self.on_ready: Callable[[], None] | None = None
        """Called each time the runtime becomes ready."""
        self._last_good: float | None = None
        self._runtime_error = ""
        self._network_error = NETWORK_UNKNOWN
        self._network_since: float | None = None
        self._poll_error = ""
        self._since: float | None = None
        self._was_ready = False
        self.changed = anyio.Event()
        """Set, and replaced, each time readiness or that of the network changes."""
        self.features = _NO_FEATURES
        """What the runtime said last that it can do, when it was ready."""

    async def run(self, *, task_status: TaskStatus[None] = TASK_STATUS_IGNORED) -> None:
        """Poll until cancelled; ready after the first answer, good or bad."""
        await self._once()
        task_status.started()
        while True:
            healthy = not self._poll_error and not self._runtime_error and not self._network_error
            await sleep_in_step(self._period if healthy else self._retry_period)
            await self._once()

    async def _once(self) -> None:
        began = anyio.current_time()
        try:
            with anyio.fail_after(self._patience(began)):
                info = await self._poll()
        except Exception as error:  # noqa: BLE001 - whatever it is, the runtime did not answer
            self._note_poll_error(str(error) or type(error).__name__, began)
        else:
            self._poll_error = ""
            self._note_network(info.network_error)
            self._runtime_error = info.runtime_error
            if not info.runtime_error:
                self._last_good = anyio.current_time()
                self._note_features(info.features)
        self._publish()

    def _patience(self, began: float) -> float:
        """How long a poll may take: it is given up at the moment the runtime counts as down."""
        if self._last_good is None or self._poll_error:
            return self._staleness
        left = self._last_good + self._staleness - began
        return left if left > 0 else self._staleness

    def _note_network(self, cause: str) -> None:
        if cause and (self._network_since is None or not self._network_error):
            self._network_since = anyio.current_time()
        if bool(cause) != bool(self._network_error):
            self._tell()
        if cause != self._network_error:
            what = "NetworkNotReady" if cause else "NetworkReady"
            if cause:
                log.warning("network_not_ready", cause=cause)
            else:
                log.info("network_ready")
            self._journal.record("runtime", what, why=cause)
        self._network_error = cause

    def _note_features(self, features: RuntimeFeatures) -> None:
        if features != self.features:
            handlers = [handler.name for handler in features.handlers]
            log.info("runtime_features", handlers=",".join(handlers) or "none named")
            self._journal.record("runtime", "RuntimeFeatures", "", "", None, handlers=handlers)
        self.features = features

    def _note_poll_error(self, text: str, began: float) -> None:
        if not self._poll_error:
            # A call that hangs has not answered since it began.
            self._since = began
            log.warning("runtime_not_answering", cause=text)
            self._journal.record("runtime", "StatusFailed", why=text)
        self._poll_error = text

    def _publish(self) -> None:
        ready = self.ready
        if ready == self._was_ready:
            return
        self._was_ready = ready
        what = "RuntimeReady" if ready else "RuntimeNotReady"
        causes = "; ".join(self.errors())
        self._journal.record("runtime", what, why=causes)
        if ready:
            log.info("runtime_ready")
        else:
            log.warning("runtime_not_ready", cause=causes)
        self._tell()
        if ready and self.on_ready is not None:
            self.on_ready()

    def _tell(self) -> None:
        self.changed.set()
        self.changed = anyio.Event()

    @property
    def ready(self) -> bool:
        """Whether pods may be worked on now: the last poll was answered, and well."""
        return self._last_good is not None and not self._poll_error and not self._runtime_error

    async def wait_ready(self) -> None:
        """Return when the runtime is ready; at once when it is."""
        while not self.ready:
            await self.changed.wait()

    def errors(self) -> list[str]:
        """What is wrong with the runtime, network excluded; empty exactly when it is ready."""
        found = []
        now = anyio.current_time()
        if self._last_good is None:
            found.append(NEVER_CHECKED)
        elif not self.ready and now - self._last_good >= self._staleness:
            found.append(DOWN)
        if self._poll_error and self._since is not None:
            age = now - self._since
            found.append(f"no answer to Status for {age:.0f}s: {self._poll_error}")
        if self._runtime_error:
            found.append(self._runtime_error)
        return found

    def lasting_errors(self) -> list[str]:
        """What the node as a whole should be called not ready for; texts tell no ages.

        One poll without an answer is none: the cluster would move pods for it.
        """
        found = []
        if self._last_good is None:
            found.append(NEVER_CHECKED)
        elif anyio.current_time() - self._last_good >= self._staleness:
            found.append(DOWN)
        if found and self._poll_error:
            found.append(f"no answer to Status: {self._poll_error}")
        if self._runtime_error:
            found.append(self._runtime_error)
        return found

    @property
    def failing_since(self) -> float | None:
        """Loop time since when the runtime has not said that it is ready; None when it is."""
        if self._poll_error:
            return self._since
        return self._last_good if self._runtime_error else None

    @property
    def network_failing_since(self) -> float | None:
        """Loop time since when the network has not been ready; None when it is."""
        return self._network_since if self._network_error else None

    @property
    def network_error(self) -> str:
        """Why pods that need the network must wait; "" when they need not."""
        return self._network_error
