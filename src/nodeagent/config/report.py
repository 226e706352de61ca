"""What an agent tells of its configuration: in healthz, in ``/configz`` and in metrics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from nodeagent.config.reload import FieldChange
from nodeagent.config.trial import ConfigState


@dataclass(slots=True)
class ConfigReport:
    """Where an agent stands with its configuration; what is not set is not known.

    Attributes:
        state: which configurations there are; None for an agent that is given none by files.
        errors: all that is wrong with what the files say.
        needs_restart: what was asked for and waits for a restart.
        unsaved: why the last known good one could not be saved; "" when it could.
        kept: the agent has started with the last known good one, and why; "" when it has not.
    """

    state: ConfigState | None = None
    errors: tuple[str, ...] = ()
    needs_restart: tuple[FieldChange, ...] = ()
    unsaved: str = ""
    kept: str = ""

    def problem(self) -> str:
        """What somebody should look at; "" for nothing."""
        found = []
        if self.state is not None and self.state.error:
            now = "the last known good one is in force" if self.kept else "what was good stays"
            found.append(f"{self.state.error}; {now}")
        if self.unsaved:
            found.append(f"the last known good configuration cannot be saved: {self.unsaved}")
        return "; ".join(found)

    def note(self) -> str:
        """What is worth knowing although nothing is wrong; "" for nothing."""
        found = []
        if self.needs_restart:
            fields = ", ".join(change.field for change in self.needs_restart)
            found.append(f"waits for a restart: {fields}")
        if self.state is not None and self.state.trial is not None:
            found.append("on trial")
        return "; ".join(found)

    def shown(self, now: float) -> dict[str, Any]:
        """As ``/configz`` shows it; ``now`` is loop time."""
        found: dict[str, Any] = {
            "needsRestart": [
                {"field": change.field, "active": change.old, "assigned": change.new}
                for change in self.needs_restart
            ],
        }
        if self.state is None:
            return found
        state = self.state
        found |= {
            "assigned": state.assigned,
            "active": state.active,
            "lastKnownGood": state.last_known_good,
            "error": state.error,
            "errors": list(self.errors),
        }
        if state.refused:
            found["rolledBack"] = state.refused
        if state.trial is not None:
            found["trialSecondsLeft"] = max(round(state.trial.until - now), 0)
        return found
