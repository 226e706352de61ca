"""Pod manifests as a person would write them."""

from typing import Any, Final

import yaml
from tests.e2e.lab.images import BUSYBOX

#: Runs until it is told to stop, and then stops at once.
WAITING: Final = ("sh", "-c", "trap 'exit 0' TERM; sleep 1000000 & wait")

Json = dict[str, Any]


def then_wait(script: str) -> tuple[str, ...]:
    """A command that runs a shell script and then waits to be told to stop."""
    return ("sh", "-c", f"{script}\ntrap 'exit 0' TERM\nsleep 1000000 & wait")


def container(
    name: str = "main", image: str = BUSYBOX, command: tuple[str, ...] = WAITING, **more: Any
) -> Json:
    """One entry of ``spec.containers``; ``more`` are further fields by their API names."""
    return {"name": name, "image": image, "command": list(command), **more}


def pod(name: str, *containers: Json, uid: str | None = None, **spec: Any) -> str:
    """A manifest as YAML; ``spec`` are further fields of the pod spec by their API names."""
    metadata = {"name": name} if uid is None else {"name": name, "uid": uid}
    manifest = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"containers": list(containers) or [container()], **spec},
    }
    return yaml.safe_dump(manifest, sort_keys=False)
