"""Quantities read, print, compare and round as Kubernetes' do."""

import copy
import pickle
from decimal import ROUND_CEILING, Decimal, localcontext

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.api.quantity import Quantity, QuantityError, QuantityFormat

_MAX = 2**63 - 1


@pytest.mark.parametrize(
    ("text", "canonical", "nanos"),
    [
        ("0", "0", 0),
        ("00.00Ki", "0", 0),
        ("-0", "0", 0),
        ("1", "1", 10**9),
        ("+1", "1", 10**9),
        ("-1", "-1", -(10**9)),
        ("1.", "1", 10**9),
        (".5", "500m", 5 * 10**8),
        ("0.5", "500m", 5 * 10**8),
        ("1.500", "1500m", 15 * 10**8),
        ("1000m", "1", 10**9),
        ("1500m", "1500m", 15 * 10**8),
        ("1000", "1k", 10**12),
        ("100n", "100n", 100),
        ("2000u", "2m", 2 * 10**6),
        ("128974848000m", "128974848", 128974848 * 10**9),
        ("129e6", "129e6", 129 * 10**15),
        ("129M", "129M", 129 * 10**15),
        ("1e3", "1e3", 10**12),
        ("1E3", "1e3", 10**12),
        ("1E", "1E", 10**27),
        ("1e+3", "1e3", 10**12),
        ("5e-3", "5e-3", 5 * 10**6),
        ("12e2", "1200", 12 * 10**11),
        ("1Ki", "1Ki", 1024 * 10**9),
        ("1024Ki", "1Mi", 1024**2 * 10**9),
        ("0.5Gi", "512Mi", 2**29 * 10**9),
        ("1.5Ki", "1536", 1536 * 10**9),
        ("1025Ki", "1025Ki", 1025 * 1024 * 10**9),
        ("0.5Ki", "512", 512 * 10**9),
        ("0.1Ki", "102400m", 102400 * 10**6),
        ("-2Mi", "-2Mi", -(2 * 1024**2 * 10**9)),
        (" 1Gi ", "1Gi", 2**30 * 10**9),
    ],
)
def test_a_quantity_reads_exactly_and_prints_canonically(
    text: str, canonical: str, nanos: int
) -> None:
    quantity = Quantity(text)
    assert (str(quantity), quantity.nanos) == (canonical, nanos)


_NOT_QUANTITIES = [
    "1Gi2",
    "1 Gi",
    "1gi",
    "1KI",
    "Ki",
    ".",
    "+",
    "-",
    "1..2",
    "1.2.3",
    "--1",
    "1e",
    "1E+",
    "e3",
    "1e3.5",
    "1e3Ki",
    "1mm",
    "1K",
    "0x10",
    "inf",
    "nan",
    "1_000",
    "\u0661",
    "1e 3",
    "1i",
]


@pytest.mark.parametrize("text", ["", " ", "1,5", *_NOT_QUANTITIES])
def test_what_is_not_a_quantity_is_refused(text: str) -> None:
    with pytest.raises(QuantityError, match="is not a quantity"):
        Quantity(text)


@pytest.mark.parametrize("value", [True, None, [], b"1"])
def test_other_types_are_refused(value: object) -> None:
    with pytest.raises(QuantityError, match="text or a number"):
        Quantity(value)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("value", "canonical"), [(1, "1"), (0.1, "100m"), (1500, "1500"), (1e22, "9223372036854775807")]
)
def test_json_numbers_are_quantities(value: float, canonical: str) -> None:
    assert str(Quantity(value)) == canonical


@pytest.mark.parametrize("text", ["0.1n", "1e-10", "0.0000000001", "1e-999999999999999999999"])
def test_what_is_finer_than_a_nano_is_rounded_away_from_zero(text: str) -> None:
    assert Quantity(text).nanos == 1
    assert Quantity("-" + text).nanos == -1


@pytest.mark.parametrize("text", ["1e19", "10E", "8Ei", "9" * 5000, "1e999999999999999999999999"])
def test_what_is_too_large_is_capped(text: str) -> None:
    assert Quantity(text).value() == _MAX
    assert Quantity("-" + text).value() == -_MAX


def test_a_zero_stays_zero_under_any_exponent() -> None:
    assert Quantity("0e99999999999") == Quantity(0)


def test_trailing_digits_round_up_once() -> None:
    assert Quantity("0." + "0" * 8 + "1" + "0" * 500 + "1").nanos == 2
    assert Quantity("1." + "0" * 500 + "1").nanos == 10**9 + 1


