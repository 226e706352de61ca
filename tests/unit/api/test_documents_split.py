"""docs/behaviour/decoding.md, "Documents"."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.api.nodes import Loaded, Plain, to_plain
from nodeagent.api.splitting import MAX_DOCUMENTS, load_documents, split


def values(data: bytes) -> list[Plain]:
    documents = load_documents(data)
    assert all(each.error is None for each in documents)
    return [to_plain(each.root) for each in documents if each.root is not None]


def only(data: bytes) -> Loaded:
    (document,) = load_documents(data)
    return document


def problem(document: Loaded) -> tuple[str, int, int]:
    assert document.error is not None
    return document.error.message, document.error.line, document.error.column


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"a: 1\n---\nb: 2\n", [{"a": 1}, {"b": 2}]),
        (b"---\na: 1\n---\nb: 2\n---\n", [{"a": 1}, {"b": 2}]),
        (b"--- {a: 1}\n--- text\n---\tx\n", [{"a": 1}, "text", "x"]),
        (b"a: 1\n...\nb: 2\n...\n", [{"a": 1}, {"b": 2}]),
        (b"a: 1\r\n---\r\nb: 2\r\n", [{"a": 1}, {"b": 2}]),
        (b"a: |\n  x\n---\n  z\n", [{"a": "x\n"}, "z"]),
        (b"a: ---\nb: '---'\nc: |\n  ---\n  x\n", [{"a": "---", "b": "---", "c": "---\nx\n"}]),
        (b"----\n", ["----"]),
        (b"a: 1\n---", [{"a": 1}]),
        (b"# top\n---\n# one\n\n--- # two\n---\na: 1\n--- ~\n---\nnull\n", [{"a": 1}]),
        (b"%YAML 1.1\n# c\n---\na: 1\n", [{"a": 1}]),
        (b"%TAG !e! tag:yaml.org,2002:\n---\na: !e!str 1\n---\nb: 2\n", [{"a": "1"}, {"b": 2}]),
        (b"a: 1\n...\n%YAML 1.1\n---\nb: 2\n", [{"a": 1}, {"b": 2}]),
        (b"\xef\xbb\xbfa: 1\n", [{"a": 1}]),
        (b"\xef\xbb\xbf---\na: 1\n", [{"a": 1}]),
        (b"\xef\xbb\xbf" + b'{"a": 1}', [{"a": 1}]),
        (b"a: 1\xe2\x80\xa8--- \nb: 2\n", [{"a": 1}, {"b": 2}]),
    ],
)
def test_files_are_cut_at_their_markers(data: bytes, expected: list[Plain]) -> None:
    assert values(data) == expected


@pytest.mark.parametrize(
    "data", [b"", b"\n", b"# c\n", b"---\n---\n", b"\xef\xbb\xbf", b"...\n", b"~"]
)
def test_files_without_a_value_hold_no_documents(data: bytes) -> None:
    assert load_documents(data) == []


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b'{"a": "\\/", "b": 1e3}', {"a": "/", "b": 1000.0}),
        (b" \n{ }", {}),
        (b'---\n{"a": "x\\ty"}\n', {"a": "x\ty"}),
        (b'--- {"a": [true,\n\tnull]}', {"a": [True, None]}),
        (b"{a: yes}", {"a": True}),
        (b"{'a': 1,}", {"a": 1}),
        (b'# YAML, so 0644 is octal\n{"a": 0644}', {"a": 420}),
    ],
)
def test_json_and_yaml_are_told_apart_by_the_beginning(data: bytes, expected: Plain) -> None:
    assert values(data) == [expected]


def test_what_begins_as_json_must_be_json() -> None:
    message, line, column = problem(only(b'---\n{"a": yes}'))
    assert (message, line, column) == ("not valid JSON: expected a value", 2, 7)


def test_a_document_that_cannot_be_read_hides_no_other() -> None:
    first, bad, escaped, last = load_documents(b"a: 1\n---\nb: [\n---\nc: \xff\n---\nd: 'x\n  y'\n")
    assert to_plain_or_none(first) == {"a": 1}
    assert problem(bad)[1] == 4
    assert problem(escaped) == ("not UTF-8 text: byte 0xff", 5, 4)
    assert to_plain_or_none(last) == {"d": "x y"}


def to_plain_or_none(document: Loaded) -> Plain:
    return None if document.root is None else to_plain(document.root)


def test_lines_count_through_the_whole_file() -> None:
    pieces = list(split(b"# one\n\na: 1\n---\nb: 2\n...\n# c\nc: 3\n"))
    assert [piece.line for piece in pieces] == [1, 4, 6]
    third = load_documents(b"a: 1\n---\nb: 2\n...\n# c\nc: [\n")[2]
    assert problem(third)[1] == 7


@pytest.mark.parametrize(
    ("data", "encoding"),
    [
        ("a: 1".encode("utf-16"), "UTF-16"),
        (b"\xfe\xff\0a", "UTF-16"),
        ("a: 1".encode("utf-32"), "UTF-32"),
    ],
)
def test_other_encodings_are_named(data: bytes, encoding: str) -> None:
    assert problem(only(data)) == (f"{encoding} text, must be UTF-8", 1, 0)


def test_bad_bytes_are_named_with_their_place_and_what_stands_before_is_kept() -> None:
    document = only(b"ok: 1\nk\xc3\xa9y: \xc3\n")
    assert problem(document) == ("not UTF-8 text: byte 0xc3", 2, 6)
    assert to_plain_or_none(document) == {"ok": 1, "kéy": None}


def test_a_file_of_too_many_documents_is_cut_off() -> None:
    documents = load_documents(b"--- a\n" * (MAX_DOCUMENTS + 5))
    assert len(documents) == MAX_DOCUMENTS + 1
    assert problem(documents[-1])[0] == f"more than {MAX_DOCUMENTS} documents"


@given(st.lists(st.sampled_from([b"a: 1\n", b"---\n", b"...\n", b"# c\n", b" x\n", b"\n", b"b"])))
def test_no_byte_that_matters_is_lost_or_moved(lines: list[bytes]) -> None:
    data = b"".join(lines)
    for piece in split(data):
        start = sum(len(line) for line in data.splitlines(keepends=True)[: piece.line - 1])
        assert data.startswith(piece.data, start) or data.startswith(b"..." + piece.data, start)
    kept = b"".join(piece.data for piece in split(data))
    assert kept.count(b"a: 1") == data.count(b"a: 1")
    assert kept.count(b" x") == data.count(b" x")
