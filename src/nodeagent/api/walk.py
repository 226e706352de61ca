"""Walking over what is set in an API object, with the paths that people know."""

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import msgspec
from msgspec import NODEFAULT, Struct


def set_fields(obj: Struct) -> Iterator[tuple[str, Any]]:
    """Yield JSON name and value of each field of ``obj`` itself that differs from its default.

    An explicit zero of a field that may be absent counts as set; an empty list, an empty map
    and the zero of a field that Kubernetes holds by value do not.
    """
    for attribute, name, default in _fields_of(type(obj)):
        value = getattr(obj, attribute)
        if value != default:
            yield name, value


def walk(obj: Struct, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield path and value of everything set in ``obj``, outer before inner.

    Paths read ``spec.containers[0].image`` and ``metadata.labels[app]``. Objects, lists and
    maps are yielded themselves, then what they hold.

    Args:
        obj: The object to walk.
        path: The path of ``obj``, put before all others.
    """
    for name, value in set_fields(obj):
        inner = f"{path}.{name}" if path else name
        yield inner, value
        yield from _inside(value, inner)


def _inside(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Struct):
        yield from walk(value, path)
        return
    if isinstance(value, tuple):
        items = [(f"{path}[{index}]", item) for index, item in enumerate(value)]
    elif isinstance(value, Mapping):
        items = [(f"{path}[{key}]", item) for key, item in value.items()]
    else:
        return
    for inner, item in items:
        yield inner, item
        yield from _inside(item, inner)


@cache
def _fields_of(kind: type[Struct]) -> tuple[tuple[str, str, Any], ...]:
    """Return attribute, JSON name and default of each field of a type."""
    return tuple(
        (each.name, each.encode_name, _default_of(each)) for each in msgspec.structs.fields(kind)
    )


def _default_of(described: msgspec.structs.FieldInfo) -> Any:
    if described.default_factory is not NODEFAULT:
        return described.default_factory()
    return described.default
