"""The texts of cgroup files and of /proc, taken apart. Pure; what cannot be read is left out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from nodeagent.stats.records import DeviceIo, Interface, Pressure, Psi

UNLIMITED: Final = 1 << 62
"""A limit of this many bytes or more is none."""
_MAX: Final = "max"
_PSI_KEYS: Final = ("avg10", "avg60", "avg300")


def number(text: str | None) -> int | None:
    """The number that a file holds; None when it holds none."""
    if text is None:
        return None
    try:
        return int(text)
    except ValueError:
        return None


def limit(text: str | None) -> int:
    """The limit that a file holds; 0 for none."""
    found = number(text)
    return found if found is not None and 0 < found < UNLIMITED else 0


def flat(text: str | None) -> dict[str, int]:
    """Lines of a key and a number."""
    found = {}
    for line in (text or "").splitlines():
        key, _, value = line.partition(" ")
        if (amount := number(value)) is not None:
            found[key] = amount
    return found


def pressure(text: str | None) -> Psi | None:
    """A file of pressure; None when it says nothing."""
    found: dict[str, Pressure] = {}
    for line in (text or "").splitlines():
        kind, *pairs = line.split() or [""]
        values = dict(pair.split("=", 1) for pair in pairs if "=" in pair)
        try:
            averages = (float(values[key]) for key in _PSI_KEYS)
            found[kind] = Pressure(int(values["total"]), *averages)
        except (KeyError, ValueError):
            continue
    if not found:
        return None
    return Psi(found.get("some"), found.get("full"))


def io_v2(text: str | None) -> tuple[DeviceIo, ...]:
    """``io.stat`` of cgroup v2."""
    found = []
    for line in (text or "").splitlines():
        device, *pairs = line.split() or [""]
        values: dict[str, int] = {}
        for pair in pairs:
            key, _, value = pair.partition("=")
            values[key] = number(value) or 0
        if values:
            told = (values.get(key, 0) for key in ("rios", "wios", "rbytes", "wbytes"))
            found.append(DeviceIo(device, *told))
    return tuple(found)


def io_v1(serviced: str | None, moved: str | None) -> tuple[DeviceIo, ...]:
    """The two files of ``blkio`` of cgroup v1: how many operations, how many bytes."""
    operations, size = _by_device(serviced), _by_device(moved)
    return tuple(
        DeviceIo(
            device,
            *(operations.get(device, {}).get(kind, 0) for kind in ("Read", "Write")),
            *(size.get(device, {}).get(kind, 0) for kind in ("Read", "Write")),
        )
        for device in sorted(operations.keys() | size.keys())
    )


def _by_device(text: str | None) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for line in (text or "").splitlines():
        parts = line.split()
        if len(parts) == 3 and (amount := number(parts[2])) is not None:
            found.setdefault(parts[0], {})[parts[1]] = amount
    return found


_NET_COLUMNS: Final = 16


def interfaces(text: str | None) -> tuple[Interface, ...]:
    """``/proc/net/dev``, without loopback."""
    found = []
    for line in (text or "").splitlines():
        name, colon, rest = line.partition(":")
        columns = [number(column) for column in rest.split()]
        if not colon or len(columns) < _NET_COLUMNS or (name := name.strip()) == "lo":
            continue
        rx, tx = columns[:4], columns[8:12]
        found.append(Interface(name, rx[0], rx[2], tx[0], tx[2], rx[1], rx[3], tx[1], tx[3]))
    return tuple(found)


def default_interface(routes: str | None) -> str:
    """The interface of the default route of ``/proc/net/route``; "" when there is none."""
    best: tuple[int, str] | None = None
    for line in (routes or "").splitlines()[1:]:
        columns = line.split()
        if len(columns) > 7 and columns[1] == "00000000" and columns[7] == "00000000":
            candidate = (number(columns[6]) or 0, columns[0])
            best = candidate if best is None else min(best, candidate)
    return best[1] if best else ""


def shares_of_weight(weight: int) -> int:
    """The ``cpu.shares`` that stand for a ``cpu.weight``."""
    return 2 + (weight - 1) * 262142 // 9999


def meminfo(text: str | None) -> dict[str, int]:
    """``/proc/meminfo`` in bytes."""
    found = {}
    for line in (text or "").splitlines():
        key, _, value = line.partition(":")
        amount = number(value.split()[0]) if value.split() else None
        if amount is not None:
            found[key] = amount * 1024
    return found


def cpu_max(text: str | None) -> tuple[int | None, int | None]:
    """Quota and period of ``cpu.max``; no quota is None."""
    quota, _, period = (text or "").strip().partition(" ")
    return (None if quota == _MAX else number(quota)), number(period)


def least(*values: int | None) -> int | None:
    """The smallest of those that are known."""
    return min((value for value in values if value is not None), default=None)


def topology(cpuinfo: str | None) -> tuple[int, int]:
    """Cores and sockets by ``/proc/cpuinfo``; zeros where it does not tell."""
    sockets, cores = set(), set()
    for block in (cpuinfo or "").split("\n\n"):
        said: Mapping[str, str] = {
            key.strip(): value.strip()
            for key, _, value in (line.partition(":") for line in block.splitlines())
        }
        socket = said.get("physical id")
        if socket is not None:
            sockets.add(socket)
            cores.add((socket, said.get("core id", "")))
    return len(cores), len(sockets)
