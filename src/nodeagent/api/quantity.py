"""Resource quantities: exact fixed-point numbers with Kubernetes' suffixes.

A quantity is a number with at most nine decimals and a magnitude below 2^63. What is finer is
rounded away from zero (who asks for a little gets a little), what is larger is capped. It
remembers which family of suffixes it was written with and prints in the canonical form of that
family: no fraction, no needless zeros, the largest suffix that fits. Two quantities are equal
when their amounts are, however they are written.
"""

import enum
import re
from functools import lru_cache, total_ordering
from typing import Final, TypeAlias

QuantityInput: TypeAlias = "str | int | float | Quantity"

_NANO: Final = 10**9
_MILLI: Final = 10**6
"""One thousandth, in nanos."""

_MAX_NANOS: Final = (2**63 - 1) * _NANO
_MAX_EXPONENT: Final = 40
"""Beyond this every non-zero amount is over the cap, or under one nano; keeps powers small."""

_SYNTAX: Final = re.compile(
    r"(?P<sign>[+-]?)(?:(?P<whole>[0-9]+)(?:\.(?P<part>[0-9]*))?|\.(?P<only>[0-9]+))"
    r"(?:(?P<suffix>[numkMGTPE]|[KMGTPE]i)|[eE](?P<exponent>[+-]?[0-9]+))?",
    re.ASCII,
)
_DECIMAL_EXPONENTS: Final = {
    "n": -9,
    "u": -6,
    "m": -3,
    "": 0,
    "k": 3,
    "M": 6,
    "G": 9,
    "T": 12,
    "P": 15,
    "E": 18,
}
_DECIMAL_SUFFIXES: Final = {exponent: suffix for suffix, exponent in _DECIMAL_EXPONENTS.items()}
_BINARY_SUFFIXES: Final = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")


class QuantityError(ValueError):
    """The text is not a quantity."""


class QuantityFormat(enum.Enum):
    """The family of suffixes a quantity is written with."""

    DECIMAL_SI = "DecimalSI"
    DECIMAL_EXPONENT = "DecimalExponent"
    BINARY_SI = "BinarySI"


@total_ordering
class Quantity:
    """An immutable amount; ``Quantity("500m")``, ``Quantity(2)``, ``Quantity("1.5Gi")``."""

    __slots__ = ("_format", "_nanos")

    _nanos: int
    _format: QuantityFormat

    def __init__(self, value: QuantityInput) -> None:
        """Read a quantity.

        Args:
            value: Text in Kubernetes' notation (blanks around it are ignored), a number as
                JSON has it, or another quantity.

        Raises:
            QuantityError: The value is not a quantity.
        """
        if isinstance(value, Quantity):
            nanos, form = value._nanos, value._format
        elif isinstance(value, bool) or not isinstance(value, str | int | float):
            msg = f"a quantity is text or a number, not {type(value).__name__}"
            raise QuantityError(msg)
        else:
            nanos, form = _parse(value if isinstance(value, str) else repr(value))
        object.__setattr__(self, "_nanos", nanos)
        object.__setattr__(self, "_format", form)

    @classmethod
    def from_nanos(cls, nanos: int, form: QuantityFormat = QuantityFormat.DECIMAL_SI) -> "Quantity":
        """Return the quantity of that many billionths, capped in magnitude below 2^63."""
        quantity = cls.__new__(cls)
        object.__setattr__(quantity, "_nanos", max(-_MAX_NANOS, min(nanos, _MAX_NANOS)))
        object.__setattr__(quantity, "_format", form)
        return quantity

    @classmethod
    def from_milli(cls, milli: int) -> "Quantity":
        """Return the quantity of that many thousandths (millicores, for CPU)."""
        return cls.from_nanos(milli * _MILLI)

    @classmethod
    def from_bytes(cls, count: int) -> "Quantity":
        """Return a number of bytes, printed with binary suffixes."""
        return cls.from_nanos(count * _NANO, QuantityFormat.BINARY_SI)

    @property
    def nanos(self) -> int:
        """The exact amount in billionths."""
        return self._nanos

    @property
    def format(self) -> QuantityFormat:
        """The family of suffixes it prints with."""
        return self._format

    def value(self) -> int:
        """Return the amount in whole units, rounded away from zero."""
        return _divide_away(self._nanos, _NANO)

    def milli_value(self) -> int:
        """Return the amount in thousandths, rounded away from zero."""
        return _divide_away(self._nanos, _MILLI)

    def ceil_milli(self) -> "Quantity":
        """Return the amount rounded away from zero to whole thousandths, in the same format."""
        return self.from_nanos(self.milli_value() * _MILLI, self._format)

    def is_integer(self) -> bool:
        """Tell whether the amount is a whole number."""
        return self._nanos % _NANO == 0

    def is_zero(self) -> bool:
        """Tell whether the amount is zero."""
        return self._nanos == 0

    def __add__(self, other: "Quantity") -> "Quantity":
        if not isinstance(other, Quantity):
            return NotImplemented
        # A zero has no notation of its own: a sum that starts from it prints as its summands.
        form = self._format if self._nanos else other._format
        return self.from_nanos(self._nanos + other._nanos, form)

    def __sub__(self, other: "Quantity") -> "Quantity":
        if not isinstance(other, Quantity):
            return NotImplemented
        form = self._format if self._nanos else other._format
        return self.from_nanos(self._nanos - other._nanos, form)

    def __neg__(self) -> "Quantity":
        return self.from_nanos(-self._nanos, self._format)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Quantity):
            return NotImplemented
        return self._nanos == other._nanos

    def __lt__(self, other: "Quantity") -> bool:
        if not isinstance(other, Quantity):
            return NotImplemented
        return self._nanos < other._nanos

    def __hash__(self) -> int:
        return hash(self._nanos)

    def __bool__(self) -> bool:
        return self._nanos != 0

    def __str__(self) -> str:
        sign = "-" if self._nanos < 0 else ""
        return sign + _canonical(abs(self._nanos), self._format)

    def __repr__(self) -> str:
        return f"Quantity({str(self)!r})"

    def __setattr__(self, name: str, value: object) -> None:
        msg = f"quantities are immutable: cannot set {name}"
        raise AttributeError(msg)

    def __copy__(self) -> "Quantity":
        return self

    def __deepcopy__(self, memo: object) -> "Quantity":
        return self

    def __reduce__(self) -> tuple[object, ...]:
        return Quantity.from_nanos, (self._nanos, self._format)


