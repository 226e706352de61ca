"""docs/behaviour/decoding.md, "Keys", "Limits"; YAML structure with lines, by both parsers."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.api.nodes import (
    MAX_ALIASED_NODES,
    MAX_DEPTH,
    DocumentError,
    Loaded,
    Mapping,
    Node,
    Plain,
    Scalar,
    Sequence,
    to_plain,
)
from nodeagent.api.yaml_load import load_yaml

Load = Callable[[str], Loaded]


@pytest.fixture(params=["C parser", "pure parser"])
def load(request: pytest.FixtureRequest) -> Load:
    def load_one(text: str) -> Loaded:
        (document,) = load_yaml(text, pure=request.param == "pure parser")
        return document

    return load_one


def plain(document: Loaded) -> Plain:
    assert document.error is None
    assert document.root is not None
    return to_plain(document.root)


def error(document: Loaded) -> DocumentError:
    assert document.error is not None
    return document.error


def remarks(document: Loaded) -> list[tuple[str, int, str, bool]]:
    found: list[tuple[str, int, str, bool]] = []

    def collect(node: Node | None) -> None:
        if isinstance(node, Mapping):
            found.extend((each.key, each.line, each.message, each.fatal) for each in node.remarks)
            for child in node.values.values():
                collect(child)
        elif isinstance(node, Sequence):
            for child in node.items:
                collect(child)

    collect(document.root)
    return found


def test_values_know_their_lines(load: Load) -> None:
    root = load("a: 1\nb:\n  - x\n  -\n    c: yes\n").root
    assert isinstance(root, Mapping)
    assert root.key_lines == {"a": 1, "b": 2}
    items = root.values["b"]
    assert isinstance(items, Sequence)
    assert [item.line for item in items.items] == [3, 5]
    inner = items.items[1]
    assert isinstance(inner, Mapping)
    value = inner.values["c"]
    assert isinstance(value, Scalar)
    assert (value.value, value.source, value.line) == (True, "yes", 5)


def test_lines_count_from_where_the_text_begins_in_its_file() -> None:
    (document,) = load_yaml("a: 1\nb: [\n", first_line=40)
    assert error(document).line == 42
    assert isinstance(document.root, Mapping)
    assert document.root.key_lines["a"] == 40


def test_quotes_and_block_text_make_strings(load: Load) -> None:
    text = "a: 'yes'\nb: \"1\"\nc: |\n  no\nd: >-\n  5\ne: !!str 5\n"
    assert plain(load(text)) == {"a": "yes", "b": "1", "c": "no\n", "d": "5", "e": "5"}


def test_the_tag_that_means_nothing_resolves_as_usual(load: Load) -> None:
    assert plain(load("a: ! 5\nb: !local 5\nc: !!int '5'\n")) == {"a": 5, "b": "5", "c": 5}


def test_a_duplicate_key_is_remarked_with_both_lines_and_the_first_stays(load: Load) -> None:
    document = load("a: 1\nb:\n  c: 1\n  d: 2\n  c: 3\n")
    assert plain(document) == {"a": 1, "b": {"c": 1, "d": 2}}
    assert remarks(document) == [("c", 5, "duplicate key, first on line 3", True)]


@pytest.mark.parametrize("text", ["1: a\n'1': b\n", "yes: a\ntrue: b\n", "0x1: a\n1: b\n"])
def test_keys_that_become_the_same_text_are_duplicates(load: Load, text: str) -> None:
    assert any("duplicate key" in message for _, _, message, _ in remarks(load(text)))


def test_keys_that_are_no_strings_become_text(load: Load) -> None:
    document = load("yes: a\n0x10: b\n1.5: c\ntrue2: d\nfalse: e\n2024-01-01: f\n")
    expected = {"true": "a", "16": "b", "1.5": "c", "true2": "d", "false": "e", "2024-01-01": "f"}
    assert plain(document) == expected
    message = "yes is read as the boolean true; put the key in quotes"
    assert remarks(document) == [("true", 1, message, False)]


@pytest.mark.parametrize(
    "text",
    [
        "~: a\nok: b\n",
        "9223372036854775808: a\nok: b\n",
        "? [x, &n y]\n: a\nok: b\n",
        "? {x: {y: [z]}}\n: {deep: [a]}\nok: b\n",
        "? !!int x\n: a\nok: b\n",
        "{[x]: a, ok: b}\n",
    ],
)
def test_a_bad_key_is_remarked_and_the_rest_is_read(load: Load, text: str) -> None:
    document = load(text)
    assert plain(document) == {"ok": "b"}
    ((_, line, _, fatal),) = remarks(document)
    assert (line, fatal) == (1, True)


@pytest.mark.parametrize(
    ("text", "word"),
    [("a: !!int x\n", "!!int"), ("a: .inf\n", "JSON"), ("a: !!binary '*'\n", "base64")],
)
def test_a_value_that_cannot_be_read_stands_as_such(load: Load, text: str, word: str) -> None:
    root = load(text).root
    assert isinstance(root, Mapping)
    assert word in getattr(root.values["a"], "message", "")


def test_aliases_and_anchors_work_also_on_keys(load: Load) -> None:
    text = "a: &x [1, 2]\nb: *x\n&k key: v\nc: *k\n*k : w\n"
    document = load(text)
    assert plain(document) == {"a": [1, 2], "b": [1, 2], "key": "v", "c": "key"}
    assert [key for key, _, _, _ in remarks(document)] == ["key"]


def test_merge_keys_fill_in(load: Load) -> None:
    text = (
        "base: &b {p: 1, q: 2}\nmore: &m {q: 3, r: 4}\n"
        "one:\n  <<: *b\n  p: 9\ntwo:\n  <<: [*b, *m]\n"
    )
    document = load(text)
    value = plain(document)
    assert isinstance(value, dict)
    assert value["one"] == {"p": 9, "q": 2}
    assert value["two"] == {"p": 1, "q": 2, "r": 4}
    assert remarks(document) == []


def test_a_merge_key_replaces_what_stands_above_it_and_says_so(load: Load) -> None:
    document = load("x:\n  p: 9\n  <<: {p: 1}\n")
    assert plain(document) == {"x": {"p": 1}}
    message = "replaced by the merge key on line 3; put << first for this value to win"
    assert remarks(document) == [("p", 2, message, False)]


def test_a_quoted_merge_key_is_a_key(load: Load) -> None:
    assert plain(load("'<<': {a: 1}\n")) == {"<<": {"a": 1}}


@pytest.mark.parametrize("text", ["<<: 5\nok: b\n", "<<: [{}, 5]\nok: b\n"])
def test_merging_what_is_no_object_is_refused(load: Load, text: str) -> None:
    document = load(text)
    assert plain(document) == {"ok": "b"}
    message = "a merge key takes an object or a list of objects"
    assert remarks(document) == [("<<", 1, message, True)]


def test_an_unknown_anchor_is_named(load: Load) -> None:
    found = error(load("a: 1\nb: *nope\n"))
    assert found.message == "an alias names no anchor; put a value that begins with * into quotes"
    assert (found.line, found.column) == (2, 4)


@pytest.mark.parametrize("text", ["a: &x {b: *x}\n", "a: &x\n  <<: *x\n", "&x [*x]\n"])
def test_an_anchor_that_contains_itself_is_refused(load: Load, text: str) -> None:
    assert error(load(text)).message == "an anchor contains itself"


def test_an_alias_bomb_is_stopped(load: Load) -> None:
    lines = ["a: &a [x, x, x, x, x, x, x, x, x]"]
    for before, name in zip("abcdefgh", "bcdefghi", strict=True):
        lines.append(f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]")
    found = error(load("\n".join(lines)))
    assert found.message == f"aliases expand to more than {MAX_ALIASED_NODES} values"
    assert found.line == 6


def test_a_merge_bomb_is_stopped(load: Load) -> None:
    keys = ", ".join(f"k{number}: 1" for number in range(1000))
    text = f"a: &a {{{keys}}}\nb:\n" + "  <<: *a\n" * 200
    assert "aliases expand" in error(load(text)).message


@pytest.mark.parametrize("opening", ["[", "{a: ", "- ", "? ", "[\n", "{? "])
def test_deep_nesting_is_refused_whatever_its_form(load: Load, opening: str) -> None:
    assert load(opening * 5000).error is not None


def test_nesting_is_accepted_up_to_the_limit(load: Load) -> None:
    assert load("[" * MAX_DEPTH + "]" * MAX_DEPTH).error is None
    found = error(load("[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1)))
    assert found.message == f"nested more than {MAX_DEPTH} levels deep"


def test_aliases_cannot_nest_deeper_than_the_limit(load: Load) -> None:
    half = "[" * (MAX_DEPTH // 2) + "]" * (MAX_DEPTH // 2)
    assert load(f"- &a {half}\n- [[*a]]\n").error is None
    deeper = "[" * (MAX_DEPTH // 2) + "*a" + "]" * (MAX_DEPTH // 2)
    assert "levels deep" in error(load(f"- &a {half}\n- {deeper}\n")).message


@pytest.mark.parametrize("text", ["a:\n\tb: 1\n", "a:\n  - b\n\t- c\n"])
def test_a_tab_as_indentation_is_named_with_its_place(load: Load, text: str) -> None:
    found = error(load(text))
    assert found.message == "not valid YAML: a tab cannot indent YAML, use blanks"
    assert found.line == text[: text.index("\t")].count("\n") + 1
    assert found.column >= 1


@pytest.mark.parametrize(
    ("text", "what", "column"),
    [("a: x\0y\n", "a NUL byte, this is no text", 5), ("a: \x07\n", "character U+0007", 4)],
)
def test_control_characters_are_named_with_their_place(
    load: Load, text: str, what: str, column: int
) -> None:
    document = load("ok: 1\n" + text)
    found = error(document)
    assert (found.message, found.line, found.column) == (f"not valid YAML: {what}", 2, column)
    assert isinstance(document.root, Mapping)
    assert "ok" in document.root.values


@pytest.mark.parametrize("escape", ["\\ud800", "\\U99999999", "\\uDFFFx"])
def test_escapes_that_are_no_characters_are_refused(load: Load, escape: str) -> None:
    document = load(f'a: "{escape}"\n')
    root = document.root
    assert document.error or (isinstance(root, Mapping) and hasattr(root.values["a"], "message"))


def test_what_stands_before_a_syntax_error_is_kept(load: Load) -> None:
    document = load("a: 1\nb:\n  c: [x, {d: e\nf: g\n")
    assert error(document).message.startswith("not valid YAML: ")
    assert isinstance(document.root, Mapping)
    assert to_plain(document.root.values["a"]) == 1


@pytest.mark.parametrize("text", ["a: {<<: [{b: c}, ", "a: {? [b", "a: &x {<<: *x"])
def test_a_document_that_breaks_off_in_a_key_keeps_its_shape(load: Load, text: str) -> None:
    document = load(text)
    assert document.error is not None
    assert isinstance(document.root, Mapping)


def test_text_without_values_holds_no_document() -> None:
    for text in ("", "\n", "# only a comment\n"):
        assert load_yaml(text) == []
        assert load_yaml(text, pure=True) == []


def test_several_documents_come_in_order() -> None:
    first, second, third = load_yaml("a: 1\n--- 2\n...\n---\n[\n")
    assert plain(first) == {"a": 1}
    assert plain(second) == 2
    assert third.error is not None


@given(st.text(alphabet="ab:-[]{},&*?|>'\"#%~<\\ \t\n0x1.yn"))
def test_both_parsers_agree_on_whatever_both_can_read(text: str) -> None:
    fast, pure = load_yaml(text), load_yaml(text, pure=True)
    if all(each.error is None for each in [*fast, *pure]):
        assert [to_plain(each.root) for each in fast if each.root] == [
            to_plain(each.root) for each in pure if each.root
        ]
