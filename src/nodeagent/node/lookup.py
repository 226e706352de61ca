"""Who knows the Node object of this machine."""

from __future__ import annotations

from collections.abc import Callable

from nodeagent.api.node import Node
from nodeagent.kube.objects import version_rank


def _nothing() -> Node | None:
    return None


class NodeLookup:
    """The Node as it was seen last.

    Args:
        informed: gives the Node that a watch has seen last; None for no such watch, or no Node.
        standalone: there is no API server: what this machine would say is all there is.
    """

    def __init__(
        self, informed: Callable[[], Node | None] = _nothing, *, standalone: bool = False
    ) -> None:
        self._informed = informed
        self._standalone = standalone
        self._answered: Node | None = None
        self._local: Node | None = None

    def node(self) -> Node | None:
        """The Node that the API server has, as far as is known; None when there is none.

        Without an API server, what this machine would say.
        """
        if self._standalone:
            return self._local
        informed, answered = self._informed(), self._answered
        if informed is None or answered is None:
            return informed or answered
        if informed.metadata.uid != answered.metadata.uid:
            return informed
        return informed if _rank(informed) >= _rank(answered) else answered

    @property
    def informed(self) -> bool:
        """Whether a watch sees the Node."""
        return self._informed() is not None

    def any_node(self) -> Node | None:
        """The same; as long as the API server has none, what this machine would say."""
        return self.node() or self._local

    def observe(self, node: Node) -> None:
        """Take note of an answer of the API server."""
        self._answered = node

    def forget(self) -> None:
        """The API server says that there is no such Node."""
        self._answered = None

    def set_local(self, node: Node) -> None:
        """Take note of what this machine would say of itself."""
        self._local = node


def _rank(node: Node) -> tuple[int, str]:
    return version_rank(node.metadata.resource_version) or (0, "")
