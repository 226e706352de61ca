"""Scenario files: what happens to an embedded runtime, written down in YAML.

docs/embedded-runtime.md, "Scenario files", describes the fields.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from nodeagent.api import Quantity, QuantityError
from nodeagent.api.problems import FieldProblem, Findings
from nodeagent.api.splitting import load_documents
from nodeagent.api.strict import build, check_object
from nodeagent.duration import parse_duration
from nodeagent.embedded.scenario_parts import problems_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from nodeagent.api.nodes import Node


class ScenarioError(ValueError):
    """A scenario file that cannot be used.

    Attributes:
        path: the file, if it is in one.
        problems: everything that is wrong with it.
    """

    def __init__(self, path: Path | None, problems: Iterable[FieldProblem]) -> None:
        self.path = path
        self.problems = tuple(problems)
        name = f"scenario {path}" if path else "scenario"
        super().__init__(f"{name}: " + "; ".join(str(one) for one in self.problems))


class Duration:
    """Seconds, written like Go's durations: ``1m30s``, ``500ms``."""

    # No dataclass: msgspec would want it to be written as an object.
    __slots__ = ("seconds",)

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds


class Size:
    """Bytes, written like Kubernetes' quantities: ``16Mi``."""

    __slots__ = ("bytes",)

    def __init__(self, size: int) -> None:
        self.bytes = size


class Part(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A part of a scenario; all fields may be left out unless they are required."""


class ErrorAnswer(Part, frozen=True):
    """A gRPC code by its name, and the text that comes with it."""

    code: str = ""
    message: str = "injected"


class Shown(Part, frozen=True):
    """What containers and sandboxes look like. Wall times are Unix seconds."""

    state: str = ""
    only: str = ""
    flip: Duration = Duration(0.0)
    created_at: int | None = None
    started_at: int | None = None
    finished_at: int | None = None
    hidden: bool = False


class Copies(Part, frozen=True):
    """How often an event comes, and with what gap."""

    times: int = 2
    gap: Duration = Duration(0.0)


class FaultPart(Part, frozen=True):
    """A rule: whom it strikes, how often, and exactly one effect."""

    name: str = ""
    methods: tuple[str, ...] = ()
    events: tuple[str, ...] = ()
    pod: str = ""
    container: str = ""
    image: str = ""
    skip: int = 0
    every: int = 1
    count: int | None = None
    probability: float = 1.0
    after: Duration = Duration(0.0)
    lasts: Duration | None = None
    apart: bool = False

    delay: Duration | None = None
    hang: str | None = None
    fail: ErrorAnswer | None = None
    late: Duration | None = None
    late_until: str | None = None
    fail_after: ErrorAnswer | None = None
    show: Shown | None = None
    drop: bool | None = None
    duplicate: Copies | None = None
    hold: Duration | None = None
    reorder: Duration | None = None
    cut: ErrorAnswer | None = None


class Life(Part, frozen=True):
    """How long an attempt runs, and its exit code."""

    runs: Duration
    exit: int = 0


class OnStop(Part, frozen=True):
    """What the stop signal does."""

    after: Duration = Duration(0.0)
    exit: int = 143
    ignore: bool = False


class Line(Part, frozen=True):
    """A line of the log."""

    text: str
    after: Duration = Duration(0.0)
    every: Duration = Duration(0.0)
    stream: str = "stdout"


class Command(Part, frozen=True):
    """What a command gives that is run in a container."""

    command: str = ""
    since: Duration = Duration(0.0)
    takes: Duration = Duration(0.0)
    exit: int = 0
    stdout: str = ""
    stderr: str = ""


class ContainerPart(Part, frozen=True):
    """How the containers that patterns name live."""

    pod: str = ""
    container: str = ""
    lives: tuple[Life, ...] = ()
    repeat: bool = False
    reason: str = ""
    message: str = ""
    start_delay: Duration = Duration(0.0)
    start_error: str = ""
    stop: OnStop = OnStop()
    log: tuple[Line, ...] = ()
    exec: tuple[Command, ...] = ()
    memory: Size | None = None


class DeadPod(Part, frozen=True):
    """A pod that dead containers are of."""

    name: str
    namespace: str = "default"
    uid: str = ""


class Dead(Part, frozen=True):
    """Exited containers to add."""

    containers: int
    per_pod: int = 5
    pods: tuple[DeadPod, ...] = ()
    container: str = "main"
    exit: int = 0
    list_size: Size | None = None
    age: Duration = Duration(3600.0)


class Losses(Part, frozen=True):
    """Containers or sandboxes to lose."""

    pod: str = ""
    container: str = ""
    share: float = 1.0
    sandboxes: bool = False
    seed: int = 0


class Ends(Part, frozen=True):
    """Containers that end now."""

    pod: str = ""
    container: str = ""
    exit: int = 1


class Stall(Part, frozen=True):
    """Connections that stand still: for how long, and whether new ones do, too."""

    lasts: Duration
    new: bool = False


class Step(Part, frozen=True):
    """Something that happens at a time; exactly one of the fields after ``at``."""

    at: Duration
    add: FaultPart | None = None
    remove: str | None = None
    release: str | None = None
    close: str | None = None
    down: Duration | None = None
    lose: Losses | None = None
    end: Ends | None = None
    populate: Dead | None = None
    stall: Stall | None = None
    goaway: bool | None = None
    drop_connections: bool | None = None
    cut_streams: ErrorAnswer | None = None


class Scenario(Part, frozen=True):
    """A whole scenario file."""

    seed: int = 0
    max_send: Size | None = None
    latency: dict[str, Duration] = {}
    images: tuple[str, ...] = ()
    containers: tuple[ContainerPart, ...] = ()
    populate: tuple[Dead, ...] = ()
    faults: tuple[FaultPart, ...] = ()
    timeline: tuple[Step, ...] = ()


def load_scenario(path: Path) -> Scenario:
    """Read a scenario file. Blocking.

    Raises:
        ScenarioError: it cannot be used; names everything that is wrong, with field paths.
    """
    try:
        data = path.read_bytes()
    except OSError as exc:
        problem = FieldProblem("", f"cannot be read: {exc.strerror}")
        raise ScenarioError(path, [problem]) from exc
    return parse_scenario(data, path)


def parse_scenario(data: bytes, path: Path | None = None) -> Scenario:
    """Read a scenario; ``path`` is for errors. Raises ScenarioError."""
    documents = load_documents(data)
    if len(documents) != 1:
        text = f"must hold one document, has {len(documents)}"
        raise ScenarioError(path, [FieldProblem("", text)])
    document = documents[0]
    if document.error is not None:
        error = document.error
        raise ScenarioError(path, [FieldProblem("", error.message, error.line, error.column)])
    assert document.root is not None
    return _decoded(document.root, path)


def _decoded(root: Node, path: Path | None) -> Scenario:
    found = Findings()
    plain = check_object(root, Scenario, found, _custom)
    # Unlike in a manifest, what is not known is wrong: nobody else reads these files.
    if problems := (*found.errors, *found.warnings):
        raise ScenarioError(path, problems)
    scenario: Scenario = build(plain, Scenario, _custom)
    if wrong := problems_of(scenario):
        raise ScenarioError(path, wrong)
    return scenario


def _custom(kind: type[Any], value: Any) -> Any:
    if kind is Duration:
        seconds = parse_duration(value)
        if seconds < 0:
            msg = f"{value!r} must not be negative"
            raise ValueError(msg)
        return Duration(seconds)
    try:
        return Size(Quantity(value).value())
    except QuantityError as exc:
        msg = f"{value!r} is not a size (write it like 16Mi)"
        raise ValueError(msg) from exc
