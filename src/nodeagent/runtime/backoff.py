"""Back-offs in loop time.

docs/behaviour/runtime.md, "Crash back-off"; docs/behaviour/images.md, "Image back-off".

Plain arithmetic on times that the caller gives: no clock of its own, so it is tested
without waiting. Wall time never enters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from nodeagent.api import Container
from nodeagent.model import ContainerRuntimeStatus, ContainerState, PodRuntimeStatus
from nodeagent.runtime.hash import fnv_64a
from nodeagent.runtime.names import PodNames


@dataclass(slots=True)
class _Entry:
    delay: float
    updated: float


class BackOff:
    """Delays by key: ``initial``, then doubled up to ``cap``.

    Args:
        initial: first delay in seconds.
        cap: longest delay in seconds.
        memory: seconds after which a delay is forgotten.
    """

    def __init__(self, initial: float, cap: float, memory: float = 600.0) -> None:
        self._initial = min(initial, cap)
        self._cap = cap
        self._memory = memory
        self._entries: dict[str, _Entry] = {}

    def reconfigure(self, initial: float, cap: float) -> None:
        """Wait for other times from now on; delays that are longer are cut."""
        self._initial, self._cap = min(initial, cap), cap
        for entry in self._entries.values():
            entry.delay = min(entry.delay, cap)

    def _live(self, key: str, since: float) -> _Entry | None:
        entry = self._entries.get(key)
        if entry is None or since - entry.updated > self._memory:
            return None
        return entry

    def until(self, key: str, since: float | None = None) -> float | None:
        """When a back-off that counts from ``since`` ends; None when there is none.

        Args:
            key: whose back-off.
            since: loop time it counts from; None for its last update.
        """
        entry = self._entries.get(key)
        if entry is None:
            return None
        start = entry.updated if since is None else since
        return start + entry.delay if self._live(key, start) is not None else None

    def delay(self, key: str) -> float:
        """The current delay in seconds, 0 when there is none."""
        entry = self._entries.get(key)
        return entry.delay if entry is not None else 0.0

    def advance(self, key: str, now: float, since: float | None = None) -> None:
        """Make the next delay longer; an entry that expired before ``since`` starts anew."""
        entry = self._live(key, now if since is None else since)
        if entry is None:
            self._entries[key] = _Entry(self._initial, now)
        else:
            entry.delay = min(2 * entry.delay, self._cap)
            entry.updated = now

    def undo(self, key: str) -> Callable[[], None]:
        """Something to call to have the entry as it is now."""
        entry = self._entries.get(key)
        before = None if entry is None else replace(entry)

        def put_back() -> None:
            if before is None:
                self._entries.pop(key, None)
            else:
                self._entries[key] = before

        return put_back

    def forget(self, keys: Iterable[str]) -> None:
        """Drop entries."""
        for key in keys:
            self._entries.pop(key, None)

    def collect(self, now: float) -> None:
        """Drop what has expired."""
        stale = [k for k, e in self._entries.items() if now - e.updated > self._memory]
        self.forget(stale)

    def snapshot(self, now: float) -> dict[str, dict[str, float]]:
        """All entries that have not expired, JSON-able, to survive a restart of the agent."""
        self.collect(now)
        return {k: {"delay": e.delay, "updated": e.updated} for k, e in self._entries.items()}

    def restore(self, saved: Mapping[str, Mapping[str, float]], shift: float) -> None:
        """Take over entries of :meth:`snapshot`; ``shift`` turns their times into today's."""
        for key, entry in saved.items():
            delay = min(max(float(entry["delay"]), self._initial), self._cap)
            self._entries[key] = _Entry(delay, float(entry["updated"]) + shift)


@dataclass(frozen=True, slots=True)
class CrashWait:
    """A start that has to wait: the whole delay in seconds, and the loop time it ends."""

    delay: float
    until: float


