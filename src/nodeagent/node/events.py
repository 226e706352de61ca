"""Events about pods and the node. Without an API server they go to the journal and the log."""

from __future__ import annotations

import re
from typing import Any, Final

from nodeagent.api import Pod
from nodeagent.journal import Journal
from nodeagent.log import Log

log = Log("event")

_REPEAT_SECONDS = 60.0
_EXPECTED = frozenset({"MissingClusterDNS"})
"""Warnings that are the normal case on a machine without a cluster: journal only."""
_ID: Final = re.compile(r"\b[0-9a-f]{32,}\b")
"""What the runtime calls a container or a process; another one does not make it news."""


class JournalEvents:
    """Records events in the journal; warnings are logged when they are new.

    Args:
        journal: flight recorder.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        # The last warning of each pod and reason, without ids: a repeated one is logged once,
        # and recorded once a minute.
        self._last: dict[tuple[str, str], tuple[str, float]] = {}

    def event(self, pod: Pod, kind: str, reason: str, message: str, field_path: str = "") -> None:
        """Say something about a pod or one of its containers; never blocks, never fails."""
        uid = pod.metadata.uid
        key = (uid, reason + field_path)
        fresh = self._record(key, kind, reason, message, field_path=field_path)
        if fresh and reason not in _EXPECTED:
            name = f"{pod.metadata.namespace}/{pod.metadata.name}"
            log.warning("pod_event", pod=name, reason=reason, message=message)

    def node_event(self, kind: str, reason: str, message: str) -> None:
        """Say something about the node; never blocks, never fails."""
        fresh = self._record(("", reason), kind, reason, message, object="node")
        if fresh and reason not in _EXPECTED:
            log.warning("node_event", reason=reason, message=message)

    def _record(
        self, key: tuple[str, str], kind: str, reason: str, message: str, **fields: Any
    ) -> bool:
        """Write it to the journal; whether it is a warning that is new."""
        before, recorded_at = self._last.get(key, ("", 0.0))
        said = _ID.sub("", message)
        repeated = kind != "Normal" and before == said
        if repeated and self._journal.now - recorded_at < _REPEAT_SECONDS:
            return False
        self._journal.record("event", reason, key[0], message, type=kind, **fields)
        if kind == "Normal":
            return False
        self._last[key] = (said, self._journal.now)
        return not repeated

    def __call__(self, pod: Pod, kind: str, reason: str, message: str) -> None:
        """The same, about the pod as a whole."""
        self.event(pod, kind, reason, message)

    def forget_pod(self, uid: str) -> None:
        """Drop what is remembered of a pod that is gone."""
        for key in [k for k in self._last if k[0] == uid]:
            del self._last[key]
