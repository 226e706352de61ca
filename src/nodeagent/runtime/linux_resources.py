"""CPU, memory and OOM settings as the runtime takes them.

docs/behaviour/runtime.md, "Linux resources". Pure functions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from nodeagent.api import Container, Pod, Quantity, ResourceRequirements
from nodeagent.api.aggregate import aggregate, is_sidecar
from nodeagent.proto.runtime import v1
from nodeagent.runtime.errors import ContainerStartError, Waiting
from nodeagent.runtime.qos import QOSClass, compute_qos, is_critical
from nodeagent.runtime.settings import HostFacts, RuntimeSettings

MIN_SHARES: Final = 2
MAX_SHARES: Final = 262144
MIN_QUOTA: Final = 1000
MAX_QUOTA: Final = 2**63 - 1
"""What fits into the runtime's message; no machine has that much to give."""
_GUARANTEED_OOM_SCORE: Final = -997
_BEST_EFFORT_OOM_SCORE: Final = 1000
_HUGE_PAGES: Final = "hugepages-"

Amounts = Mapping[str, Quantity]


def cpu_shares(milli_cpu: int) -> int:
    """CPU shares of a request in thousandths of a CPU."""
    return min(max(milli_cpu * 1024 // 1000, MIN_SHARES), MAX_SHARES)


def cpu_quota(milli_cpu: int, period: int) -> int:
    """CFS quota in microseconds per ``period`` microseconds; 0 when there is no limit."""
    if milli_cpu == 0:
        return 0
    return min(max(milli_cpu * period // 1000, MIN_QUOTA), MAX_QUOTA)


def container_resources(
    pod: Pod, container: Container, settings: RuntimeSettings, host: HostFacts
) -> v1.LinuxContainerResources:
    """The resources of one container; a limit that it has not itself is that of its pod.

    Raises:
        ContainerStartError: it asks for huge pages that the node does not have.
    """
    shared = pod.spec.resources.limits if pod.spec.resources is not None else {}
    limits = {**_of_kernel(shared), **container.resources.limits}
    resources = _encode(container.resources.requests, limits, settings)
    resources.oom_score_adj = oom_score_adj(pod, container, host.memory_capacity)
    resources.hugepage_limits = _hugepages(limits, host)
    if host.cgroup_v2:
        _kill_together(resources, settings)
        if host.swap_accounting:
            swap = _swap(pod, container, host) if settings.limited_swap else 0
            resources.unified["memory.swap.max"] = str(swap)
    elif host.swap_accounting:
        resources.memory_swap_limit_in_bytes = resources.memory_limit_in_bytes
    return resources


def sandbox_resources(
    pod: Pod, settings: RuntimeSettings, host: HostFacts
) -> v1.LinuxContainerResources:
    """The resources of the whole pod, without its overhead."""
    level = pod.spec.resources or ResourceRequirements()
    requests = {**aggregate(pod.spec, "requests"), **_of_kernel(level.requests)}
    limits = {**aggregate(pod.spec, "limits"), **_of_kernel(level.limits)}
    resources = _encode(requests, limits, settings)
    if host.cgroup_v2:
        _kill_together(resources, settings)
    return resources


def _kill_together(resources: v1.LinuxContainerResources, settings: RuntimeSettings) -> None:
    if not settings.single_process_oom_kill:
        resources.unified["memory.oom.group"] = "1"


def _swap(pod: Pod, container: Container, host: HostFacts) -> int:
    """Bytes of swap that a container may use: its share of the memory, of the swap (KEP-2400)."""
    request = _memory_request(container)
    limit = container.resources.limits.get("memory")
    if is_critical(pod) or compute_qos(pod) is not QOSClass.BURSTABLE:
        return 0
    if limit is not None and limit.value() == request:
        return 0
    return request * host.swap_capacity // max(host.memory_capacity, 1)


def overhead_resources(pod: Pod, settings: RuntimeSettings) -> v1.LinuxContainerResources:
    """The pod's overhead as both request and limit; empty when it has none."""
    overhead = pod.spec.overhead
    if not overhead:
        return v1.LinuxContainerResources()
    return _encode(overhead, overhead, settings)


def _of_kernel(amounts: Amounts) -> dict[str, Quantity]:
    """Those of a pod's own amounts that its containers share: zeros say nothing."""
    return {
        name: amount
        for name, amount in amounts.items()
        if amount and (name in ("cpu", "memory") or name.startswith(_HUGE_PAGES))
    }


def _encode(
    requests: Amounts, limits: Amounts, settings: RuntimeSettings
) -> v1.LinuxContainerResources:
    request, limit = requests.get("cpu"), limits.get("cpu")
    milli_limit = limit.milli_value() if limit is not None else 0
    milli_request = milli_limit if request is None else request.milli_value()
    memory = limits.get("memory")
    resources = v1.LinuxContainerResources(
        cpu_shares=cpu_shares(milli_request),
        memory_limit_in_bytes=memory.value() if memory is not None else 0,
    )
    if settings.cpu_cfs_quota:
        resources.cpu_period = settings.cpu_cfs_period
        resources.cpu_quota = cpu_quota(milli_limit, settings.cpu_cfs_period)
    return resources


def _hugepages(limits: Amounts, host: HostFacts) -> list[v1.HugepageLimit]:
    asked = {
        Quantity(name.removeprefix(_HUGE_PAGES)).value(): quantity.value()
        for name, quantity in limits.items()
        if name.startswith(_HUGE_PAGES)
    }
    missing = sorted(size for size in asked.keys() - set(host.hugepage_sizes) if asked[size])
    if missing:
        offered = ", ".join(map(_page_size, sorted(host.hugepage_sizes))) or "none"
        message = (
            f"this node has no huge pages of {', '.join(map(_page_size, missing))} "
            f"(sizes that it has: {offered})"
        )
        raise ContainerStartError(Waiting.CONFIG, message)
    return [
        v1.HugepageLimit(page_size=_page_size(size), limit=asked.get(size, 0))
        for size in sorted(host.hugepage_sizes)
    ]


def _page_size(size: int) -> str:
    for unit in ("B", "KB", "MB"):
        if size < 1024 or size % 1024:
            return f"{size}{unit}"
        size //= 1024
    return f"{size}GB"


def oom_score_adj(pod: Pod, container: Container, memory_capacity: int) -> int:
    """How willingly the kernel kills the container when memory runs out.

    Args:
        pod: its quality of service and priority decide first.
        container: a burstable one scores by its memory request.
        memory_capacity: the node's memory in bytes.
    """
    if pod.spec.priority_class_name == "system-node-critical" and is_critical(pod):
        return _GUARANTEED_OOM_SCORE
    qos = compute_qos(pod)
    if qos is QOSClass.GUARANTEED:
        return _GUARANTEED_OOM_SCORE
    if qos is QOSClass.BEST_EFFORT:
        return _BEST_EFFORT_OOM_SCORE
    score = _burstable_score(pod, _memory_request(container), memory_capacity)
    if any(c.name == container.name and is_sidecar(c) for c in pod.spec.init_containers):
        smallest = min((_memory_request(c) for c in pod.spec.containers), default=0)
        score = min(score, _burstable_score(pod, smallest, memory_capacity))
    return score


def _burstable_score(pod: Pod, request: int, memory_capacity: int) -> int:
    request += _pod_level_surplus(pod)
    score = 1000 - 1000 * request // max(memory_capacity, 1)
    return min(max(score, 3), 999)


def _pod_level_surplus(pod: Pod) -> int:
    """What each container gets of a pod-level request beyond what the containers ask for."""
    level = pod.spec.resources
    if level is None or "memory" not in level.requests:
        return 0
    asked = aggregate(pod.spec, "requests").get("memory", Quantity(0)).value()
    surplus = level.requests["memory"].value() - asked
    count = len(pod.spec.containers) + len(pod.spec.init_containers)
    return surplus // count if surplus > 0 and count else 0


def _memory_request(container: Container) -> int:
    request = container.resources.requests.get("memory")
    return request.value() if request is not None else 0