class CrashBackOff:
    """How long a container that exits again and again has to wait for its next start.

    The delay counts from the moment at which we first saw the exit.

    Args:
        initial: first delay in seconds.
        cap: longest delay in seconds.
    """

    def __init__(self, initial: float = 10.0, cap: float = 300.0) -> None:
        self._back_off = BackOff(initial, cap)
        self._seen: dict[str, dict[str, float]] = {}
        self._kept: dict[str, dict[str, float]] = {}
        self._keys: dict[str, set[str]] = {}

    def reconfigure(self, initial: float, cap: float) -> None:
        """See :meth:`BackOff.reconfigure`."""
        self._back_off.reconfigure(initial, cap)

    def observe(self, status: PodRuntimeStatus, now: float) -> bool:
        """Note the exits of a pod's containers, and forget those of removed ones.

        Returns:
            Whether an exit was seen for the first time.
        """
        before = self._seen.get(status.uid, {})
        exited: dict[str, float] = {
            c.id: before.get(c.id, now)
            for c in status.containers
            if c.state is ContainerState.EXITED
        }
        if exited:
            self._seen[status.uid] = exited
        else:
            self._seen.pop(status.uid, None)
        return not exited.keys() <= before.keys()

    def _seen_at(self, uid: str, exited: ContainerRuntimeStatus, now: float) -> float:
        return self._seen.get(uid, {}).get(exited.id, now)

    def keep_exit(
        self, pod: PodNames, container: str, status: PodRuntimeStatus, now: float
    ) -> None:
        """Remember the exit of a container whose records are removed so that it starts anew."""
        exited = latest_exited(status, container)
        if exited is not None:
            self._kept.setdefault(pod.uid, {})[container] = self._seen_at(pod.uid, exited, now)

    def _last_exit(
        self, pod: PodNames, container: str, status: PodRuntimeStatus, now: float
    ) -> float | None:
        """When the container's last exit was seen; None when it has not exited yet."""
        exited = latest_exited(status, container)
        if exited is None:
            return self._kept.get(pod.uid, {}).get(container)
        return self._seen_at(pod.uid, exited, now)

    def check(
        self, pod: PodNames, container: Container, status: PodRuntimeStatus, now: float
    ) -> CrashWait | None:
        """Ask before a start: None when it may go on, else how long it has to wait."""
        exit_seen = self._last_exit(pod, container.name, status, now)
        if exit_seen is None:
            return None
        key = crash_key(pod, container)
        until = self._back_off.until(key, exit_seen)
        if until is None or now >= until:
            return None
        return CrashWait(self._back_off.delay(key), until)

    def advance(
        self, pod: PodNames, container: Container, status: PodRuntimeStatus, now: float
    ) -> Callable[[], None]:
        """Note a restart; the first start of a container does not count.

        Returns:
            Takes it back, because there was no restart after all.
        """
        exit_seen = self._last_exit(pod, container.name, status, now)
        if exit_seen is None:
            return lambda: None
        key = crash_key(pod, container)
        self._keys.setdefault(pod.uid, set()).add(key)
        undo = self._back_off.undo(key)
        self._back_off.advance(key, now, exit_seen)
        return undo

    def forget_pod(self, uid: str) -> None:
        """Drop all that concerns one pod."""
        self._back_off.forget(self._keys.pop(uid, ()))
        self._seen.pop(uid, None)
        self._kept.pop(uid, None)

    def remembered(self) -> set[str]:
        """UIDs of the pods of which something is known."""
        return {*self._keys, *self._seen, *self._kept}

    def snapshot(self, now: float) -> dict[str, Any]:
        """State that survives a restart of the agent, JSON-able."""
        return {
            "backoff": self._back_off.snapshot(now),
            "exits": {uid: dict(exits) for uid, exits in self._seen.items()},
            "kept": {uid: dict(exits) for uid, exits in self._kept.items()},
            "keys": {uid: sorted(keys) for uid, keys in self._keys.items()},
        }

    def restore(self, saved: Mapping[str, Any], shift: float) -> None:
        """Take over the state of :meth:`snapshot`; ``shift`` turns its times into today's."""
        self._back_off.restore(saved.get("backoff", {}), shift)
        for section, exits in (("exits", self._seen), ("kept", self._kept)):
            for uid, moments in saved.get(section, {}).items():
                exits[uid] = {key: float(seen) + shift for key, seen in moments.items()}
        for uid, keys in saved.get("keys", {}).items():
            self._keys[uid] = set(keys)


def latest_exited(status: PodRuntimeStatus, container: str) -> ContainerRuntimeStatus | None:
    """The newest exited instance of a container."""
    for record in status.containers:
        if record.name == container and record.state is ContainerState.EXITED:
            return record
    return None


def crash_key(pod: PodNames, container: Container) -> str:
    """Whose crash back-off it is: another image or other resources begin anew."""
    resources = container.resources
    amounts = [
        f"{kind}:{name}={quantity}"
        for kind, given in (("limits", resources.limits), ("requests", resources.requests))
        for name, quantity in sorted(given.items())
    ]
    parts = (pod.name, pod.namespace, pod.uid, container.name, container.image, ",".join(amounts))
    return f"{fnv_64a('/'.join(parts).encode()):x}"
