"""The runtime side of a pod, as pod workers use it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import anyio
from anyio import TASK_STATUS_IGNORED
from anyio.abc import TaskStatus

from nodeagent.api import Pod
from nodeagent.clock import Clock, SystemClock
from nodeagent.journal import Journal
from nodeagent.limiter import AdaptiveLimiter
from nodeagent.model import ContainerState, PodRuntimeStatus, PodUID, SandboxRuntimeStatus
from nodeagent.model.actions import PodActions, PodSyncResult
from nodeagent.model.probes import NO_RESULTS, ProbeResults
from nodeagent.model.volumes import MountedVolume
from nodeagent.runtime.actions import compute_pod_actions
from nodeagent.runtime.backoff import CrashBackOff
from nodeagent.runtime.checkpointing import Checkpoints
from nodeagent.runtime.context import Persist, RuntimeContext, no_persist, nobody_cares
from nodeagent.runtime.errors import SyncReason
from nodeagent.runtime.events import AllEvents, NoEvents, OnAction, OnSandbox, no_action, no_sandbox
from nodeagent.runtime.executor import PodExecutor
from nodeagent.runtime.hooks import HookRunner
from nodeagent.runtime.image_pulls import OnNote, no_note
from nodeagent.runtime.images import ImageAccess, ImageManager
from nodeagent.runtime.lookups import Lookups
from nodeagent.runtime.metrics import RuntimeMetrics
from nodeagent.runtime.names import PodNames
from nodeagent.runtime.post_start import PostStarts
from nodeagent.runtime.pre_stop import PreStops
from nodeagent.runtime.reasons import ReasonCache
from nodeagent.runtime.restart import runs_once
from nodeagent.runtime.sandboxes import SandboxMaker
from nodeagent.runtime.services import ContainerRuntime, ImagePuller
from nodeagent.runtime.settings import HostFacts, RuntimeSettings
from nodeagent.runtime.starting import ContainerStarter
from nodeagent.runtime.stopping import Stopper
from nodeagent.runtime.strays import split_strays
from nodeagent.runtime.user_namespaces import UserNamespaces

_MOST_AT_ONCE: Final = 4
"""How many times the usual number is made side by side when that turns out to be faster."""


class RuntimeManager:
    """Brings pods in the runtime to their desired state, and stops them.

    One task at a time may work on one pod; different pods are independent.

    Args:
        runtime: sandboxes and containers.
        images: images.
        settings: how pods are made.
        host: facts about the host (:func:`nodeagent.runtime.settings.detect_host`).
        events: where events about pods go.
        journal: the flight recorder.
        metrics: counters.
        clock: wall time, for messages only.
        on_action: told after every change in the runtime, with the pod and what was done.
        persist: brings :meth:`snapshot` to disk; awaited before a container starts that may
            run only once.
        changed: told when :meth:`snapshot` has changed so that it should be on disk soon.
        on_note: told when :meth:`waiting_note` of a pod has changed.
        on_sandbox: told when a pod has a new sandbox, before anything starts in it.
        access: who may have which image, and what it is pulled with.
    """

    def __init__(
        self,
        runtime: ContainerRuntime,
        images: ImagePuller,
        settings: RuntimeSettings,
        host: HostFacts | None = None,
        *,
        events: AllEvents | None = None,
        journal: Journal | None = None,
        metrics: RuntimeMetrics | None = None,
        clock: Clock | None = None,
        on_action: OnAction = no_action,
        persist: Persist = no_persist,
        changed: Callable[[], None] = nobody_cares,
        on_note: OnNote = no_note,
        on_sandbox: OnSandbox = no_sandbox,
        lookups: Lookups | None = None,
        access: ImageAccess | None = None,
    ) -> None:
        self._on_sandbox = on_sandbox
        self._troubles: dict[PodUID, str] = {}
        self._context = context = RuntimeContext(
            runtime=runtime,
            settings=settings,
            host=host or HostFacts(),
            events=events or NoEvents(),
            journal=journal or Journal(),
            metrics=metrics or RuntimeMetrics(),
            clock=clock or SystemClock(),
            on_action=on_action,
            persist=persist,
            changed=changed,
            limiter=AdaptiveLimiter(
                settings.concurrency, _MOST_AT_ONCE * settings.concurrency, settings.patience
            ),
            userns=UserNamespaces(settings.root_dir / "pods", settings.max_pods),
            on_sandbox=self._sandbox_ready,
            lookups=lookups or Lookups(),
        )
        context.metrics.cgroup_version.set(2 if context.host.cgroup_v2 else 1)
        self.reasons = ReasonCache()
        self._back_off = CrashBackOff(settings.back_off_initial, settings.back_off_cap)
        self._images = ImageManager(
            images,
            settings.images,
            events=context.events,
            journal=context.journal,
            metrics=context.metrics,
            clock=context.clock,
            on_note=on_note,
            access=access,
        )
        hooks = HookRunner(context)
        self._pre_stops = PreStops(context, hooks)
        self._stopper = Stopper(context, self._pre_stops)
        self._post_starts = PostStarts(context, hooks, self._stopper, on_note)
        self._sandboxes = SandboxMaker(context)
        self._executor = functools.partial(
            PodExecutor,
            context,
            self._sandboxes,
            ContainerStarter(context, self._images, self._post_starts),
            self._stopper,
            self._back_off,
            self.reasons,
        )

    async def run(self, *, task_status: TaskStatus[None] = TASK_STATUS_IGNORED) -> None:
        """Be home to hooks that outlive the call that began them, until cancelled."""
        await self._sandboxes.check_resolver()
        await self._pre_stops.run(task_status=task_status)

    def reconfigure(self, settings: RuntimeSettings) -> None:
        """Make pods and pull images by other settings from now on; never blocks.

        Directories and the bounds on what is made side by side stay as they were.
        """
        self._context.settings = settings
        self._context.userns.resize(settings.max_pods)
        self._back_off.reconfigure(settings.back_off_initial, settings.back_off_cap)
        self._images.pulls.reconfigure(settings.images)

    @property
    def settings(self) -> RuntimeSettings:
        """How pods are made now."""
        return self._context.settings

    async def sync_pod(
        self,
        pod: Pod,
        status: PodRuntimeStatus,
        volumes: Mapping[str, MountedVolume],
        *,
        probes: ProbeResults = NO_RESULTS,
        restart_all: bool = False,
    ) -> PodSyncResult:
        """Decide what the pod needs and do it.

        Args:
            pod: the desired pod.
            status: what the runtime reported, after our own last action on the pod.
            volumes: the pod's volumes by name, mounted.
            probes: results of its probes.
            restart_all: its condition ``AllContainersRestarting`` is True.

        Returns:
            What came of it. Faults of the runtime are in there, they are not raised.
        """
        uid = PodUID(pod.metadata.uid)
        self.observe_exits(status)
        status, strays = split_strays(status)
        if strays:
            await self._stopper.clear_strays(uid, strays)
        self._learn_what_ran(pod, status)
        actions = compute_pod_actions(
            pod,
            status,
            probes=probes,
            restart_all=restart_all,
            ran_before=self._context.records.started(uid),
        )
        if actions.nothing_to_do:
            self._context.records.seen(uid)
            return PodSyncResult(did_something=bool(strays))
        began = anyio.current_time()
        executor = self._executor(pod=pod, status=status, volumes=volumes)
        result = await executor.perform(actions)
        self._context.records.seen(uid)
        self._note_trouble(uid, result)
        took = anyio.current_time() - began
        self._context.note("PodSynced", uid, describe_actions(actions), took)
        return result

    async def kill_pod(
        self, pod: Pod | None, status: PodRuntimeStatus, grace_override: int | None = None
    ) -> None:
        """Stop all containers of a pod side by side, then its sandboxes.

        Args:
            pod: its spec; None when it is gone, then what its containers carry is used.
            status: what the runtime reported.
            grace_override: seconds that each container may take, whatever the spec says.

        Raises:
            SyncError: something could not be stopped; try again.
        """
        began = anyio.current_time()
        await self._stopper.kill_pod(pod, status, grace_override)
        took = anyio.current_time() - began
        self._context.note("PodKilled", status.uid, "", took, grace=grace_override)

    async def checkpoint_container(self, pod: Pod, container: str, timeout: int = 0) -> Path:
        """Write a checkpoint of a running container; returns the file.

        Raises:
            NoSuchContainerError: it does not run.
            RpcError: the runtime failed, or cannot do it (Unimplemented).
            OSError: the directory cannot be made.
        """
        context = self._context
        directory = context.settings.root_dir / "checkpoints"
        checkpoints = Checkpoints(context.runtime, directory, context.clock, context.journal)
        return await checkpoints.write(PodNames.of(pod), container, timeout)

    def observe_exits(self, status: PodRuntimeStatus) -> None:
        """Note when containers were first seen exited; crash back-offs count from then."""
        if self._back_off.observe(status, anyio.current_time()):
            self._context.changed()

    def ran_once(self, uid: PodUID) -> Mapping[str, str]:
        """Ids of the pod's containers that were started and may not run again, by name."""
        return self._context.records.started(uid)

    def images_being_used(self) -> frozenset[str]:
        """Ids of images of which containers are being made right now."""
        return self._images.recent()

    def waiting_note(self, uid: PodUID, container: str) -> str:
        """What a container that is being started waits for; "" when it does not wait long."""
        return (
            self._images.pulls.note(uid, container)
            or self._post_starts.note(uid, container)
            or self._troubles.get(uid, "")
        )

    def pull_span(self, uid: PodUID) -> tuple[datetime, datetime] | None:
        """When a pod asked for its first pull, and when its last one ended; None without any."""
        return self._images.pulls.span(uid)

    def _sandbox_ready(self, uid: PodUID, sandbox: SandboxRuntimeStatus) -> None:
        self._troubles.pop(uid, None)
        self._on_sandbox(uid, sandbox)

    def _note_trouble(self, uid: PodUID, result: PodSyncResult) -> None:
        """Remember why a pod has no sandbox: all of its containers wait for it."""
        error = result.sandbox_error
        if error is not None and error.reason == SyncReason.CREATE_SANDBOX:
            self._troubles[uid] = f"failed to create pod sandbox: {error}"
        else:
            self._troubles.pop(uid, None)

    def forget_pod(self, uid: PodUID) -> None:
        """Drop all that is remembered of a pod that is gone for good."""
        self.reasons.forget_pod(uid)
        self._back_off.forget_pod(uid)
        self._images.forget_pod(uid)
        self._context.records.forget_pod(uid)
        self._context.userns.forget_pod(uid)
        self._pre_stops.forget_pod(uid)
        self._troubles.pop(uid, None)

    def forgive_exits(self, uid: PodUID) -> None:
        """The agent stopped this pod for reasons of its own: none of its containers crashed."""
        self._back_off.forget_pod(uid)

    def remembered(self) -> set[PodUID]:
        """The pods of which something is remembered, also from an earlier agent."""
        back_off = {PodUID(uid) for uid in self._back_off.remembered()}
        return back_off | self._context.records.remembered()

    def _learn_what_ran(self, pod: Pod, status: PodRuntimeStatus) -> None:
        """Note containers that have run and may run only once, should our own note be lost."""
        uid, records = status.uid, self._context.records
        noted = records.started(uid)
        for container in pod.spec.containers:
            latest = status.latest(container.name)
            if latest is None or container.name in noted or not runs_once(pod, container):
                continue
            if latest.state in (ContainerState.RUNNING, ContainerState.EXITED):
                records.mark_started(uid, container.name, latest.id)
                self._context.changed()

    def snapshot(self) -> dict[str, Any]:
        """What should survive a restart of the agent, JSON-able."""
        return {
            "crash": self._back_off.snapshot(anyio.current_time()),
            "started": self._context.records.snapshot(),
        }

    def restore(self, saved: Mapping[str, Any], shift: float = 0.0) -> None:
        """Take over what :meth:`snapshot` gave; ``shift`` turns its times into today's."""
        self._back_off.restore(saved.get("crash", {}), shift)
        self._context.records.restore(saved.get("started", {}))


def describe_actions(actions: PodActions) -> str:
    """The actions in a few words, for the journal."""
    parts: list[str] = []
    if actions.kill_pod:
        parts.append("kill pod" + (f" ({actions.sandbox_why})" if actions.sandbox_why else ""))
    if actions.create_sandbox:
        parts.append(f"create sandbox {actions.attempt}")
    for verb, names in (
        ("kill", [k.name for k in actions.containers_to_kill]),
        ("reset", [r.name for r in actions.containers_to_reset]),
        ("start ephemeral", actions.ephemeral_containers_to_start),
        ("start init", actions.init_containers_to_start),
        ("start", actions.containers_to_start),
    ):
        if names:
            parts.append(f"{verb} {', '.join(names)}")
    return "; ".join(parts)
