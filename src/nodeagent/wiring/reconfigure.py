"""How another configuration comes into force in an agent that runs."""

from __future__ import annotations

from nodeagent.config import AgentConfig
from nodeagent.parts import Parts
from nodeagent.runtime.garbage_wiring import gc_policy, image_gc_policy, rotation_policy
from nodeagent.wiring.settings import health_limit, pleg_settings


def apply_settings(parts: Parts, config: AgentConfig) -> None:
    """Let every part go by these settings from now on. Never waits, never fails.

    All of them are told, also those whose settings have not changed.
    """
    parts.config = config
    parts.pleg.reconfigure(pleg_settings(config))
    parts.workers.reconfigure(config.sync_frequency)
    parts.loop.reconfigure(
        housekeeping_period=config.housekeeping_period, health_limit=health_limit(config)
    )
    parts.gc.reconfigure(gc_policy(config))
    parts.image_gc.reconfigure(image_gc_policy(config))
    parts.log_rotation.reconfigure(rotation_policy(config))
