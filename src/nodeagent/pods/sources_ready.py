"""Which pod sources have spoken and been heard."""

from __future__ import annotations

from collections.abc import Callable, Collection


class SourcesReady:
    """A source is ready once it has given a snapshot and the updates of that were handled.

    Nothing that a source which is not ready might want may be removed
    (docs/behaviour/workers.md, "Sources").

    Args:
        registered: the names of all sources of this node.
        merged: the names of those that have given a snapshot, not from memory.
    """

    def __init__(
        self, registered: Callable[[], Collection[str]], merged: Callable[[], Collection[str]]
    ) -> None:
        self._registered = registered
        self._merged = merged
        self._handled: set[str] = set()

    def seen(self, source: str) -> None:
        """One update of this source was handled."""
        self._handled.add(source)

    def forget(self, source: str) -> None:
        """The source begins anew: it is not ready until it has spoken again."""
        self._handled.discard(source)

    def spoken(self, source: str) -> bool:
        """Whether this source has given a snapshot, though not all of it may be handled yet."""
        return source in self._merged()

    def ready(self, source: str) -> bool:
        """Whether this source is ready."""
        return source in self._handled and source in self._merged()

    def all_ready(self) -> bool:
        """Whether every source of this node is ready; a node without sources never is.

        Without a source nobody says what is wanted, so nothing may be removed: the runtime
        may well be another agent's.
        """
        registered = frozenset(self._registered())
        return (
            bool(registered) and registered <= self._handled and registered <= set(self._merged())
        )
