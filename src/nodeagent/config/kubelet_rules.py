"""What may stand in the fields of KubeletConfiguration that are no settings of the agent.

Settings are judged by :class:`AgentConfig`; a file that carries fields nothing acts on yet is
judged as the kubelet would, so that it stays one that a kubelet takes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from nodeagent.api.quantity import Quantity, QuantityError
from nodeagent.config.feature_gates import dependency_faults, gate_fault
from nodeagent.config.node_options import EVICTION_SIGNALS, threshold_fault
from nodeagent.duration import parse_duration

Values = Mapping[str, Any]
"""Effective values by the path of their field."""

_CHOICES: Final[Mapping[str, tuple[str, ...]]] = {
    "hairpinMode": ("none", "hairpin-veth", "promiscuous-bridge"),
    "cgroupDriver": ("cgroupfs", "systemd"),
    "cpuManagerPolicy": ("none", "static"),
    "memoryManagerPolicy": ("None", "Static"),
    "topologyManagerPolicy": ("none", "best-effort", "restricted", "single-numa-node"),
    "topologyManagerScope": ("container", "pod"),
    "memoryReservationPolicy": ("None", "TieredReservation"),
    "logging.format": ("text", "json"),
}
_RANGES: Final[Mapping[str, tuple[float, float]]] = {
    "oomScoreAdj": (-1000, 1000),
    "iptablesMasqueradeBit": (0, 31),
    "iptablesDropBit": (0, 31),
    "tracing.samplingRatePerMillion": (0, 1_000_000),
    "logging.verbosity": (0, 10),
}
_LEAST: Final[Mapping[str, int]] = {"maxOpenFiles": 0, "evictionMaxPodGracePeriod": 0}
_DURATIONS: Final[Mapping[str, tuple[str, str]]] = {
    "volumeStatsAggPeriod": ("", ""),
    "cpuManagerReconcilePeriod": ("0s", ""),
    "evictionPressureTransitionPeriod": ("0s", ""),
    "shutdownGracePeriod": ("0s", ""),
    "shutdownGracePeriodCriticalPods": ("0s", ""),
}
_ENFORCEABLE: Final = (
    "none",
    "pods",
    "system-reserved",
    "kube-reserved",
    "system-reserved-compressible",
    "kube-reserved-compressible",
)
_IDS: Final = 65536

Fault = tuple[str, str]
"""The path of a field, and what is wrong with its value."""


def faults(values: Values) -> Iterator[Fault]:
    """All that is wrong.

    Args:
        values: every field, with its default where it is not given.
    """
    for rule in _RULES:
        yield from rule(values)


def _choices(values: Values) -> Iterator[Fault]:
    for path, allowed in _CHOICES.items():
        if values[path] not in allowed:
            listed = ", ".join(text for text in allowed if text)
            yield path, f"{values[path]!r} is not one of {listed}"


def _numbers(values: Values) -> Iterator[Fault]:
    for path, (low, high) in _RANGES.items():
        if values[path] is not None and not low <= values[path] <= high:
            yield path, f"{values[path]} is not between {low:g} and {high:g}"
    for path, least in _LEAST.items():
        if values[path] < least:
            yield path, f"{values[path]} must not be negative"
    factor = values["memoryThrottlingFactor"]
    if not 0 < factor <= 1:
        yield "memoryThrottlingFactor", f"{factor:g} must be greater than 0 and at most 1"
    ids = values["userNamespaces.idsPerPod"]
    if ids < _IDS or ids % _IDS or ids > 2**32 - 1:
        yield "userNamespaces.idsPerPod", f"{ids} must be a multiple of {_IDS} below 2^32"


def _durations(values: Values) -> Iterator[Fault]:
    for path, (least, most) in _DURATIONS.items():
        try:
            given = parse_duration(values[path])
        except ValueError as error:
            yield path, str(error)
            continue
        if least and given < parse_duration(least):
            if parse_duration(least) == 0:
                yield path, f"{values[path]} must not be negative"
            else:
                yield path, f"{values[path]} is less than {least}"
        elif most and given > parse_duration(most):
            yield path, f"{values[path]} is more than {most}"


def _flush(values: Values) -> Iterator[Fault]:
    given = values["logging.flushFrequency"]
    if isinstance(given, str):
        try:
            parse_duration(given)
        except ValueError as error:
            yield "logging.flushFrequency", str(error)


def _eviction(values: Values) -> Iterator[Fault]:
    soft: Mapping[str, str] = values["evictionSoft"] or {}
    grace: Mapping[str, str] = values["evictionSoftGracePeriod"] or {}
    for path in ("evictionSoft", "evictionMinimumReclaim"):
        for signal, amount in (values[path] or {}).items():
            if fault := threshold_fault(signal, amount):
                yield f"{path}.{signal}", f"{amount!r}: {fault}"
    for signal in soft:
        if signal in EVICTION_SIGNALS and signal not in grace:
            yield f"evictionSoftGracePeriod.{signal}", f"is needed with evictionSoft.{signal}"
    for signal, period in grace.items():
        path = f"evictionSoftGracePeriod.{signal}"
        if signal not in EVICTION_SIGNALS:
            yield path, f"the signals are {', '.join(EVICTION_SIGNALS)}"
            continue
        try:
            if parse_duration(period) < 0:
                yield path, f"{period} must not be negative"
        except ValueError as error:
            yield path, str(error)


def _cgroups(values: Values) -> Iterator[Fault]:
    if values["systemCgroups"] and not values["cgroupRoot"]:
        yield "systemCgroups", "needs cgroupRoot"
    reserved = [n for n in ("systemReservedCgroup", "kubeReservedCgroup") if values[n]]
    if values["reservedSystemCPUs"]:
        for name in reserved:
            yield "reservedSystemCPUs", f"cannot go with {name}"
        if not _is_cpu_set(values["reservedSystemCPUs"]):
            yield "reservedSystemCPUs", f"{values['reservedSystemCPUs']!r} is not a list like 0,2-3"
    given: Sequence[str] = values["enforceNodeAllocatable"]
    for name in given:
        if name not in _ENFORCEABLE:
            yield "enforceNodeAllocatable", f"{name!r} is not one of {', '.join(_ENFORCEABLE)}"
    for name in sorted({name for name in given if given.count(name) > 1}):
        yield "enforceNodeAllocatable", f"{name!r} is given twice"
    if "none" in given and len(given) > 1:
        yield "enforceNodeAllocatable", "none goes with nothing else"
    for name in ("system-reserved", "kube-reserved"):
        wanted = [n for n in (name, f"{name}-compressible") if n in given]
        if len(wanted) > 1:
            yield "enforceNodeAllocatable", f"{wanted[0]} and {wanted[1]} exclude each other"
        group = f"{name.partition('-')[0]}ReservedCgroup"
        if wanted and not values[group]:
            yield group, f"is needed with {wanted[0]} in enforceNodeAllocatable"
    if any(name not in ("none", "pods") for name in given) and not values["cgroupsPerQOS"]:
        yield "enforceNodeAllocatable", "needs cgroupsPerQOS"


def _is_cpu_set(text: str) -> bool:
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdigit() or (dash and not (last.isdigit() and int(first) <= int(last))):
            return False
    return True


def _shutdown(values: Values) -> Iterator[Fault]:
    names = ("shutdownGracePeriod", "shutdownGracePeriodCriticalPods")
    try:
        total, critical = (parse_duration(values[name]) for name in names)
    except ValueError:
        return  # told already
    for name, seconds in zip(names, (total, critical), strict=True):
        if 0 < seconds < 1:
            yield name, f"{values[name]} must be 0, or at least 1s"
    if critical > total:
        yield names[1], f"{values[names[1]]} is more than shutdownGracePeriod ({values[names[0]]})"
    if values["shutdownGracePeriodByPodPriority"] and (total or critical):
        yield "shutdownGracePeriodByPodPriority", f"cannot go with {names[0]} and {names[1]}"


def _gates(values: Values) -> Iterator[Fault]:
    given: Mapping[str, bool] = values["featureGates"] or {}
    wrong = [fault for name, value in given.items() if (fault := gate_fault(name, value))]
    for fault in wrong or dependency_faults(given):
        yield "featureGates", fault


def _ports(values: Values) -> Iterator[Fault]:
    """No two listeners on one port; those out of range are told elsewhere."""
    taken: dict[int, str] = {}
    for path in ("healthzPort", "port", "readOnlyPort"):
        number = values[path]
        if number and number in taken:
            yield path, f"{number} is the port of {taken[number]} already"
        taken.setdefault(number, path)


def _others(values: Values) -> Iterator[Fault]:
    if values["runOnce"]:
        yield "runOnce", "true: there is no such mode any more; remove the field"
    if values["enableSystemLogQuery"] and not values["enableSystemLogHandler"]:
        yield "enableSystemLogQuery", "needs enableSystemLogHandler"
    for number, reserved in enumerate(values["reservedMemory"] or ()):
        path = f"reservedMemory[{number}].limits"
        for name, amount in reserved.get("limits", {}).items():
            if name != "memory" and not name.startswith("hugepages-"):
                yield f"{path}.{name}", "only memory and hugepages-<size> can be reserved"
            try:
                Quantity(amount)
            except QuantityError as error:
                yield f"{path}.{name}", str(error)


_RULES: Final[tuple[Callable[[Values], Iterator[Fault]], ...]] = (
    _choices,
    _numbers,
    _durations,
    _flush,
    _eviction,
    _cgroups,
    _shutdown,
    _gates,
    _ports,
    _others,
)
