"""What a change of manifests would do to pods and their containers. Pure."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from nodeagent.api import Pod
from nodeagent.api.documents import Identity
from nodeagent.model import (
    FILE_SOURCE,
    FullName,
    PodOp,
    PodRuntimeStatus,
    PodUID,
    full_name,
)
from nodeagent.model.actions import PodActions
from nodeagent.planning.differences import Change, pod_changes
from nodeagent.runtime.actions import compute_pod_actions
from nodeagent.runtime.hash import container_hash
from nodeagent.runtime.strays import split_strays
from nodeagent.sources.merge import merge_snapshot
from nodeagent.sources.origin import origin_name
from nodeagent.sources.selection import InForce, Selection, Unsupported


class Outcome(enum.Enum):
    """What becomes of a pod."""

    CREATE = "create"
    UPDATE = "update in place"
    RESTART = "restart containers"
    REPLACE = "replace"
    REMOVE = "remove"
    KEEP = "keep"
    NOTHING = "unchanged"


class Step(enum.Enum):
    """What becomes of a container."""

    START = "start"
    RESTART = "restart"
    STOP = "stop"
    RUN_ON = "run on"
    NOTHING = "not started"


@dataclass(frozen=True, slots=True)
class ContainerStep:
    """What becomes of one container, and why."""

    name: str
    step: Step
    why: str = ""


@dataclass(frozen=True, slots=True)
class PodPlan:
    """What becomes of one pod.

    Attributes:
        outcome: in one word.
        namespace: of the pod.
        name: with the node's behind it.
        uid: the pod's UID afterwards; of one that goes, its UID now.
        origin: the file that gives it, or gave it.
        why: the cause, in words.
        changes: the fields that differ.
        containers: what becomes of its containers.
        waits: fields that this version cannot honour: the pod would stay Pending.
        pod: as it would be; None for one that goes.
    """

    outcome: Outcome
    namespace: str
    name: str
    uid: str
    origin: str
    why: str = ""
    changes: tuple[Change, ...] = ()
    containers: tuple[ContainerStep, ...] = ()
    waits: tuple[str, ...] = ()
    pod: Pod | None = field(default=None, repr=False)


def plan_pods(
    before: Mapping[Identity, InForce],
    after: Selection,
    statuses: Mapping[PodUID, PodRuntimeStatus],
    ran_before: Mapping[str, Mapping[str, str]],
    unsupported: Unsupported,
) -> tuple[PodPlan, ...]:
    """Say what becomes of every pod of the files.

    Args:
        before: the documents in force.
        after: what would be in force.
        statuses: what the runtime has of each pod.
        ran_before: ids of containers that may run once and were started, by pod and name.
        unsupported: fields of a pod that this version cannot honour.
    """
    held = [document.pod for document in before.values()]
    known = merge_snapshot(FILE_SOURCE, {}, held, first=True, seen_at="").pods
    wanted = [document.pod for document in after.pods.values()]
    result = merge_snapshot(FILE_SOURCE, known, wanted, first=False, seen_at="")
    ops = {
        (update.op, PodUID(pod.metadata.uid)): pod
        for update in result.updates
        for pod in update.pods
    }
    gone = {
        full_name(pod.metadata.name, pod.metadata.namespace): pod
        for (op, _), pod in ops.items()
        if op is PodOp.REMOVE
    }
    look = _Look(known, ops, gone, statuses, ran_before)
    plans = [
        _with_waits(look.wanted(document, identity in after.kept), document.pod, unsupported)
        for identity, document in after.pods.items()
    ]
    origins = {PodUID(document.uid): origin_name(document.origin) for document in before.values()}
    plans += [look.removed(pod, origins) for pod in look.gone.values()]
    return tuple(plans)


def _with_waits(plan: PodPlan, pod: Pod, unsupported: Unsupported) -> PodPlan:
    waits = tuple(unsupported(pod))
    if not waits or plan.outcome in (Outcome.KEEP, Outcome.NOTHING):
        return plan
    steps = tuple(
        ContainerStep(step.name, Step.NOTHING, "the pod would stay Pending")
        if step.step is Step.START
        else step
        for step in plan.containers
    )
    return replace(plan, waits=waits, containers=steps)


class _Look:
    """The state from which plans are made."""

    def __init__(
        self,
        known: Mapping[PodUID, Pod],
        ops: Mapping[tuple[PodOp, PodUID], Pod],
        gone: dict[FullName, Pod],
        statuses: Mapping[PodUID, PodRuntimeStatus],
        ran_before: Mapping[str, Mapping[str, str]],
    ) -> None:
        self.gone = gone
        self._known = known
        self._ops = ops
        self._statuses = statuses
        self._ran_before = ran_before

    def wanted(self, document: InForce, kept: bool) -> PodPlan:
        """A pod that would be in force."""
        uid, origin = PodUID(document.uid), origin_name(document.origin)
        meta = document.pod.metadata
        if (pod := self._ops.get((PodOp.ADD, uid))) is not None:
            old = self.gone.pop(full_name(meta.name, meta.namespace), None)
            return self._added(pod, old, origin)
        if (pod := self._ops.get((PodOp.UPDATE, uid))) is not None:
            return self._updated(self._known[uid], pod, origin)
        outcome = Outcome.KEEP if kept else Outcome.NOTHING
        why = f"{origin} is bad: the pod runs on as it was" if kept else ""
        return PodPlan(outcome, meta.namespace, meta.name, uid, origin, why, pod=document.pod)

    def _added(self, pod: Pod, old: Pod | None, origin: str) -> PodPlan:
        meta = pod.metadata
        uid = PodUID(meta.uid)
        actions, _ = self._actions(pod)
        starting = {step.name: step for step in container_steps(pod, self._status(uid), actions)}
        if old is None:
            steps = tuple(starting.values())
            return PodPlan(
                Outcome.CREATE, meta.namespace, meta.name, uid, origin, "", (), steps, pod=pod
            )
        running = [c.name for c in self._status(PodUID(old.metadata.uid)).running]
        steps = tuple(_replaced(starting, running or _names(old)))
        changes = tuple(pod_changes(old, pod))
        why = "a pod from a file with another content is another pod, with a UID of its own"
        if old.metadata.uid == uid:
            why = "the pod has another name under the same UID"
        elif not changes:
            why += "; the content is written in another way"
        return PodPlan(
            Outcome.REPLACE, meta.namespace, meta.name, uid, origin, why, changes, steps, pod=pod
        )

    def _updated(self, old: Pod, pod: Pod, origin: str) -> PodPlan:
        meta = pod.metadata
        uid = PodUID(meta.uid)
        actions, status = self._actions(pod)
        steps = tuple(container_steps(pod, status, actions))
        outcome, why = Outcome.UPDATE, "the document gives the pod's UID, and that stays"
        if actions.create_sandbox:
            outcome, why = Outcome.RESTART, f"all containers: {actions.sandbox_why}"
        elif actions.kill_pod:
            outcome, why = Outcome.RESTART, "nothing of the pod would run any more"
        elif any(step.step in (Step.RESTART, Step.STOP, Step.START) for step in steps):
            outcome, why = Outcome.RESTART, "; ".join(s.why for s in steps if s.why)
        changes = tuple(pod_changes(old, pod))
        return PodPlan(
            outcome, meta.namespace, meta.name, uid, origin, why, changes, steps, pod=pod
        )

    def removed(self, pod: Pod, origins: Mapping[PodUID, str]) -> PodPlan:
        """A pod that nothing gives any more."""
        meta = pod.metadata
        uid = PodUID(meta.uid)
        running = [c.name for c in self._status(uid).running] or _names(pod)
        steps = tuple(ContainerStep(name, Step.STOP) for name in dict.fromkeys(running))
        why = "no manifest gives it any more"
        origin = origins.get(uid, "")
        return PodPlan(Outcome.REMOVE, meta.namespace, meta.name, uid, origin, why, (), steps)

    def _status(self, uid: PodUID) -> PodRuntimeStatus:
        return self._statuses.get(uid) or PodRuntimeStatus(uid)

    def _actions(self, pod: Pod) -> tuple[PodActions, PodRuntimeStatus]:
        uid = PodUID(pod.metadata.uid)
        status, _ = split_strays(self._status(uid))
        ran = self._ran_before.get(uid, {})
        return compute_pod_actions(pod, status, ran_before=ran), status


def _names(pod: Pod) -> list[str]:
    return [c.name for c in (*pod.spec.init_containers, *pod.spec.containers)]


def _replaced(
    starting: Mapping[str, ContainerStep], running: Sequence[str]
) -> Iterator[ContainerStep]:
    for name in dict.fromkeys((*running, *starting)):
        new = starting.get(name)
        if new is None or new.step is not Step.START:
            yield ContainerStep(name, Step.STOP, new.why if new else "it is not in the new pod")
        else:
            yield ContainerStep(name, Step.RESTART if name in running else Step.START)


def container_steps(
    pod: Pod, status: PodRuntimeStatus, actions: PodActions
) -> Iterator[ContainerStep]:
    """What the actions of a pod mean for each of its containers, those that go included."""
    kills = {kill.name: kill.message for kill in actions.containers_to_kill}
    starts = {*actions.init_containers_to_start, *actions.containers_to_start}
    running = {c.name for c in status.running}
    begins = bool(actions.init_containers_to_start)
    for name in dict.fromkeys((*_names(pod), *(c.name for c in status.running))):
        if actions.kill_pod:
            yield _of_whole(name, actions, running)
        elif name in kills:
            step = Step.RESTART if name in starts else Step.STOP
            yield ContainerStep(name, step, kills[name])
        elif name in starts:
            yield ContainerStep(name, Step.START)
        elif name in running:
            yield ContainerStep(name, Step.RUN_ON, _stale(pod, status, name))
        elif begins and status.latest(name) is None:
            yield ContainerStep(name, Step.START, "when the containers before it have done")


def _of_whole(name: str, actions: PodActions, running: set[str]) -> ContainerStep:
    if actions.create_sandbox:
        if name in running:
            return ContainerStep(name, Step.RESTART, actions.sandbox_why)
        return ContainerStep(name, Step.START)
    return ContainerStep(name, Step.STOP if name in running else Step.NOTHING)


def _stale(pod: Pod, status: PodRuntimeStatus, name: str) -> str:
    """A word on a container that the runtime made under another name or image."""
    found = next(
        (c for c in (*pod.spec.init_containers, *pod.spec.containers) if c.name == name), None
    )
    latest = status.latest(name)
    if found is None or latest is None or latest.hash == container_hash(name, found.image):
        return ""
    return "it runs on with the image it has"
