"""YAML text to a tree of values with lines.

PyYAML only finds the structure (its C parser where it was built with one); what words mean, how
keys and aliases count, and every limit is decided here and in ``yaml_scalars``, because YAML has
as many readings as it has libraries and a manifest must mean what it means to Kubernetes.
"""

from __future__ import annotations

import math
import re
from itertools import islice
from typing import Any, Final, TypeAlias

import yaml

from nodeagent.api.nodes import MAX_DEPTH, DocumentError, Invalid, Loaded, Node, Scalar, TreeBuilder
from nodeagent.api.yaml_scalars import (
    INT,
    MERGE,
    STR,
    Resolved,
    key_text,
    resolve_plain,
    resolve_tagged,
)

_FAST_LOADER: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_Event: TypeAlias = Any  # PyYAML's events; its type stubs allow them to have no position
_FORBIDDEN: Final = re.compile(
    "[^\\t\\n\\r\\x20-\\x7e\\x85\\xa0-\\ud7ff\\ue000-\\ufefe\\uff00-\\ufffd\U00010000-\U0010ffff]"
)
_SURROGATE: Final = re.compile("[\ud800-\udfff]")


def load_yaml(text: str, first_line: int = 1, *, pure: bool = False) -> list[Loaded]:
    """Read YAML text.

    Args:
        text: The text of one document, or of several.
        first_line: The line of the file on which the text starts.
        pure: Use PyYAML's own parser although the C parser is there.

    Returns:
        What each document holds, in order. After an error in a document comes no other. Text
        without any value (blank, comments only) gives an empty list.
    """
    forbidden = _FORBIDDEN.search(text)
    if forbidden is None:
        return _load(text, first_line, pure=pure)
    # What stands before the bad character still tells whose document this is.
    documents = _load(text[: forbidden.start()], first_line, pure=pure)
    root = documents.pop().root if documents else None
    error = _forbidden_character(text, forbidden.start(), first_line)
    return [*documents, Loaded(root, error)]


def _load(text: str, first_line: int, *, pure: bool) -> list[Loaded]:
    documents: list[Loaded] = []
    reader = _Reader(first_line)
    loader = (yaml.SafeLoader if pure else _FAST_LOADER)(text)
    try:
        while True:
            event = loader.get_event()
            handle = _HANDLERS.get(type(event))
            if handle is not None:
                handle(reader, event)
            elif isinstance(event, yaml.DocumentEndEvent):
                documents.append(Loaded(reader.builder.finish()))
                reader = _Reader(first_line)
            elif isinstance(event, yaml.StreamEndEvent):
                return documents
    except DocumentError as error:
        documents.append(Loaded(reader.builder.finish(), error))
    except yaml.MarkedYAMLError as error:
        documents.append(Loaded(reader.builder.finish(), _explain(error, text, first_line)))
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        # The pure parser lets an impossible \\U escape through to chr().
        problem = DocumentError(f"not valid YAML: {error}", first_line)
        documents.append(Loaded(reader.builder.finish(), problem))
    finally:
        loader.dispose()
    return documents


