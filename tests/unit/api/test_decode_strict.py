"""docs/behaviour/decoding.md, "Types"."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.api.codec import dec_hook
from nodeagent.api.nodes import Mapping, Node
from nodeagent.api.problems import MAX_PROBLEMS, FieldProblem, Findings, MapKey, path_text, shown
from nodeagent.api.quantity import Quantity
from nodeagent.api.splitting import load_documents
from nodeagent.api.strict import build, check_object, suggest


class Inner(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    host_port: int = 0
    fs_group: int | None = None


class Outer(msgspec.Struct, frozen=True, rename="camel"):
    text: str = ""
    flag: bool = False
    count: int = 0
    small: Annotated[int, msgspec.Meta(ge=1, le=10)] = 1
    ratio: float = 0.0
    port: int | str = 0
    maybe_port: int | str | None = None
    when: Annotated[datetime, msgspec.Meta(tz=True)] | None = None
    times: tuple[datetime, ...] = ()
    amount: Quantity | None = None
    amounts: dict[str, Quantity] = {}
    amount_list: tuple[Quantity, ...] = ()
    labels: dict[str, str] = {}
    numbers: tuple[int, ...] = ()
    supplemental_groups: tuple[int, ...] = ()
    inner: Inner = Inner()
    inners: tuple[Inner, ...] = ()
    anything: dict[str, Any] | None = None
    itself: Outer | None = None


class Demanding(msgspec.Struct, frozen=True):
    name: str


def parse(text: str) -> Node:
    (document,) = load_documents(text.encode())
    assert document.root is not None
    return document.root


def judge(text: str, wanted: type[msgspec.Struct] = Outer) -> Findings:
    found = Findings()
    check_object(parse(text), wanted, found, dec_hook)
    return found


def errors(text: str) -> list[str]:
    return [str(each) for each in judge(text).errors]


def warnings(text: str) -> list[str]:
    found = judge(text)
    assert found.errors == ()
    return [str(each) for each in found.warnings]


def value(text: str) -> Outer:
    found = Findings()
    plain = check_object(parse(text), Outer, found, dec_hook)
    assert found.errors == ()
    built = build(plain, Outer, dec_hook)
    assert isinstance(built, Outer)
    return built


def test_a_sound_document_becomes_the_object() -> None:
    text = """
text: hello
flag: yes
count: 0x10
ratio: 1.5
port: http
when: 2024-01-01T01:00:00+01:00
times: ["2024-01-01T00:00:00Z"]
amount: 500m
amounts: {cpu: 0.5, memory: 1Gi, other: 0644}
labels: {a: b}
numbers: [1, 2]
inner: {name: x, hostPort: 80}
inners: [{name: z}]
anything: {a: [1, {b: null}]}
itself: {itself: {text: deep}}
"""
    assert value(text) == Outer(
        text="hello",
        flag=True,
        count=16,
        ratio=1.5,
        port="http",
        when=datetime(2024, 1, 1, tzinfo=UTC),
        times=(datetime(2024, 1, 1, tzinfo=UTC),),
        amount=Quantity("500m"),
        amounts={"cpu": Quantity("500m"), "memory": Quantity("1Gi"), "other": Quantity(420)},
        labels={"a": "b"},
        numbers=(1, 2),
        inner=Inner(name="x", host_port=80),
        inners=(Inner(name="z"),),
        anything={"a": [1, {"b": None}]},
        itself=Outer(itself=Outer(text="deep")),
    )


def test_all_problems_come_at_once_with_path_and_line() -> None:
    text = """\
count: http
inners:
  - hostPort: yes
  - 5
  -
    name: [a]
    hostprot: 1
