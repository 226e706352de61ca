"""The settings that say how containers are limited and restarted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from nodeagent.config.errors import ConfigError

NO_SWAP: Final = "NoSwap"
LIMITED_SWAP: Final = "LimitedSwap"
_SWAP_BEHAVIORS: Final = ("", NO_SWAP, LIMITED_SWAP)
_PERIODS: Final = (0.001, 1.0)
_RESTART_PERIODS: Final = (1.0, 300.0)


@dataclass(frozen=True, kw_only=True, slots=True)
class ContainerOptions:
    """How containers are limited and restarted.

    Attributes:
        cpu_cfs_quota: whether CPU limits are enforced.
        cpu_cfs_quota_period: seconds in which a container may use its share of a CPU limit.
        single_process_oom_kill: a process that needs too much memory is killed alone, and not its
            whole container; None for the cgroups' default: alone on v1, together on v2.
        swap_behavior: ``LimitedSwap`` lets containers of burstable pods swap in proportion to
            the memory that they request; ``NoSwap`` or "" lets none.
        max_container_restart_period: seconds that no crash back-off exceeds.
    """

    cpu_cfs_quota: bool = True
    cpu_cfs_quota_period: float = 0.1
    single_process_oom_kill: bool | None = None
    swap_behavior: str = ""
    max_container_restart_period: float = 300.0

    def _check_containers(self) -> None:
        """Raises ConfigError."""
        least, most = _PERIODS
        if not least <= self.cpu_cfs_quota_period <= most:
            value = self.cpu_cfs_quota_period
            raise ConfigError("cpu_cfs_quota_period", value, "must be between 1ms and 1s")
        if self.swap_behavior not in _SWAP_BEHAVIORS:
            allowed = f"must be {NO_SWAP} or {LIMITED_SWAP}"
            raise ConfigError("swap_behavior", self.swap_behavior, allowed)
        least, most = _RESTART_PERIODS
        if not least <= self.max_container_restart_period <= most:
            value = self.max_container_restart_period
            raise ConfigError("max_container_restart_period", value, "must be between 1s and 5m")
