"""The health checks of an agent, from what its parts say of themselves."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, Protocol

import anyio

from nodeagent.duration import format_duration
from nodeagent.pleg import PlegHealth
from nodeagent.server.health import Check, CheckResult, Level


class StopTrouble(Protocol):
    """What the check of pods that cannot be stopped needs to know of one."""

    @property
    def pod(self) -> str:
        """``namespace/name``."""
        ...

    @property
    def cause(self) -> str:
        """What the last try ended in."""
        ...

    @property
    def since(self) -> float:
        """Loop time at which the first try failed."""
        ...

    @property
    def tries(self) -> int:
        """How many have failed."""
        ...


_ALL: Final = frozenset({"healthz", "livez", "readyz"})
_READY: Final = frozenset({"readyz"})
_LOST: Final = 120.0


def ping() -> Check:
    """The event loop answers."""
    return Check("ping", CheckResult, _ALL)


def logging(trouble: Callable[[float], str]) -> Check:
    """What is logged is written; ``trouble`` says why nothing was for so many seconds."""

    def run() -> CheckResult:
        cause = trouble(_LOST)
        if not cause:
            return CheckResult()
        text = f"nothing was logged for {format_duration(_LOST)}: {cause}"
        return CheckResult(Level.FAILED, text)

    return Check("log", run)


def device_plugin() -> Check:
    """Device plugins can register: there is nothing of it that could fail."""
    return Check("device-plugin", CheckResult)


def sync_loop(
    healthy: Callable[[float], str | None], last_turn: Callable[[], float | None]
) -> Check:
    """The sync loop turns; ``healthy`` gets loop time and says what is wrong."""

    def run() -> CheckResult:
        cause = healthy(anyio.current_time())
        if cause is None:
            return CheckResult()
        return CheckResult(Level.FAILED, cause, _since(last_turn()))

    return Check("syncloop", run, _ALL)


def pleg(health: Callable[[], PlegHealth]) -> Check:
    """PLEG lists and inspects; pods that cannot be inspected are named."""

    def run() -> CheckResult:
        found, now = health(), anyio.current_time()
        culprits: list[dict[str, Any]] = []
        if found.rpc and not found.pod:
            since = found.since if found.since is not None else now
            culprits.append({"rpc": found.rpc, "since": round(now - since, 3)})
        for pod in found.degraded:
            since = round(now - pod.trouble.since, 3)
            entry = {"pod": pod.name or pod.uid, "rpc": pod.trouble.rpc, "since": since}
            culprits.append({**entry, "error": pod.trouble.error})
        level = Level.FAILED if not found.ok else Level.DEGRADED if found.cause else Level.OK
        cause = found.cause if found.ok else f"PLEG is not healthy: {found.cause}"
        return CheckResult(level, cause, tuple(culprits), found.events)

    return Check("pleg", run)


def _since(loop_time: float | None, **facts: Any) -> tuple[dict[str, Any], ...]:
    """One culprit: for how many seconds, and further facts."""
    if loop_time is None:
        return (facts,) if facts else ()
    return ({**facts, "since": round(anyio.current_time() - loop_time, 3)},)


def runtime(errors: Callable[[], Sequence[str]], since: Callable[[], float | None]) -> Check:
    """The container runtime can be worked with; ``since`` is loop time."""

    def run() -> CheckResult:
        found = errors()
        if not found:
            return CheckResult()
        return CheckResult(Level.FAILED, aggregate(found), _since(since(), rpc="Status"))

    return Check("runtime", run)


def aggregate(errors: Sequence[str]) -> str:
    """Several errors in one line: one stands bare, more in brackets, each once."""
    unique = list(dict.fromkeys(errors))
    return unique[0] if len(unique) == 1 else f"[{', '.join(unique)}]"


def network(error: Callable[[], str], since: Callable[[], float | None]) -> Check:
    """The runtime's network is ready; only pods that need it wait."""

    def run() -> CheckResult:
        cause = error()
        if not cause:
            return CheckResult()
        return CheckResult(Level.DEGRADED, cause, _since(since(), rpc="Status"))

    return Check("network", run)


def stopping(failures: Callable[[], Sequence[StopTrouble]]) -> Check:
    """Pods that are to stop do stop; ``failures`` are those that do not."""

    def run() -> CheckResult:
        found, now = failures(), anyio.current_time()
        if not found:
            return CheckResult()
        first = found[0]
        tries = f"{first.tries} {'try' if first.tries == 1 else 'tries'}"
        age = format_duration(round(now - first.since))
        rest = f" and {len(found) - 1} more" if len(found) > 1 else ""
        cause = f"cannot stop pod {first.pod}: {first.cause} ({tries} in {age}){rest}"
        culprits = tuple(
            {"pod": one.pod, "since": round(now - one.since, 3), "error": one.cause}
            for one in found
        )
        return CheckResult(Level.DEGRADED, cause, culprits)

    return Check("stopping", run)


