"""What is told of the configuration in numbers."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge

from nodeagent.config.trial import ConfigState


class ConfigMetrics:
    """Counts readings of the configuration, and shows which ones there are.

    Args:
        registry: where it is registered.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self.reloads = Counter(
            "nodeagent_config_reloads",
            "Times that the configuration was read while the agent ran, by what came of it",
            ["result"],
            registry=registry,
        )
        for result in ("applied", "refused", "rolled_back", "unchanged"):
            self.reloads.labels(result)
        self._error = Gauge(
            "nodeagent_config_error",
            "1 while what the configuration files say is not in force",
            registry=registry,
        )
        self._trial = Gauge(
            "nodeagent_config_trial",
            "1 while the configuration in force is on trial",
            registry=registry,
        )
        self._restart = Gauge(
            "nodeagent_config_needs_restart",
            "Fields of the configuration that wait for a restart",
            registry=registry,
        )
        self._info = Gauge(
            "nodeagent_config_info",
            "1 for the configurations there are: what the files say, what is in force, what is "
            "known to be good; each by a short name of its content",
            ["assigned", "active", "last_known_good"],
            registry=registry,
        )

    def show(self, state: ConfigState, needs_restart: int) -> None:
        """Take the newest state over."""
        self._error.set(bool(state.error))
        self._trial.set(state.trial is not None)
        self._restart.set(needs_restart)
        self._info.clear()
        self._info.labels(state.assigned, state.active, state.last_known_good).set(1)
