"""One probe of one container of one pod."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import anyio

from nodeagent.api import Container, Pod, Probe
from nodeagent.model import PodUID, ProbeKind
from nodeagent.model.restart import is_sidecar
from nodeagent.probes.decision import Memory
from nodeagent.probes.metrics import Tally
from nodeagent.probes.results import Subject

FIELDS: Final = {
    ProbeKind.STARTUP: "startup_probe",
    ProbeKind.READINESS: "readiness_probe",
    ProbeKind.LIVENESS: "liveness_probe",
}


@dataclass(eq=False, slots=True)
class Worker:
    """What belongs to one probe. Times are loop times.

    Attributes:
        subject: pod, container and kind.
        pod: the newest version of the pod.
        container: its container.
        probe: what is to be done.
        tally: its metrics.
        due: the beginning of the present period.
        memory: what the pure decisions remember.
        asking: an answer is being waited for; there is never more than one question.
        again: ask again as soon as the answer is there.
        stopped: it is over.
        scope: cancelling it gives up what is being asked.
    """

    subject: Subject
    pod: Pod
    container: Container
    probe: Probe
    tally: Tally
    due: float
    memory: Memory = field(default_factory=Memory)
    asking: bool = False
    again: bool = False
    stopped: bool = False
    scope: anyio.CancelScope | None = None

    @property
    def uid(self) -> PodUID:
        """The pod's UID."""
        return self.subject[0]

    @property
    def kind(self) -> ProbeKind:
        """Liveness, readiness or startup."""
        return self.subject[2]

    @property
    def period(self) -> float:
        """Seconds between two probes."""
        return float(max(self.probe.period_seconds, 1))

    def stop(self) -> None:
        """Be over; a question that is open is given up."""
        self.stopped = True
        self.tally.remove()
        if self.scope is not None:
            self.scope.cancel()


def probes_of(pod: Pod) -> list[tuple[Container, ProbeKind, Probe]]:
    """All probes of a pod: those of regular containers and sidecars."""
    sidecars = [c for c in pod.spec.init_containers if is_sidecar(c)]
    found = []
    for container in (*sidecars, *pod.spec.containers):
        for kind, name in FIELDS.items():
            probe = getattr(container, name)
            if probe is not None:
                found.append((container, kind, probe))
    return found