def sources(registered: Callable[[], Collection[str]], ready: Callable[[str], bool]) -> Check:
    """Every pod source has spoken."""

    def run() -> CheckResult:
        silent = sorted(name for name in registered() if not ready(name))
        if not silent:
            return CheckResult()
        return CheckResult(Level.FAILED, f"has not spoken yet: {', '.join(silent)}")

    return Check("sources", run, _READY)


def manifests(problems: Callable[[], Mapping[str, str]]) -> Check:
    """Every manifest is good; ``problems`` gives the first error of each file."""

    def run() -> CheckResult:
        found = problems()
        if not found:
            return CheckResult()
        first = next(iter(found.values()))
        rest = len(found) - 1
        more = f" and {rest} more {'file' if rest == 1 else 'files'}" if rest else ""
        culprits = tuple({"file": file, "error": text} for file, text in found.items())
        return CheckResult(Level.DEGRADED, first + more, culprits)

    return Check("manifests", run)


class ServerView(Protocol):
    """What the check of the API server needs to know. Times are loop time."""

    @property
    def answered_at(self) -> float | None:
        """When it answered last; None before it ever did."""
        ...

    @property
    def away_since(self) -> float | None:
        """Since when it does not answer; None while it does."""
        ...

    @property
    def cause(self) -> str:
        """Why the last request got no answer."""
        ...

    @property
    def refusals(self) -> Mapping[tuple[str, str], str]:
        """What it refuses at present: its words, by verb and kind of object."""
        ...


def api_server(view: ServerView) -> Check:
    """The API server answers, and lets the agent do what it must. Pods run on without it."""

    def run() -> CheckResult:
        now = anyio.current_time()
        if view.away_since is not None:
            age = format_duration(round(now - view.away_since))
            ever = "" if view.answered_at is not None else ", and never did"
            cause = f"the API server has not answered for {age}{ever}: {view.cause}; pods run on"
            return CheckResult(Level.DEGRADED, cause, _since(view.away_since, error=view.cause))
        if view.refusals:
            (verb, resource), text = next(iter(view.refusals.items()))
            rest = len(view.refusals) - 1
            more = f" and {rest} more" if rest else ""
            culprits = tuple(
                {"verb": verb, "resource": resource, "error": text}
                for (verb, resource), text in view.refusals.items()
            )
            cause = f"the API server does not let this node {verb} {resource}: {text}{more}"
            return CheckResult(Level.DEGRADED, cause, culprits)
        if view.answered_at is None:
            return CheckResult(Level.DEGRADED, "the API server was not asked yet")
        return CheckResult()

    return Check("apiserver", run)


class NodeView(Protocol):
    """What the check of the node needs to know."""

    @property
    def registered(self) -> bool:
        """Whether the API server has the Node, as far as is known."""
        ...

    @property
    def trouble(self) -> str:
        """Why it does not have it."""
        ...


def node(view: NodeView) -> Check:
    """The machine is a Node of its cluster."""

    def run() -> CheckResult:
        if view.registered:
            return CheckResult()
        return CheckResult(Level.DEGRADED, f"not registered: {view.trouble or 'not asked yet'}")

    return Check("node", run)


def credentials(problem: Callable[[], str]) -> Check:
    """The kubeconfig and what it names is in force; ``problem`` says why it is not."""

    def run() -> CheckResult:
        found = problem()
        return CheckResult(Level.DEGRADED, found) if found else CheckResult()

    return Check("credentials", run)


def serving(problem: Callable[[], str]) -> Check:
    """The certificate of the API port is good; ``problem`` says why it is not."""

    def run() -> CheckResult:
        found = problem()
        return CheckResult(Level.DEGRADED, found) if found else CheckResult()

    return Check("serving", run)


def configuration(problem: Callable[[], str], note: Callable[[], str]) -> Check:
    """What the configuration files say is in force; ``problem`` says why it is not."""

    def run() -> CheckResult:
        found = problem()
        return CheckResult(Level.DEGRADED if found else Level.OK, found, note=note())

    return Check("config", run)


def storage(refused: Callable[[], Mapping[str, str]]) -> Check:
    """What the agent must remember is on disk; ``refused`` gives the cause by file."""

    def run() -> CheckResult:
        found = refused()
        if not found:
            return CheckResult()
        culprits = tuple({"file": file, "error": cause} for file, cause in found.items())
        text = ", ".join(f"{file}: {cause}" for file, cause in found.items())
        cause = f"cannot be saved: {text}; pods run on, and what changes now may be forgotten"
        return CheckResult(Level.DEGRADED, cause, culprits)

    return Check("storage", run)
