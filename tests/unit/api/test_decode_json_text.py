"""docs/behaviour/decoding.md, "JSON"."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.api.json_load import load_json
from nodeagent.api.nodes import MAX_DEPTH, DocumentError, Invalid, Mapping, Plain, Scalar, to_plain

AFTER_THE_END = "text after the end of the document; separate documents with ---"
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(alphabet=st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(alphabet='ab"\\é'), inner, max_size=4)
    ),
    max_leaves=20,
)


def plain(text: str) -> Plain:
    document = load_json(text)
    assert document.error is None
    assert document.root is not None
    return to_plain(document.root)


def error(text: str) -> DocumentError:
    found = load_json(text).error
    assert found is not None
    return found


@given(VALUES, st.sampled_from([None, 2]), st.booleans())
def test_any_json_reads_as_the_standard_library_reads_it(
    value: Plain, indent: int | None, ascii_only: bool
) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    assert plain(text) == value


def test_values_know_their_lines_and_numbers_their_text() -> None:
    root = load_json('\n{"a": 1,\r\n "b":\n 1e3, "c": -0.50}\n', first_line=10).root
    assert isinstance(root, Mapping)
    assert root.line == 11
    assert root.key_lines == {"a": 11, "b": 12, "c": 13}
    number = root.values["b"]
    assert isinstance(number, Scalar)
    assert (number.value, number.number, number.line) == (1000.0, "1e3", 13)
    last = root.values["c"]
    assert isinstance(last, Scalar)
    assert last.number == "-0.50"


def test_words_of_yaml_are_no_json() -> None:
    assert "expected a value" in error('{"a": yes}').message
    assert "expected a value" in error('{"a": 0644}').message


def test_a_duplicate_key_is_remarked_with_both_lines() -> None:
    root = load_json('{"a": 1,\n"b": 2,\n"a": 3}').root
    assert isinstance(root, Mapping)
    assert to_plain(root) == {"a": 1, "b": 2}
    (remark,) = root.remarks
    assert (remark.key, remark.line, remark.message, remark.fatal) == (
        "a",
        3,
        "duplicate key, first on line 1",
        True,
    )


def test_escapes_are_read_and_half_a_pair_is_replaced() -> None:
    assert plain(r'["\u00e9\/\n", "\ud83d\ude00", "a\ud800b"]') == [
        "é/\n",
        "😀",
        "a\N{REPLACEMENT CHARACTER}b",
    ]


def test_a_number_beyond_a_float_is_unreadable() -> None:
    root = load_json('{"a": 1e999}').root
    assert isinstance(root, Mapping)
    assert isinstance(root.values["a"], Invalid)


def test_a_long_number_is_read() -> None:
    assert plain("[" + "1" * 300 + "]") == [int("1" * 300)]
    assert load_json("[" + "1" * 5000 + "]").error is None
    assert not math.isinf(float("1" * 300))


@pytest.mark.parametrize(
    ("text", "message", "line", "column"),
    [
        ('{"a": 1\n "b": 2}', "not valid JSON: expected ',' or '}'", 2, 2),
        ('{"a" 1}', "not valid JSON: expected ':'", 1, 6),
        ('{"a": 1,}', "not valid JSON: expected a key in quotes", 1, 9),
        ("{a: 1}", "not valid JSON: expected a key in quotes", 1, 2),
        ("[1, 2", "not valid JSON: the document ends too early: expected ',' or ']'", 1, 6),
        ('{"a":', "not valid JSON: the document ends too early: expected a value", 1, 6),
        ('["a\nb"]', "not valid JSON: a string that does not end, or holds a bad escape", 1, 2),
        (r'["\x41"]', "not valid JSON: a string that does not end, or holds a bad escape", 1, 2),
        (
            "[1] [2]",
            f"not valid JSON: {AFTER_THE_END}",
            1,
            5,
        ),
        ("[-]", "not valid JSON: expected a value", 1, 2),
        ("[1.]", "not valid JSON: expected a value", 1, 2),
        ("[\0]", "not valid JSON: expected a value", 1, 2),
    ],
)
def test_errors_name_line_and_column(text: str, message: str, line: int, column: int) -> None:
    found = error(text)
    assert (found.message, found.line, found.column) == (message, line, column)


def test_deep_nesting_is_refused() -> None:
    assert load_json("[" * MAX_DEPTH + "]" * MAX_DEPTH).error is None
    assert error("[" * 100_000).message == f"nested more than {MAX_DEPTH} levels deep"
    assert error('{"a":' * 100_000).message == f"nested more than {MAX_DEPTH} levels deep"


def test_what_stands_before_an_error_is_kept() -> None:
    root = load_json('{"metadata": {"name": "web"}, "spec": {"x": [1, {"y": oops').root
    assert root is not None
    assert to_plain(root) == {"metadata": {"name": "web"}, "spec": {"x": [1, {}]}}


@given(st.text(alphabet='{}[]",:\\u0d8e1.-+ \ntrufalsn'))
def test_no_text_raises(text: str) -> None:
    document = load_json(text)
    assert document.error is not None or document.root is not None
