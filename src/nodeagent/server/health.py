"""Named health checks and the three ways to show them.

``/healthz`` answers plainly, as the kubelet does: ``ok``, or 500 with one line per check.
Unlike the kubelet, a failed check names its cause, the pod, the runtime call and since when.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from nodeagent.log import Log

log = Log("server")


class Level(enum.Enum):
    """How bad it is. Only FAILED makes the whole unhealthy."""

    OK = "ok"
    DEGRADED = "degraded"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class CheckResult:
    """What one check found.

    Attributes:
        level: OK, DEGRADED (working, with something to look at) or FAILED.
        cause: one sentence; "" when all is well.
        details: one JSON-able object per culprit: pod, rpc, since (seconds ago).
        note: something to know, whatever the level.
    """

    level: Level = Level.OK
    cause: str = ""
    details: tuple[dict[str, Any], ...] = ()
    note: str = ""


@dataclass(frozen=True, slots=True)
class Check:
    """A named check; ``probes`` lists the endpoints whose verdict it decides."""

    name: str
    run: Callable[[], CheckResult]
    probes: frozenset[str] = field(default_factory=lambda: frozenset({"healthz", "readyz"}))


class HealthChecks:
    """The checks of one agent, in the order in which they are shown.

    Attributes:
        last: by check and probe, whether it was good when it was last asked for.
        counts: by check, probe and status (``success``, ``error``), how often it was that.
    """

    def __init__(self, checks: Iterable[Check]) -> None:
        self._checks = {check.name: check for check in checks}
        self.last: dict[tuple[str, str], bool] = {}
        self.counts: Counter[tuple[str, str, str]] = Counter()

    def add(self, check: Check) -> None:
        """Show a further check, after the others."""
        self._checks[check.name] = check

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all checks."""
        return tuple(self._checks)

    def deciding(self, probe: str) -> list[str]:
        """Names of the checks that decide a probe."""
        return [check.name for check in self._checks.values() if probe in check.probes]

    def of(self, probe: str, excluded: Sequence[str] = ()) -> list[tuple[str, CheckResult]]:
        """Results of the checks that decide ``probe``, without the excluded ones."""
        results = [
            (check.name, _outcome(check))
            for check in self._checks.values()
            if probe in check.probes and check.name not in excluded
        ]
        for name, result in results:
            good = result.level is not Level.FAILED
            self.last[name, probe] = good
            self.counts[name, probe, "success" if good else "error"] += 1
        return results

    def one(self, name: str) -> list[tuple[str, CheckResult]]:
        """The result of one check; empty when there is no such check."""
        check = self._checks.get(name)
        return [] if check is None else [(check.name, _outcome(check))]

    def trouble(self, names: Iterable[str]) -> str:
        """Why some checks fail, each by its name; "" when none of them does."""
        results = (result for name in names for result in self.one(name))
        return "; ".join(f"{n}: {r.cause}" for n, r in results if r.level is Level.FAILED)


def _outcome(check: Check) -> CheckResult:
    try:
        return check.run()
    except Exception as error:  # noqa: BLE001 - one broken check must not hide the others
        log.fault("check_failed", error, check=check.name)
        return CheckResult(Level.FAILED, f"the check itself failed: {error!r}")


def healthy(results: Iterable[tuple[str, CheckResult]]) -> bool:
    """Whether no check failed."""
    return all(result.level is not Level.FAILED for _, result in results)


def render_text(
    probe: str,
    results: Sequence[tuple[str, CheckResult]],
    *,
    verbose: bool,
    excluded: Sequence[str] = (),
    unknown: Sequence[str] = (),
) -> str:
    """The plain-text answer, in the kubelet's format.

    Args:
        probe: what was asked for.
        results: of the checks.
        verbose: tell of each, also when all are good.
        excluded: names of checks that were left out.
        unknown: names that were to be left out, and are none.
    """
    ok = healthy(results)
    if ok and not verbose:
        return "ok"
    lines = [_line(name, result) for name, result in results]
    lines += [f"[+]{name} excluded: ok" for name in excluded]
    if unknown:
        names = ",".join(f'"{_one_line(name)}"' for name in unknown)
        lines.append(f"warn: some health checks cannot be excluded: no matches for {names}")
    lines.append(f"{probe} check {'passed' if ok else 'failed'}")
    return "\n".join(lines) + "\n"


def _line(name: str, result: CheckResult) -> str:
    note = f" ({_one_line(result.note)})" if result.note else ""
    if result.level is Level.OK:
        return f"[+]{name} ok{note}"
    cause = _one_line(result.cause)
    if result.level is Level.DEGRADED:
        return f"[+]{name} ok, degraded: {cause}{note}"
    return f"[-]{name} failed: {cause}"


def _one_line(text: str) -> str:
    return " ".join(text.split())


def render_json(probe: str, results: Sequence[tuple[str, CheckResult]]) -> dict[str, Any]:
    """The answer as JSON-able values."""
    return {
        "probe": probe,
        "state": "ok" if healthy(results) else "failed",
        "checks": [_entry(name, result) for name, result in results],
    }


def _entry(name: str, result: CheckResult) -> dict[str, Any]:
    entry: dict[str, Any] = {"check": name, "state": result.level.value, "cause": result.cause}
    if result.note:
        entry["note"] = result.note
    if result.details:
        # The first culprit stands at the top level, where a person or a jq filter looks first.
        entry.update(result.details[0])
        entry["culprits"] = list(result.details)
    return entry
