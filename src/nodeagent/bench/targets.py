"""What the figures must show, and whether those of one run do. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from nodeagent.bench.figures import NOT_MEASURED, Figures


@dataclass(frozen=True, slots=True)
class Target:
    """What a figure of a row must not exceed.

    Attributes:
        row: the row it is in.
        says: the figure in words.
        value: takes it out of the row; None when it is not there.
        limit: what it may be at most.
    """

    row: str
    says: str
    value: Callable[[Figures], float | None]
    limit: float


@dataclass(frozen=True, slots=True)
class Verdict:
    """A target and the figure of one run; ``value`` is None when there is none: ``why``."""

    target: Target
    value: float | None
    why: str = ""

    @property
    def met(self) -> bool | None:
        """Whether the target is met; None when nobody knows."""
        return None if self.value is None else self.value <= self.target.limit


def at(*names: str) -> Callable[[Figures], float | None]:
    """A figure by the names that lead to it."""

    def value(row: Figures) -> float | None:
        found: Any = row
        for name in names:
            found = found.get(name) if isinstance(found, Mapping) else None
        return None if found is None else float(found)

    return value


def quotient(above: str, below: str) -> Callable[[Figures], float | None]:
    """One figure divided by another."""

    def value(row: Figures) -> float | None:
        upper, lower = at(above)(row), at(below)(row)
        return upper / lower if upper is not None and lower else None

    return value


TARGETS: Final = (
    Target("relist", "interned_ms / decode_ms", quotient("interned_ms", "decode_ms"), 1 / 50),
    Target("relist", "interned_ms / c_protobuf_ms", quotient("interned_ms", "c_protobuf_ms"), 3),
    Target("inspect", "concurrent_ms / serial_ms", quotient("concurrent_ms", "serial_ms"), 1 / 8),
    Target("idle", "cpu_percent", at("small", "cpu_percent"), 1),
    Target("idle", "rss_mb", at("small", "rss_mb"), 70),
    Target("idle", "CPU with many pods / few", at("cpu_ratio"), 4),
    Target("idle", "memory with many pods / few", at("rss_ratio"), 2),
    Target("idle cluster", "rss_mb", at("rss_mb"), 110),
    *(
        Target(row, name, at(name), limit)
        for row in ("react", "react containerd")
        for name, limit in (("p50_ms", 60), ("p99_ms", 200), ("own_action_visible_p99_ms", 20))
    ),
    Target("burst", "agent_s / bare_s", at("ratio"), 1.15),
    Target("burst containerd", "agent_s / bare_s", at("ratio"), 1.15),
    *(
        Target("e2e-start", name, at(name), limit)
        for name, limit in (
            ("start_p50_ms", 200),
            ("own_p99_ms", 150),
            ("delete_p50_ms", 250),
            ("start_all_s", 2.8),
            ("delete_all_s", 2.0),
        )
    ),
    Target("probes", "late_p99_ms", at("late_p99_ms"), 100),
    Target("probes", "cpu_percent", at("cpu_percent"), 100),
    Target("actions", "median_us", at("median_us"), 50),
    Target("watch", "list_ms / models_ms", quotient("list_ms", "models_ms"), 1 / 20),
    Target("watch", "event_p99_ms", at("event_p99_ms"), 5),
    Target("soak", "converged_worst_s", at("converged_worst_s"), 5),
    Target("soak", "rss_growth_percent", at("rss_growth_percent"), 5),
    Target("soak", "tasks_growth", at("tasks_growth"), 5),
    Target("soak", "fds_growth", at("fds_growth"), 2),
    Target("status", "gets_per_pod", at("burst", "gets_per_pod"), 1),
    Target("status", "patches_per_pod", at("burst", "patches_per_pod"), 1),
    Target("status", "gets_per_pod, changing again", at("again", "gets_per_pod"), 1),
    Target("status", "patches_per_pod, changing again", at("again", "patches_per_pod"), 2),
    Target("status", "pod writes at rest", at("rest", "pod_writes"), 0),
    Target("status", "node writes at rest", at("rest", "node_writes"), 1),
    # One every 10 s; the interval may begin and end with one.
    Target("status", "lease writes at rest per 10 s", at("rest", "lease_writes_per_10_s"), 1.2),
    Target("volumes", "loop_ms of a pod", at("set_up", "loop_ms"), 25),
    Target("volumes", "longest_stall_ms of a pod", at("set_up", "longest_stall_ms"), 10),
    Target("volumes", "swapped_ms", at("update", "swapped_ms"), 1000),
    Target("volumes", "cpu_percent at rest", at("rest", "cpu_percent"), 0.5),
    Target("api", "p99_ms of /pods", at("pods", "p99_ms"), 20),
    Target("api", "p99_ms of /stats/summary", at("summary", "p99_ms"), 20),
    Target("api", "loop_lag_p99_ms", at("loop_lag_p99_ms"), 20),
    Target("exec", "wanted_mb_s / slowest_mb_s", quotient("wanted_mb_s", "slowest_mb_s"), 1),
    Target("logs", "cat_mb_s / agent_mb_s", quotient("cat_mb_s", "agent_mb_s"), 2),
    Target("logs", "memory_mb", at("memory_mb"), 20),
    Target("logs", "tail_cpu_ms", at("tail_cpu_ms"), 5),
    Target("logs", "more_percent of quiet followers", at("quiet", "more_percent"), 1),
    Target("startup", "kubernetes_asyncio imported", at("kubernetes_asyncio_imported"), 0),
)


def judge(rows: Mapping[str, Figures], targets: tuple[Target, ...] = TARGETS) -> list[Verdict]:
    """Compare the rows of one run with what they must show."""
    verdicts = []
    for target in targets:
        row = rows.get(target.row, {NOT_MEASURED: "not run"})
        if NOT_MEASURED in row:
            verdicts.append(Verdict(target, None, str(row[NOT_MEASURED])))
            continue
        value = target.value(row)
        why = "" if value is not None else "the row has no such figure"
        verdicts.append(Verdict(target, value, why))
    return verdicts
