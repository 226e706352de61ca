"""Performing a pod's actions in order (docs/behaviour/runtime.md, "Order of execution")."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

import anyio
from anyio import to_thread

from nodeagent.api import Container, Pod
from nodeagent.duration import format_duration
from nodeagent.model import (
    ContainerError,
    ContainerRuntimeStatus,
    ContainerState,
    PodRuntimeStatus,
    PodUID,
    SyncError,
)
from nodeagent.model.actions import ContainerToReset, KillReason, PodActions, PodSyncResult
from nodeagent.model.restart import asks_for_restart_of_all, is_sidecar
from nodeagent.model.volumes import MountedVolume
from nodeagent.rpc import NotFound, RpcError, Unavailable
from nodeagent.runtime.backoff import CrashBackOff, CrashWait
from nodeagent.runtime.context import RuntimeContext
from nodeagent.runtime.devices import volume_groups
from nodeagent.runtime.errors import ContainerStartError, SyncReason, Waiting, describe
from nodeagent.runtime.images import EnsuredImage
from nodeagent.runtime.logs import container_log, remove_container_logs, unlink_log
from nodeagent.runtime.names import PodNames, find_container
from nodeagent.runtime.reasons import ReasonCache
from nodeagent.runtime.sandboxes import ReadySandbox, SandboxLookError, SandboxMaker
from nodeagent.runtime.start_request import StartRequest
from nodeagent.runtime.starting import ContainerStarter
from nodeagent.runtime.stopping import Stopper, Victim, hook_address


class PodExecutor:
    """One sync of one pod: performs what was decided, and collects what came of it.

    Args:
        context: what the runtime side shares.
        sandboxes: makes sandboxes.
        starter: starts containers.
        stopper: stops things.
        back_off: crash back-offs.
        reasons: why starts failed.
        pod: the desired pod.
        status: what the runtime reported.
        volumes: the pod's volumes by name.
    """

    def __init__(
        self,
        context: RuntimeContext,
        sandboxes: SandboxMaker,
        starter: ContainerStarter,
        stopper: Stopper,
        back_off: CrashBackOff,
        reasons: ReasonCache,
        *,
        pod: Pod,
        status: PodRuntimeStatus,
        volumes: Mapping[str, MountedVolume],
    ) -> None:
        self._context = context
        self._sandboxes = sandboxes
        self._starter = starter
        self._stopper = stopper
        self._back_off = back_off
        self._reasons = reasons
        self._pod = pod
        self._names = PodNames.of(pod)
        self._uid = PodUID(pod.metadata.uid)
        self._status = status
        self._volumes = volumes
        self._groups = volume_groups(volumes.values())
        self._errors: dict[str, ContainerError] = {}
        self._started: list[str] = []
        self._place = context.limiter.place()
        self._did_something = False
        self._reset = False
        self._cause: RpcError | None = None

    async def perform(self, actions: PodActions) -> PodSyncResult:
        """Perform the actions; faults of the runtime are in the result."""
        error: SyncError | None = None
        try:
            await self._perform(actions)
        except SyncError as failure:
            error = failure
            self._context.note("SyncFailed", self._uid, f"{failure.reason}: {failure}")
        return PodSyncResult(
            errors=self._errors,
            sandbox_error=error,
            did_something=self._did_something,
            started=tuple(self._started),
            reset=self._reset,
            cause=self._cause,
        )

    async def _perform(self, actions: PodActions) -> None:
        if actions.kill_pod:
            await self._kill_pod(actions)
            if not actions.create_sandbox:
                return
        else:
            await self._kill_containers(actions)
            await self._reset_containers(actions)
        await self._prune_init(everything=actions.create_sandbox)
        starts = (
            *actions.ephemeral_containers_to_start,
            *actions.init_containers_to_start,
            *actions.containers_to_start,
        )
        if not actions.create_sandbox and not starts:
            return
        sandbox = await self._sandbox(actions)
        if sandbox is not None:
            await self._start_containers(actions, sandbox)

    async def _kill_pod(self, actions: PodActions) -> None:
        if actions.create_sandbox and actions.sandbox_id:
            message = "Pod sandbox changed, it will be killed and re-created."
            self._context.say(self._pod, "Normal", "SandboxChanged", message)
        if self._status.sandboxes or self._status.running:
            self._did_something = True
        # What a call that was cut may have made is adopted when a sandbox is wanted.
        unseen = not actions.create_sandbox
        await self._stopper.kill_pod(self._pod, self._status, unseen=unseen)

    async def _kill_containers(self, actions: PodActions) -> None:
        for kill in actions.containers_to_kill:
            record = self._status.by_id(kill.id)
            annotations = record.annotations if record is not None else {}
            address = hook_address(self._status, self._context.settings)
            victim = Victim(kill.id, kill.name, annotations, kill.message, kill.reason, address)
            await self._stop(victim)

    async def _stop(self, victim: Victim, grace_override: int | None = None) -> None:
        self._did_something = True
        try:
            await self._stopper.stop_container(self._pod, self._uid, victim, grace_override)
        except RpcError as error:
            message = f"container {victim.name}: {describe(error)}"
            raise SyncError(message, reason=SyncReason.KILL_CONTAINER) from error

    async def _reset_containers(self, actions: PodActions) -> None:
        for reset in actions.containers_to_reset:
            if reset.kill:
                message = f"Container {reset.name} is restarted with all containers of its pod"
                reason = KillReason.RESTART_ALL_CONTAINERS
                victim = Victim(reset.id, reset.name, {}, message, reason)
                await self._stop(victim, grace_override=0)
            self._keep_exit(reset.name)
            await self._remove(reset.id, reset.name)
            self._forget_runs(reset)
            self._reset = True

    def _forget_runs(self, reset: ContainerToReset) -> None:
        """The container may run again, and goes on counting its runs."""
        records, record = self._context.records, self._status.by_id(reset.id)
        records.unmark_started(self._uid, reset.name)
        if record is not None:
            records.attempts_begin_at(self._uid, reset.name, record.restart_count + 1)

    def _keep_exit(self, name: str) -> None:
        """Whoever asks for a restart of all again and again waits longer and longer."""
        container = find_container(self._pod, name)
        latest = self._status.latest(name)
        if container is not None and asks_for_restart_of_all(self._pod, container, latest):
            self._back_off.keep_exit(self._names, name, self._status, anyio.current_time())

    async def _prune_init(self, *, everything: bool) -> None:
        """Keep the newest dead instance of each init container, or none of any for a new sandbox.

        What cannot be removed is in nobody's way: it goes the next time.
        """
        for container in self._pod.spec.init_containers:
            found = [
                record
                for record in self._status.containers
                if record.name == container.name and (everything or _is_dead(record))
            ]
            for record in found if everything else found[1:]:
                try:
                    await self._remove_with_log(record)
                except (SyncError, OSError) as error:
                    self._context.note(
                        "InitContainerNotRemoved", self._uid, str(error), container=record.name
                    )

    async def _remove_with_log(self, record: ContainerRuntimeStatus) -> None:
        settings, names = self._context.settings, self._names
        log = container_log(settings.pod_logs_dir, names, record.name, record.attempt)
        await to_thread.run_sync(remove_container_logs, log)
        await to_thread.run_sync(
            unlink_log, settings.container_logs_dir, names, record.name, record.id
        )
        await self._remove(record.id, record.name)

    async def _remove(self, container_id: str, name: str) -> None:
        self._did_something = True
        try:
            await self._context.runtime.remove_container(container_id)
        except NotFound:
            return
        except RpcError as error:
            message = f"container {name}: {describe(error)}"
            raise SyncError(message, reason=SyncReason.REMOVE_CONTAINER) from error
        self._context.note("ContainerRemoved", self._uid, "", None, container=name, id=container_id)
        self._context.acted(self._uid, "container removed")

    async def _sandbox(self, actions: PodActions) -> ReadySandbox | None:
        """The sandbox to start containers in; None when the pod is on its way out."""
        if not actions.create_sandbox:
            config = await self._sandboxes.config(self._pod, actions.attempt, self._groups)
            return ReadySandbox(actions.sandbox_id, config, self._status.ips)
        self._did_something = True
        try:
            sandbox = await self._sandboxes.create(
                self._pod, actions.attempt, self._place, self._groups
            )
        except SyncError as error:
            if self._pod.metadata.deletion_timestamp is not None:
                return None
            if not isinstance(error, SandboxLookError):
                self._context.metrics.started_pods_errors.inc()
                message = f"Failed to create pod sandbox: {error}"
                self._context.say(self._pod, "Warning", "FailedCreatePodSandBox", message)
            raise
        self._context.on_sandbox(self._uid, sandbox.seen(self._pod))
        return sandbox

    async def _start_containers(self, actions: PodActions, sandbox: ReadySandbox) -> None:
        for name in actions.ephemeral_containers_to_start:
            await self._start(name, "ephemeral_container", sandbox)
        for name in actions.init_containers_to_start:
            container = await self._start(name, "init_container", sandbox)
            if name in self._errors and container is not None and not is_sidecar(container):
                return
        for name in actions.containers_to_start:
            await self._start(name, "container", sandbox)

    async def _start(self, name: str, kind: str, sandbox: ReadySandbox) -> Container | None:
        container = find_container(self._pod, name)
        if container is None:
            return None
        metrics = self._context.metrics
        request = StartRequest(
            self._pod, container, self._status, sandbox, self._volumes, self._place
        )
        try:
            self._check_crash_back_off(container)
            self._did_something = True
            metrics.started_containers.labels(kind).inc()
            image = await self._starter.ensure_image(request)
            await self._start_counted(request, image)
        except ContainerStartError as error:
            if error.reason is not Waiting.CRASH_LOOP:
                metrics.started_containers_errors.labels(kind, error.reason.value).inc()
            self._failed(container, error)
        else:
            self._started.append(name)
            self._reasons.remove(self._uid, name)
        return container

    def _check_crash_back_off(self, container: Container) -> None:
        now = anyio.current_time()
        wait = self._back_off.check(self._names, container, self._status, now)
        if wait is None or self._goes_on(container):
            return
        message = f"Back-off restarting failed container {container.name} in pod {self._names}"
        self._context.say(self._pod, "Warning", "BackOff", message, container.name)
        raise ContainerStartError(
            Waiting.CRASH_LOOP, self._crash_message(container.name, wait, now), wait.until
        )

    async def _start_counted(self, request: StartRequest, image: EnsuredImage) -> None:
        """Start it, and make the next back-off longer.

        Only what has been made can crash: a missing image, a full disk or a runtime that makes
        no container are not held against it.
        """
        container = request.container
        if self._goes_on(container):
            await self._starter.start(request, image)
            return
        now = anyio.current_time()
        undo = self._back_off.advance(self._names, container, self._status, now)
        try:
            await self._starter.start(request, image)
        except ContainerStartError as error:
            if error.reason in (Waiting.CONFIG, Waiting.CREATE):
                undo()
            raise
        finally:
            self._context.changed()

    def _goes_on(self, container: Container) -> bool:
        """Whether this is the same start as before, which was cut after the creation."""
        latest = self._status.latest(container.name)
        return latest is not None and latest.state is ContainerState.CREATED

    def _crash_message(self, name: str, wait: CrashWait, now: float) -> str:
        before = self._reasons.get(self._uid, name)
        if before is not None and before.until == wait.until:
            return before.message  # the same wait reads the same, whatever the wall clock did
        moment = self._context.clock.now() + timedelta(seconds=wait.until - now)
        return (
            f"back-off {format_duration(round(wait.delay))} restarting failed container={name} "
            f"pod={self._names}, next try at {moment:%Y-%m-%dT%H:%M:%SZ}"
        )

    def _failed(self, container: Container, error: ContainerStartError) -> None:
        name = container.name
        cause = error.__cause__
        if isinstance(cause, RpcError) and not isinstance(self._cause, Unavailable):
            self._cause = cause
        shown = error.shown()
        self._errors[name] = shown
        self._reasons.set(self._uid, name, shown)
        if shown.until is None:
            self._context.note(
                "ContainerStartFailed",
                self._uid,
                f"{shown.reason}: {shown.message}",
                container=name,
            )
            if error.reason is not Waiting.POST_START:
                text = shown.reason if error.from_image else shown.message
                self._context.say(self._pod, "Warning", "Failed", f"Error: {text}", name)
            return
        self._context.note(
            "BackOff", self._uid, f"{shown.reason}: {shown.message}", None, container=name
        )
        if error.from_image:
            self._context.say(self._pod, "Warning", "Failed", f"Error: {shown.reason}", name)


def _is_dead(record: ContainerRuntimeStatus) -> bool:
    return record.state in (ContainerState.EXITED, ContainerState.UNKNOWN)
