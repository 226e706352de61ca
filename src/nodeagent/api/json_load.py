"""JSON text to a tree of values with lines.

JSON has its own reader although it looks like YAML: its numbers keep their text, its strings
have other escapes, and Kubernetes reads a document that starts with ``{`` as JSON only.
"""

from __future__ import annotations

import json
import math
import re
from bisect import bisect_right
from typing import Final

from nodeagent.api.nodes import DocumentError, Invalid, Loaded, Scalar, TreeBuilder

_BLANK: Final = re.compile(r"[ \t\r\n]*")
_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?(?![\w.+-])")
# Possessive, so that a string of megabytes keeps no way back.
_PLAIN_STRING: Final = re.compile(r'"([^"\\\x00-\x1f]*+)"')
_STRING: Final = re.compile(r'"(?:[^"\\\x00-\x1f]++|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*+"')
_WORD: Final = re.compile(r"[A-Za-z0-9_.+-]+")
_LONE_SURROGATE: Final = re.compile(r"[\ud800-\udfff]")
_WORDS: Final[dict[str, bool | None]] = {"true": True, "false": False, "null": None}
_MAX_INTEGER_DIGITS: Final = 400


def load_json(text: str, first_line: int = 1) -> Loaded:
    """Read one JSON value.

    Args:
        text: The document's text.
        first_line: The line of the file on which it starts.

    Returns:
        The tree; after an error, as much of it as was read, and the error.
    """
    scanner = _Scanner(text, first_line)
    try:
        scanner.run()
    except DocumentError as error:
        return Loaded(scanner.builder.finish(), error)
    return Loaded(scanner.builder.finish())


class _Scanner:
    """Walks the text once, with a stack of its own instead of recursion."""

    def __init__(self, text: str, first_line: int) -> None:
        self.builder = TreeBuilder()
        self._text = text
        self._first_line = first_line
        self._line_starts = [0, *(match.end() for match in re.finditer("\n", text))]
        self._at = 0
        self._open: list[str] = []

    def run(self) -> None:
        self._value()
        while self._open:
            self._step()
        self._skip_blank()
        if self._at < len(self._text):
            raise self._error("text after the end of the document; separate documents with ---")

    def _step(self) -> None:
        """After a value inside a list or an object: the next one, or the end."""
        self._skip_blank()
        closing = self._open[-1]
        found = self._text[self._at : self._at + 1]
        if found == closing:
            self._at += 1
            self._open.pop()
            self.builder.close()
        elif found == ",":
            self._at += 1
            self._skip_blank()
            self._member()
        else:
            expected = f"expected ',' or '{closing}'"
            raise self._error(expected)

    def _member(self) -> None:
        if self._open[-1] == "}":
            line = self._line()
            key = self._string()
            self._skip_blank()
            if not self._text.startswith(":", self._at):
                raise self._error("expected ':'")
            self._at += 1
            self.builder.key(key, line)
        self._value()

    def _value(self) -> None:
        self._skip_blank()
        first = self._text[self._at : self._at + 1]
        line = self._line()
        if first in ("{", "["):
            self._start(first, line)
        elif first == '"':
            value = self._string()
            self.builder.add(Scalar(value, line, value))
        else:
            self._word(line)

    def _start(self, bracket: str, line: int) -> None:
        if bracket == "{":
            self.builder.open_mapping(line)
        else:
            self.builder.open_sequence(line)
        self._at += 1
        closing = "}" if bracket == "{" else "]"
        self._open.append(closing)
        self._skip_blank()
        if self._text.startswith(closing, self._at):
            self._at += 1
            self._open.pop()
            self.builder.close()
        else:
            self._member()

    def _word(self, line: int) -> None:
        number = _NUMBER.match(self._text, self._at)
        if number is not None:
            self._at = number.end()
            self.builder.add(_number(number[0], line))
            return
        word = _WORD.match(self._text, self._at)
        if word is None or word[0] not in _WORDS:
            raise self._error("expected a value")
        self._at = word.end()
        self.builder.add(Scalar(_WORDS[word[0]], line, word[0]))

    def _string(self) -> str:
        match = _PLAIN_STRING.match(self._text, self._at)
        if match is not None:
            self._at = match.end()
            return match[1]
        match = _STRING.match(self._text, self._at)
        if match is None:
            if self._text.startswith('"', self._at):
                raise self._error("a string that does not end, or holds a bad escape")
            raise self._error("expected a key in quotes")
        self._at = match.end()
        # Half a surrogate pair is no character; Kubernetes puts the replacement character.
        return _LONE_SURROGATE.sub("\N{REPLACEMENT CHARACTER}", str(json.loads(match[0])))

    def _skip_blank(self) -> None:
        match = _BLANK.match(self._text, self._at)
        if match is not None:
            self._at = match.end()

    def _line(self) -> int:
        return bisect_right(self._line_starts, self._at) - 1 + self._first_line

    def _error(self, message: str) -> DocumentError:
        index = bisect_right(self._line_starts, self._at) - 1
        column = self._at - self._line_starts[index] + 1
        if self._at >= len(self._text):
            message = f"the document ends too early: {message}"
        return DocumentError(f"not valid JSON: {message}", index + self._first_line, column)


def _number(literal: str, line: int) -> Scalar | Invalid:
    if literal.lstrip("-").isdigit() and len(literal) <= _MAX_INTEGER_DIGITS:
        return Scalar(int(literal), line, literal, literal)
    value = float(literal)
    if math.isinf(value):
        return Invalid("the number is too large", line)
    return Scalar(value, line, literal, literal)
