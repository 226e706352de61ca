"""Defaults, file, drop-ins and flags, stated a second time: docs/configuration.md, "Precedence"."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.config import load_configuration
from nodeagent.config.kubelet_fields import FIELDS
from nodeagent.config.node_options import DEFAULT_EVICTION_HARD

HEAD: Final = {"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration"}

_NET = st.sampled_from(["net.a", "net.b", "net.c"])
_SCALARS: Final[Mapping[str, st.SearchStrategy[Any]]] = {
    "maxPods": st.integers(1, 500),
    "syncFrequency": st.sampled_from(["10s", "30s", "1m30s"]),
    "cpuCFSQuota": st.booleans(),
    "hairpinMode": st.sampled_from(["none", "hairpin-veth"]),
    "authentication.webhook.enabled": st.booleans(),
    "authentication.webhook.cacheTTL": st.sampled_from(["1m", "3m"]),
    "allowedUnsafeSysctls": st.lists(_NET, min_size=1, max_size=2, unique=True),
}
_ENTRIES: Final[Mapping[str, tuple[list[str], st.SearchStrategy[Any]]]] = {
    "qosReserved": (["a", "b", "c"], st.sampled_from(["1%", "2%"])),
    "evictionHard": (["memory.available", "pid.available"], st.sampled_from(["5%", "7%"])),
    "featureGates": (["ImageVolume", "EnvFiles", "WatchList"], st.booleans()),
}


def _map(path: str, least: int = 0) -> st.SearchStrategy[dict[str, Any]]:
    keys, values = _ENTRIES[path]
    return st.dictionaries(st.sampled_from(keys), values, min_size=least, max_size=len(keys))


_MAPS: Final = {path: _map(path) for path in _ENTRIES}
_NOTHING: Final = object()


def layer(*, nulls: bool) -> st.SearchStrategy[dict[str, Any]]:
    """Some fields by path; in a drop-in a null takes away, of maps also single keys."""
    gone = st.none() if nulls else st.nothing()
    maps = {
        path: st.one_of(values, gone) if not nulls else st.one_of(values.flatmap(_some_gone), gone)
        for path, values in _MAPS.items()
    }
    scalars = {path: st.one_of(values, gone) for path, values in _SCALARS.items()}
    return st.fixed_dictionaries({}, optional={**scalars, **maps})


def _some_gone(values: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({k: st.sampled_from([v, v, None]) for k, v in values.items()})


def flags() -> st.SearchStrategy[dict[str, Any]]:
    """What flags say; a list or map has something in it."""
    maps = {path: _map(path, 1) for path in _ENTRIES}
    return st.fixed_dictionaries({}, optional={**_SCALARS, **maps})


def expected(path: str, layers: list[dict[str, Any]], given_flags: dict[str, Any]) -> Any:
    """What a field comes to: said by layer, not by merging trees."""
    if path in given_flags and path != "featureGates":
        return given_flags[path]
    value: Any = None
    for number, values in enumerate(layers):
        said = values.get(path, _NOTHING)
        if said is _NOTHING:
            continue
        if path not in _MAPS or said is None:
            value = said
            continue
        if number == 0:
            # A map of the file stands for itself.
            value = dict(said)
            continue
        base = value
        if base is None:
            base = DEFAULT_EVICTION_HARD if path == "evictionHard" else {}
        value = {k: v for k, v in {**base, **said}.items() if v is not None}
    if path == "featureGates":
        value = {**(value or {}), **given_flags.get(path, {})}
    return FIELDS[path].default if value is None or value == {} else value


def text_of(path: str, value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return ",".join(value)
    if isinstance(value, dict):
        sign = "<" if path == "evictionHard" else "="
        return ",".join(f"{name}{sign}{text_of('', item)}" for name, item in value.items())
    return str(value)


def nested(values: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = dict(HEAD)
    for path, value in values.items():
        *above, name = path.split(".")
        at = found
        for part in above:
            at = at.setdefault(part, {})
        at[name] = value
    return found


@given(layer(nulls=False), st.lists(layer(nulls=True), max_size=3), flags())
def test_the_last_that_says_something_counts_and_maps_merge(
    of_file: dict[str, Any], of_drop_ins: list[dict[str, Any]], of_flags: dict[str, Any]
) -> None:
    with tempfile.TemporaryDirectory() as place:
        file, directory = Path(place, "kubelet.json"), Path(place, "d")
        directory.mkdir()
        file.write_bytes(msgspec.json.encode(nested(of_file)))
        for number, values in enumerate(of_drop_ins):
            (directory / f"{number}.conf").write_bytes(msgspec.json.encode(nested(values)))
        given_flags = [(FIELDS[p].flag, text_of(p, value)) for p, value in of_flags.items()]
        found = load_configuration(file, directory, given_flags).effective
    wanted = {p: expected(p, [of_file, *of_drop_ins], of_flags) for p in (*_SCALARS, *_MAPS)}
    assert {path: found[path] for path in wanted} == wanted
    rest = {path: value for path, value in found.items() if path not in wanted}
    assert rest == {path: FIELDS[path].default for path in rest}
