"""Hooks made of rules, which may be changed while the runtime serves."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, TypeVar

import anyio

from nodeagent.embedded.fault_rules import (
    Cut,
    Delay,
    Drop,
    Duplicate,
    Fail,
    FailAfter,
    Fault,
    Hang,
    Hold,
    Late,
    Reorder,
)
from nodeagent.embedded.shown import Show, Subject, shown, shown_event
from nodeagent.log import Log

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from nodeagent.embedded.faults import Call, Work
    from nodeagent.proto.runtime import v1

T = TypeVar("T")
log = Log("embedded.faults")
_TICK = 1e-6


class Injected:
    """A fault that is in force, and what it has done.

    Attributes:
        fault: the rule.
        name: its name in the plan.
        matched: calls or events that the rule was about, while it was in its time.
        fired: of these, how many it struck.
        waiting: calls that it holds right now.
    """

    def __init__(self, fault: Fault, name: str, dice: random.Random, plan: FaultPlan) -> None:
        self.fault = fault
        self.name = name
        self.matched = 0
        self.fired = 0
        self.waiting = 0
        self.last_due = 0.0
        self.stretch_began = -1.0
        self._dice = dice
        self._plan = plan
        self._begins: float | None = None

    @property
    def gate(self) -> str:
        """Name of the gate that what it holds waits at."""
        effect = self.fault.effect
        return (isinstance(effect, Hang | Late) and effect.gate) or self.name

    def begin(self, now: float) -> None:
        """Its time begins to run, unless it does already."""
        if self._begins is None:
            self._begins = now + self.fault.after

    def elapsed(self, now: float) -> float:
        """Seconds since its time began; negative when it is still to begin."""
        return now - (now if self._begins is None else self._begins)

    def in_time(self, now: float) -> bool:
        """Whether it has begun and is not over."""
        self.begin(now)
        lasts = self.fault.lasts
        return self.elapsed(now) >= 0.0 and (lasts is None or self.elapsed(now) < lasts)

    def strikes(self, now: float) -> bool:
        """Count a match; whether it is one of those to strike."""
        fault = self.fault
        if not self.in_time(now):
            return False
        self.matched += 1
        number = self.matched - fault.skip
        if number < 1 or number % fault.every:
            return False
        if fault.count is not None and self.fired >= fault.count:
            return False
        if fault.probability < 1.0 and self._dice.random() >= fault.probability:
            return False
        self.fired += 1
        log.debug("fault", name=self.name, fired=self.fired)
        return True

    def release(self) -> None:
        """Open its gate: what it holds goes on, and it holds nothing any more."""
        self._plan.release(self.gate)

    def remove(self) -> None:
        """Take it out of the plan; what it holds goes on."""
        self._plan.remove(self)


class FaultPlan:
    """Faults of one embedded runtime: hooks for ``serve_embedded(..., hooks=plan)``.

    All rules that match a call or an event strike, in the order in which they were added: waits
    add up, the first error is the answer.

    Args:
        faults: the first rules.
        seed: of the dice for rules with a probability; the same seed strikes the same matches.
    """

    def __init__(self, *faults: Fault, seed: int = 0) -> None:
        self._seed = seed
        self._added = 0
        self._faults: dict[str, Injected] = {}
        self._fired: dict[str, Injected] = {}
        self._open: set[str] = set()
        self._changed = anyio.Event()
        for fault in faults:
            self.add(fault)

    # -- what is in force

    @property
    def faults(self) -> Mapping[str, Injected]:
        """What is in force, by name."""
        return dict(self._faults)

    @property
    def fired(self) -> Mapping[str, int]:
        """How often each rule has struck, those that were removed included."""
        return {name: injected.fired for name, injected in self._fired.items()}

    def add(self, fault: Fault) -> Injected:
        """Put a rule in force; a rule of the same name is replaced."""
        self._added += 1
        name = fault.name or f"fault-{self._added}"
        self.remove(name)
        injected = Injected(fault, name, random.Random(f"{self._seed}/{name}"), self)
        if (now := _now()) is not None:
            injected.begin(now)
        self._faults[name] = self._fired[name] = injected
        return injected

    def remove(self, fault: Injected | str) -> None:
        """Take a rule out; what it holds goes on. One that is not there counts as removed."""
        name = fault if isinstance(fault, str) else fault.name
        if isinstance(fault, Injected) and self._faults.get(name) is not fault:
            return
        if self._faults.pop(name, None) is not None:
            self._notify()

    def clear(self) -> None:
        """Take all rules out."""
        self._faults.clear()
        self._notify()

    def release(self, gate: str) -> None:
        """Open a gate: what hangs there goes on, and so does what comes later."""
        self._open.add(gate)
        self._notify()

    def close(self, gate: str) -> None:
        """Close a gate that was opened."""
        self._open.discard(gate)

    # -- hooks

    async def around(self, call: Call, work: Work[T]) -> T:
        """Answer a call as the rules have it."""
        struck = self._strikes(lambda fault: fault.matches(call), events=False)
        if not struck:
            return await work()

        async def first() -> None:
            for injected in struck:
                await self._before(injected)

        if any(_goes_on(injected.fault) for injected in struck):
            answer = await work.apart(first)
        else:
            await first()
            answer = await work()
        answer = _shown(struck, call, answer)
        for injected in struck:
            await self._after(injected)
        return answer

    def deliver(
        self, event: v1.ContainerEventResponse
    ) -> list[tuple[float, v1.ContainerEventResponse]]:
        """When an event reaches subscribers."""
        delays = [0.0]
        for injected in self._faults.values():
            event = _shown_event(injected, event)
        for injected in self._strikes(lambda fault: fault.matches_event(event), events=True):
            delays = _delayed(injected, delays)
        return [(delay, event) for delay in delays]

    # -- inner workings

    def _strikes(self, matches: Callable[[Fault], bool], *, events: bool) -> list[Injected]:
        if not self._faults:
            return []
        now = anyio.current_time()
        return [
            injected
            for injected in self._faults.values()
            if injected.fault.strikes_events is events
            and matches(injected.fault)
            and injected.strikes(now)
        ]

    async def _before(self, injected: Injected) -> None:
        match injected.fault.effect:
            case Delay(seconds=seconds):
                await self._held(injected, seconds)
            case Hang():
                await self._held(injected, None)
            case Fail() as effect:
                raise effect.error()
            case _:
                pass

    async def _after(self, injected: Injected) -> None:
        match injected.fault.effect:
            case Late(seconds=seconds):
                await self._held(injected, seconds)
            case FailAfter() as effect:
                raise effect.error()
            case _:
                pass

    async def _held(self, injected: Injected, seconds: float | None) -> None:
        """Wait for some seconds, or for the gate; not beyond the removal of the rule."""
        deadline = anyio.current_time() + seconds if seconds is not None else float("inf")
        injected.waiting += 1
        try:
            with anyio.CancelScope(deadline=deadline):
                while self._faults.get(injected.name) is injected and not (
                    seconds is None and injected.gate in self._open
                ):
                    await self._changed.wait()
        finally:
            injected.waiting -= 1

    def _notify(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()


def _shown(struck: list[Injected], call: Call, answer: T) -> T:
    for injected in struck:
        if isinstance(injected.fault.effect, Show):
            elapsed = injected.elapsed(anyio.current_time())
            answer = shown(injected.fault.effect, elapsed, call, answer, _whom(injected.fault))
    return answer


def _shown_event(injected: Injected, event: v1.ContainerEventResponse) -> v1.ContainerEventResponse:
    """The event as the rule shows it, while the rule is in its time."""
    effect, now = injected.fault.effect, anyio.current_time()
    if not isinstance(effect, Show) or injected.fault.on or not injected.in_time(now):
        return event
    return shown_event(effect, injected.elapsed(now), event, _whom(injected.fault))


def _whom(fault: Fault) -> Callable[[Subject], bool]:
    def wanted(subject: Subject) -> bool:
        return fault.matches_pod(
            subject.uid, subject.namespace, subject.pod
        ) and fault.matches_container(subject.container)

    return wanted


def _goes_on(fault: Fault) -> bool:
    return isinstance(fault.effect, Delay | Hang) and fault.effect.apart


def _delayed(injected: Injected, delays: list[float]) -> list[float]:
    """The delays of an event's deliveries after one more rule."""
    match injected.fault.effect:
        case Drop():
            return []
        case Duplicate(times=times, gap=gap):
            return [delay + gap * number for delay in delays for number in range(times)]
        case Hold(seconds=seconds):
            return [delay + seconds for delay in delays]
        case Reorder(within=within):
            late = _reversed_due(injected, within) - anyio.current_time()
            return [delay + late for delay in delays]
        case Cut() as effect:
            raise effect.error()
        case _:
            return delays


def _reversed_due(injected: Injected, within: float) -> float:
    """When an event is due so that those of one stretch come in reverse."""
    now = anyio.current_time()
    if injected.stretch_began < 0 or now >= injected.stretch_began + within:
        injected.stretch_began = now
        injected.last_due = float("inf")
    mirrored = injected.stretch_began + 2 * within - (now - injected.stretch_began)
    injected.last_due = min(mirrored, injected.last_due - _TICK)
    return injected.last_due


def _now() -> float | None:
    try:
        return anyio.current_time()
    except Exception:  # noqa: BLE001 - its class, sniffio's or anyio's, differs between versions
        return None  # no loop runs yet: the time begins with the first call
