"""The health checks of an agent, from what its parts say of themselves."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final

import anyio

from nodeagent.pleg import PlegHealth
from nodeagent.server.health import Check, CheckResult, Level

_ALL: Final = frozenset({"healthz", "livez", "readyz"})
_READY: Final = frozenset({"readyz"})


def ping() -> Check:
    """The event loop answers."""
    return Check("ping", CheckResult, _ALL)


def sync_loop(healthy: Callable[[float], str | None]) -> Check:
    """The sync loop turns; ``healthy`` gets loop time and says what is wrong."""

    def run() -> CheckResult:
        cause = healthy(anyio.current_time())
        return CheckResult() if cause is None else CheckResult(Level.FAILED, cause)

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
        return CheckResult(level, found.cause, tuple(culprits))

    return Check("pleg", run)


def runtime(errors: Callable[[], Sequence[str]]) -> Check:
    """The container runtime can be worked with."""

    def run() -> CheckResult:
        found = errors()
        return CheckResult(Level.FAILED, "; ".join(found)) if found else CheckResult()

    return Check("runtime", run)


def network(error: Callable[[], str]) -> Check:
    """The runtime's network is ready; only pods that need it wait."""

    def run() -> CheckResult:
        cause = error()
        return CheckResult(Level.DEGRADED, cause) if cause else CheckResult()

    return Check("network", run)


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
