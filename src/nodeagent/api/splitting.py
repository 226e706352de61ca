"""A file's bytes to documents: where each begins, and what it holds.

Files are cut at ``---`` and ``...`` lines before anything is parsed, so a document that cannot be
read costs only itself. YAML allows such a line at column 0 nowhere else, not even in block text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from nodeagent.api.json_load import load_json
from nodeagent.api.nodes import DocumentError, Loaded, Scalar
from nodeagent.api.yaml_load import load_yaml

MAX_DOCUMENTS: Final = 10_000
"""Most documents read from one file."""

_UTF8_BOM: Final = b"\xef\xbb\xbf"
_OTHER_BOMS: Final = {
    b"\xff\xfe\x00\x00": "UTF-32",
    b"\x00\x00\xfe\xff": "UTF-32",
    b"\xff\xfe": "UTF-16",
    b"\xfe\xff": "UTF-16",
}
_MARKER: Final = re.compile(rb"^(?:---|\.\.\.)(?=[ \t\r\n]|\Z)", re.MULTILINE)
_COMMENTS: Final = re.compile(rb"(?:---)?(?:[ \t\r\n]++|#[^\r\n]*+)*+\Z")
_DIRECTIVES: Final = re.compile(rb"(?:[ \t]*(?:#[^\n]*)?\r?\n)*+%")
_JSON_START: Final = re.compile(rb"(?:---)?[ \t\r\n]*\{[ \t\r\n]*[\"}]")


@dataclass(frozen=True, slots=True)
class Piece:
    """The bytes of one document and the line of the file they start on."""

    data: bytes
    line: int


def load_documents(data: bytes) -> list[Loaded]:
    """Read every document of a file; those without any value are left out.

    A document that cannot be read comes with its error and does not hide the others.
    """
    for bom, encoding in _OTHER_BOMS.items():
        if data.startswith(bom):
            return [Loaded(None, DocumentError(f"{encoding} text, must be UTF-8", 1))]
    documents: list[Loaded] = []
    for piece in split(data.removeprefix(_UTF8_BOM)):
        if len(documents) >= MAX_DOCUMENTS:
            error = DocumentError(f"more than {MAX_DOCUMENTS} documents", piece.line)
            return [*documents, Loaded(None, error)]
        documents.extend(loaded for loaded in _load(piece) if not _is_empty(loaded))
    return documents


def split(data: bytes) -> Iterator[Piece]:
    """Cut a file at its document markers; pieces without a value are left out.

    A ``---`` line belongs to the piece that it opens, so that columns stay right; ``%`` directives
    belong to the document after them.
    """
    start = 0
    line = counted = 0
    for marker in _MARKER.finditer(data):
        if marker[0] == b"---" and _DIRECTIVES.match(data, start, marker.start()):
            continue
        if _has_text(data[start : marker.start()]):
            line += data.count(b"\n", counted, start)
            counted = start
            yield Piece(data[start : marker.start()], line + 1)
        start = marker.start() if marker[0] == b"---" else marker.end()
    if _has_text(data[start:]):
        line += data.count(b"\n", counted, start)
        yield Piece(data[start:], line + 1)


def _has_text(data: bytes) -> bool:
    return _COMMENTS.match(data) is None


def _is_empty(loaded: Loaded) -> bool:
    if loaded.error is not None:
        return False
    root = loaded.root
    return root is None or (isinstance(root, Scalar) and root.value is None)


def _load(piece: Piece) -> list[Loaded]:
    try:
        text = piece.data.decode()
    except UnicodeDecodeError as error:
        return [_not_utf8(piece, error.start)]
    if _JSON_START.match(piece.data):
        blanked = text.replace("---", "   ", 1) if text.startswith("---") else text
        return [load_json(blanked, piece.line)]
    return load_yaml(text, piece.line)


def _not_utf8(piece: Piece, offset: int) -> Loaded:
    # What stands before the bad byte still tells whose document this is.
    good = piece.data[:offset].decode()
    before = load_yaml(good, piece.line)
    line = good.count("\n")
    column = len(good) - (good.rfind("\n") + 1)
    message = f"not UTF-8 text: byte 0x{piece.data[offset]:02x}"
    root = before[-1].root if before else None
    return Loaded(root, DocumentError(message, line + piece.line, column + 1))
