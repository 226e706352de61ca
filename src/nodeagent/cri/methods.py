"""Every CRI call: its name, the name of its operation in metrics, and its deadline.

docs/behaviour/runtime.md, "CRI calls".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

DEFAULT_TIMEOUT: Final = 120.0
SANDBOX_TIMEOUT: Final = 240.0


@dataclass(frozen=True, slots=True)
class Method:
    """One call.

    Attributes:
        name: as the protos spell it, ``RunPodSandbox``.
        operation: as metrics spell it, ``run_podsandbox``.
        timeout: seconds; None for no deadline of its own.
    """

    name: str
    operation: str
    timeout: float | None = DEFAULT_TIMEOUT


VERSION: Final = Method("Version", "version")
STATUS: Final = Method("Status", "status")
RUN_POD_SANDBOX: Final = Method("RunPodSandbox", "run_podsandbox", SANDBOX_TIMEOUT)
STOP_POD_SANDBOX: Final = Method("StopPodSandbox", "stop_podsandbox")
REMOVE_POD_SANDBOX: Final = Method("RemovePodSandbox", "remove_podsandbox")
POD_SANDBOX_STATUS: Final = Method("PodSandboxStatus", "podsandbox_status")
LIST_POD_SANDBOX: Final = Method("ListPodSandbox", "list_podsandbox")
STREAM_POD_SANDBOXES: Final = Method("StreamPodSandboxes", "stream_podsandboxes")
CREATE_CONTAINER: Final = Method("CreateContainer", "create_container")
START_CONTAINER: Final = Method("StartContainer", "start_container")
STOP_CONTAINER: Final = Method("StopContainer", "stop_container")
REMOVE_CONTAINER: Final = Method("RemoveContainer", "remove_container")
LIST_CONTAINERS: Final = Method("ListContainers", "list_containers")
STREAM_CONTAINERS: Final = Method("StreamContainers", "stream_containers")
CONTAINER_STATUS: Final = Method("ContainerStatus", "container_status")
UPDATE_CONTAINER_RESOURCES: Final = Method("UpdateContainerResources", "update_container")
UPDATE_POD_SANDBOX_RESOURCES: Final = Method(
    "UpdatePodSandboxResources", "update_podsandbox_resources"
)
REOPEN_CONTAINER_LOG: Final = Method("ReopenContainerLog", "reopen_container_log")
EXEC_SYNC: Final = Method("ExecSync", "exec_sync")
EXEC: Final = Method("Exec", "exec")
ATTACH: Final = Method("Attach", "attach")
PORT_FORWARD: Final = Method("PortForward", "port_forward")
CONTAINER_STATS: Final = Method("ContainerStats", "container_stats")
LIST_CONTAINER_STATS: Final = Method("ListContainerStats", "list_container_stats")
STREAM_CONTAINER_STATS: Final = Method("StreamContainerStats", "stream_container_stats")
POD_SANDBOX_STATS: Final = Method("PodSandboxStats", "podsandbox_stats")
LIST_POD_SANDBOX_STATS: Final = Method("ListPodSandboxStats", "list_podsandbox_stats")
STREAM_POD_SANDBOX_STATS: Final = Method("StreamPodSandboxStats", "stream_podsandbox_stats")
LIST_METRIC_DESCRIPTORS: Final = Method("ListMetricDescriptors", "list_metric_descriptors")
LIST_POD_SANDBOX_METRICS: Final = Method("ListPodSandboxMetrics", "list_podsandbox_metrics")
STREAM_POD_SANDBOX_METRICS: Final = Method("StreamPodSandboxMetrics", "stream_podsandbox_metrics")
UPDATE_RUNTIME_CONFIG: Final = Method("UpdateRuntimeConfig", "update_runtime_config")
RUNTIME_CONFIG: Final = Method("RuntimeConfig", "runtime_config")
CHECKPOINT_CONTAINER: Final = Method("CheckpointContainer", "checkpoint_container")
GET_CONTAINER_EVENTS: Final = Method("GetContainerEvents", "get_container_events")

LIST_IMAGES: Final = Method("ListImages", "list_images")
STREAM_IMAGES: Final = Method("StreamImages", "stream_images")
IMAGE_STATUS: Final = Method("ImageStatus", "image_status")
PULL_IMAGE: Final = Method("PullImage", "pull_image", None)
REMOVE_IMAGE: Final = Method("RemoveImage", "remove_image")
IMAGE_FS_INFO: Final = Method("ImageFsInfo", "image_fs_info")

CONTAINERD_EVENTS: Final = Method("Subscribe", "containerd_events")
"""Of containerd's own event service, which is not part of CRI."""
