"""The awaits of a pod worker: hold back, look at the pod, make one call.

No table of pods is touched here, so whatever happens during an await, the bookkeeping of
``workers`` is whole.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Final

import anyio

from nodeagent.journal import Journal
from nodeagent.log import Log
from nodeagent.model import PodRuntimeStatus, SyncError
from nodeagent.pods.metrics import PodMetrics
from nodeagent.pods.protocols import EventRecorder, PodCacheReader, PodSyncer, RuntimeGate
from nodeagent.pods.stop_failures import StopFailure
from nodeagent.pods.worker_outcomes import Call, CallKind, Result
from nodeagent.pods.worker_state import WorkerState
from nodeagent.rpc import RpcError

log = Log("pods.worker")

STATUS_TIMEOUT: Final = 60.0


@dataclass(slots=True, eq=False)
class Worker:
    """One pod's state, and the ends that others pull at.

    Attributes:
        state: see :class:`WorkerState`.
        wake: set when there is something new to look at.
        exited: set when the task has nothing left to do, ever.
        scope: around the running call.
        last_sync: loop time of the end of the last call.
        acted_on: what a look had found of the pod when the last call was made.
        failing: the last turn failed.
        tries: how many calls have failed, one after the other.
        busy: it has something to do right now.
        stop_failure: how it fails to stop its pod.
    """

    state: WorkerState
    wake: anyio.Event = field(default_factory=anyio.Event)
    exited: anyio.Event = field(default_factory=anyio.Event)
    scope: anyio.CancelScope | None = None
    last_sync: float = -math.inf
    acted_on: PodRuntimeStatus | None = None
    failing: bool = False
    tries: int = 0
    busy: bool = False
    stop_failure: StopFailure | None = None

    @property
    def pod_name(self) -> str:
        """Its pod as ``namespace/name``."""
        name, _, namespace = self.state.full_name.rpartition("_")
        return f"{namespace}/{name}"


class WorkerCalls:
    """Waits and calls on behalf of workers.

    Args:
        syncer: performs the calls.
        cache: what PLEG knows.
        gate: whether the runtime can be worked with.
        journal: flight recorder.
        metrics: where durations go.
        events: event recorder.
        status_timeout: seconds to wait for PLEG to look at a pod.
    """

    def __init__(
        self,
        syncer: PodSyncer,
        cache: PodCacheReader,
        gate: RuntimeGate,
        *,
        journal: Journal,
        metrics: PodMetrics,
        events: EventRecorder,
        status_timeout: float,
    ) -> None:
        self._syncer = syncer
        self._cache = cache
        self._gate = gate
        self._journal = journal
        self._metrics = metrics
        self._events = events
        self._status_timeout = status_timeout

    async def hold_back(self, worker: Worker) -> None:
        """Wait until the runtime can be worked with."""
        began: float | None = None
        while not self._gate.ready:
            if began is None:
                began = anyio.current_time()
                why = "; ".join(self._gate.errors())
                self._journal.record("pods", "HeldBack", worker.state.uid, why)
                log.debug("held_back", cause=why)
            await self._gate.wait_ready()
        if began is not None:
            held = anyio.current_time() - began
            self._journal.record("pods", "Resumed", worker.state.uid, "runtime is ready", held)

    async def look(self, worker: Worker) -> PodRuntimeStatus | None:
        """A look of PLEG at the pod since the last call; None when there is none to be had."""
        uid = worker.state.uid
        try:
            with anyio.fail_after(self._status_timeout):
                return await self._cache.get_newer_than(uid, worker.last_sync)
        except TimeoutError as error:
            cause = str(error) or f"no look at the pod within {self._status_timeout:g} s"
        except Exception as error:  # noqa: BLE001 - whatever it is, there is no status
            cause = str(error) or type(error).__name__
        log.warning("status_unknown", cause=cause)
        self._journal.record("pods", "StatusUnknown", uid, cause)
        pod = worker.state.last_pod
        if pod is not None:
            self._events(pod, "Warning", "FailedSync", f"error determining status: {cause}")
        return None

    async def perform(
        self, worker: Worker, call: Call, status: PodRuntimeStatus
    ) -> tuple[Result, Exception | None]:
        """Make the call in a scope of its own, which an overtaking update cancels."""
        began = anyio.current_time()
        result, error = Result.CANCELLED, None
        with anyio.CancelScope() as scope:
            worker.scope = scope
            try:
                result = await self._dispatch(call, status)
            except Exception as fault:  # noqa: BLE001 - a pod's failure is retried, never fatal
                result, error = Result.FAILED, fault
            finally:
                worker.scope = None
        worker.last_sync = anyio.current_time()
        self._report(worker, call, result, error, began)
        return result, error

    async def _dispatch(self, call: Call, status: PodRuntimeStatus) -> Result:
        work = call.work
        if call.kind is CallKind.TERMINATING_RUNTIME:
            assert work.running is not None
            await self._syncer.sync_terminating_runtime_pod(work.running, status)
            return Result.DONE
        assert work.pod is not None
        if call.kind is CallKind.SYNC:
            ended = await self._syncer.sync_pod(work.update_type, work.pod, work.mirror, status)
            return Result.TERMINAL if ended else Result.DONE
        if call.kind is CallKind.TERMINATING:
            await self._syncer.sync_terminating_pod(work.pod, status, call.grace, call.status_fn)
        else:
            await self._syncer.sync_terminated_pod(work.pod, status)
        return Result.DONE

    def _report(
        self, worker: Worker, call: Call, result: Result, error: Exception | None, began: float
    ) -> None:
        ended = worker.last_sync
        self._metrics.worker_duration.labels(call.operation).observe(ended - call.work.started_at)
        why = f"{call.work.update_type.value}: {result.value}"
        if isinstance(error, SyncError):
            why = f"{why}: {error.reason}: {error}"
            log.warning("sync_failed", call=call.kind.value, reason=error.reason, cause=str(error))
        elif isinstance(error, RpcError | OSError):
            why = f"{why}: {error}"
            log.warning("sync_failed", call=call.kind.value, cause=str(error))
        elif error is not None:
            why = f"{why}: {error!r}"
            log.fault("sync_failed", error, call=call.kind.value)
        self._journal.record("pods", call.kind.value, worker.state.uid, why, ended - began)