class _Reader:
    """Takes one document's events and drives the tree builder."""

    def __init__(self, first_line: int) -> None:
        self.builder = TreeBuilder()
        self._first_line = first_line
        self._anchors: dict[str, Node] = {}
        self._bad_key_depth = 0  # > 0 inside a key that is itself a list or an object

    def scalar(self, event: _Event) -> None:
        line = event.start_mark.line + self._first_line
        if self._bad_key_depth:
            return
        if self.builder.wants_key:
            self._scalar_key(event, line)
            return
        node = _scalar(event, line)
        if event.anchor is not None:
            self._anchors[event.anchor] = node
        self.builder.add(node)

    def alias(self, event: _Event) -> None:
        line = event.start_mark.line + self._first_line
        if self._bad_key_depth:
            return
        node = self._anchors.get(event.anchor)
        if node is None:
            column = event.start_mark.column + 1
            # Its name is not repeated: it may be a password that begins with an asterisk.
            message = "an alias names no anchor; put a value that begins with * into quotes"
            raise DocumentError(message, line, column)
        if node.size == 0:
            message = "an anchor contains itself"
            raise DocumentError(message, line)
        if self.builder.wants_key:
            self._alias_key(node, line)
            return
        self.builder.alias(node, line)

    def start(self, event: _Event) -> None:
        line = event.start_mark.line + self._first_line
        if self._bad_key_depth or self.builder.wants_key:
            if not self._bad_key_depth:
                self.builder.bad_key("", line, "a list or an object cannot be a key")
            self._bad_key_depth += 1
            if self._bad_key_depth > MAX_DEPTH:
                message = f"a key nested more than {MAX_DEPTH} levels deep"
                raise DocumentError(message, line)
            return
        if isinstance(event, yaml.SequenceStartEvent):
            node: Node = self.builder.open_sequence(line)
        else:
            node = self.builder.open_mapping(line)
        if event.anchor is not None:
            self._anchors[event.anchor] = node

    def end(self, event: _Event) -> None:
        del event
        if self._bad_key_depth:
            self._bad_key_depth -= 1
            return
        self.builder.close()

    def _scalar_key(self, event: _Event, line: int) -> None:
        if event.value == "<<" and (event.implicit[0] or event.tag == MERGE):
            self.builder.merge_key(line)
            return
        try:
            resolved = _resolve(event)
            if event.anchor is not None:
                self._anchors[event.anchor] = _node(resolved, event.value, line)
            key = key_text(resolved)
        except ValueError as error:
            self.builder.bad_key(event.value, line, str(error))
            return
        if isinstance(resolved.value, bool) and key != event.value:
            message = f"{event.value} is read as the boolean {key}; put the key in quotes"
            self.builder.remark(key, line, message)
        self.builder.key(key, line)

    def _alias_key(self, node: Node, line: int) -> None:
        if not isinstance(node, Scalar):
            self.builder.bad_key("", line, "a list or an object cannot be a key")
            return
        try:
            self.builder.key(key_text(Resolved("", node.value)), line)
        except ValueError as error:
            self.builder.bad_key(node.source, line, str(error))


_HANDLERS: Final[dict[type[Any], Any]] = {
    yaml.ScalarEvent: _Reader.scalar,
    yaml.AliasEvent: _Reader.alias,
    yaml.SequenceStartEvent: _Reader.start,
    yaml.MappingStartEvent: _Reader.start,
    yaml.SequenceEndEvent: _Reader.end,
    yaml.MappingEndEvent: _Reader.end,
}


def _resolve(event: _Event) -> Resolved:
    if not event.value.isascii() and _SURROGATE.search(event.value):
        raise ValueError("an escape that is half a character")  # the C parser refuses it itself
    if event.tag is None or event.tag == "!":
        plain, _quoted = event.implicit
        return resolve_plain(event.value) if plain else Resolved(STR, event.value)
    return resolve_tagged(event.tag, event.value)


def _scalar(event: _Event, line: int) -> Node:
    try:
        resolved = _resolve(event)
    except ValueError as error:
        return Invalid(str(error), line)
    return _node(resolved, event.value, line)


def _node(resolved: Resolved, source: str, line: int) -> Node:
    _tag, value, number = resolved
    if number is not None and resolved.tag != INT and not math.isfinite(float(number)):
        return Invalid(f"{source} is not a number that JSON can hold", line)
    return Scalar(value, line, source, number)


def _explain(error: yaml.MarkedYAMLError, text: str, first_line: int) -> DocumentError:
    """Our words and the file's position for a parser error."""
    mark = error.problem_mark or error.context_mark
    line, column = (mark.line, mark.column) if mark is not None else (0, 0)
    message = error.problem or "cannot be read"
    if _indented_by_tab(text, line):
        message = "a tab cannot indent YAML, use blanks"
    elif error.context:
        message = f"{message} {error.context}"
    return DocumentError(f"not valid YAML: {message}", line + first_line, column + 1)


def _indented_by_tab(text: str, line: int) -> bool:
    content = next(islice(text.splitlines(), line, None), "")
    return "\t" in content[: len(content) - len(content.lstrip())]


def _forbidden_character(text: str, offset: int, first_line: int) -> DocumentError:
    line_start = text.rfind("\n", 0, offset) + 1
    line = text.count("\n", 0, offset) + first_line
    found = text[offset]
    what = "a NUL byte, this is no text" if found == "\0" else f"character U+{ord(found):04X}"
    return DocumentError(f"not valid YAML: {what}", line, offset - line_start + 1)
