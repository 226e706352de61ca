"""What the probes of containers have found so far."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from nodeagent.model.events import ProbeResult


@dataclass(frozen=True, slots=True)
class ProbeResults:
    """The newest probe results by container id; a container without one is absent.

    The mappings may be live views: what is read is what holds at that moment.
    """

    liveness: Mapping[str, ProbeResult] = field(default_factory=dict)
    startup: Mapping[str, ProbeResult] = field(default_factory=dict)
    readiness: Mapping[str, ProbeResult] = field(default_factory=dict)


NO_RESULTS: Final = ProbeResults()
