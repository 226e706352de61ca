"""Builders for what the runtime shows, and a lister that does what the test says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

import anyio

from nodeagent.cri.inspection import CallWatch, EndSeen, unwatched
from nodeagent.model import (
    ContainerID,
    ContainerRuntimeStatus,
    ContainerState,
    PodRuntimeStatus,
    PodUID,
    RuntimeContainer,
    RuntimePod,
    RuntimeSandbox,
    SandboxID,
    SandboxRuntimeStatus,
    SandboxState,
)
from nodeagent.pleg.tracked import living_ids

CREATED, RUNNING, EXITED, UNKNOWN = (
    ContainerState.CREATED,
    ContainerState.RUNNING,
    ContainerState.EXITED,
    ContainerState.UNKNOWN,
)
READY, NOT_READY = SandboxState.READY, SandboxState.NOT_READY


def container(id_: str, state: ContainerState, *, attempt: int = 0) -> RuntimeContainer:
    return RuntimeContainer(ContainerID(id_), f"name-{id_}", attempt, state, SandboxID("s"))


def sandbox(id_: str, state: SandboxState = READY, *, attempt: int = 0) -> RuntimeSandbox:
    return RuntimeSandbox(SandboxID(id_), attempt, state)


def make_pod(uid: str, *parts: RuntimeContainer | RuntimeSandbox) -> RuntimePod:
    return RuntimePod(
        PodUID(uid),
        f"pod-{uid}",
        "default",
        tuple(part for part in parts if isinstance(part, RuntimeSandbox)),
        tuple(part for part in parts if isinstance(part, RuntimeContainer)),
    )


def status_of(pod: RuntimePod, ip: str = "10.0.0.1") -> PodRuntimeStatus:
    """What an inspection finds: the same as the list, with an address if a sandbox is ready."""
    ready = any(s.state is READY for s in pod.sandboxes)
    return PodRuntimeStatus(
        pod.uid,
        pod.name,
        pod.namespace,
        (ip,) if ready and ip else (),
        tuple(SandboxRuntimeStatus(s.id, s.attempt, s.state) for s in pod.sandboxes),
        tuple(
            ContainerRuntimeStatus(c.id, c.name, c.state, c.sandbox_id, c.attempt)
            for c in pod.containers
        ),
    )


class ScriptedLister:
    """A runtime in a dictionary. Looks take ``latency`` seconds; calls are counted.

    An inspection makes ``rounds`` calls.

    ``failing`` maps a call to what it raises; ``hanging`` maps a pod to an event that its
    inspection waits for, and ``held_lists`` does the same for list calls. ``odd`` maps a pod to
    what its next inspection finds, once. ``tells_details``: whether who asks for the end of a
    container is told how it ended.
    """

    def __init__(self) -> None:
        self.pods: Mapping[PodUID, RuntimePod] = {}
        self.latency = 0.001
        self.address = "10.0.0.1"
        self.calls: Counter[str] = Counter()
        self.rounds = 1
        self.inspected: list[str] = []
        self.inspecting: Counter[str] = Counter()
        self.most_at_once = 0
        self.most_per_pod = 0
        self.failing: dict[str, Exception] = {}
        self.failing_pods: dict[str, Exception] = {}
        self.hanging: dict[str, anyio.Event] = {}
        self.odd: dict[str, PodRuntimeStatus] = {}
        self.held_lists: anyio.Event | None = None
        self.tells_details = False

    def put(self, *pods: RuntimePod) -> None:
        self.pods = {**self.pods, **{pod.uid: pod for pod in pods}}

    def remove(self, uid: str) -> None:
        self.pods = {key: pod for key, pod in self.pods.items() if key != uid}

    def set_state(self, uid: str, id_: str, state: ContainerState) -> None:
        pod = self.pods[PodUID(uid)]
        changed = tuple(replace(c, state=state) if c.id == id_ else c for c in pod.containers)
        self.put(replace(pod, containers=changed))

    def hang(self, uid: str) -> anyio.Event:
        """Hold the pod's inspections until the returned event is set."""
        self.hanging[uid] = anyio.Event()
        return self.hanging[uid]

    async def list_pods(self, watch: CallWatch = unwatched) -> Mapping[PodUID, RuntimePod]:
        self.calls["list_pods"] += 1
        with watch("ListPodSandbox"):
            if error := self.failing.get("list_pods"):
                raise error
            pods = self.pods
            if self.held_lists is not None:
                await self.held_lists.wait()
            await anyio.sleep(self.latency)
            return pods

    async def get_pod(self, uid: PodUID, watch: CallWatch = unwatched) -> RuntimePod | None:
        self.calls["get_pod"] += 1
        with watch("ListPodSandbox"):
            if error := self.failing.get("get_pod"):
                raise error
            pod = self.pods.get(uid)
            await anyio.sleep(self.latency)
            return pod

    async def end_of(
        self, pod: RuntimePod, id_: str, watch: CallWatch = unwatched
    ) -> EndSeen | None:
        self.calls["end_of"] += 1
        await anyio.sleep(self.latency)
        if error := self.failing.get("end_of"):
            raise error
        now = self.pods.get(pod.uid)
        if id_ in living_ids(now):
            return None
        details = () if now is None or not self.tells_details else status_of(now).containers
        return EndSeen(next((c for c in details if c.id == id_), None))

    async def inspect(
        self,
        pod: RuntimePod,
        watch: CallWatch = unwatched,
        known: PodRuntimeStatus | None = None,
        at_once: int = 1,
    ) -> PodRuntimeStatus:
        self.calls["inspect"] += 1
        self.inspected.append(pod.uid)
        self.inspecting[pod.uid] += 1
        self.most_at_once = max(self.most_at_once, self.inspecting.total())
        self.most_per_pod = max(self.most_per_pod, *self.inspecting.values())
        try:
            with watch("ContainerStatus"):
                if error := self.failing_pods.get(pod.uid):
                    raise error
                if gate := self.hanging.get(pod.uid):
                    await gate.wait()
            for _ in range(self.rounds):
                with watch("ContainerStatus"):
                    await anyio.sleep(self.latency)
            return self.odd.pop(pod.uid, None) or status_of(pod, self.address)
        finally:
            self.inspecting[pod.uid] -= 1
