"""An agent under random faults: does it converge, and does it grow?

Rounds of chaos: for a while something happens every half second (containers die or vanish, calls
fail, hang, answer late, events are lost, the runtime dies and comes back, manifests come, change
and go), then everything is healed, and it is timed until each pod is as its manifest says, in the
runtime and in the agent's own eyes. Memory, tasks and file descriptors are read when it is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import anyio

from nodeagent.bench.chaos import Chaos, Living
from nodeagent.bench.children import (
    NODE,
    AgentChild,
    RuntimeChild,
    agent,
    simulated_runtime,
    work_dir,
)
from nodeagent.bench.figures import BenchError, Figures, percentile, spread
from nodeagent.bench.manifests import manifest, pod_name, write
from nodeagent.bench.proc import Reading, read_process
from nodeagent.bench.runtime_process import VERSION
from nodeagent.bench.waiting import until

_ROUND_S: Final = 20.0
_PATIENCE_S: Final = 90.0
_WARM_UP_S: Final = 60.0
_LOOK_S: Final = 0.05
_LATE_S: Final = 5.0
_MOST_LATE: Final = 20
_SETTLED_S: Final = 1.0
_TASKS: Final = re.compile(rb"^nodeagent_tasks (\S+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Sample:
    """The agent at rest between two rounds, ``at`` seconds after the start."""

    at: float
    process: Reading
    tasks: int


@dataclass(slots=True)
class Course:
    """What was seen of a soak."""

    samples: list[Sample] = field(default_factory=list)
    converged_s: list[float] = field(default_factory=list)
    faults: int = 0
    edits: int = 0
    late: list[str] = field(default_factory=list)
    """What kept pods from being right for too long."""


async def run(
    minutes: float,
    pods: int,
    *,
    chaos: bool = True,
    seed: int = 0,
    round_s: float = _ROUND_S,
    warm_up_s: float = _WARM_UP_S,
) -> Figures:
    """Measure.

    Args:
        minutes: how long; the last round is finished.
        pods: how many manifests there are, at least 1.
        chaos: whether there are faults; without, only time passes.
        seed: of the faults.
        round_s: seconds of faults before each look.
        warm_up_s: what the agent is like after that is compared with its end.

    Returns:
        ``converged_p50_s``... from the end of the faults until a pod is right, over all pods and
        rounds; ``rss_growth_percent``, ``tasks_growth``, ``fds_growth`` from the warm-up to the
        end, each between medians of a few looks; ``rss_first_mb``, ``rss_last_mb``,
        ``rss_worst_mb``; ``rounds``, ``faults``, ``edits``.

    Raises:
        ValueError: there is nothing to measure.
        BenchError: agent or runtime do not run, or a pod does not converge at all.
    """
    if minutes <= 0 or pods < 1:
        msg = f"{pods} pods for {minutes:g} minutes: no measure"
        raise ValueError(msg)
    with work_dir() as base:
        async with (
            simulated_runtime(base) as runtime,
            agent(base, runtime.endpoint, show_pods=True) as child,
        ):
            soak = _Soak(runtime, child, pods, Chaos(seed) if chaos else None)
            return _figures(await soak.course(minutes * 60, round_s), pods, warm_up_s)


class _Soak:
    def __init__(
        self, runtime: RuntimeChild, child: AgentChild, pods: int, chaos: Chaos | None
    ) -> None:
        self._runtime = runtime
        self._agent = child
        self._chaos = chaos
        self._wanted = dict.fromkeys(range(pods), 0)
        """The version of each pod that is wanted; what is missing is not wanted now."""
        self._version = 0
        self._pods = pods
        self._course = Course()

    async def course(self, seconds: float, round_s: float) -> Course:
        """All rounds."""
        write(self._agent.manifests, [manifest(n) for n in self._wanted])
        await self._converge()
        self._course.converged_s.clear()  # the start is no fault
        began = anyio.current_time()
        while anyio.current_time() - began < seconds:
            if self._chaos is None:
                await anyio.sleep(round_s)
            else:
                await self._chaotic(self._chaos, round_s)
                await self._runtime.ask("heal")
                await self._converge()
            await anyio.sleep(_SETTLED_S)
            at = anyio.current_time() - began
            sample = Sample(at, read_process(self._agent.pid), await self._tasks())
            self._course.samples.append(sample)
        return self._course

    async def _tasks(self) -> int:
        found = _TASKS.search(await self._agent.get("/metrics"))
        if found is None:
            raise BenchError("the agent does not tell how many tasks it has")
        return int(float(found[1]))

    # -- faults

    async def _chaotic(self, chaos: Chaos, seconds: float) -> None:
        end = anyio.current_time() + seconds
        while anyio.current_time() < end:
            if chaos.pick(4) == 0:
                self._edit(chaos)
            else:
                living = [Living(uid, name) for uid, name, *_ in await self._running()]
                await self._runtime.ask("step", step=chaos.next(living))
                self._course.faults += 1
            await anyio.sleep(chaos.pause())

    def _edit(self, chaos: Chaos) -> None:
        """Replace a manifest, take it away, or put it back."""
        number = chaos.pick(self._pods)
        self._course.edits += 1
        if number in self._wanted and chaos.pick(2):
            del self._wanted[number]
            (self._agent.manifests / f"{pod_name(number)}.json").unlink()
            return
        self._version += 1
        self._wanted[number] = self._version
        write(self._agent.manifests, [manifest(number, version=self._version)])

    # -- convergence

    async def _converge(self) -> None:
        """Wait until all pods are right, and note when each was."""
        began = anyio.current_time()
        right: dict[int, float] = {}
        wrong: dict[int, str] = {}
        last: dict[int, str] = {}

        async def look() -> bool:
            wrong.clear()
            wrong.update(await self._wrong())
            last.update(wrong)
            now = anyio.current_time() - began
            for number in range(self._pods):
                if number in wrong:
                    right.pop(number, None)
                else:
                    right.setdefault(number, now)
            return not wrong

        await until(
            "each pod as its manifest says",
            look,
            timeout=_PATIENCE_S,
            pause=_LOOK_S,
            explain=lambda: f"{wrong}\n{self._agent.tail()}",
        )
        self._course.converged_s += right.values()
        for number, seconds in right.items():
            if seconds > _LATE_S and len(self._course.late) < _MOST_LATE:
                text = f"round {len(self._course.samples)}, {pod_name(number)}: {last[number]}"
                self._course.late.append(f"{text} until {seconds:.1f} s")

    async def _wrong(self) -> dict[int, str]:
        """What is not as it should be, by the number of the pod."""
        running: dict[str, list[str]] = {}
        for _uid, _container, pod, annotation in await self._running():
            running.setdefault(pod, []).append(annotation)
        shown = {p["metadata"]["name"]: p for p in await self._agent.pods()}
        found = {}
        for number in range(self._pods):
            name = f"{pod_name(number)}-{NODE}"
            version = self._wanted.get(number)
            expected = [] if version is None else [str(version)]
            if sorted(running.get(name, [])) != expected:
                found[number] = f"runs {running.get(name, [])} for {expected}"
            elif why := _misjudged(shown.get(name), version):
                found[number] = why
        return found

    async def _running(self) -> list[list[str]]:
        found: list[list[str]] = await self._runtime.ask("running")
        return found


def _misjudged(pod: Mapping[str, Any] | None, version: int | None) -> str:
    """What the agent says that is not true; "" when all is."""
    if version is None or pod is None:
        return "" if (pod is None) == (version is None) else f"shown: {pod is not None}"
    if pod["metadata"]["annotations"][VERSION] != str(version):
        return "another version is shown"
    statuses = pod.get("status", {}).get("containerStatuses") or [{}]
    if pod["status"].get("phase") != "Running" or not all(one.get("ready") for one in statuses):
        return f"shown as {pod['status'].get('phase')}, {statuses}"
    return ""


def _figures(course: Course, pods: int, warm_up_s: float) -> Figures:
    late = [sample for sample in course.samples if sample.at >= warm_up_s] or course.samples[-1:]
    few = max(1, len(late) // 4)
    first, last = late[:few], late[-few:]

    def middle(samples: list[Sample], name: str) -> float:
        values = [s.tasks if name == "tasks" else getattr(s.process, name) for s in samples]
        return percentile(values, 0.5)

    rss_first, rss_last = middle(first, "rss_mb"), middle(last, "rss_mb")
    return {
        "pods": pods,
        "minutes": round(course.samples[-1].at / 60, 2),
        "rounds": len(course.samples),
        "faults": course.faults,
        "edits": course.edits,
        **(spread("converged_s", course.converged_s) if course.converged_s else {}),
        "rss_first_mb": round(rss_first, 1),
        "rss_last_mb": round(rss_last, 1),
        "rss_worst_mb": round(max(s.process.rss_mb for s in course.samples), 1),
        "rss_growth_percent": round(100 * (rss_last / rss_first - 1), 2),
        "tasks_first": middle(first, "tasks"),
        "tasks_growth": middle(last, "tasks") - middle(first, "tasks"),
        "fds_first": middle(first, "fds"),
        "fds_growth": middle(last, "fds") - middle(first, "fds"),
        "late": course.late,
    }
