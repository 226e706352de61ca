"""The pod sources that the configuration asks for."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from functools import partial
from pathlib import Path
from typing import Final

from prometheus_client import CollectorRegistry

from nodeagent.clock import Clock
from nodeagent.cluster import ClusterLink
from nodeagent.config import AgentConfig, ConfigError, environment_proxy
from nodeagent.journal import Journal
from nodeagent.model import FILE_SOURCE, HTTP_SOURCE
from nodeagent.objects import StandaloneObjects
from nodeagent.parts import Parts
from nodeagent.runtime.unsupported import unsupported_fields
from nodeagent.sources import FileSource, Source, UrlSource
from nodeagent.sources.api_checkpoint import ApiCheckpoint
from nodeagent.sources.api_source import ApiSource
from nodeagent.sources.checkpoint import ManifestCheckpoint
from nodeagent.sources.fetch import Fetcher
from nodeagent.sources.origin import UrlOrigin
from nodeagent.sources.verdict_report import ManifestMetrics

_BEGUN_ANEW: Final[Mapping[str, frozenset[str]]] = {
    FILE_SOURCE: frozenset({"static_pod_path", "file_check_frequency"}),
    HTTP_SOURCE: frozenset({"static_pod_url", "static_pod_url_header"}),
}
"""Settings with which a source begins anew."""


class SourceMaker:
    """Makes the sources, and others in their place when the settings change.

    Args:
        link: the connection to the API server; None without one.
        standalone: takes the objects that lie beside pods, on a node without.
        journal: flight recorder.
        registry: where metrics are registered.
        clock: wall clock.
    """

    def __init__(
        self,
        link: ClusterLink | None,
        standalone: StandaloneObjects | None,
        *,
        journal: Journal,
        registry: CollectorRegistry,
        clock: Clock,
    ) -> None:
        self._link = link
        self._standalone = standalone
        self._journal = journal
        self._clock = clock
        self._metrics = ManifestMetrics(registry)
        self._unsupported = partial(unsupported_fields, cluster=link is not None)

    def all(self, config: AgentConfig) -> tuple[Source, ...]:
        """All that the settings ask for."""
        found = (self._files(config), self._url(config), self._api(config))
        return tuple(source for source in found if source is not None)

    async def replace(self, parts: Parts, config: AgentConfig, changed: Collection[str]) -> None:
        """Let sources begin anew whose settings have changed; their pods run on meanwhile."""
        makers = {FILE_SOURCE: self._files, HTTP_SOURCE: self._url}
        for name, settings in _BEGUN_ANEW.items():
            if settings.isdisjoint(changed):
                continue
            source = makers[name](config)
            await parts.replace_source(name, source)
            if source is None and self._standalone is not None:
                self._standalone.put(name, ())

    def _files(self, config: AgentConfig) -> Source | None:
        if not config.manifest_paths:
            return None
        node = config.effective_node_name
        return FileSource(
            config.manifest_paths,
            node,
            period=config.file_check_frequency,
            checkpoint=ManifestCheckpoint(_checkpoints(config) / "manifests.json", node),
            journal=self._journal,
            metrics=self._metrics,
            unsupported=self._unsupported,
            clock=self._clock,
            objects=self._standalone,
        )

    def _url(self, config: AgentConfig) -> Source | None:
        if not config.static_pod_url:
            return None
        url, node = config.static_pod_url, config.effective_node_name
        path = _checkpoints(config) / "manifest-url.json"
        return UrlSource(
            Fetcher(url, config.static_pod_url_header, proxy_for=environment_proxy),
            UrlOrigin(url),
            node,
            period=config.http_check_frequency,
            checkpoint=ManifestCheckpoint(path, node, tolerate=False),
            journal=self._journal,
            metrics=self._metrics,
            unsupported=self._unsupported,
            objects=self._standalone,
        )

    def _api(self, config: AgentConfig) -> Source | None:
        link, node = self._link, config.effective_node_name
        if link is None:
            return None
        return ApiSource(
            link.clients.main,
            node,
            checkpoint=ApiCheckpoint(_checkpoints(config) / "api-pods.json", node, link.server),
            patience=config.checkpoint_patience,
            journal=self._journal,
        )


def _checkpoints(config: AgentConfig) -> Path:
    return Path(config.root_dir) / "checkpoints"


def check_paths(config: AgentConfig, changed: Collection[str]) -> None:
    """Refuse manifest paths from which nothing can be read now. Blocks.

    At the start of an agent they may be missing; but a wrong name, given to one that runs, would
    stop all that it runs.

    Raises:
        ConfigError: one is not there, or cannot be read.
    """
    if "static_pod_path" not in changed:
        return
    for path in config.manifest_paths:
        try:
            if path.is_dir():
                os.listdir(path)  # noqa: PTH208 - any bytes
            else:
                path.open("rb").close()
        except OSError as error:
            allowed = f"cannot be read: {error.strerror}; the pods of before run on"
            raise ConfigError("static_pod_path", path, allowed) from error
