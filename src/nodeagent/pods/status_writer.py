"""Tells the API server of every pod's status, at least once and in order.

What to send is decided by ``status_merge``; this is the shell around it: which pods have
something unsent, and what became of sending it. Rows and their tests: docs/behaviour/status.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import anyio
from anyio import TASK_STATUS_IGNORED
from anyio.abc import TaskStatus
from prometheus_client import CollectorRegistry

from nodeagent.aio import jitter as default_jitter
from nodeagent.api import Pod
from nodeagent.journal import Journal
from nodeagent.kube import ApiError, KubeClient, paths
from nodeagent.log import Log
from nodeagent.model import PodUID
from nodeagent.pods.api_work import AT_ONCE, ApiWork
from nodeagent.pods.housekeeping import Sweep
from nodeagent.pods.manager import PodManager, is_mirror, is_terminal, mirrors, pod_uid
from nodeagent.pods.metrics import PodMetrics
from nodeagent.pods.status import is_static
from nodeagent.pods.status_manager import StatusManager, VersionedStatus
from nodeagent.pods.status_merge import is_part_of, merge_status, status_patch
from nodeagent.pods.status_urgency import ON_ITS_WAY, may_wait

log = Log("pods.status_writer")

RECONCILE_PERIOD: Final = 10.0
_REMEMBERED: Final = 5.0
"""Seconds after which a watch surely shows what a write has changed."""
_NOW: Final = 0
_OVERTAKEN: Final = (409, 422)
"""What a write gets that was meant for another pod of the name, or for what the pod was before."""


@dataclass(slots=True)
class _Sent:
    """What was told of one pod.

    Attributes:
        target: UID of the API's pod; a mirror has its own.
        version: version of the status that the API has.
        unread: what an earlier agent told was not looked at yet.
        withheld: the API does not know yet that the pod has ended.
        deleted: the API's pod was deleted for good.
        again_at: not before then is it asked again to delete what it said is not there.
        reply: what the server answered last, while a watch may not show it yet.
        replied_at: when that was.
        doubtful: what the server has is not known: look before the next write.
        left: what the server did not take of the last patch.
        contested: the last patch did not come out as it was meant: somebody writes, too.
        compared: what was found to need no patch: the API's pod, the version, and whether
            containers might run.
    """

    target: str
    version: int = 0
    unread: bool = True
    withheld: bool = False
    deleted: bool = False
    again_at: float = 0.0
    reply: Pod | None = None
    replied_at: float = 0.0
    doubtful: bool = False
    left: dict[str, Any] | None = None
    contested: bool = False
    compared: tuple[Pod, int, bool] | None = None


class PodStatusWriter:
    """The service.

    Args:
        client: the API server.
        statuses: what was computed; its ``changed`` must be :meth:`wake`.
        manager: the desired pods, as the API shows them.
        may_run: whether containers of a pod may still run.
        journal: flight recorder.
        metrics: where durations go.
        period: seconds between two comparisons with what the API shows.
        at_once: how many pods are written side by side.
        jitter: spreads retries.
    """

    def __init__(
        self,
        client: KubeClient,
        statuses: StatusManager,
        manager: PodManager,
        *,
        may_run: Callable[[PodUID], bool],
        journal: Journal | None = None,
        metrics: PodMetrics | None = None,
        period: float = RECONCILE_PERIOD,
        at_once: int = AT_ONCE,
        jitter: Callable[[float], float] = default_jitter,
    ) -> None:
        self._client = client
        self._statuses = statuses
        self._manager = manager
        self._may_run = may_run
        self._journal = journal or Journal()
        self._metrics = metrics or PodMetrics(CollectorRegistry())
        self._work: ApiWork[PodUID] = ApiWork(
            "pods.status_writer",
            self._send,
            label=self._label,
            tick=self._reconcile,
            period=period,
            at_once=at_once,
            jitter=jitter,
        )
        self._sent: dict[PodUID, _Sent] = {}
        self._since: dict[PodUID, float] = {}

    def wake(self, uid: PodUID) -> None:
        """A pod's status has changed, or what of it may be sent. Never blocks."""
        self._since.setdefault(uid, anyio.current_time())
        stored = self._statuses.versioned(uid)
        waits = stored is not None and may_wait(stored.pod, stored.status)
        self._work.want(uid, ON_ITS_WAY if waits else 0.0)

    def retry_now(self) -> None:
        """The server seems to be back: wait for no back-off."""
        self._work.retry_now()

    async def drained(self) -> None:
        """Return when all that is known was sent; the caller's scope bounds the wait."""
        await self._work.drained()

    async def sweep(self, sweep: Sweep) -> None:
        """The workers know all pods now: tell of ends that were withheld for their sake."""
        for uid, sent in self._sent.items():
            if sent.withheld and uid not in sweep.working:
                self._work.want(uid)

    async def run(self, *, task_status: TaskStatus[None] = TASK_STATUS_IGNORED) -> None:
        """Send until cancelled."""
        for uid in self._statuses:
            self.wake(uid)
        await self._work.run(task_status=task_status)

    # -- what is due -----------------------------------------------------------------------

    def _target(self, uid: PodUID) -> Pod | None:
        """The API's pod that shows this status, as the watch saw it last."""
        pod = self._manager.get_by_uid(uid)
        if pod is None or not is_static(pod):
            return pod
        mirror = self._manager.get_mirror_of(pod)
        return mirror if mirror is not None and mirrors(mirror, pod) else None

    def _reconcile(self) -> None:
        """Have everything sent of which the API shows something else."""
        known = set(self._statuses)
        for uid in [uid for uid in (*self._sent, *self._since) if uid not in known]:
            self._sent.pop(uid, None)
            self._since.pop(uid, None)
            self._work.forget(uid)
        for uid in known:
            stored, target = self._statuses.versioned(uid), self._target(uid)
            if stored is None or target is None:
                continue
            sent = self._book(uid, target)
            if self._is_due(stored, target, sent):
                self._work.want(uid)
            elif self._differs(stored, target, sent):
                sent.version, sent.doubtful = 0, True
                self._work.want(uid)
            if anyio.current_time() - sent.replied_at >= _REMEMBERED:
                sent.reply = None

    def _book(self, uid: PodUID, target: Pod) -> _Sent:
        sent = self._sent.get(uid)
        if sent is None or sent.target != target.metadata.uid:
            sent = self._sent[uid] = _Sent(target.metadata.uid)
        return sent

    def _is_due(self, stored: VersionedStatus, target: Pod, sent: _Sent) -> bool:
        if sent.version != stored.version or self._is_over(stored, sent.reply or target, sent):
            return True
        return sent.withheld and not self._may_run(pod_uid(stored.pod))

    def _is_over(self, stored: VersionedStatus, target: Pod, sent: _Sent) -> bool:
        """Whether the API's pod is only still there because we have not said that it may go."""
        return (
            stored.finished
            and not sent.deleted
            and anyio.current_time() >= sent.again_at
            and target.metadata.deletion_timestamp is not None
            and is_terminal(target.status.phase)
            and not is_mirror(target)
            and not self._may_run(pod_uid(stored.pod))
        )

    def _differs(self, stored: VersionedStatus, target: Pod, sent: _Sent) -> bool:
        shown = sent.reply or target
        may_run = self._may_run(pod_uid(stored.pod))
        if (
            sent.compared is not None
            and sent.compared[0] is shown
            and sent.compared[1:] == (stored.version, may_run)
        ):
            return False
        patch = self._patch(shown, stored, sent, may_run=may_run)
        if patch is None:
            sent.compared = (target, stored.version, may_run) if shown is target else None
        return patch is not None

    # -- sending ---------------------------------------------------------------------------

    async def _send(self, uid: PodUID) -> None:
        stored, target = self._statuses.versioned(uid), self._target(uid)
        if stored is None or target is None:
            self._since.pop(uid, None)
            return  # nobody shows it
        sent = self._book(uid, target)
        if not self._is_due(stored, target, sent):
            self._since.pop(uid, None)
            return
        base, doubtful = sent.reply or target, sent.doubtful
        # Until it has gone well nobody knows what the server has.
        sent.reply, sent.doubtful = None, True
        try:
            shown = await self._get(target) if doubtful else base
            if shown.metadata.uid != sent.target:
                self._give_up(uid, stored, sent, "another pod has its name")
                return
            if sent.unread and is_mirror(shown):
                self._statuses.adopt(uid, shown.status)
            sent.unread = False
            await self._bring(uid, shown, sent, watched=shown is target)
            sent.doubtful = False
        except ApiError as error:
            if error.not_found:
                self._give_up(uid, stored, sent, "the pod is gone")
            elif error.status in _OVERTAKEN and not doubtful:
                self._work.want(uid)  # look first, now
            else:
                raise

    def _give_up(self, uid: PodUID, stored: VersionedStatus, sent: _Sent, why: str) -> None:
        """The pod is gone from the API; its source will say so."""
        sent.version = stored.version
        self._since.pop(uid, None)
        self._journal.record("status", "NotSent", uid, why)

    async def _get(self, target: Pod) -> Pod:
        meta = target.metadata
        return await self._client.get(paths.pod(meta.namespace, meta.name), Pod)

    async def _bring(self, uid: PodUID, shown: Pod, sent: _Sent, *, watched: bool) -> None:
        """Bring the API's pod to where it should be; ``watched``: it is as the watch shows it."""
        # Read only now: what has changed during the request before goes along.
        stored = self._statuses.versioned(uid)
        if stored is None:
            return
        may_run = self._may_run(uid)
        patch = self._patch(shown, stored, sent, may_run=may_run)
        if patch is not None:
            shown = await self._write(uid, shown, patch)
        sent.version = stored.version
        if patch is not None or not watched:
            sent.reply, sent.replied_at = shown, anyio.current_time()
        if patch is not None:
            self._note_left(uid, shown, stored, sent, patch)
        sent.withheld = is_terminal(stored.status.phase) and not is_terminal(shown.status.phase)
        self._sent_now(uid, stored)
        if self._is_over(stored, shown, sent):
            await self._delete(uid, shown, sent)

    def _sent_now(self, uid: PodUID, stored: VersionedStatus) -> None:
        current = self._statuses.versioned(uid)
        since = self._since.pop(uid, None)
        if since is None:
            return
        now = anyio.current_time()
        self._metrics.status_sync_duration.observe(now - since)
        if current is not None and current.version != stored.version:
            self._since[uid] = now

    @staticmethod
    def _patch(
        shown: Pod, stored: VersionedStatus, sent: _Sent, *, may_run: bool
    ) -> dict[str, Any] | None:
        merged = merge_status(shown.status, stored.status, may_run=may_run)
        patch = status_patch(shown.status, merged)
        return None if patch == sent.left else patch

    async def _write(self, uid: PodUID, shown: Pod, patch: dict[str, Any]) -> Pod:
        meta, began = shown.metadata, anyio.current_time()
        reply = await self._client.patch(
            paths.pod(meta.namespace, meta.name, "status"),
            {"metadata": {"uid": meta.uid}, "status": patch},
            Pod,
        )
        took = anyio.current_time() - began
        self._journal.record("status", "Sent", uid, reply.status.phase, duration=took)
        return reply

    def _note_left(
        self,
        uid: PodUID,
        reply: Pod,
        stored: VersionedStatus,
        sent: _Sent,
        patch: dict[str, Any],
    ) -> None:
        """See what the server made of a patch; the reply is the pod as this patch left it."""
        merged = merge_status(reply.status, stored.status, may_run=self._may_run(uid))
        left = status_patch(reply.status, merged)
        before, sent.contested = sent.contested, False
        if left is None:
            sent.left = None
        elif is_part_of(left, patch):
            # Older servers drop what they do not know; to ask again and again is no use.
            if sent.left is None:
                log.info("status_not_taken", pod=_label(reply), fields=",".join(sorted(left)))
            sent.left = left
        else:
            # The pod was not what the patch was made for.
            sent.left, sent.version, sent.contested = None, 0, True
            if not before:
                self._work.want(uid)  # else at the next comparison: nobody wins by being faster

    async def _delete(self, uid: PodUID, shown: Pod, sent: _Sent) -> None:
        meta = shown.metadata
        path = paths.pod(meta.namespace, meta.name)
        try:
            await self._client.delete(path, grace_seconds=_NOW, uid=meta.uid)
        except ApiError as error:
            if not (error.not_found or error.conflict):
                raise
            # It is gone, or the server only says so because it has just started and its
            # admission does not know all pods yet. The watch tells which.
            sent.again_at = anyio.current_time() + RECONCILE_PERIOD / 2
            self._journal.record("status", "NotDeleted", uid, str(error))
            return
        sent.deleted = True
        self._journal.record("status", "Deleted", uid)

    def _label(self, uid: PodUID) -> str:
        stored = self._statuses.versioned(uid)
        return uid if stored is None else _label(stored.pod)


def _label(pod: Pod) -> str:
    return f"{pod.metadata.namespace}/{pod.metadata.name}"
