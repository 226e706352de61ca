"""The health checks of one agent."""

from __future__ import annotations

from collections.abc import Sequence

from nodeagent.channels import SyncLoop
from nodeagent.checkpointer import Checkpointer
from nodeagent.cluster import Cluster
from nodeagent.config.report import ConfigReport
from nodeagent.log import written
from nodeagent.node import RuntimeState
from nodeagent.pleg import Pleg
from nodeagent.pods.sources_ready import SourcesReady
from nodeagent.pods.workers import PodWorkers
from nodeagent.server import Check, HealthChecks, checks
from nodeagent.sources import FileSource, Source, UrlSource
from nodeagent.sources.api_source import ApiSource


def health_checks(
    loop: SyncLoop,
    pleg: Pleg,
    workers: PodWorkers,
    state: RuntimeState,
    ready: SourcesReady,
    sources: Sequence[Source],
    checkpoint: Checkpointer,
    report: ConfigReport,
    cluster: Cluster | None = None,
) -> HealthChecks:
    """The checks, in the order in which they are shown."""

    def problems() -> dict[str, str]:
        found: dict[str, str] = {}
        for source in sources:
            if isinstance(source, FileSource | UrlSource):
                found.update(source.problems())
            elif isinstance(source, ApiSource):
                for key, cause in source.problems().items():
                    found[f"api:{key}"] = f"pod {key} of the API server: {cause}"
        return found

    def refused() -> dict[str, str]:
        found: dict[str, str] = {}
        if checkpoint.trouble:
            found[checkpoint.file.path.name] = checkpoint.trouble
        for source in sources:
            if isinstance(source, FileSource | ApiSource):
                found.update(source.refused())
        return found

    return HealthChecks(
        [
            checks.ping(),
            checks.logging(written.trouble),
            checks.device_plugin(),
            checks.sync_loop(loop.healthy, lambda: loop.last_turn),
            checks.pleg(pleg.healthy),
            checks.runtime(state.errors, lambda: state.failing_since),
            checks.network(lambda: state.network_error, lambda: state.network_failing_since),
            checks.stopping(workers.stop_failures),
            checks.sources(lambda: [source.name for source in sources], ready.ready),
            checks.manifests(problems),
            checks.storage(refused),
            checks.configuration(report.problem, report.note),
            *_of_cluster(cluster),
        ]
    )


def _of_cluster(cluster: Cluster | None) -> list[Check]:
    if cluster is None:
        return []
    found = [checks.api_server(cluster.link.reach), checks.node(cluster.node)]
    if (connection := cluster.link.connection) is not None:
        found.append(checks.credentials(lambda: connection.problem))
    return found
