"""Every field of KubeletConfiguration: its place, default, flag, and what may stand there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from nodeagent.config import (
    AgentConfig,
    ConfigFilesError,
    KubeletConfiguration,
    load_configuration,
)
from nodeagent.config.effective import effective_configuration
from nodeagent.config.kubelet_fields import (
    ACTS,
    FIELDS,
    NOTHING,
    path_of_setting,
    settings_in_file,
)

HEAD = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
OTHERWISE = {
    "kind",
    "apiVersion",
    "mergeDefaultEvictionSettings",
    "featureGates",
    "logging.format",
    "logging.verbosity",
    "logging.vmodule",
    "runOnce",
}
"""Fields that act without being a setting of the agent."""


def leaves(struct: type[msgspec.Struct], above: str = "") -> Iterator[str]:
    for field in msgspec.structs.fields(struct):
        path = above + field.encode_name
        if isinstance(field.type, type) and issubclass(field.type, msgspec.Struct):
            yield from leaves(field.type, path + ".")
        else:
            yield path


def faults(directory: Path, text: str) -> tuple[str, ...]:
    path = directory / "kubelet.yaml"
    path.write_text(HEAD + text)
    with pytest.raises(ConfigFilesError) as caught:
        load_configuration(path)
    return caught.value.problems


def test_the_table_has_every_field_once() -> None:
    assert sorted(FIELDS) == sorted(leaves(KubeletConfiguration))


def test_a_field_acts_exactly_when_something_reads_it() -> None:
    acting = {path for path, field in FIELDS.items() if field.effect == ACTS}
    assert acting == OTHERWISE | {path_of_setting(name) for name in settings_in_file()}
    assert all(field.note for field in FIELDS.values() if field.effect == NOTHING)


def test_defaults_are_those_of_the_settings() -> None:
    shown = effective_configuration(AgentConfig())
    for path, field in FIELDS.items():
        # The library opens no port unless it is asked to.
        if path in ("port", "healthzPort", "staticPodURLHeader", "serializeImagePulls"):
            continue
        value: Any = shown
        for part in path.split("."):
            value = value.get(part)
        if path == "containerLogMaxSize":
            value = {"10485760": "10Mi"}.get(value, value)
        assert (value or None) == (field.default or None), path


@pytest.mark.parametrize("path", sorted(FIELDS))
def test_each_field_may_be_given_its_default(tmp_path: Path, path: str) -> None:
    default = FIELDS[path].default
    if default is None or path in ("kind", "apiVersion"):
        default = None
    text = {"kind": "KubeletConfiguration", "apiVersion": "kubelet.config.k8s.io/v1beta1"}
    at: dict[str, Any] = dict(text)
    top = at
    *above, name = path.split(".")
    for part in above:
        at = at.setdefault(part, {})
    if path not in text:
        at[name] = default
    file = tmp_path / "kubelet.json"
    file.write_bytes(msgspec.json.encode(top))
    loaded = load_configuration(file)
    assert loaded.warnings == ()
    assert loaded.effective == {p: f.default for p, f in FIELDS.items()}


@pytest.mark.parametrize("path", sorted(FIELDS))
def test_each_field_refuses_a_wrong_type_with_its_path(tmp_path: Path, path: str) -> None:
    *above, name = path.split(".")
    text = "{" + "".join(f"{part}: {{" for part in above) + f"{name}: [[1]]" + "}" * len(above)
    if path in ("kind", "apiVersion"):
        return  # another kind is refused before its fields are looked at
    told = faults(tmp_path, text[1:] + "\n")
    assert [t for t in told if t.startswith((f"{path}: ", f"{path}["))], told


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("hairpinMode: maybe", "hairpinMode: 'maybe' is not one of none, hairpin-veth, prom"),
        ("cgroupDriver: none", "cgroupDriver: 'none' is not one of cgroupfs, systemd"),
        ("cpuManagerPolicy: Static", "cpuManagerPolicy: 'Static' is not one of none, static"),
        ("memoryManagerPolicy: static", "memoryManagerPolicy: 'static' is not one of None, Static"),
        ("topologyManagerPolicy: all", "topologyManagerPolicy: 'all' is not one of none, best"),
        ("topologyManagerScope: node", "topologyManagerScope: 'node' is not one of container, pod"),
        ("memorySwap: {swapBehavior: All}", "memorySwap.swapBehavior: All must be NoSwap or"),
        ("memoryReservationPolicy: x", "memoryReservationPolicy: 'x' is not one of None, Tiered"),
        ("oomScoreAdj: -1001", "oomScoreAdj: -1001 is not between -1000 and 1000"),
        ("iptablesDropBit: 32", "iptablesDropBit: 32 is not between 0 and 31"),
        ("iptablesMasqueradeBit: -1", "iptablesMasqueradeBit: -1 is not between 0 and 31"),
        ("tracing: {samplingRatePerMillion: -1}", "tracing.samplingRatePerMillion: -1 is not"),
        ("logging: {verbosity: 11}", "logging.verbosity: 11 is not between 0 and 10"),
        ("maxOpenFiles: -1", "maxOpenFiles: -1 must not be negative"),
        ("evictionMaxPodGracePeriod: -1", "evictionMaxPodGracePeriod: -1 must not be negative"),
        ("memoryThrottlingFactor: 1.5", "memoryThrottlingFactor: 1.5 must be greater than 0 and"),
        ("memoryThrottlingFactor: 0", "memoryThrottlingFactor: 0 must be greater than 0 and"),
        ("userNamespaces: {idsPerPod: 65537}", "userNamespaces.idsPerPod: 65537 must be a multi"),
        ("volumeStatsAggPeriod: often", "volumeStatsAggPeriod: 'often' is not a duration"),
        ("cpuManagerReconcilePeriod: -1s", "cpuManagerReconcilePeriod: -1s must not be negative"),
        ("cpuCFSQuotaPeriod: 2s", "cpuCFSQuotaPeriod: 2s must be between 1ms and 1s"),
        ("cpuCFSQuotaPeriod: 1us", "cpuCFSQuotaPeriod: 1µs must be between 1ms and 1s"),
        ("crashLoopBackOff: {maxContainerRestartPeriod: 6m}", "crashLoopBackOff.maxContainerR"),
        ("evictionPressureTransitionPeriod: -1s", "evictionPressureTransitionPeriod: -1s must"),
        ("logging: {flushFrequency: x}", "logging.flushFrequency: 'x' is not a duration"),
        ("evictionSoft: {cpu: '1'}", "evictionSoft.cpu: "),
        ("evictionSoft: {memory.available: 1Gi}", "evictionSoftGracePeriod.memory.available: is"),
        ("evictionSoftGracePeriod: {cpu: 1m}", "evictionSoftGracePeriod.cpu: the signals are"),
        (
            "evictionSoftGracePeriod: {pid.available: x}",
            "evictionSoftGracePeriod.pid.available: 'x' is not a duration",
        ),
        ("evictionMinimumReclaim: {pid.available: '-1'}", "evictionMinimumReclaim.pid.available: "),
        ("systemCgroups: /system", "systemCgroups: needs cgroupRoot"),
        ("reservedSystemCPUs: a-b", "reservedSystemCPUs: 'a-b' is not a list like 0,2-3"),
        (
            "{reservedSystemCPUs: 0-1, kubeReservedCgroup: /k}",
            "reservedSystemCPUs: cannot go with kubeReservedCgroup",
        ),
        ("enforceNodeAllocatable: [all]", "enforceNodeAllocatable: 'all' is not one of none, pods"),
        ("enforceNodeAllocatable: [pods, pods]", "enforceNodeAllocatable: 'pods' is given twice"),
        ("enforceNodeAllocatable: [none, pods]", "enforceNodeAllocatable: none goes with nothing"),
        (
            "enforceNodeAllocatable: [kube-reserved, kube-reserved-compressible]",
            "enforceNodeAllocatable: kube-reserved and kube-reserved-compressible exclude",
        ),
        ("enforceNodeAllocatable: [kube-reserved]", "kubeReservedCgroup: is needed with kube-res"),
        (
            "{enforceNodeAllocatable: [system-reserved], cgroupsPerQOS: false}",
            "enforceNodeAllocatable: needs cgroupsPerQOS",
        ),
        ("shutdownGracePeriod: 500ms", "shutdownGracePeriod: 500ms must be 0, or at least 1s"),
        ("shutdownGracePeriodCriticalPods: 5s", "shutdownGracePeriodCriticalPods: 5s is more"),
        (
            "{shutdownGracePeriod: 5s, shutdownGracePeriodByPodPriority: [{priority: 1}]}",
            "shutdownGracePeriodByPodPriority: cannot go with shutdownGracePeriod",
        ),
        ("runOnce: true", "runOnce: true: there is no such mode any more"),
        (
            "{enableSystemLogQuery: true, enableSystemLogHandler: false}",
            "enableSystemLogQuery: needs enableSystemLogHandler",
        ),
        ("reservedMemory: [{limits: {cpu: 1}}]", "reservedMemory[0].limits"),
        ("reservedMemory: [{limits: {memory: lots}}]", "reservedMemory[0].limits.memory: "),
    ],
)
def test_what_a_kubelet_refuses_is_refused(tmp_path: Path, text: str, told: str) -> None:
    given = text
    if text[0] == "{":
        given = "\n".join(part.strip() for part in _parts(text[1:-1]))
    assert [each for each in faults(tmp_path, given + "\n") if each.startswith(told)]


def _parts(text: str) -> Iterator[str]:
    """The fields of a flow mapping, each a line of its own."""
    depth, start = 0, 0
    for at, sign in enumerate(text):
        depth += (sign in "[{") - (sign in "]}")
        if sign == "," and not depth:
            yield text[start:at]
            start = at + 1
    yield text[start:]


def test_all_faults_of_all_sorts_are_told_at_once(tmp_path: Path) -> None:
    text = "port: 70000\nhairpinMode: x\nsyncFrequency: 1x\nkubeReserved: {gpu: '1'}\n"
    told = faults(tmp_path, text)
    assert {each.partition(":")[0] for each in told} == {
        "port",
        "hairpinMode",
        "syncFrequency",
        "kubeReserved",
    }


def test_what_nothing_acts_on_is_told_unless_it_is_the_default(tmp_path: Path) -> None:
    path = tmp_path / "kubelet.yaml"
    path.write_text(
        HEAD + "cpuManagerPolicy: static\nhairpinMode: hairpin-veth\ncgroupDriver: cgroupfs\n"
        "logging: {options: {json: {infoBufferSize: 1Ki}}}\nmine: 1\n"
    )
    told = load_configuration(path).warnings
    assert [each.replace(" (line 7)", "") for each in told] == [
        "mine: unknown field",
        f"cpuManagerPolicy: not acted on by this version: {FIELDS['cpuManagerPolicy'].note}",
        "hairpinMode: has no meaning here: the network plugin decides it",
        "logging.options.json.infoBufferSize: has no meaning here: lines are written at once",
    ]
