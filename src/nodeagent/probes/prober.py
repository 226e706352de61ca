"""Makes one probe: chooses the handler, tries again when it could not be made, tells of it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Final, Protocol

from nodeagent.api import Container, Pod, Probe
from nodeagent.log import Log
from nodeagent.model import ProbeResult
from nodeagent.probes.outcome import Handler, Outcome, Target, unknown

log = Log("probes")

ATTEMPTS: Final = 3
"""Tries in one tick of a probe that cannot be made."""


class ProbeEvents(Protocol):
    """Where events about containers go."""

    def event(self, pod: Pod, kind: str, reason: str, message: str, field_path: str = "") -> None:
        """Say something about a container of a pod; never blocks, never fails."""
        ...


class Slots(Protocol):
    """Limits how many probes of a kind run side by side."""

    def slot(self) -> AbstractAsyncContextManager[None]:
        """Hold one slot."""
        ...


class Prober:
    """Makes probes.

    Args:
        handlers: by field of the probe (``exec``, ``http_get``, ``tcp_socket``, ``grpc``), how
            it is made, and what limits how many are made side by side.
        events: where failures are told.
    """

    def __init__(self, handlers: Mapping[str, tuple[Handler, Slots]], events: ProbeEvents) -> None:
        self._handlers = handlers
        self._events = events

    def slot(self, probe: Probe) -> AbstractAsyncContextManager[None]:
        """Wait until one more probe with this kind of action may be made, and hold its slot."""
        entry = self._entry(probe)
        return nullcontext() if entry is None else entry[1].slot()

    async def aclose(self) -> None:
        """Close what the handlers keep open; no probe may be under way."""
        for handler, _ in self._handlers.values():
            await handler.aclose()

    async def probe(self, target: Target) -> Outcome:
        """Make one probe; UNKNOWN when it could not be made."""
        outcome = await self._ask(target)
        self._tell(target, outcome)
        return outcome

    async def _ask(self, target: Target) -> Outcome:
        entry = self._entry(target.probe)
        if entry is None:
            return unknown("the probe has no action that is known here")
        outcome = unknown("")
        for _ in range(ATTEMPTS):
            try:
                outcome = await entry[0](target)
            except Exception as error:  # noqa: BLE001 - whatever breaks is no answer of the container
                log.fault("probe_broke", error, pod=target.pod.metadata.name)
                return unknown(repr(error))
            if outcome.result is not ProbeResult.UNKNOWN:
                break
        return outcome

    def _entry(self, probe: Probe) -> tuple[Handler, Slots] | None:
        for field, entry in self._handlers.items():
            if getattr(probe, field) is not None:
                return entry
        return None

    def _tell(self, target: Target, outcome: Outcome) -> None:
        kind = target.kind.value.capitalize()
        if outcome.result is ProbeResult.UNKNOWN:
            text = f"{kind} probe errored and resulted in unknown state: {outcome.text}"
            reason = "Unhealthy"
        elif outcome.result is ProbeResult.FAILURE:
            text, reason = f"{kind} probe failed: {outcome.text}", "Unhealthy"
        elif outcome.warning:
            text, reason = f"{kind} probe warning: {outcome.text}", "ProbeWarning"
        else:
            return
        where = field_path(target.pod, target.container)
        self._events.event(target.pod, "Warning", reason, text, where)


def field_path(pod: Pod, container: Container) -> str:
    """Where the container stands in the spec, as events name it."""
    init = any(c.name == container.name for c in pod.spec.init_containers)
    return f"spec.{'initContainers' if init else 'containers'}{{{container.name}}}"
