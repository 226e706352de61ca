"""Pods for tests and examples, in one line each."""

from __future__ import annotations

from typing import Any

from nodeagent.api import Container, ObjectMeta, Pod, PodSpec
from nodeagent.api.defaults import set_defaults


def make_container(name: str = "main", image: str = "busybox:1.36", **fields: Any) -> Container:
    """A container; ``fields`` are those of :class:`nodeagent.api.Container`."""
    return Container(name=name, image=image, **fields)


def make_pod(
    name: str = "web",
    *containers: Container,
    namespace: str = "default",
    uid: str = "",
    restart: str = "Always",
    grace: int = 5,
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    **spec: Any,
) -> Pod:
    """A pod with defaults applied.

    Args:
        name: its name.
        containers: its containers; one named ``main`` by default.
        namespace: its namespace.
        uid: its UID; ``uid-<name>`` by default.
        restart: its restart policy.
        grace: its termination grace period in seconds.
        labels: its labels.
        annotations: its annotations.
        spec: further fields of :class:`nodeagent.api.PodSpec`.
    """
    metadata = ObjectMeta(
        name=name,
        namespace=namespace,
        uid=uid or f"uid-{name}",
        labels=labels or {},
        annotations=annotations or {},
    )
    return set_defaults(
        Pod(
            metadata=metadata,
            spec=PodSpec(
                containers=containers or (make_container(),),
                restart_policy=restart,
                termination_grace_period_seconds=grace,
                **spec,
            ),
        )
    )
