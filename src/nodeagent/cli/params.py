"""Parameter types whose errors name the flag, the value and what is allowed."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import click

from nodeagent.api.quantity import Quantity, QuantityError
from nodeagent.config.feature_gates import GateError, gate_fault, parse_gates
from nodeagent.duration import parse_duration

_NEXT_HEADER: Final = re.compile(r",(?=\s*[!#$%&'*+.^_`|~0-9A-Za-z-]+\s*:)")
"""A comma after which another header begins; other commas belong to the value."""


class Duration(click.ParamType[float]):
    """A Go duration such as ``20s``; the value is seconds."""

    name = "duration"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Seconds in ``value``."""
        if isinstance(value, int | float):
            return float(value)
        try:
            return parse_duration(value)
        except ValueError as error:
            return self.fail(f"{error}", param, ctx)


F = TypeVar("F", bound=Callable[..., Any])


def boolean_option(
    flag: str,
    help_text: str,
    *,
    default: str | None,
    show_default: bool = False,
    name: str | None = None,
) -> Callable[[F], F]:
    """A flag that takes ``true`` or ``false`` after an equals sign, or nothing for ``true``.

    ``name`` is that of its setting, where it is not the flag's.
    """
    return click.option(
        *filter(None, (flag, name)),
        is_flag=False,
        flag_value="true",
        default=default,
        show_default=show_default,
        type=Boolean(),
        help=help_text,
    )


class Verbosity(click.IntRange):
    """How much is logged, 0 to 10; ``-v=4`` is taken too, as Kubernetes programs do."""

    def __init__(self) -> None:
        super().__init__(0, 10)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number."""
        number: Any = value.removeprefix("=") if isinstance(value, str) else value
        return super().convert(number, param, ctx)


class Size(click.ParamType[int]):
    """A Kubernetes quantity such as ``10Mi``; the value is bytes."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Bytes in ``value``."""
        if isinstance(value, int):
            return value
        try:
            return Quantity(value).value()
        except QuantityError as error:
            return self.fail(f"{error}", param, ctx)


class Port(click.ParamType[int]):
    """A TCP port; 0 means none."""

    name = "port"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The number; whether it is in range is the configuration's to say."""
        if isinstance(value, int):
            return value
        if not (value.isascii() and value.isdigit() and len(value) < 10):
            return self.fail(
                f"{value!r} is not a port (a number from 1 to 65535, or 0 for none)", param, ctx
            )
        return int(value)


class Boolean(click.ParamType[bool]):
    """A Go flag's boolean: ``--flag``, ``--flag=true`` or ``--flag=false``."""

    name = "bool"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> bool:
        """True or False."""
        if isinstance(value, bool):
            return value
        match value.lower():
            case "true" | "t" | "1":
                return True
            case "false" | "f" | "0":
                return False
        return self.fail(f"{value!r} is not a boolean (true or false)", param, ctx)


class Headers(click.ParamType[tuple[tuple[str, str], ...]]):
    """``Name: value``, or several with commas between; errors never show a value."""

    name = "header"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[tuple[str, str], ...]:
        """Names and values in ``value``."""
        if isinstance(value, tuple):
            return value
        pairs = []
        for number, text in enumerate(_NEXT_HEADER.split(value), start=1):
            name, colon, content = text.partition(":")
            if not text.strip():
                continue
            if not colon:
                # What stands there may be a password.
                self.fail(f"header {number} is not written 'Name: value'", param, ctx)
            pairs.append((name.strip(), content.strip()))
        return tuple(pairs)


class Gates(click.ParamType[Mapping[str, bool]]):
    """Feature gates, ``A=true,B=false``."""

    name = "gates"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Mapping[str, bool]:
        """The gates in ``value``, each one that there is."""
        if not isinstance(value, str):
            return dict(value)
        try:
            gates = parse_gates(value)
        except GateError as error:
            return self.fail(f"{error}", param, ctx)
        for name, wanted in gates.items():
            if fault := gate_fault(name, wanted):
                return self.fail(fault, param, ctx)
        return gates


class Listed(click.ParamType[tuple[str, ...]]):
    """Texts with commas between."""

    name = "list"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        """The texts in ``value``."""
        if not isinstance(value, str):
            return tuple(value)
        return tuple(filter(None, (part.strip() for part in value.split(","))))
