"""docs/behaviour/decoding.md, "Scalars"."""

import math
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.api.yaml_scalars import (
    BINARY,
    BOOL,
    FLOAT,
    INT,
    NULL,
    STR,
    TIMESTAMP,
    Resolved,
    json_float,
    key_text,
    resolve_plain,
    resolve_tagged,
)

TRUE = "y Y yes Yes YES true True TRUE on On ON"
FALSE = "n N no No NO false False FALSE off Off OFF"
NULLS = ["", *["~", "null", "Null", "NULL"]]
STRING_WORDS = """
    yEs tRUE nULL oN nan inf .Nan .iNF +.nan 1:30 190:20:30
    2024-01-01 2024-01-01T00:00:00Z 2024-1-1
    _1 0x 0xg 0x_ e3 .e3 . + - ._5 .5_0 0o8 0b2 0o 1.2.3 1e 1e+ 0x1p3 << = 1,000
    1e400 -1e400 1-2 +-1 --1 -0b-1 0x1FFFFFFFFFFFFFFFF 0o7777777777777777777777777
"""
STRINGS = [
    *STRING_WORDS.split(),
    "1 000",
    "1" + "0" * 400,
    "0b" + "1" * 65,
    "\N{ARABIC-INDIC DIGIT THREE}",
]
INTEGERS = {
    "0": 0,
    "12": 12,
    "-12": -12,
    "+12": 12,
    "-0": 0,
    "00": 0,
    "1_000": 1000,
    "1__": 1,
    "-_1": -1,
    "0644": 420,
    "0o644": 420,
    "0O644": 420,
    "-0644": -420,
    "+0o17": 15,
    "0x1F": 31,
    "0X1f": 31,
    "-0x1F": -31,
    "0x_1f": 31,
    "0b101": 5,
    "0B101": 5,
    "-0b101": -5,
    "0b-101": -5,
    "0b+1": 1,
    "9223372036854775807": 2**63 - 1,
    "-9223372036854775808": -(2**63),
    "18446744073709551615": 2**64 - 1,
    "0xFFFFFFFFFFFFFFFF": 2**64 - 1,
}
FLOATS = {
    "1e3": (1000.0, "1000"),
    "1E3": (1000.0, "1000"),
    "1e+3": (1000.0, "1000"),
    "1.5e-3": (0.0015, "0.0015"),
    ".5": (0.5, "0.5"),
    "+.5": (0.5, "0.5"),
    "-.5": (-0.5, "-0.5"),
    "1.": (1.0, "1"),
    "0.": (0.0, "0"),
    "-0.0": (-0.0, "-0"),
    "1_0.5": (10.5, "10.5"),
    "08": (8.0, "8"),
    "09": (9.0, "9"),
    "0_8": (8.0, "8"),
    "129e6": (129e6, "129000000"),
    "1e21": (1e21, "1e+21"),
    "1e-7": (1e-7, "1e-7"),
    "1.25e300": (1.25e300, "1.25e+300"),
    "18446744073709551616": (2.0**64, "18446744073709552000"),
    "-9223372036854775809": (-(2.0**63), "-9223372036854776000"),
    "02000000000000000000000": (2e21, "2e+21"),
}


@pytest.mark.parametrize("word", TRUE.split())
def test_these_words_are_true(word: str) -> None:
    assert resolve_plain(word) == Resolved(BOOL, True)


@pytest.mark.parametrize("word", FALSE.split())
def test_these_words_are_false(word: str) -> None:
    assert resolve_plain(word) == Resolved(BOOL, False)


@pytest.mark.parametrize("word", NULLS)
def test_these_words_are_null(word: str) -> None:
    assert resolve_plain(word) == Resolved(NULL, None)


@pytest.mark.parametrize("word", STRINGS)
def test_these_words_stay_strings(word: str) -> None:
    assert resolve_plain(word) == Resolved(STR, word)


@pytest.mark.parametrize(("word", "value"), INTEGERS.items())
def test_these_words_are_integers(word: str, value: int) -> None:
    assert resolve_plain(word) == Resolved(INT, value, str(value))


