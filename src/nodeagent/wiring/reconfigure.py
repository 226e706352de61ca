"""How another configuration comes into force in an agent that runs."""

from __future__ import annotations

from nodeagent.config import AgentConfig
from nodeagent.cri import CRIClient
from nodeagent.parts import Parts
from nodeagent.runtime.credential_config import ProvidersConfig
from nodeagent.runtime.garbage_wiring import gc_policy, image_gc_policy, rotation_policy
from nodeagent.runtime.image_wiring import verification_policy
from nodeagent.runtime.images import ImageAccess
from nodeagent.sources import UrlSource
from nodeagent.wiring.settings import health_limit, pleg_settings


def apply_settings(parts: Parts, config: AgentConfig) -> None:
    """Let the parts go by these settings from now on. Never waits, never fails.

    All of them are told, also those whose settings have not changed.
    """
    parts.pleg.reconfigure(pleg_settings(config))
    parts.workers.reconfigure(config.sync_frequency)
    parts.loop.reconfigure(
        housekeeping_period=config.housekeeping_period, health_limit=health_limit(config)
    )
    parts.gc.reconfigure(gc_policy(config))
    parts.image_gc.reconfigure(image_gc_policy(config))
    parts.log_rotation.reconfigure(rotation_policy(config))
    parts.journal.resize(config.journal_size)
    if isinstance(parts.client, CRIClient):
        parts.client.change_timeout(config.runtime_request_timeout)
    for source in parts.sources:
        if isinstance(source, UrlSource):
            source.reconfigure(config.http_check_frequency)


def set_providers(access: ImageAccess, providers: ProvidersConfig) -> None:
    """Ask these plugins for logins from now on."""
    if access.credentials is not None and access.credentials.providers is not None:
        access.credentials.providers.reconfigure(providers)


def access_policy(access: ImageAccess, config: AgentConfig) -> None:
    """Ask for the rights that these settings want, before an image that is there is used."""
    if access.records is not None:
        access.records.policy = verification_policy(config)
