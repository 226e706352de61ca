"""What a manifest can get wrong: the reason and the words that a user sees, in a whole ring.

Each pod has a sound container beside the bad one; that runs, and what is mended runs too. The rows
are those of docs/behaviour/runtime.md, "Waiting reasons".
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import pytest
from ring import FaultyRing, faulty_ring, phase

from nodeagent.api import (
    ConfigMapKeySelector,
    Container,
    EmptyDirVolumeSource,
    EnvVar,
    EnvVarSource,
    Lifecycle,
    ObjectFieldSelector,
    ResourceFieldSelector,
    SecretKeySelector,
    SecurityContext,
    Volume,
    VolumeMount,
)
from nodeagent.rpc import Code
from nodeagent.testing import Fail, Fault, FaultPlan, make_container, make_pod

pytestmark = pytest.mark.anyio

CONFIG = "CreateContainerConfigError"
WHERE = '(pod: "web_default(uid-web)", container: bad)'
BROKEN = "OCI runtime create failed: exec: no such file"


def from_(**source: Any) -> dict[str, Any]:
    return {"env": (EnvVar(name="A", value_from=EnvVarSource(**source)),)}


def mounted(**fields: Any) -> dict[str, Any]:
    return {"volume_mounts": (VolumeMount(name="data", mount_path="/data", **fields),)}


@dataclass(frozen=True)
class Bad:
    """A way to be wrong, and what shows."""

    reason: str
    message: str
    fields: dict[str, Any]
    fault: Fault | None = None
    event: str = ""


ROWS = {
    "config map": Bad(
        CONFIG,
        'configmap "none" not found',
        from_(config_map_key_ref=ConfigMapKeySelector(name="none", key="k")),
    ),
    "secret": Bad(
        CONFIG,
        'secret "none" not found',
        from_(secret_key_ref=SecretKeySelector(name="none", key="k")),
    ),
    "field": Bad(
        CONFIG,
        "unsupported fieldPath: status.phase",
        from_(field_ref=ObjectFieldSelector(field_path="status.phase")),
    ),
    "resource of nobody": Bad(
        CONFIG,
        "container nobody not found",
        from_(
            resource_field_ref=ResourceFieldSelector(container_name="nobody", resource="limits.cpu")
        ),
    ),
    "root by number": Bad(
        CONFIG,
        f"container's runAsUser breaks non-root policy {WHERE}",
        {"security_context": SecurityContext(run_as_non_root=True, run_as_user=0)},
    ),
    "root by image": Bad(
        CONFIG,
        f"container has runAsNonRoot and image will run as root {WHERE}",
        {"security_context": SecurityContext(run_as_non_root=True)},
    ),
    "sub path without a variable": Bad(
        CONFIG, "missing value for NOT, THERE", mounted(sub_path_expr="a/$(NOT)/$(THERE)")
    ),
    "sub path that leads out": Bad(
        CONFIG,
        "unable to provision SubPath `a/../..`: must not contain '..'",
        mounted(sub_path="a/../.."),
    ),
    "stop signal": Bad(
        CONFIG,
        "container bad: SIGNONE is no signal that a runtime knows",
        {"lifecycle": Lifecycle(stop_signal="SIGNONE")},
    ),
    "creation": Bad(
        "CreateContainerError",
        BROKEN,
        {},
        Fault("CreateContainer", Fail(Code.UNKNOWN, BROKEN), container="bad"),
    ),
    "start": Bad(
        "RunContainerError",
        BROKEN,
        {},
        Fault("StartContainer", Fail(Code.UNKNOWN, BROKEN), container="bad"),
    ),
    "image name": Bad(
        "InvalidImageName",
        'Failed to apply default image tag "UPPER:x": couldn\'t parse image name "UPPER:x": '
        "invalid reference format",
        {"image": "UPPER:x"},
        event="Error: InvalidImageName",
    ),
    "image that is never pulled": Bad(
        "ErrImageNeverPull",
        'Container image "busybox:gone" is not present with pull policy of Never',
        {"image": "busybox:gone", "image_pull_policy": "Never"},
        event="Error: ErrImageNeverPull",
    ),
    "image that nobody can look at": Bad(
        "ImageInspectError",
        'Failed to inspect image "busybox:odd": rpc error: code = Unknown desc = store is locked',
        {"image": "busybox:odd"},
        Fault("ImageStatus", Fail(Code.UNKNOWN, "store is locked"), image="busybox:odd"),
        event="Error: ImageInspectError",
    ),
}


def told(node: FaultyRing, reason: str) -> list[str]:
    records = node.agent.journal.select("default/web")
    return [r.why for r in records if r.component == "event" and r.what == reason]


def bad_container(fields: dict[str, Any]) -> Container:
    given = {"image": "busybox:1", "image_pull_policy": "IfNotPresent", **fields}
    return make_container("bad", **given)


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
async def test_what_is_wrong_shows_and_harms_nobody_else(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], row: Bad
) -> None:
    plan = FaultPlan() if row.fault is None else FaultPlan(row.fault)
    volumes = (Volume(name="data", empty_dir=EmptyDirVolumeSource()),)
    bad = make_pod("web", make_container("good"), bad_container(row.fields), volumes=volumes)
    async with faulty_ring(tmp_path, bad, plan=plan) as node:

        def shown() -> tuple[str, str]:
            pod = node.pod("web")
            statuses = pod.status.container_statuses if pod is not None else ()
            found = next((s for s in statuses if s.name == "bad"), None)
            waiting = found.state.waiting if found is not None else None
            return (waiting.reason, waiting.message) if waiting is not None else ("", "")

        await node.until(lambda: shown() == (row.reason, row.message))
        assert phase(node.pod("web")) == "Pending"
        await node.until(lambda: node.status("web", "good").ready)
        await node.until(lambda: told(node, "Failed"))
        assert set(told(node, "Failed")) == {row.event or f"Error: {row.message}"}
        good = node.status("web", "good").container_id
        # It stays as it is until somebody mends it, and no crash is counted.
        await anyio.sleep(90)
        assert shown() == (row.reason, row.message)
        if row.fault is not None:
            plan.clear()
        else:
            node.source.set(
                make_pod("web", make_container("good"), bad_container({}), volumes=volumes)
            )
        await node.until(lambda: phase(node.pod("web")) == "Running", 600)
        assert node.status("web", "good").container_id == good
    assert "Traceback" not in capfd.readouterr().err