@pytest.mark.parametrize(("word", "expected"), FLOATS.items())
def test_these_words_are_floats(word: str, expected: tuple[float, str]) -> None:
    assert resolve_plain(word) == Resolved(FLOAT, *expected)


@pytest.mark.parametrize("word", [".inf", ".Inf", "+.INF", "-.inf", ".nan", ".NaN", ".NAN"])
def test_infinities_are_recognized_to_be_refused(word: str) -> None:
    value = resolve_plain(word).value
    assert isinstance(value, float)
    assert not math.isfinite(value)


@pytest.mark.parametrize(
    ("tag", "text", "value"),
    [
        (STR, "8080", "8080"),
        (STR, "", ""),
        (INT, "0x10", 16),
        (FLOAT, "1", 1.0),
        (FLOAT, "0x10", 16.0),
        (FLOAT, "1.5", 1.5),
        (BOOL, "yes", True),
        (NULL, "", None),
        (TIMESTAMP, "2024-01-01", "2024-01-01"),
        (TIMESTAMP, "2024-1-1 1:2:3.5", "2024-1-1 1:2:3.5"),
        (BINARY, "aGVs\nbG8=", "hello"),
        (BINARY, "/w==", "\N{REPLACEMENT CHARACTER}"),
        ("!local", "5", "5"),
    ],
)
def test_a_tag_says_what_the_text_is(tag: str, text: str, value: object) -> None:
    found = resolve_tagged(tag, text).value
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("tag", "text"),
    [
        (INT, "x"),
        (INT, "1.5"),
        (INT, "2024-01-01"),
        (BOOL, "1"),
        (NULL, "x"),
        (FLOAT, "x"),
        (TIMESTAMP, "soon"),
        (TIMESTAMP, "5"),
        (BINARY, "***"),
        (BINARY, "aGVsbG8"),
    ],
)
def test_text_that_does_not_fit_its_tag_is_refused(tag: str, text: str) -> None:
    with pytest.raises(ValueError, match="!!"):
        resolve_tagged(tag, text)


@pytest.mark.parametrize(
    ("word", "key"),
    [
        ("yes", "true"),
        ("off", "false"),
        ("0x10", "16"),
        ("-1", "-1"),
        ("1.20", "1.2"),
        ("0.1", "0.1"),
        ("123456.5", "123456.5"),
        ("1e6", "1e+06"),
        ("1e-5", "1e-05"),
        ("1e39", ".inf"),
        ("-1e39", "-.inf"),
        (".nan", ".nan"),
        ("-.inf", "-.inf"),
        ("2024-01-01", "2024-01-01"),
    ],
)
def test_a_key_becomes_the_text_that_kubernetes_makes_of_it(word: str, key: str) -> None:
    assert key_text(resolve_plain(word)) == key


@pytest.mark.parametrize("word", ["", "~", "null", "9223372036854775808"])
def test_keys_that_kubernetes_refuses_are_refused(word: str) -> None:
    with pytest.raises(ValueError, match="quotes"):
        key_text(resolve_plain(word))


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_the_json_text_of_a_float_is_exact_and_in_go_form(value: float) -> None:
    text = json_float(value)
    assert float(text) == value
    assert ("e" in text) == (value != 0 and not 1e-6 <= abs(value) < 1e21)
    assert "e+0" not in text
    assert "e-0" not in text
    assert not text.endswith(".")


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_a_float_key_survives_32_bits(value: float) -> None:
    text = key_text(Resolved(FLOAT, value))
    assert struct.pack("f", float(text)) == struct.pack("f", value)


@given(st.text())
def test_any_word_means_something(word: str) -> None:
    found = resolve_plain(word)
    assert (found.tag == STR) == (found.value == word)
    assert (found.number is not None) == (found.tag in (INT, FLOAT))


@given(st.integers(min_value=-(2**63), max_value=2**64 - 1))
def test_every_64_bit_integer_reads_back(value: int) -> None:
    assert resolve_plain(str(value)) == Resolved(INT, value, str(value))
