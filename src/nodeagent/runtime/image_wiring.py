"""What decides about images, wired for one agent."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from prometheus_client import CollectorRegistry

from nodeagent.clock import Clock
from nodeagent.config import AgentConfig
from nodeagent.cri import ImageService
from nodeagent.journal import Journal
from nodeagent.runtime.credential_config import ProvidersConfig, load_providers
from nodeagent.runtime.credential_provider import (
    CredentialProviders,
    ProviderMetrics,
    TokenSource,
)
from nodeagent.runtime.credentials import ImageCredentials, node_config_dirs
from nodeagent.runtime.events import PodEvents
from nodeagent.runtime.image_fs import ImageFilesystem
from nodeagent.runtime.images import ImageAccess
from nodeagent.runtime.pull_records import PullRecords, RecordMetrics
from nodeagent.runtime.pull_rights import VerificationPolicy
from nodeagent.runtime.pull_secrets import SecretReader


@dataclass(frozen=True, slots=True)
class CredentialFiles:
    """What is read once about credentials, when the agent starts."""

    providers: ProvidersConfig
    config_dirs: tuple[Path, ...]


def read_credential_files(config: AgentConfig) -> CredentialFiles:
    """Read the plugins' configuration. Blocking.

    Raises:
        StartError: it cannot be used.
    """
    providers = ProvidersConfig()
    if str(config.image_credential_provider_config):
        providers = load_providers(
            Path(config.image_credential_provider_config),
            Path(config.image_credential_provider_bin_dir),
        )
    return CredentialFiles(providers, node_config_dirs(Path(config.root_dir).absolute()))


def verification_policy(config: AgentConfig) -> VerificationPolicy:
    """Which images that are there need no right."""
    return VerificationPolicy(
        config.image_pull_credentials_verification_policy,
        config.preloaded_images_verification_allowlist,
    )


def make_image_access(
    config: AgentConfig,
    files: CredentialFiles,
    images: ImageService,
    *,
    events: PodEvents,
    journal: Journal,
    registry: CollectorRegistry,
    clock: Clock,
    secrets: SecretReader | None = None,
    tokens: TokenSource | None = None,
) -> ImageAccess:
    """Build what decides who may have which image.

    Args:
        config: settings.
        files: from :func:`read_credential_files`.
        images: the image service.
        events: where events go.
        journal: the flight recorder.
        registry: where metrics are registered.
        clock: wall time, for what is written.
        secrets: gives pull secrets; None for a node that has none.
        tokens: gives tokens of service accounts; None for a node that has none.
    """
    providers = CredentialProviders(
        files.providers, journal=journal, metrics=ProviderMetrics(registry), tokens=tokens
    )
    credentials = ImageCredentials(
        events, secrets=secrets, config_dirs=files.config_dirs, providers=providers
    )
    records = PullRecords(
        directory=Path(config.root_dir).absolute() / "image_manager",
        images=images,
        policy=verification_policy(config),
        clock=clock,
        metrics=RecordMetrics(registry),
    )
    return ImageAccess(credentials, records, ImageFilesystem(images).used_bytes)
