"""Requests, answers, and which handler gives which. No I/O.

The ports of the agent answer questions with short texts. A web framework for that would be a
sixth of the memory of an agent at rest, so here is what is needed of one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, TypeAlias
from urllib.parse import parse_qsl, unquote

_METHODS: Final = ("GET", "HEAD")
_NO_HEADERS: Final[Mapping[str, str]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Request:
    """A request without a body.

    Attributes:
        method: ``GET`` in capitals.
        path: decoded, without the query.
        query: names and values in their order; a name without a value has an empty one.
        headers: by name in lower case; of several with one name, the last.
    """

    method: str
    path: str
    query: tuple[tuple[str, str], ...] = ()
    headers: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        method: str,
        target: str,
        headers: Mapping[str, str] = _NO_HEADERS,
        most_parameters: int = 100,
    ) -> Request:
        """The request for a target as it stands in a request line.

        Raises:
            ValueError: the query has more parameters than that.
        """
        if not target.startswith("/"):
            # A proxy's form, http://host/path: what follows the host counts.
            rest = target.partition("://")[2].partition("/")[2]
            target = "/" + rest
        path, _, query = target.partition("#")[0].partition("?")
        pairs = tuple(parse_qsl(query, keep_blank_values=True, max_num_fields=most_parameters))
        return cls(method, unquote(path), pairs, headers)

    def value(self, name: str) -> str:
        """The first value of a name in the query; "" when there is none."""
        return next((value for key, value in self.query if key == name), "")

    def values(self, name: str) -> list[str]:
        """All values of a name in the query."""
        return [value for key, value in self.query if key == name]

    def has(self, name: str) -> bool:
        """Whether the query names something, with a value or without."""
        return any(key == name for key, _ in self.query)


@dataclass(frozen=True, slots=True)
class Response:
    """An answer; ``headers`` are besides ``Content-Type`` and ``Content-Length``."""

    status: int = 200
    body: bytes = b""
    content_type: str = "text/plain; charset=utf-8"
    headers: Mapping[str, str] = field(default_factory=dict)


Handler: TypeAlias = Callable[[Request], Awaitable[Response]]
ItemHandler: TypeAlias = Callable[[Request, str], Awaitable[Response]]


class App:
    """Handlers by path. All of them read only: GET, and HEAD for the headers alone."""

    def __init__(self) -> None:
        self._exact: dict[str, Handler] = {}
        self._items: dict[str, ItemHandler] = {}
        self._posts: set[str] = set()

    def get(self, path: str, handler: Handler, *, post: bool = False) -> None:
        """Have a path answered; ``post`` says that POST asks for the same."""
        self._exact[path] = handler
        if post:
            self._posts.add(path)

    def get_item(self, parent: str, handler: ItemHandler) -> None:
        """Have all paths one step below ``parent`` answered; the handler is given the step."""
        self._items[parent.rstrip("/")] = handler

    def add(self, other: App) -> None:
        """Have everything answered that another one answers, as that one does."""
        self._exact |= other._exact
        self._items |= other._items
        self._posts |= other._posts

    @property
    def paths(self) -> list[str]:
        """All that is answered; of those with a last step that varies, the part before it."""
        return [*self._exact, *self._items]

    def knows(self, path: str) -> bool:
        """Whether there is a handler for a path."""
        parent, _, item = path.rpartition("/")
        return path in self._exact or (bool(item) and parent in self._items)

    async def answer(self, request: Request) -> Response:
        """The answer to a request; whatever the handler raises comes out."""
        exact = self._exact.get(request.path)
        parent, _, item = request.path.rpartition("/")
        of_items = self._items.get(parent) if item else None
        if exact is None and of_items is None:
            return Response(404, b"404: Not Found")
        methods = (*_METHODS, "POST") if request.path in self._posts else _METHODS
        if request.method not in methods:
            allow = {"Allow": ",".join(methods)}
            return Response(405, b"405: Method Not Allowed", headers=allow)
        if exact is not None:
            return await exact(request)
        assert of_items is not None
        return await of_items(request, item)


def joined(*apps: App) -> App:
    """All that several answer; of the same path the first one's answer."""
    whole = App()
    for app in reversed(apps):
        whole.add(app)
    return whole
