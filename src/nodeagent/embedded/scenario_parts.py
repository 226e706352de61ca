"""The parts of a scenario as what they stand for, and what is wrong with them. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

import msgspec

from nodeagent.api.problems import FieldProblem
from nodeagent.embedded.backend import ExecResult, Usage
from nodeagent.embedded.fault_rules import (
    METHODS,
    Cut,
    Delay,
    Drop,
    Duplicate,
    Effect,
    EventEffect,
    Fail,
    FailAfter,
    Fault,
    Hang,
    Hold,
    Late,
    Reorder,
)
from nodeagent.embedded.images import parse_reference
from nodeagent.embedded.populate import OldPod
from nodeagent.embedded.script import ExecRule, LogLine, Script, ScriptRule
from nodeagent.embedded.shown import Show
from nodeagent.rpc import Code, InvalidArgument

if TYPE_CHECKING:
    from nodeagent.embedded import scenario as parts

_NANOS: Final = 10**9

EFFECTS: Final = (
    "delay",
    "hang",
    "fail",
    "late",
    "late_until",
    "fail_after",
    "show",
    "drop",
    "duplicate",
    "hold",
    "reorder",
    "cut",
)
"""Fields of a fault of which exactly one is given."""

_OBJECTS: Final = frozenset({"fail", "fail_after", "show", "duplicate", "cut"})
"""Effects that have fields of their own."""

ACTIONS: Final = (
    "add",
    "remove",
    "release",
    "close",
    "down",
    "lose",
    "end",
    "populate",
    "stall",
    "goaway",
    "drop_connections",
    "cut_streams",
)
"""Fields of a step of which exactly one is given."""

_BUILDERS: Final[dict[str, Callable[[parts.FaultPart], Effect]]] = {
    "delay": lambda part: Delay(_seconds(part.delay), part.apart),
    "hang": lambda part: Hang(part.hang or "", part.apart),
    "fail": lambda part: Fail(*_answer(part.fail, Code.UNAVAILABLE)),
    "late": lambda part: Late(_seconds(part.late)),
    "late_until": lambda part: Late(gate=part.late_until or ""),
    "fail_after": lambda part: FailAfter(*_answer(part.fail_after, Code.DEADLINE_EXCEEDED)),
    "show": lambda part: _show(part.show),
    "drop": lambda _part: Drop(),
    "duplicate": lambda part: _copies(part.duplicate),
    "hold": lambda part: Hold(_seconds(part.hold)),
    "reorder": lambda part: Reorder(_seconds(part.reorder)),
    "cut": lambda part: Cut(*_answer(part.cut, Code.UNAVAILABLE)),
}


def make_fault(part: parts.FaultPart) -> Fault:
    """The rule that a part stands for.

    Raises:
        ValueError: it makes no sense; begins with the field.
    """
    effect = only_one(part, EFFECTS)
    if part.apart and effect not in ("delay", "hang"):
        raise ValueError("apart: goes with delay or hang only")
    try:
        built = _BUILDERS[effect](part)
    except ValueError as exc:
        reason = str(exc) if effect in _OBJECTS else str(exc).partition(": ")[2]
        msg = f"{_encoded(effect)}{'.' if effect in _OBJECTS else ': '}{reason}"
        raise ValueError(msg) from exc
    of_events = isinstance(built, EventEffect)
    field, other = ("events", "methods") if of_events else ("methods", "events")
    if getattr(part, other):
        msg = f"{other}: {_encoded(effect)} strikes {'events' if of_events else 'calls'}"
        raise ValueError(msg)
    try:
        return _fault(part, part.events if of_events else part.methods, built)
    except ValueError as exc:
        name, _, reason = str(exc).partition(": ")
        msg = f"{field if name == 'on' else name}: {reason}"
        raise ValueError(msg) from exc


def _fault(part: parts.FaultPart, on: tuple[str, ...], effect: Effect) -> Fault:
    return Fault(
        on,
        effect,
        pod=part.pod,
        container=part.container,
        image=part.image,
        skip=part.skip,
        every=part.every,
        count=part.count,
        probability=part.probability,
        after=part.after.seconds,
        lasts=part.lasts.seconds if part.lasts else None,
        name=part.name,
    )


def make_rule(part: parts.ContainerPart) -> ScriptRule:
    """The lives that a part stands for. Raises ValueError, which begins with the field."""
    usage = Usage(memory_bytes=part.memory.bytes if part.memory else 2**20, processes=1)
    script = Script(
        exits=tuple((life.runs.seconds, life.exit) for life in part.lives),
        repeat=part.repeat,
        exit_reason=part.reason,
        exit_message=part.message,
        start_after=part.start_delay.seconds,
        start_error=part.start_error,
        stop_after=math.inf if part.stop.ignore else part.stop.after.seconds,
        stop_code=part.stop.exit,
        execs=tuple(_command(command) for command in part.exec),
        log=tuple(_line(number, line) for number, line in enumerate(part.log)),
        usage=usage,
    )
    return ScriptRule(script, part.pod, part.container)


def old_pods(part: parts.Dead) -> list[OldPod]:
    """The pods that dead containers are of."""
    return [OldPod(pod.name, pod.namespace, pod.uid) for pod in part.pods]


def error_code(part: parts.ErrorAnswer, default: Code) -> Code:
    """The code by its name. Raises ValueError."""
    if not part.code:
        return default
    if part.code not in Code.__members__:
        msg = f"code: must be one of {', '.join(Code.__members__)}, is {part.code!r}"
        raise ValueError(msg)
    return Code[part.code]


def only_one(part: msgspec.Struct, names: tuple[str, ...]) -> str:
    """The one of these fields that is given. Raises ValueError."""
    given = [name for name in names if _is_given(getattr(part, name))]
    if len(given) == 1:
        return given[0]
    wanted = ", ".join(_encoded(name) for name in names)
    found = ", ".join(_encoded(name) for name in given) or "none"
    msg = f"exactly one is needed of {wanted}; there is {found}"
    raise ValueError(msg)


def problems_of(scenario: parts.Scenario) -> list[FieldProblem]:
    """What is wrong with a scenario beyond the types of its fields."""
    return list(_problems(scenario)) or list(_unknown_names(scenario))


def _problems(scenario: parts.Scenario) -> Iterator[FieldProblem]:
    for method in scenario.latency:
        if method not in METHODS:
            yield FieldProblem(f"latency[{method}]", "is not the name of a CRI method")
    for number, image in enumerate(scenario.images):
        yield from _attempt(f"images[{number}]", _check_image, image)
    for number, container in enumerate(scenario.containers):
        yield from _attempt(f"containers[{number}]", make_rule, container)
    for number, dead in enumerate(scenario.populate):
        yield from _attempt(f"populate[{number}]", _check_dead, dead)
    for number, fault in enumerate(scenario.faults):
        yield from _attempt(f"faults[{number}]", make_fault, fault)
    for number, step in enumerate(scenario.timeline):
        yield from _attempt(f"timeline[{number}]", _check_step, step)


def _unknown_names(scenario: parts.Scenario) -> Iterator[FieldProblem]:
    """Steps that end or release what no fault of the scenario is called, or waits at."""
    faults = [*scenario.faults, *(step.add for step in scenario.timeline if step.add is not None)]
    names = {part.name for part in faults} | {f"latency-{method}" for method in scenario.latency}
    # Faults without a name are numbered as they come.
    names |= {f"fault-{number}" for number in range(1, len(scenario.latency) + len(faults) + 1)}
    gates = names | {gate for part in faults for gate in (part.hang, part.late_until) if gate}
    for number, step in enumerate(scenario.timeline):
        for action, known, what in (
            ("remove", names, "no fault has the name"),
            ("release", gates, "nothing waits at a gate of the name"),
            ("close", gates, "nothing waits at a gate of the name"),
        ):
            name = getattr(step, action)
            if name is not None and name not in known:
                yield FieldProblem(f"timeline[{number}].{action}", f"{what} {name!r}")


def _attempt(path: str, make: Callable[[Any], object], part: object) -> Iterator[FieldProblem]:
    try:
        make(part)
    except ValueError as exc:
        field, colon, reason = str(exc).partition(": ")
        if colon and " " not in field:
            yield FieldProblem(f"{path}.{field}", reason)
        else:
            yield FieldProblem(path, str(exc))


def _check_image(name: str) -> None:
    try:
        parse_reference(name)
    except InvalidArgument as exc:
        raise ValueError(exc.message) from exc


def _check_dead(part: parts.Dead) -> None:
    for name, value in (("containers", part.containers), ("perPod", part.per_pod)):
        if value < 1:
            msg = f"{name}: must be at least 1, is {value}"
            raise ValueError(msg)


def _check_step(step: parts.Step) -> None:
    action = only_one(step, ACTIONS)
    try:
        if step.add:
            make_fault(step.add)
        elif step.populate:
            _check_dead(step.populate)
        elif step.cut_streams:
            error_code(step.cut_streams, Code.UNAVAILABLE)
        elif step.lose and not 0.0 <= step.lose.share <= 1.0:
            msg = f"share: must be between 0 and 1, is {step.lose.share:g}"
            raise ValueError(msg)
    except ValueError as exc:
        sep = "." if ": " in str(exc) and " " not in str(exc).partition(": ")[0] else ": "
        msg = f"{_encoded(action)}{sep}{exc}"
        raise ValueError(msg) from exc


def _is_given(value: object) -> bool:
    return value is not None and value is not False


def _encoded(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def _seconds(duration: parts.Duration | None) -> float:
    return duration.seconds if duration else 0.0


def _answer(part: parts.ErrorAnswer | None, default: Code) -> tuple[Code, str]:
    assert part is not None
    return error_code(part, default), part.message


def _show(part: parts.Shown | None) -> Show:
    assert part is not None
    created, started, finished = (
        None if at is None else at * _NANOS
        for at in (part.created_at, part.started_at, part.finished_at)
    )
    return Show(part.state, part.only, part.flip.seconds, created, started, finished, part.hidden)


def _copies(part: parts.Copies | None) -> Duplicate:
    assert part is not None
    return Duplicate(part.times, part.gap.seconds)


def _command(part: parts.Command) -> ExecRule:
    result = ExecResult(part.stdout.encode(), part.stderr.encode(), part.exit)
    return ExecRule(result, part.command, part.since.seconds, part.takes.seconds)


def _line(number: int, part: parts.Line) -> LogLine:
    try:
        return LogLine(part.text, part.after.seconds, part.every.seconds, part.stream)
    except ValueError as exc:
        msg = f"log[{number}].{exc}"
        raise ValueError(msg) from exc
