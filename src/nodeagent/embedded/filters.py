"""Which sandboxes and containers a list request asks for. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from nodeagent.embedded.records import ContainerRecord, SandboxRecord
    from nodeagent.proto.runtime import v1


def has_labels(labels: Mapping[str, str], wanted: Mapping[str, str]) -> bool:
    """Whether every wanted label is there with its value."""
    return all(labels.get(key) == value for key, value in wanted.items())


def same_id(have: str, wanted: str) -> bool:
    """Whether ``wanted`` is empty, the id, or its beginning."""
    return have.startswith(wanted)


def wants_sandbox(where: v1.PodSandboxFilter | None, sandbox: SandboxRecord) -> bool:
    """Whether all conditions of the filter hold."""
    if where is None:
        return True
    if where.state is not None and (where.state.state.value == 0) != sandbox.ready:
        return False
    return same_id(sandbox.id, where.id) and has_labels(sandbox.config.labels, where.label_selector)


def wants_container(where: v1.ContainerFilter | None, container: ContainerRecord) -> bool:
    """Whether all conditions of the filter hold."""
    if where is None:
        return True
    if where.state is not None and where.state.state != container.state.value:
        return False
    return (
        same_id(container.id, where.id)
        and same_id(container.sandbox_id, where.pod_sandbox_id)
        and has_labels(container.config.labels, where.label_selector)
    )


def wants_container_stats(
    where: v1.ContainerStatsFilter | None, container: ContainerRecord
) -> bool:
    """Whether all conditions of the filter hold."""
    return where is None or (
        same_id(container.id, where.id)
        and same_id(container.sandbox_id, where.pod_sandbox_id)
        and has_labels(container.config.labels, where.label_selector)
    )


def wants_sandbox_stats(where: v1.PodSandboxStatsFilter | None, sandbox: SandboxRecord) -> bool:
    """Whether all conditions of the filter hold."""
    return where is None or (
        same_id(sandbox.id, where.id) and has_labels(sandbox.config.labels, where.label_selector)
    )