def test_values_round_away_from_zero() -> None:
    assert [Quantity(text).value() for text in ("1.1", "-1.1", "1", "1n")] == [2, -2, 1, 1]
    assert [Quantity(text).milli_value() for text in ("1.0001", "-1u", "2")] == [1001, -1, 2000]
    assert str(Quantity("0.0001Ki").ceil_milli()) == "103m"


def test_equal_amounts_are_equal_however_written() -> None:
    assert Quantity("1000m") == Quantity("1") == Quantity("1e0")
    assert hash(Quantity("1Ki")) == hash(Quantity("1024"))
    assert Quantity("1") != 1
    assert Quantity("1Mi") > Quantity("1M")
    assert max(Quantity("1"), Quantity("900m")) == Quantity(1)


def test_sums_keep_the_notation_of_the_first_that_has_one() -> None:
    assert str(Quantity("1Gi") + Quantity("1Gi")) == "2Gi"
    assert str(Quantity("0") + Quantity("1Gi")) == "1Gi"
    assert str(Quantity("1") - Quantity("200m")) == "800m"
    assert str(Quantity("0") - Quantity("1Ki")) == "-1Ki"
    assert str(-Quantity("1Ki")) == "-1Ki"
    assert Quantity("9223372036854775807") + Quantity(1) == Quantity("9223372036854775807")


def test_amounts_are_made_from_numbers() -> None:
    assert str(Quantity.from_milli(1500)) == "1500m"
    assert str(Quantity.from_bytes(64 * 1024**2)) == "64Mi"
    assert Quantity(Quantity("1Ki")).format is QuantityFormat.BINARY_SI
    assert (Quantity("2").is_integer(), Quantity("2m").is_integer()) == (True, False)
    assert (bool(Quantity("0")), Quantity("0").is_zero()) == (False, True)


def test_a_quantity_is_a_value() -> None:
    quantity = Quantity("1.5Gi")
    assert pickle.loads(pickle.dumps(quantity)) == quantity
    assert copy.deepcopy(quantity) is copy.copy(quantity) is quantity
    assert repr(quantity) == "Quantity('1536Mi')"
    with pytest.raises(AttributeError, match="immutable"):
        quantity.nanos = 1  # type: ignore[misc]


_SUFFIXES = ["", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"]
_SCALES = {
    suffix: Decimal(10) ** (3 * index - 9)
    for index, suffix in enumerate(["n", "u", "m", "", "k", "M", "G", "T", "P", "E"])
} | {f"{letter}i": Decimal(1024) ** (index + 1) for index, letter in enumerate("KMGTPE")}


@st.composite
def quantity_texts(draw: st.DrawFn) -> tuple[str, Decimal]:
    """Draw a quantity's text and the number it says."""
    sign = draw(st.sampled_from(["", "+", "-"]))
    whole = draw(st.text("0123456789", min_size=1, max_size=22))
    part = draw(st.text("0123456789", max_size=14))
    if draw(st.booleans()):
        suffix = draw(st.sampled_from(_SUFFIXES))
        scale = _SCALES[suffix]
    else:
        exponent = draw(st.integers(-25, 25))
        suffix = f"{draw(st.sampled_from('eE'))}{exponent}"
        scale = Decimal(10) ** exponent
    with localcontext() as context:
        context.prec = 200
        number = Decimal(f"{sign}{whole}.{part or 0}") * scale
    return f"{sign}{whole}.{part}{suffix}", number


@given(quantity_texts())
def test_reading_agrees_with_decimal_arithmetic(case: tuple[str, Decimal]) -> None:
    text, number = case
    with localcontext() as context:
        context.prec = 200
        nanos = int((abs(number) * 10**9).to_integral_value(ROUND_CEILING))
    expected = min(nanos, _MAX * 10**9)
    assert Quantity(text).nanos == (-expected if number < 0 else expected)


@given(quantity_texts())
def test_the_canonical_form_is_stable_and_says_the_same(case: tuple[str, Decimal]) -> None:
    quantity = Quantity(case[0])
    again = Quantity(str(quantity))
    assert again == quantity
    assert str(again) == str(quantity)
    assert "." not in str(quantity)


@given(quantity_texts(), quantity_texts())
def test_order_agrees_with_the_amounts(a: tuple[str, Decimal], b: tuple[str, Decimal]) -> None:
    left, right = Quantity(a[0]), Quantity(b[0])
    assert (left < right) == (left.nanos < right.nanos)
    assert (left + right) - right == left or abs(left.nanos + right.nanos) >= _MAX * 10**9


@given(st.text(max_size=12))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        Quantity(text)
    except QuantityError:
        return