lables: {}
labels: {a/b: 1}
"""
    found = judge(text)
    assert [str(each) for each in found.errors] == [
        'count: expected an integer, got the string "http" (line 1)',
        "inners[0].hostPort: expected an integer, got the boolean true (written yes) (line 3)",
        "inners[1]: expected an object, got the number 5 (line 4)",
        "inners[2].name: expected a string, got a list (line 6)",
        "labels[a/b]: expected a string, got a number; put it in quotes (line 9)",
    ]
    assert [str(each) for each in found.warnings] == [
        "inners[2].hostprot: unknown field, did you mean hostPort? (line 7)",
        "lables: unknown field, did you mean labels? (line 8)",
    ]


def test_null_leaves_a_field_out() -> None:
    text = (
        "text: ~\nflag:\ncount: null\nport: ~\nwhen: ~\namount: ~\nlabels: ~\ninner: ~\ninners: ~\n"
    )
    assert value(text) == Outer()


def test_null_in_lists_and_maps_is_the_zero_value() -> None:
    text = "labels: {a: ~}\nnumbers: [~]\ninners: [~]\nitself: {anything: {a: ~}}\n"
    expected = Outer(
        labels={"a": ""}, numbers=(0,), inners=(Inner(),), itself=Outer(anything={"a": None})
    )
    assert value(text) == expected


def test_null_for_a_type_without_zero_is_left_out_of_a_map_and_refused_in_a_list() -> None:
    assert warnings("amounts: {cpu: ~}\n") == ["amounts[cpu]: null, left out (line 1)"]
    assert value("amounts: {cpu: ~}\n").amounts == {}
    assert errors("amountList: [~]\ntimes: [~]\n") == [
        "amountList[0]: expected a value, got null (line 1)",
        "times[0]: expected a value, got null (line 2)",
    ]


@pytest.mark.parametrize(
    ("written", "problem"),
    [
        ('"8080"', 'expected an integer, got the string "8080"; remove the quotes'),
        ("http", 'expected an integer, got the string "http"'),
        ("1:30", 'expected an integer, got the string "1:30"'),
        ("true", "expected an integer, got the boolean true"),
        ("yes", "expected an integer, got the boolean true (written yes)"),
        ("1.5", "expected an integer, got the number 1.5"),
        ("1e21", "expected an integer, got the number 1e21"),
        ("[]", "expected an integer, got a list"),
        ("{}", "expected an integer, got an object"),
        ("!!int x", "'x' is not a value of type !!int"),
        (".inf", ".inf is not a number that JSON can hold"),
        ("2147483648", "2147483648 is out of range, -2147483648 to 2147483647"),
        ("-2147483649", "-2147483649 is out of range, -2147483648 to 2147483647"),
    ],
)
def test_what_is_no_integer_is_refused(written: str, problem: str) -> None:
    assert errors(f"count: {written}\n") == [f"count: {problem} (line 1)"]


@pytest.mark.parametrize(
    ("written", "number"), [("1e3", 1000), ("80.0", 80), ("0644", 420), ("-0", 0), ("2_0", 20)]
)
def test_yaml_numbers_with_an_integral_value_are_integers(written: str, number: int) -> None:
    assert value(f"count: {written}\nport: {written}\n") == Outer(count=number, port=number)


@pytest.mark.parametrize("literal", ["1e3", "80.0", "1E2"])
def test_json_numbers_keep_their_text_and_are_no_integers(literal: str) -> None:
    problem = f"count: expected an integer, got the number {literal} (line 1)"
    assert errors(f'{{"count": {literal}}}') == [problem]


def test_ids_and_seconds_have_64_bits_and_stated_bounds_hold() -> None:
    big = 2**63 - 1
    built = value(f"inner: {{fsGroup: {big}}}\nsupplementalGroups: [{big}]\n")
    assert (built.inner.fs_group, built.supplemental_groups) == (big, (big,))
    found = errors(f"inner: {{fsGroup: {big + 1}}}\nsmall: 11\nnumbers: [{2**31}]\n")
    assert found == [
        f"inner.fsGroup: {big + 1} is out of range, {-(2**63)} to {big} (line 1)",
        "small: 11 is out of range, 1 to 10 (line 2)",
        f"numbers[0]: {2**31} is out of range, {-(2**31)} to {2**31 - 1} (line 3)",
    ]


@pytest.mark.parametrize(
    ("written", "problem"),
    [
        ("false", 'expected a string, got the boolean false; put it in quotes: "false"'),
        ("no", 'expected a string, got the boolean false (written no); put it in quotes: "no"'),
        ("31337", "expected a string, got a number; put it in quotes"),
        ("0644", "expected a string, got a number; put it in quotes"),
        ("[a]", "expected a string, got a list"),
        ("{a: b}", "expected a string, got an object"),
    ],
)
def test_what_is_no_string_is_refused_and_numbers_are_not_repeated(
    written: str, problem: str
) -> None:
    assert errors(f"text: {written}\n") == [f"text: {problem} (line 1)"]


def test_dates_are_strings() -> None:
    assert value("text: 2024-01-01\n").text == "2024-01-01"


@pytest.mark.parametrize(
    ("written", "problem"),
    [
        ('"true"', 'expected true or false, got the string "true"; remove the quotes'),
        ("maybe", 'expected true or false, got the string "maybe"'),
        ("1", "expected true or false, got the number 1"),
    ],
)
def test_what_is_no_boolean_is_refused(written: str, problem: str) -> None:
    assert errors(f"flag: {written}\n") == [f"flag: {problem} (line 1)"]


@pytest.mark.parametrize("written", ["true", "[]", "{}", "1.5"])
def test_a_port_is_an_integer_or_a_string(written: str) -> None:
    ((problem,), (optional,)) = errors(f"port: {written}\n"), errors(f"maybePort: {written}\n")
    assert problem.startswith("port: expected an integer or a string, got ")
    assert optional.startswith("maybePort: expected an integer or a string, got ")
    assert value('port: "80"\nmaybePort: 80\n') == Outer(port="80", maybe_port=80)
    assert "out of range" in errors("port: 4294967296\n")[0]


@pytest.mark.parametrize("written", ["1gi", '"1 Gi"', "1Gi2", "true", "[]", '""'])
def test_what_is_no_quantity_is_refused_at_its_place(written: str) -> None:
    (problem,) = errors(f"amounts: {{cpu: {written}}}\n")
    assert problem.startswith("amounts[cpu]: ")
    assert "quantity" in problem


@pytest.mark.parametrize(
    ("written", "quantity"),
    [
        ("129e6", "129e6"),
        ("1E", "1E"),
        ("1e3", "1e3"),
        ("128974848000m", "128974848000m"),
        ("100n", "100n"),
        ("0.5Gi", "0.5Gi"),
        (".5", "0.5"),
        ("1.", "1"),
        ("-1", "-1"),
        ("0x10", "16"),
        ("1e-7", "100n"),
    ],
)
def test_quantities_may_be_numbers_or_text(written: str, quantity: str) -> None:
    assert value(f"amount: {written}\n").amount == Quantity(quantity)


@pytest.mark.parametrize("written", ["2024-01-01", "soon", "5", "2024-13-01T00:00:00Z", "yes"])
def test_a_time_needs_a_date_a_clock_and_a_zone(written: str) -> None:
    (problem,) = errors(f"when: {written}\n")
    assert problem.startswith("when: ")
    assert "a time" in problem


def test_a_number_may_be_any_number_and_nothing_else() -> None:
    assert value("ratio: 5\n").ratio == 5
    assert errors("ratio: high\n") == ['ratio: expected a number, got the string "high" (line 1)']


@pytest.mark.parametrize("written", ["5", "[]", "x"])
def test_objects_maps_and_lists_are_demanded(written: str) -> None:
    problems = errors(f"inner: {written}\nlabels: {written}\n")
    assert [each.split(",")[0] for each in problems] == [
        "inner: expected an object",
        "labels: expected an object",
    ]
    assert errors("inners: {}\n") == ["inners: expected a list, got an object (line 1)"]


def test_duplicate_and_bad_keys_are_errors_wherever_they_are() -> None:
    text = """\
