"""How a simulated container lives, as data. Pure."""

from __future__ import annotations

import math
import shlex
import signal
from collections.abc import Sequence
from dataclasses import dataclass, field

from nodeagent.embedded.backend import ExecResult, Usage
from nodeagent.embedded.fault_rules import like, names_pod
from nodeagent.proto.runtime import v1


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line that a container writes.

    Attributes:
        text: the line, without its end.
        after: seconds from the start of the container.
        every: write it again every so many seconds; 0 for once.
        stream: ``stdout`` or ``stderr``.
    """

    text: str
    after: float = 0.0
    every: float = 0.0
    stream: str = "stdout"

    def __post_init__(self) -> None:
        if self.stream not in ("stdout", "stderr"):
            msg = f"stream: must be stdout or stderr, is {self.stream!r}"
            raise ValueError(msg)


@dataclass(frozen=True, slots=True)
class ExecRule:
    """What a command that is run in a container gives.

    Attributes:
        result: its output and exit code.
        command: shell pattern of the command, its words quoted and separated by spaces; empty
            for all.
        since: the container has run for this many seconds.
        takes: seconds that the command takes.
    """

    result: ExecResult = field(default_factory=ExecResult)
    command: str = ""
    since: float = 0.0
    takes: float = 0.0

    def matches(self, cmd: Sequence[str], age: float) -> bool:
        """Whether the rule is about this command in a container of this age."""
        return age >= self.since and like(shlex.join(cmd), self.command)


@dataclass(frozen=True, slots=True)
class Script:
    """How the instances of one container live.

    Attributes:
        exits: for each attempt in turn: seconds it runs, and its exit code.
        repeat: attempts past the end of ``exits`` do as the last one; else they run on.
        exit_reason: why they end by themselves, ``OOMKilled``; by default ``Completed`` or
            ``Error``.
        exit_message: more about it.
        start_after: seconds that starting takes.
        start_error: when not empty, starting fails with this message.
        stop_after: seconds from the stop signal to the end; longer than the grace means killed,
            infinite that the signal is ignored.
        stop_code: exit code after the stop signal.
        exec_result: what any command run in it gives, unless one of ``execs`` says more.
        exec_after: seconds that such a command takes.
        execs: what commands give; the first that matches counts.
        log: what it writes, each time it runs.
        usage: what it uses while it runs.
        cores: processors that it keeps busy while it runs, added to ``usage.cpu_ns``.
    """

    exits: Sequence[tuple[float, int]] = ()
    repeat: bool = False
    exit_reason: str = ""
    exit_message: str = ""
    start_after: float = 0.0
    start_error: str = ""
    stop_after: float = 0.0
    stop_code: int = 128 + signal.SIGTERM
    exec_result: ExecResult = field(default_factory=ExecResult)
    exec_after: float = 0.0
    execs: Sequence[ExecRule] = ()
    log: Sequence[LogLine] = ()
    usage: Usage = field(default_factory=lambda: Usage(memory_bytes=2**20, processes=1))
    cores: float = 0.0

    @property
    def ignores_stop(self) -> bool:
        """Whether only SIGKILL ends it."""
        return math.isinf(self.stop_after)

    def end_of(self, attempt: int) -> tuple[float, int] | None:
        """When and how the attempt ends by itself, None for never."""
        if attempt < len(self.exits):
            return self.exits[attempt]
        return self.exits[-1] if self.repeat and self.exits else None

    def exec_of(self, cmd: Sequence[str], age: float) -> ExecRule:
        """What a command gives in a container that has run for ``age`` seconds."""
        for rule in self.execs:
            if rule.matches(cmd, age):
                return rule
        return ExecRule(self.exec_result, takes=self.exec_after)


@dataclass(frozen=True, slots=True)
class ScriptRule:
    """The script of the containers that patterns name, as in a :class:`Fault`."""

    script: Script
    pod: str = ""
    container: str = ""

    def matches(self, pod: v1.PodSandboxMetadata, container: str) -> bool:
        """Whether the container is one of them."""
        return names_pod(self.pod, pod.uid, pod.namespace, pod.name) and like(
            container, self.container
        )
