"""The CRI calls that bring pods to life, and nothing else: ``python -m nodeagent.bench.bare``.

What an agent is compared with. It knows nothing of the agent's code: grpclib, its generated
stubs, and one task per pod behind a semaphore. For each pod it makes the calls that an agent
cannot do without (RunPodSandbox, PodSandboxStatus, ImageStatus, CreateContainer,
StartContainer), with the settings that the agent would send. It decides nothing, writes no
state, watches nothing, and does not look whether what it started lives.

Its one argument is JSON: ``socket``, ``image``, ``pods``, ``concurrency``, ``directory``. It
writes one line of JSON: ``began_ns`` (wall time of the first call), ``took_s``, and ``pod_ms``,
for each pod the time from its turn until it was started.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
import uuid
from pathlib import Path
from typing import Any, Final

from grpclib.client import Channel

from nodeagent.proto.runtime import v1

_NAMESPACE: Final = "bench"
_COMMAND: Final = ["sh", "-c", "trap 'exit 0' TERM; sleep 1000000 & wait"]
_MASKED: Final = [
    "/proc/asound",
    "/proc/acpi",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/sys/firmware",
    "/sys/devices/virtual/powercap",
]
_READ_ONLY: Final = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"]


class Starter:
    """Starts pods over one connection."""

    def __init__(self, channel: Channel, image: str, directory: Path, concurrency: int) -> None:
        self._runtime = v1.RuntimeServiceStub(channel)
        self._images = v1.ImageServiceStub(channel)
        self._image = image
        self._directory = directory
        self._turns = asyncio.Semaphore(concurrency)
        self.pod_ms: list[float] = []

    async def start(self, number: int) -> None:
        """Start one pod."""
        async with self._turns:
            began = time.perf_counter()
            name, uid = f"bare-{number:04d}-node1", str(uuid.uuid4())
            sandbox_config = self._sandbox(name, uid)
            made = await self._runtime.run_pod_sandbox(
                v1.RunPodSandboxRequest(config=sandbox_config)
            )
            sandbox = made.pod_sandbox_id
            await self._runtime.pod_sandbox_status(
                v1.PodSandboxStatusRequest(pod_sandbox_id=sandbox)
            )
            await self._images.image_status(
                v1.ImageStatusRequest(image=v1.ImageSpec(image=self._image))
            )
            created = await self._runtime.create_container(
                v1.CreateContainerRequest(
                    pod_sandbox_id=sandbox,
                    config=self._container(name, uid),
                    sandbox_config=sandbox_config,
                )
            )
            await self._runtime.start_container(
                v1.StartContainerRequest(container_id=created.container_id)
            )
            self.pod_ms.append((time.perf_counter() - began) * 1000)

    def _sandbox(self, name: str, uid: str) -> v1.PodSandboxConfig:
        logs = self._directory / f"{_NAMESPACE}_{name}_{uid}"
        (logs / "container-0").mkdir(parents=True)
        return v1.PodSandboxConfig(
            metadata=v1.PodSandboxMetadata(name=name, uid=uid, namespace=_NAMESPACE),
            hostname=name,
            log_directory=str(logs),
            dns_config=v1.DnsConfig(servers=["127.0.0.1"]),
            labels={"app": "bench", "tier": "front", **_labels(name, uid)},
            annotations={"bench/version": "0", "kubernetes.io/config.source": "file"},
            linux=v1.LinuxPodSandboxConfig(
                security_context=v1.LinuxSandboxSecurityContext(
                    namespace_options=_namespaces(),
                    seccomp=v1.SecurityProfile(
                        profile_type=v1.SecurityProfileProfileType.RuntimeDefault
                    ),
                ),
                resources=v1.LinuxContainerResources(cpu_shares=10, cpu_period=100_000),
            ),
        )

    def _container(self, name: str, uid: str) -> v1.ContainerConfig:
        hosts, termination = (self._directory / f"{uid}-{what}" for what in ("hosts", "message"))
        hosts.write_text("127.0.0.1\tlocalhost\n")
        termination.touch()
        return v1.ContainerConfig(
            metadata=v1.ContainerMetadata(name="container-0"),
            image=v1.ImageSpec(image=self._image),
            command=_COMMAND,
            mounts=[
                v1.Mount(container_path="/etc/hosts", host_path=str(hosts)),
                v1.Mount(container_path="/dev/termination-log", host_path=str(termination)),
            ],
            labels={"io.kubernetes.container.name": "container-0", **_labels(name, uid)},
            annotations={
                "io.kubernetes.container.hash": "5d41402a",
                "io.kubernetes.container.restartCount": "0",
                "io.kubernetes.container.terminationMessagePath": "/dev/termination-log",
                "io.kubernetes.container.terminationMessagePolicy": "File",
                "io.kubernetes.pod.terminationGracePeriod": "1",
            },
            log_path="container-0/0.log",
            linux=v1.LinuxContainerConfig(
                resources=v1.LinuxContainerResources(
                    cpu_shares=10, cpu_period=100_000, oom_score_adj=999
                ),
                security_context=v1.LinuxContainerSecurityContext(
                    namespace_options=_namespaces(),
                    run_as_user=v1.Int64Value(value=0),
                    masked_paths=_MASKED,
                    readonly_paths=_READ_ONLY,
                    seccomp=v1.SecurityProfile(
                        profile_type=v1.SecurityProfileProfileType.Unconfined
                    ),
                ),
            ),
        )


def _labels(name: str, uid: str) -> dict[str, str]:
    return {
        "io.kubernetes.pod.name": name,
        "io.kubernetes.pod.namespace": _NAMESPACE,
        "io.kubernetes.pod.uid": uid,
    }


def _namespaces() -> v1.NamespaceOption:
    return v1.NamespaceOption(
        network=v1.NamespaceMode.POD, pid=v1.NamespaceMode.CONTAINER, ipc=v1.NamespaceMode.POD
    )


async def run(settings: dict[str, Any]) -> dict[str, Any]:
    """Start all pods and say how long that took."""
    async with Channel(path=settings["socket"]) as channel:
        # grpc-go refuses the percent-encoded socket path that would be the default authority.
        channel._authority = "localhost"
        await v1.RuntimeServiceStub(channel).version(v1.VersionRequest(version="v1"))
        directory = Path(settings["directory"])
        starter = Starter(channel, settings["image"], directory, settings["concurrency"])
        began_ns, began = time.time_ns(), time.perf_counter()
        async with asyncio.TaskGroup() as tasks:
            for number in range(settings["pods"]):
                tasks.create_task(starter.start(number))
        took = time.perf_counter() - began
    return {"began_ns": began_ns, "took_s": took, "pod_ms": starter.pod_ms}


def main() -> None:
    """Run with the settings of the command line."""
    import uvloop

    figures = uvloop.run(run(json.loads(sys.argv[1])))
    sys.stdout.write(json.dumps(figures) + "\n")


if __name__ == "__main__":
    main()
