"""What befalls a node in a soak: random faults as steps of a scenario. Pure.

A container is killed at most once in the life of its pod, so that no crash back-off, which is
wanted, is taken for slowness.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

Step = dict[str, Any]
"""One action of a scenario's timeline (docs/embedded-runtime.md, "Scenario files")."""

_CALLS: Final = (
    "ListPodSandbox",
    "ListContainers",
    "PodSandboxStatus",
    "ContainerStatus",
    "RunPodSandbox",
    "CreateContainer",
    "StartContainer",
    "StopContainer",
    "StopPodSandbox",
    "RemovePodSandbox",
    "RemoveContainer",
    "ImageStatus",
    "Status",
)
_LOOKS: Final = ("ListPodSandbox", "ListContainers", "PodSandboxStatus", "ContainerStatus")
_CREATIONS: Final = ("RunPodSandbox", "CreateContainer", "StartContainer")
_CODES: Final = ("UNAVAILABLE", "UNKNOWN", "INTERNAL", "DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED")
_LASTS: Final = "3s"


@dataclass(frozen=True, slots=True)
class Living:
    """A running container as the runtime has it: UID of its pod, and its name."""

    uid: str
    container: str


class Chaos:
    """Chooses what happens next.

    Args:
        seed: the same seed with the same containers makes the same choices.
    """

    def __init__(self, seed: int) -> None:
        self._dice = random.Random(seed)
        self._killed: set[Living] = set()
        self._kinds: tuple[Callable[[Sequence[Living]], Step | None], ...] = (
            self._kill,
            self._kill,
            self._lose,
            self._delay,
            self._fail,
            self._hang,
            self._late,
            self._fail_after,
            self._events,
            self._unknown,
            self._down,
            self._stall,
            self._connections,
        )

    def next(self, living: Sequence[Living]) -> Step:
        """The next fault.

        Args:
            living: the containers that run.
        """
        while True:
            step = self._dice.choice(self._kinds)(living)
            if step is not None:
                return step

    def pause(self) -> float:
        """Seconds until the next fault."""
        return 0.1 + 0.8 * self._dice.random()

    def pick(self, count: int) -> int:
        """One of so many."""
        return self._dice.randrange(count)

    def _some(self, living: Sequence[Living]) -> Living | None:
        return self._dice.choice(living) if living else None

    def _kill(self, living: Sequence[Living]) -> Step | None:
        victim = self._some([one for one in living if one not in self._killed])
        if victim is None:
            return None
        self._killed.add(victim)
        code = self._dice.choice((0, 1, 137))
        return {"end": {"pod": victim.uid, "container": victim.container, "exit": code}}

    def _lose(self, living: Sequence[Living]) -> Step | None:
        victim = self._some(living)
        if victim is None:
            return None
        return {"lose": {"pod": victim.uid, "sandboxes": self._dice.random() < 0.5}}

    def _delay(self, _living: Sequence[Living]) -> Step:
        seconds = f"{self._dice.randrange(50, 2000)}ms"
        return self._fault(_CALLS, {"delay": seconds}, probability=0.5)

    def _fail(self, _living: Sequence[Living]) -> Step:
        code = self._dice.choice(_CODES)
        return self._fault(_CALLS, {"fail": {"code": code}}, probability=0.5)

    def _hang(self, living: Sequence[Living]) -> Step | None:
        victim = self._some(living)
        if victim is None:
            return None
        return self._fault(_LOOKS, {"delay": "8s"}, pod=victim.uid, count=2)

    def _late(self, _living: Sequence[Living]) -> Step:
        return self._fault(_CREATIONS, {"late": "2s"}, count=3)

    def _fail_after(self, _living: Sequence[Living]) -> Step:
        return self._fault(_CREATIONS, {"failAfter": {"code": "DEADLINE_EXCEEDED"}}, count=3)

    def _events(self, _living: Sequence[Living]) -> Step:
        effects: tuple[Step, ...] = (
            {"drop": True},
            {"duplicate": {"times": 3, "gap": "100ms"}},
            {"hold": "1s"},
            {"reorder": "500ms"},
            {"cut": {}},
        )
        kinds = ["CREATED", "STARTED", "STOPPED", "DELETED"]
        return {"add": {"events": kinds, "lasts": _LASTS, **self._dice.choice(effects)}}

    def _unknown(self, living: Sequence[Living]) -> Step | None:
        victim = self._some(living)
        if victim is None:
            return None
        shown = {"state": "UNKNOWN", "flip": "1s"}
        return {"add": {"show": shown, "pod": victim.uid, "lasts": _LASTS}}

    def _down(self, _living: Sequence[Living]) -> Step:
        return {"down": f"{self._dice.randrange(100, 2500)}ms"}

    def _stall(self, _living: Sequence[Living]) -> Step:
        lasts = f"{self._dice.randrange(200, 2000)}ms"
        return {"stall": {"lasts": lasts, "new": self._dice.random() < 0.5}}

    def _connections(self, _living: Sequence[Living]) -> Step:
        return self._dice.choice(
            ({"goaway": True}, {"dropConnections": True}, {"cutStreams": {"code": "UNAVAILABLE"}})
        )

    def _fault(self, methods: Sequence[str], effect: Step, **more: Any) -> Step:
        method = self._dice.choice(methods)
        return {"add": {"methods": [method], "lasts": _LASTS, **effect, **more}}
