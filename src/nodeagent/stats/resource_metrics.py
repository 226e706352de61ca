"""``/metrics/resource``: what autoscalers and ``kubectl top`` are fed with. Pure.

docs/behaviour/stats.md, "Resource metrics".
"""

from __future__ import annotations

from typing import Final

from nodeagent.stats.exposition import Exposition, labels
from nodeagent.stats.records import Cpu, Memory, Snapshot, Swap, Usage

_SWAP: Final = "Reported only on non-windows systems"
#: Name, type, help.
FAMILIES: Final = (
    (
        "container_cpu_usage_seconds_total",
        "counter",
        "[STABLE] Cumulative cpu time consumed by the container in core-seconds",
    ),
    (
        "container_memory_working_set_bytes",
        "gauge",
        "[STABLE] Current working set of the container in bytes",
    ),
    (
        "container_start_time_seconds",
        "gauge",
        "[STABLE] Start time of the container since unix epoch in seconds",
    ),
    (
        "container_swap_limit_bytes",
        "gauge",
        f"[ALPHA] Current amount of the container swap limit in bytes. {_SWAP}",
    ),
    (
        "container_swap_usage_bytes",
        "gauge",
        f"[ALPHA] Current amount of the container swap usage in bytes. {_SWAP}",
    ),
    (
        "node_cpu_usage_seconds_total",
        "counter",
        "[STABLE] Cumulative cpu time consumed by the node in core-seconds",
    ),
    (
        "node_memory_working_set_bytes",
        "gauge",
        "[STABLE] Current working set of the node in bytes",
    ),
    (
        "node_swap_usage_bytes",
        "gauge",
        f"[ALPHA] Current swap usage of the node in bytes. {_SWAP}",
    ),
    (
        "pod_cpu_usage_seconds_total",
        "counter",
        "[STABLE] Cumulative cpu time consumed by the pod in core-seconds",
    ),
    (
        "pod_memory_working_set_bytes",
        "gauge",
        "[STABLE] Current working set of the pod in bytes",
    ),
    (
        "pod_swap_usage_bytes",
        "gauge",
        f"[ALPHA] Current amount of the pod swap usage in bytes. {_SWAP}",
    ),
    (
        "resource_scrape_error",
        "gauge",
        "[STABLE] 1 if there was an error while getting container metrics, 0 otherwise",
    ),
)
_NS: Final = 1_000_000_000


def resource_metrics(found: Snapshot | None) -> bytes:
    """The text; without a collection, that there was an error and nothing else."""
    text = Exposition()
    for family in FAMILIES:
        text.family(*family)
    text.add("resource_scrape_error", int(found is None))
    if found is None:
        return text.text()
    _add(text, "node", "", found.node.usage)
    for pod in found.pods:
        own = labels({"namespace": pod.namespace, "pod": pod.name})
        _add(text, "pod", own, pod.usage)
        for one in pod.containers:
            named = ",".join((labels({"container": one.name}), own))
            _add(text, "container", named, one.usage)
            if one.started_at:
                text.add("container_start_time_seconds", one.started_at / _NS, named)
            swap = one.usage.swap
            if swap is not None:
                text.add("container_swap_limit_bytes", swap.limit, named, swap.time)
    return text.text()


def _add(text: Exposition, kind: str, named: str, usage: Usage) -> None:
    cpu, memory, swap = usage.cpu or Cpu(), usage.memory or Memory(), usage.swap or Swap()
    seconds = None if cpu.usage is None else cpu.usage / _NS
    text.add(f"{kind}_cpu_usage_seconds_total", seconds, named, cpu.time)
    text.add(f"{kind}_memory_working_set_bytes", memory.working_set, named, memory.time)
    text.add(f"{kind}_swap_usage_bytes", swap.usage, named, swap.time)
