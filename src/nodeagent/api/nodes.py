"""A document as written: plain values with the lines they stand on.

Both readers (YAML in ``yaml_load``, JSON in ``json_load``) build this tree, so everything that
judges a document afterwards sees one shape and can name a line. The builder also holds the limits:
nesting, total size, and what aliases may add.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

MAX_DEPTH: Final = 100
"""Deepest nesting accepted. A pod needs about twelve levels."""

MAX_NODES: Final = 1_000_000
"""Most values in one document, aliases counted at their full size."""

MAX_ALIASED_NODES: Final = 100_000
"""Most values that aliases and merge keys may add to one document."""


class Scalar:
    """One string, number, boolean or null.

    Attributes:
        value: The value as Kubernetes reads it.
        line: Line in the file, from 1.
        source: The text as written, without quotes.
        number: For a number, the JSON text that Kubernetes would decode it from; else None.
    """

    __slots__ = ("line", "number", "source", "value")

    size: Final = 1
    height: Final = 1

    def __init__(
        self, value: str | float | bool | None, line: int, source: str, number: str | None = None
    ) -> None:
        self.value = value
        self.line = line
        self.source = source
        self.number = number


class Invalid:
    """A value that cannot be read (``!!int x``, ``.inf``); the message says why."""

    __slots__ = ("line", "message")

    size: Final = 1
    height: Final = 1

    def __init__(self, message: str, line: int) -> None:
        self.message = message
        self.line = line


class Sequence:
    """A list. ``size`` and ``height`` are 0 while it is still being read."""

    __slots__ = ("height", "items", "line", "size")

    def __init__(self, line: int) -> None:
        self.items: list[Node] = []
        self.line = line
        self.size = 0
        self.height = 0


@dataclass(frozen=True, slots=True)
class Remark:
    """Something noticed about a mapping's keys while it was read.

    Attributes:
        key: The key as text.
        line: Where the later of the two, or the bad, key stands.
        message: What is wrong.
        fatal: True for an error, False for a warning.
    """

    key: str
    line: int
    message: str
    fatal: bool


class Mapping:
    """An object: values and key lines by key, and remarks on its keys.

    Of a duplicate key the first value is kept, and a fatal remark says so.
    """

    __slots__ = ("height", "key_lines", "line", "remarks", "size", "values")

    def __init__(self, line: int) -> None:
        self.values: dict[str, Node] = {}
        self.key_lines: dict[str, int] = {}
        self.remarks: list[Remark] = []
        self.line = line
        self.size = 0
        self.height = 0


Node: TypeAlias = Scalar | Invalid | Sequence | Mapping
Plain: TypeAlias = "str | float | bool | list[Plain] | dict[str, Plain] | None"


def to_plain(node: Node) -> Plain:
    """The values alone, positions dropped. An unreadable value becomes null."""
    if isinstance(node, Scalar):
        return node.value
    if isinstance(node, Mapping):
        return {key: to_plain(child) for key, child in node.values.items()}
    if isinstance(node, Sequence):
        return [to_plain(child) for child in node.items]
    return None


class DocumentError(Exception):
    """A document that cannot be read to its end.

    Attributes:
        message: What is wrong, without position.
        line: Line in the file, from 1.
        column: Column from 1, or 0 when only the line is known.
    """

    def __init__(self, message: str, line: int, column: int = 0) -> None:
        super().__init__(message)
        self.message = message
        self.line = line
        self.column = column


@dataclass(frozen=True, slots=True)
class Loaded:
    """What one document holds.

    Attributes:
        root: The tree; after an error, as much of it as was read; None when nothing was.
        error: What stopped the reading, or None.
    """

    root: Node | None
    error: DocumentError | None = None


class _MappingFrame:
    __slots__ = ("explicit", "key", "key_line", "merging", "node", "skip")

    def __init__(self, node: Mapping) -> None:
        self.node = node
        self.explicit: dict[str, int] = {}  # keys written here, not merged in
        self.key: str | None = None
        self.key_line = 0
        self.merging = False
        self.skip = False


_Frame: TypeAlias = "Sequence | _MappingFrame"


class TreeBuilder:
    """Builds one tree from the start, end and value marks that a parser reports.

    In a mapping the parser calls ``key`` (or ``bad_key``, ``merge_key``) before each value and
    asks ``wants_key`` when it cannot tell a key from a value itself.

    Raises:
        DocumentError: From any method, when the document passes a limit.
    """

    def __init__(self) -> None:
        self.root: Node | None = None
        self._stack: list[_Frame] = []
        self._nodes = 0
        self._aliased = 0

    @property
    def wants_key(self) -> bool:
        """Whether the next node stands in the place of a key."""
        if not self._stack:
            return False
        top = self._stack[-1]
        return (
            isinstance(top, _MappingFrame) and top.key is None and not top.merging and not top.skip
        )

    def open_sequence(self, line: int) -> Sequence:
        """Start a list; values up to ``close`` are its items."""
        node = Sequence(line)
        self._push(node, line)
        return node

    def open_mapping(self, line: int) -> Mapping:
        """Start an object; values up to ``close`` belong to it."""
        node = Mapping(line)
        self._push(_MappingFrame(node), line)
        return node

    def key(self, key: str, line: int) -> None:
        """Name the value that follows."""
        frame = self._mapping()
        frame.key = key
        frame.key_line = line

    def merge_key(self, line: int) -> None:
        """The value that follows is merged into the open object."""
        frame = self._mapping()
        frame.merging = True
        frame.key_line = line

    def remark(self, key: str, line: int, message: str) -> None:
        """Warn about a key of the open object."""
        self._mapping().node.remarks.append(Remark(key, line, message, fatal=False))

    def bad_key(self, key: str, line: int, message: str) -> None:
        """Remark on a key that is no text, and drop the value that follows."""
        frame = self._mapping()
        frame.node.remarks.append(Remark(key, line, message, fatal=True))
        frame.skip = True

    def close(self) -> None:
        """End the innermost open list or object."""
        top = self._stack.pop()
        node = top if isinstance(top, Sequence) else top.node
        children = node.items if isinstance(node, Sequence) else node.values.values()
        node.size = 1 + sum(child.size for child in children)
        node.height = 1 + max((child.height for child in children), default=0)
        self._attach(node)

    def add(self, node: Node) -> None:
        """Add a finished scalar."""
        self._count(1, node.line)
        self._attach(node)

    def alias(self, node: Node, line: int) -> None:
        """Add a node that was read before under an anchor."""
        self._count_aliased(node.size, line)
        self._check_depth(node.height, line)
        self._attach(node)

    def finish(self) -> Node | None:
        """The tree so far; what is still open is closed as it stands."""
        for frame in self._stack:
            if isinstance(frame, _MappingFrame) and frame.merging:
                frame.merging, frame.skip = False, True  # half a merge is no merge
        while self._stack:
            self.close()
        return self.root

    def _mapping(self) -> _MappingFrame:
        top = self._stack[-1]
        assert isinstance(top, _MappingFrame)
        return top

    def _push(self, frame: _Frame, line: int) -> None:
        self._count(1, line)
        self._check_depth(1, line)
        self._stack.append(frame)

    def _check_depth(self, height: int, line: int) -> None:
        if len(self._stack) + height > MAX_DEPTH:
            message = f"nested more than {MAX_DEPTH} levels deep"
            raise DocumentError(message, line)

    def _count(self, nodes: int, line: int) -> None:
        self._nodes += nodes
        if self._nodes > MAX_NODES:
            message = f"more than {MAX_NODES} values in one document"
            raise DocumentError(message, line)

    def _count_aliased(self, nodes: int, line: int) -> None:
        self._aliased += nodes
        if self._aliased > MAX_ALIASED_NODES:
            message = f"aliases expand to more than {MAX_ALIASED_NODES} values"
            raise DocumentError(message, line)
        self._count(nodes, line)

    def _attach(self, node: Node) -> None:
        if not self._stack:
            self.root = node
            return
        top = self._stack[-1]
        if isinstance(top, Sequence):
            top.items.append(node)
        elif top.key is not None:
            self._set(top, top.key, node)
            top.key = None
        elif top.merging:
            top.merging = False
            self._merge(top, node)
        else:
            top.skip = False  # the value of a bad key

    @staticmethod
    def _set(frame: _MappingFrame, key: str, node: Node) -> None:
        first = frame.explicit.get(key)
        if first is not None:
            message = f"duplicate key, first on line {first}"
            frame.node.remarks.append(Remark(key, frame.key_line, message, fatal=True))
            return
        frame.explicit[key] = frame.key_line
        frame.node.values[key] = node
        frame.node.key_lines[key] = frame.key_line

    def _merge(self, frame: _MappingFrame, node: Node) -> None:
        # Of several, the earlier wins, so they are applied from the last to the first.
        sources = node.items[::-1] if isinstance(node, Sequence) else [node]
        for source in sources:
            if not isinstance(source, Mapping):
                message = "a merge key takes an object or a list of objects"
                frame.node.remarks.append(Remark("<<", frame.key_line, message, fatal=True))
                continue
            self._check_depth(source.height - 1, frame.key_line)
            self._merge_one(frame, source)

    @staticmethod
    def _merge_one(frame: _MappingFrame, source: Mapping) -> None:
        for key, value in source.values.items():
            # Kubernetes merges where the `<<` stands: it replaces what was written above it.
            if key in frame.explicit and frame.node.values[key] is not value:
                message = (
                    f"replaced by the merge key on line {frame.key_line}; "
                    "put << first for this value to win"
                )
                line = frame.explicit[key]
                frame.node.remarks.append(Remark(key, line, message, fatal=False))
            frame.node.values[key] = value
            frame.node.key_lines[key] = source.key_lines[key]