def _divide_away(amount: int, unit: int) -> int:
    """Divide and round away from zero."""
    return -(-amount // unit) if amount >= 0 else amount // unit


@lru_cache(maxsize=4096)
def _parse(text: str) -> tuple[int, QuantityFormat]:
    """Return the amount in nanos, and the notation."""
    match = _SYNTAX.fullmatch(text.strip())
    if match is None:
        msg = (
            f"{text[:64]!r} is not a quantity: a number, optionally followed by one of "
            "n u m k M G T P E Ki Mi Gi Ti Pi Ei or an exponent such as e3"
        )
        raise QuantityError(msg)
    part = match["part"] or match["only"] or ""
    digits = ((match["whole"] or "") + part).lstrip("0")
    suffix = match["suffix"] or ""
    form, base, exponent = QuantityFormat.DECIMAL_SI, 10, 0
    if match["exponent"] is not None:
        form, exponent = QuantityFormat.DECIMAL_EXPONENT, _bounded_exponent(match["exponent"])
    elif suffix.endswith("i"):
        form, base = QuantityFormat.BINARY_SI, 2
        exponent = 10 * _BINARY_SUFFIXES.index(suffix)
    else:
        exponent = _DECIMAL_EXPONENTS[suffix]
    nanos = _scale(digits, len(part), base, exponent)
    return (-nanos if match["sign"] == "-" else nanos), form


def _bounded_exponent(text: str) -> int:
    """Read an exponent of any length without building a huge number."""
    digits = text.lstrip("+-").lstrip("0")
    size = int(digits or "0") if len(digits) <= 18 else 10**18
    return -size if text.startswith("-") else size


def _scale(digits: str, decimals: int, base: int, exponent: int) -> int:
    """Return ``digits`` with that many decimals times ``base**exponent``, in nanos, capped."""
    if not digits:
        return 0
    factor = 1
    ten = 9 - decimals
    if base == 2:
        factor = 1 << exponent
    else:
        ten += exponent
    magnitude = len(digits) + ten
    if magnitude > _MAX_EXPONENT:
        return _MAX_NANOS
    if magnitude < -_MAX_EXPONENT:
        return 1
    # What lies far below one nano can only matter by being there at all.
    kept = digits[: 3 * _MAX_EXPONENT]
    ten += len(digits) - len(kept)
    sticky = 1 if digits[len(kept) :].strip("0") else 0
    whole = int(kept) * factor
    power: int = 10 ** abs(ten)
    if ten >= 0:
        return min(whole * power, _MAX_NANOS)
    return min(_divide_away(whole * 10 + sticky, power * 10), _MAX_NANOS)


def _canonical(nanos: int, form: QuantityFormat) -> str:
    """Print a non-negative amount."""
    if nanos == 0:
        return "0"
    units, fraction = divmod(nanos, _NANO)
    if form is QuantityFormat.BINARY_SI and units >= 1024 and not fraction:
        power = 0
        while units % 1024 == 0 and power < len(_BINARY_SUFFIXES) - 1:
            units //= 1024
            power += 1
        return f"{units}{_BINARY_SUFFIXES[power]}"
    exponent = -9
    while nanos % 1000 == 0 and exponent < 18:
        nanos //= 1000
        exponent += 3
    if form is QuantityFormat.DECIMAL_EXPONENT:
        return f"{nanos}e{exponent}" if exponent else str(nanos)
    return f"{nanos}{_DECIMAL_SUFFIXES[exponent]}"
