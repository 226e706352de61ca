"""Whatever pod comes in, defaulting and judging it work; random pods, valid or not."""

from random import Random
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.api import Pod, PodSpec
from nodeagent.api.base import ApiObject
from nodeagent.api.codec import decode_pod, encode, to_builtins
from nodeagent.api.defaults import set_defaults
from nodeagent.api.quantity import Quantity
from nodeagent.api.references import api_reference
from nodeagent.api.times import parse_time
from nodeagent.api.validation import validate_pod
from nodeagent.api.walk import walk

_TEXTS = (
    *("", "web", "a.b/c", "-", "Upper", "/abs", "../up", "a/../b", "é", "\x00", " x ", "x" * 300),
    *("Always", "Never", "Localhost", "Exists", "In", "Gt", "Bidirectional", "TCP", "linux"),
    *("metadata.labels['a']", "metadata.name", "limits.cpu", "v1", "windows", "::1", "busybox:1"),
)
_NUMBERS = (0, 1, -1, 80, 65535, 65536, 2**31, -(2**63))
_AMOUNTS = ("0", "1", "-1", "1.5", "100n", "2Mi", "1Gi", "1e30")
_RESOURCES = ("cpu", "memory", "hugepages-2Mi", "hugepages-x", "example.com/gpu", "storage", "")


def _value(random: Random, kind: Any, name: str, depth: int) -> Any:
    """Make a value of a type; deeper ones are smaller."""
    origin = get_origin(kind)
    if origin is Annotated:
        return _value(random, get_args(kind)[0], name, depth)
    if origin in (Union, UnionType):
        options = [arg for arg in get_args(kind) if arg is not NoneType]
        return _value(random, random.choice(options), name, depth)
    count = random.randrange(3 if depth < 5 else 2)
    if origin is tuple:
        item = get_args(kind)[0]
        return tuple(_value(random, item, name, depth + 1) for _ in range(count))
    if origin is dict:
        item = get_args(kind)[1]
        keys = random.sample(_RESOURCES if item is Quantity else _TEXTS, count)
        return {key: _value(random, item, name, depth + 1) for key in keys}
    if isinstance(kind, type) and issubclass(kind, ApiObject):
        return _object(random, kind, depth + 1)
    return _scalar(random, kind)


def _scalar(random: Random, kind: Any) -> Any:
    scalars: dict[Any, Any] = {
        str: lambda: random.choice(_TEXTS),
        int: lambda: random.choice(_NUMBERS),
        bool: lambda: random.random() < 0.5,
        Quantity: lambda: Quantity(random.choice(_AMOUNTS)),
        Any: lambda: random.choice(_TEXTS),
    }
    return scalars[kind]() if kind in scalars else parse_time("2024-05-06T07:08:09Z")


def _object(random: Random, kind: type[ApiObject], depth: int) -> Any:
    hints = get_type_hints(kind, include_extras=True)
    names = list(kind.__struct_fields__)
    most = len(names) if kind in (Pod, PodSpec) else max(1, 8 - depth)
    chosen = random.sample(names, random.randint(0, min(len(names), most)))
    return kind(**{name: _value(random, hints[name], name, depth) for name in chosen})


pods = st.integers(0, 2**64).map(lambda seed: _object(Random(seed), Pod, 0))


@given(pods)
def test_defaulting_twice_changes_nothing_more(pod: Pod) -> None:
    once = set_defaults(pod)
    assert set_defaults(once) == once


@given(pods)
def test_defaulting_keeps_what_is_written(pod: Pod) -> None:
    before, after = dict(walk(pod.spec)), dict(walk(set_defaults(pod).spec))
    assert before.keys() <= after.keys()
    kept = (str, bool, int)
    assert all(after[path] == value for path, value in before.items() if isinstance(value, kept))


@given(pods)
def test_any_pod_is_judged_before_and_after_defaulting(pod: Pod) -> None:
    for each in (pod, set_defaults(pod)):
        errors = validate_pod(each)
        assert all(error.path.startswith(("metadata.", "spec.")) for error in errors)
        assert all(str(error).startswith(error.path) for error in errors)
    assert api_reference(pod) is None or isinstance(api_reference(pod), str)


@given(pods)
def test_any_pod_survives_json(pod: Pod) -> None:
    again = decode_pod(encode(pod))
    assert again == pod
    assert msgspec.json.decode(encode(pod)) == msgspec.json.decode(
        msgspec.json.encode(to_builtins(again))
    )
