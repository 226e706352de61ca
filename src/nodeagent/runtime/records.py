"""What the agent itself remembers of its calls, so that nothing is made twice.

docs/behaviour/runtime.md, "At most once".
"""

from __future__ import annotations

from collections.abc import Mapping

from nodeagent.model import PodUID

_SANDBOX = ""


class Records:
    """Calls whose outcome is not known, and containers that may run only once.

    A creation is noted before the call and settled by a definite answer: whatever cuts the
    call (deadline, lost connection, cancellation, a crash of the agent) leaves it open, and
    an open one is looked for in the runtime before anything is created.
    """

    def __init__(self) -> None:
        self._open: dict[PodUID, set[str]] = {}
        self._seen: set[PodUID] = set()
        self._started: dict[PodUID, dict[str, str]] = {}
        self._unusable: dict[PodUID, set[str]] = {}
        self._attempts: dict[PodUID, dict[str, int]] = {}

    def begin_sandbox(self, uid: PodUID) -> None:
        """A sandbox is about to be created."""
        self.begin_container(uid, _SANDBOX)

    def settle_sandbox(self, uid: PodUID) -> None:
        """What became of the sandbox is known."""
        self.settle_container(uid, _SANDBOX)

    def sandbox_open(self, uid: PodUID) -> bool:
        """Whether a sandbox may exist that the status does not show."""
        return self.container_open(uid, _SANDBOX)

    def begin_container(self, uid: PodUID, name: str) -> None:
        """A container is about to be created."""
        self._open.setdefault(uid, set()).add(name)

    def settle_container(self, uid: PodUID, name: str) -> None:
        """What became of the container is known."""
        names = self._open.get(uid)
        if names is not None:
            names.discard(name)
            if not names:
                del self._open[uid]

    def container_open(self, uid: PodUID, name: str, *, known: bool = False) -> bool:
        """Whether a container may exist that the status does not show.

        Args:
            uid: its pod.
            name: its name.
            known: whatever an earlier agent made of the pod is known.
        """
        return (not known and uid not in self._seen) or name in self._open.get(uid, ())

    def anything_open(self, uid: PodUID) -> bool:
        """Whether anything of the pod may exist that the status does not show."""
        return uid in self._open

    def seen(self, uid: PodUID) -> None:
        """The pod was looked up once since the agent started."""
        self._seen.add(uid)

    def mark_started(self, uid: PodUID, name: str, container_id: str) -> None:
        """A container that may run only once is about to start."""
        self._started.setdefault(uid, {})[name] = container_id

    def unmark_started(self, uid: PodUID, name: str) -> None:
        """The container may run again."""
        self._started.get(uid, {}).pop(name, None)

    def started(self, uid: PodUID) -> Mapping[str, str]:
        """Containers of the pod that may run only once and have been started, and their ids."""
        return self._started.get(uid, {})

    def mark_unusable(self, uid: PodUID, container_id: str) -> None:
        """A created container refused to start: it is not tried again."""
        self._unusable.setdefault(uid, set()).add(container_id)

    def usable(self, uid: PodUID, container_id: str) -> bool:
        """Whether a created container may still be started."""
        return container_id not in self._unusable.get(uid, ())

    def attempts_begin_at(self, uid: PodUID, name: str, attempt: int) -> None:
        """Instances of the container are removed; the next one goes on counting."""
        attempts = self._attempts.setdefault(uid, {})
        attempts[name] = max(attempt, attempts.get(name, 0))

    def first_attempt(self, uid: PodUID, name: str) -> int:
        """The lowest attempt that an instance of the container may have."""
        return self._attempts.get(uid, {}).get(name, 0)

    def forget_pod(self, uid: PodUID) -> None:
        """Drop all that concerns one pod."""
        self._open.pop(uid, None)
        self._seen.discard(uid)
        self._started.pop(uid, None)
        self._unusable.pop(uid, None)
        self._attempts.pop(uid, None)

    def remembered(self) -> set[PodUID]:
        """The pods of which something is known."""
        return {*self._open, *self._seen, *self._started, *self._unusable}

    def snapshot(self) -> dict[str, dict[str, str]]:
        """Ids of containers that were started and may not run again, by pod and name."""
        return {uid: dict(names) for uid, names in self._started.items() if names}

    def restore(self, saved: Mapping[str, Mapping[str, str]]) -> None:
        """Take over the state of :meth:`snapshot`."""
        for uid, names in saved.items():
            self._started.setdefault(PodUID(uid), {}).update(names)
