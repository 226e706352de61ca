"""Manifests of the pods that measurements run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

NAMESPACE: Final = "bench"
"""Where all pods of measurements are; what else a runtime holds is none of ours."""

SIMULATED_IMAGE: Final = "example.com/bench:1"
WAITING: Final = ("sh", "-c", "trap 'exit 0' TERM; sleep 1000000 & wait")
"""A command that runs until it is told to stop."""


def pod_name(number: int) -> str:
    """The name of a pod in its manifest."""
    return f"bench-{number:04d}"


def manifest(
    number: int, containers: int = 1, image: str = SIMULATED_IMAGE, version: int = 0
) -> dict[str, Any]:
    """One pod.

    Args:
        number: makes its name.
        containers: how many it has.
        image: of all its containers; never pulled from afar when it is there.
        version: another one is another pod under the same name.
    """
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": pod_name(number),
            "namespace": NAMESPACE,
            "labels": {"app": "bench", "tier": "front"},
            "annotations": {"bench/version": str(version)},
        },
        "spec": {
            "terminationGracePeriodSeconds": 1,
            "containers": [
                {
                    "name": f"container-{index}",
                    "image": image,
                    "imagePullPolicy": "IfNotPresent",
                    "command": list(WAITING),
                    "resources": {"requests": {"cpu": "1m", "memory": "1Mi"}},
                }
                for index in range(containers)
            ],
        },
    }


def write(directory: Path, pods: Sequence[dict[str, Any]]) -> None:
    """Put manifests into a directory as careful editors do: each complete, by rename."""
    for pod in pods:
        name = pod["metadata"]["name"]
        draft = directory / f".{name}.draft"
        draft.write_text(json.dumps(pod))
        draft.rename(directory / f"{name}.json")