inner:
  name: a
  name: b
labels:
  x: a
  x: b
  ~: c
anything:
  deep: [{k: 1, k: 2}, .inf]
"""
    assert errors(text) == [
        "inner.name: duplicate key, first on line 2 (line 3)",
        "labels[x]: duplicate key, first on line 5 (line 6)",
        'labels["~"]: null cannot be a key; put it in quotes (line 7)',
        "anything[deep][0][k]: duplicate key, first on line 9 (line 9)",
        "anything[deep][1]: .inf is not a number that JSON can hold (line 9)",
    ]


def test_a_key_that_is_read_as_a_boolean_is_warned_of() -> None:
    message = "n is read as the boolean false; put the key in quotes"
    assert warnings("labels: {n: a}\n") == [f"labels[false]: {message} (line 1)"]


@pytest.mark.parametrize(
    ("field", "meant"),
    [("Text", "text"), ("hostport", None), ("supplementalgroup", "supplementalGroups")],
)
def test_an_unknown_field_is_warned_of_with_the_likely_name(field: str, meant: str | None) -> None:
    hint = f", did you mean {meant}?" if meant else ""
    assert warnings(f"{field}: 1\n") == [f"{field}: unknown field{hint} (line 1)"]


def test_a_required_field_must_be_there() -> None:
    assert [str(each) for each in judge("{}", Demanding).errors] == ["name: required (line 1)"]
    assert judge("name: ~", Demanding).failed
    assert not judge("name: x", Demanding).failed


def test_a_type_without_a_check_is_a_mistake_of_ours() -> None:
    class Odd(msgspec.Struct):
        pair: set[int] = set()

    with pytest.raises(TypeError, match="no strict check"):
        judge("{}", Odd)


def test_errors_and_warnings_are_counted_beyond_the_limit() -> None:
    text = "numbers: [" + "x, " * (MAX_PROBLEMS + 17) + "]\n"
    text += "".join(f"u{number}: 1\n" for number in range(MAX_PROBLEMS + 5))
    found = judge(text)
    assert len(found.errors) == len(found.warnings) == MAX_PROBLEMS + 1
    assert found.errors[-1] == FieldProblem("", "and 17 more")
    assert found.warnings[-1] == FieldProblem("", "and 5 more")


def test_paths_read_as_people_write_them_and_stay_on_one_line() -> None:
    path = ((((None, "spec"), "ports"), 0), MapKey("a.b/c-d"))
    assert path_text(path) == "spec.ports[0][a.b/c-d]"
    assert path_text((None, MapKey("x\ny]"))) == '["x\\ny]"]'
    assert path_text((None, "odd key")) == '"odd key"'
    assert path_text(None) == ""


def test_shown_text_is_short_and_on_one_line() -> None:
    assert shown("a\tb\N{BELL}\x07") == '"a\\tb\\ud83d\\udd14\\u0007"'
    assert shown("é") == '"é"'
    assert len(shown("x" * 1000)) == 62


def test_suggestions_ignore_case_and_need_likeness() -> None:
    known = ["containers", "initContainers", "hostPID"]
    assert suggest("Containers", known) == "containers"
    assert suggest("hostpid", known) == "hostPID"
    assert suggest("contianers", known) == "containers"
    assert suggest("volumes", known) is None
    assert suggest("c" * 100_000, known) is None


FIELDS = st.sampled_from([each.encode_name for each in msgspec.structs.fields(Outer)] + ["other"])
SCALAR_WORDS = """
    1 -1 1e3 1.5 x yes ~ '' '8' 2024-01-01T00:00:00Z 500m .inf 99999999999 99999999999999999999
"""
SCALARS = st.sampled_from(SCALAR_WORDS.split())
TREES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda items: f"[{', '.join(items)}]")
        | st.dictionaries(FIELDS, inner, max_size=4).map(
            lambda items: "{" + ", ".join(f"{key}: {item}" for key, item in items.items()) + "}"
        )
    ),
    max_leaves=15,
)


@given(TREES)
def test_what_passes_the_walk_is_never_refused_by_msgspec(text: str) -> None:
    found = Findings()
    node = parse(f"itself: {text}")
    assert isinstance(node, Mapping)
    plain = check_object(node, Outer, found, dec_hook)
    if not found.failed:
        build(plain, Outer, dec_hook)
