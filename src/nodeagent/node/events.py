"""Events about pods. Without an API server they go to the journal and the log."""

from __future__ import annotations

from nodeagent.api import Pod
from nodeagent.journal import Journal
from nodeagent.log import Log

log = Log("event")

_EXPECTED = frozenset({"MissingClusterDNS"})
"""Warnings that are the normal case on a machine without a cluster: journal only."""


class JournalEvents:
    """Records events in the journal; warnings are logged when they are new.

    Args:
        journal: flight recorder.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        # The last warning of each pod and reason, so that a repeated one is logged once.
        self._last: dict[tuple[str, str], str] = {}

    def event(self, pod: Pod, kind: str, reason: str, message: str, field_path: str = "") -> None:
        """Say something about a pod or one of its containers; never blocks, never fails."""
        uid = pod.metadata.uid
        self._journal.record("event", reason, uid, message, type=kind, field_path=field_path)
        if kind == "Normal" or reason in _EXPECTED:
            return
        key = (uid, reason + field_path)
        if self._last.get(key) != message:
            self._last[key] = message
            name = f"{pod.metadata.namespace}/{pod.metadata.name}"
            log.warning("pod_event", pod=name, reason=reason, message=message)

    def __call__(self, pod: Pod, kind: str, reason: str, message: str) -> None:
        """The same, about the pod as a whole."""
        self.event(pod, kind, reason, message)

    def forget_pod(self, uid: str) -> None:
        """Drop what is remembered of a pod that is gone."""
        for key in [k for k in self._last if k[0] == uid]:
            del self._last[key]
