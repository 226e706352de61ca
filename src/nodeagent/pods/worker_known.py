"""What the workers know, as housekeeping and the metrics want to read it."""

from __future__ import annotations

from dataclasses import dataclass

from nodeagent.pods.metrics import static_label
from nodeagent.pods.worker_state import WorkerPhase, WorkerState


@dataclass(frozen=True, slots=True)
class KnownPod:
    """One line of what the workers know.

    Attributes:
        phase: how far the worker is.
        orphan: no source wants the pod.
        has_config: a source has described it, not only the runtime.
        static: whether it is static; None when that is not known.
        restart_requested: it is to start again once it has ended.
    """

    phase: WorkerPhase
    orphan: bool
    has_config: bool
    static: bool | None
    restart_requested: bool

    @classmethod
    def of(cls, state: WorkerState, *, wanted: bool) -> KnownPod:
        """Describe one worker."""
        return cls(
            phase=state.phase,
            orphan=not wanted,
            has_config=state.last_pod is not None,
            static=state.static,
            restart_requested=state.restart_requested,
        )

    @property
    def label(self) -> tuple[WorkerPhase, str, str]:
        """Its cell in the working-pods metric."""
        if not self.has_config:
            return self.phase, "runtime_only", static_label(None)
        return self.phase, "orphan" if self.orphan else "desired", static_label(self.static)
