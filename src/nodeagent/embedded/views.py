"""Records as the messages of the CRI. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nodeagent.embedded.records import ContainerRecord, RunState, SandboxRecord
from nodeagent.embedded.state import HOST_IP
from nodeagent.proto.runtime import v1

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nodeagent.embedded.backend import DiskUsage, Usage


def list_sandbox(sandbox: SandboxRecord) -> v1.PodSandbox:
    """The item of a list; the same object until the sandbox changes."""
    if sandbox.listed is None:
        sandbox.listed = v1.PodSandbox(
            id=sandbox.id,
            metadata=sandbox.config.metadata,
            state=sandbox_state(sandbox),
            created_at=sandbox.created_at,
            labels=sandbox.config.labels,
            annotations=sandbox.config.annotations,
            runtime_handler=sandbox.runtime_handler,
        )
    return sandbox.listed


def list_container(container: ContainerRecord) -> v1.Container:
    """The item of a list; the same object until the container changes."""
    if container.listed is None:
        container.listed = v1.Container(
            id=container.id,
            pod_sandbox_id=container.sandbox_id,
            metadata=container.config.metadata,
            image=container.config.image,
            image_ref=container.image_id,
            state=container.state.value,
            created_at=container.created_at,
            labels=container.config.labels,
            annotations=container.config.annotations,
            image_id=container.image_id,
        )
    return container.listed


def sandbox_state(sandbox: SandboxRecord) -> v1.PodSandboxState:
    """Ready or not."""
    states = v1.PodSandboxState
    return states.SANDBOX_READY if sandbox.ready else states.SANDBOX_NOTREADY


def sandbox_ip(sandbox: SandboxRecord) -> str:
    """Its address while it is ready; that of the host when it has the host's network."""
    if not sandbox.ready:
        return ""
    return HOST_IP if sandbox.host_network else sandbox.ip


def sandbox_status(sandbox: SandboxRecord) -> v1.PodSandboxStatus:
    """Everything known of a sandbox."""
    options = sandbox.namespaces
    return v1.PodSandboxStatus(
        id=sandbox.id,
        metadata=sandbox.config.metadata,
        state=sandbox_state(sandbox),
        created_at=sandbox.created_at,
        network=v1.PodSandboxNetworkStatus(ip=sandbox_ip(sandbox)),
        linux=v1.LinuxPodSandboxStatus(namespaces=v1.Namespace(options=options)),
        labels=sandbox.config.labels,
        annotations=sandbox.config.annotations,
        runtime_handler=sandbox.runtime_handler,
    )


def container_status(container: ContainerRecord, image: v1.Image | None) -> v1.ContainerStatus:
    """Everything known of a container; ``image`` while it is present."""
    config, end = container.config, container.exit
    # Messages are compared with None: whether one is empty takes far longer to find out.
    asked = config.image if config.image is not None else v1.ImageSpec()
    names = [*image.repo_tags, *image.repo_digests] if image is not None else []
    digests = image.repo_digests if image is not None else []
    resources = container.resources
    return v1.ContainerStatus(
        id=container.id,
        metadata=config.metadata,
        state=container.state.value,
        created_at=container.created_at,
        started_at=container.started_at,
        finished_at=end.finished_at if end else 0,
        exit_code=end.code if end else 0,
        image=v1.ImageSpec(
            image=names[0] if names else asked.image,
            annotations=asked.annotations,
            user_specified_image=asked.user_specified_image,
        ),
        image_ref=digests[0] if digests else container.image_id,
        reason=end.reason if end else "",
        message=end.message if end else "",
        labels=config.labels,
        annotations=config.annotations,
        mounts=config.mounts,
        log_path=container.log_path,
        resources=v1.ContainerResources(linux=resources) if resources is not None else None,
        image_id=container.image_id,
        stop_signal=config.stop_signal,
    )


def container_stats(container: ContainerRecord, usage: Usage, now: int) -> v1.ContainerStats:
    """What a container uses at the wall time ``now`` in nanoseconds."""
    return v1.ContainerStats(
        attributes=v1.ContainerAttributes(
            id=container.id,
            metadata=container.config.metadata,
            labels=container.config.labels,
            annotations=container.config.annotations,
        ),
        cpu=_cpu(usage.cpu_ns, now),
        memory=_memory(usage.memory_bytes, now),
        writable_layer=v1.FilesystemUsage(
            timestamp=now,
            used_bytes=_amount(usage.layer_bytes),
            inodes_used=_amount(usage.layer_inodes),
        ),
    )


def sandbox_stats(
    sandbox: SandboxRecord, containers: Sequence[tuple[ContainerRecord, Usage]], now: int
) -> v1.PodSandboxStats:
    """What the running containers of a sandbox use together, and each of them."""
    usages = [usage for _, usage in containers]
    return v1.PodSandboxStats(
        attributes=v1.PodSandboxAttributes(
            id=sandbox.id,
            metadata=sandbox.config.metadata,
            labels=sandbox.config.labels,
            annotations=sandbox.config.annotations,
        ),
        linux=v1.LinuxPodSandboxStats(
            cpu=_cpu(sum(usage.cpu_ns for usage in usages), now),
            memory=_memory(sum(usage.memory_bytes for usage in usages), now),
            process=v1.ProcessUsage(
                timestamp=now, process_count=_amount(sum(usage.processes for usage in usages))
            ),
            containers=[container_stats(one, usage, now) for one, usage in containers],
        ),
    )


def filesystem_usage(usage: DiskUsage, more_bytes: int, now: int) -> v1.FilesystemUsage:
    """Space taken on the file system that holds the state."""
    return v1.FilesystemUsage(
        timestamp=now,
        fs_id=v1.FilesystemIdentifier(mountpoint=usage.mountpoint),
        used_bytes=_amount(usage.used_bytes + more_bytes),
        inodes_used=_amount(usage.inodes_used),
    )


def is_running(container: ContainerRecord) -> bool:
    """Whether it runs."""
    return container.state is RunState.RUNNING


def _amount(value: int) -> v1.UInt64Value:
    return v1.UInt64Value(value=value)


def _cpu(nanoseconds: int, now: int) -> v1.CpuUsage:
    return v1.CpuUsage(timestamp=now, usage_core_nano_seconds=_amount(nanoseconds))


def _memory(size: int, now: int) -> v1.MemoryUsage:
    return v1.MemoryUsage(
        timestamp=now,
        working_set_bytes=_amount(size),
        usage_bytes=_amount(size),
        rss_bytes=_amount(size),
    )
