"""The runtime as the bench sees it through CRI, past the agent."""

from __future__ import annotations

from typing import Final

import anyio

from nodeagent.bench.figures import BenchError
from nodeagent.bench.manifests import NAMESPACE
from nodeagent.bench.waiting import until
from nodeagent.cri import RuntimeService
from nodeagent.proto.runtime import v1

_NAMESPACE: Final = {"io.kubernetes.pod.namespace": NAMESPACE}
_RUNNING: Final = v1.ContainerStateValue(state=v1.ContainerState.CONTAINER_RUNNING)


async def running(runtime: RuntimeService) -> list[v1.Container]:
    """The running containers of pods of the bench."""
    where = v1.ContainerFilter(state=_RUNNING, label_selector=_NAMESPACE)
    return list(await runtime.list_containers(where))


async def until_running(
    runtime: RuntimeService, count: int, *, timeout: float, pause: float = 0.1
) -> list[v1.Container]:
    """Wait until exactly this many containers of the bench run.

    Raises:
        BenchError: they do not within ``timeout`` seconds.
    """
    found: list[v1.Container] = []

    async def look() -> bool:
        nonlocal found
        found = await running(runtime)
        return len(found) == count

    await until(
        f"{count} running containers",
        look,
        timeout=timeout,
        pause=pause,
        explain=lambda: f"({len(found)} run)",
    )
    return found


async def refuse_foreign_pods(runtime: RuntimeService) -> None:
    """Make sure that no agent of ours can stop pods of somebody else.

    Raises:
        BenchError: the runtime holds pods that are not the bench's.
    """
    for sandbox in await runtime.list_pod_sandbox():
        namespace = sandbox.labels.get("io.kubernetes.pod.namespace", "")
        if namespace != NAMESPACE:
            name = sandbox.labels.get("io.kubernetes.pod.name", sandbox.id)
            msg = (
                f"the runtime has the pod {namespace}/{name}, which the bench would stop; "
                "give it a runtime of its own"
            )
            raise BenchError(msg)


async def remove_pods(runtime: RuntimeService, *, timeout: float = 120.0) -> None:
    """Stop and remove all pods of the bench, four at a time.

    Raises:
        BenchError: some are left after ``timeout`` seconds.
    """
    where = v1.PodSandboxFilter(label_selector=_NAMESPACE)
    limiter = anyio.CapacityLimiter(4)

    async def remove(sandbox: str) -> None:
        async with limiter:
            await runtime.stop_pod_sandbox(sandbox)
            await runtime.remove_pod_sandbox(sandbox)

    with anyio.move_on_after(timeout):
        while sandboxes := await runtime.list_pod_sandbox(where):
            async with anyio.create_task_group() as tasks:
                for sandbox in sandboxes:
                    tasks.start_soon(remove, sandbox.id)
        return
    msg = f"pods of the bench are left in the runtime after {timeout:g} s"
    raise BenchError(msg)
