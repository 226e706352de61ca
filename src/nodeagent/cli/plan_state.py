"""What ``nodeagent plan`` knows of a node: what is in force there, and what runs. Only reads."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final
from urllib.error import URLError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

import anyio
import msgspec

from nodeagent.api import Pod
from nodeagent.api.codec import decode
from nodeagent.api.documents import Identity, Verdict
from nodeagent.api.references import STANDALONE
from nodeagent.api.status import ContainerStatus
from nodeagent.config import DEFAULT_ENDPOINT
from nodeagent.cri import CRIClient
from nodeagent.cri.pods import PodLister
from nodeagent.model import (
    FILE_SOURCE,
    ContainerID,
    ContainerRuntimeStatus,
    ContainerState,
    PodRuntimeStatus,
    PodUID,
    SandboxID,
    SandboxRuntimeStatus,
    SandboxState,
)
from nodeagent.model.annotations import CONFIG_SOURCE
from nodeagent.rpc import RpcError
from nodeagent.runtime.hash import container_hash
from nodeagent.sources.checkpoint import ManifestCheckpoint
from nodeagent.sources.keeping import FileVerdicts
from nodeagent.sources.merge import semantic_difference
from nodeagent.sources.object_selection import ObjectInForce
from nodeagent.sources.selection import InForce
from nodeagent.sources.static_pod import judge_static_pod
from nodeagent.state_file import StateFile

_TIMEOUT: Final = 30.0
_RECORDS_VERSION: Final = 2
_SANDBOX: Final = SandboxID("sandbox")


class StateUnknownError(Exception):
    """What is in force on the node cannot be told; one sentence: why, and what to do."""


class _PodList(msgspec.Struct, frozen=True):
    items: tuple[Pod, ...] = ()


class _NodeOf(msgspec.Struct, frozen=True):
    node: str = ""


class _Saved(msgspec.Struct, frozen=True):
    content: _NodeOf = _NodeOf()


class _Manager(msgspec.Struct, frozen=True):
    started: dict[str, dict[str, str]] = msgspec.field(default_factory=dict)


class _Sections(msgspec.Struct, frozen=True):
    runtime: _Manager = _Manager()


class _Records(msgspec.Struct, frozen=True):
    sections: _Sections = _Sections()


@dataclass(slots=True)
class NodeState:
    """What is known of a node.

    Attributes:
        node_name: its name, as far as the state tells; "" when it does not.
        before: the pods of files that are in force, with their documents.
        objects: the ConfigMaps of files that are in force.
        pods: what a running agent says that it runs; None when none was asked.
        statuses: what the runtime has of each pod.
        ran_before: ids of containers that may run once and were started, by pod and name.
        notes: what could not be found out, and what is assumed instead.
    """

    node_name: str = ""
    before: Mapping[Identity, InForce] = field(default_factory=dict)
    objects: Mapping[Identity, ObjectInForce] = field(default_factory=dict)
    pods: tuple[Pod, ...] | None = None
    statuses: Mapping[PodUID, PodRuntimeStatus] = field(default_factory=dict)
    ran_before: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def read_root(root: Path, node_name: str) -> NodeState:
    """What an agent has left in its root directory. Blocks; changes nothing there.

    Args:
        root: the agent's ``--root-dir``.
        node_name: name of the node; "" for the one that the files name.
    """
    state = NodeState(node_name)
    checkpoints = root / "checkpoints"
    with tempfile.TemporaryDirectory(prefix="nodeagent-plan-") as place:
        # Reading moves damaged files aside, and an agent may be using these.
        manifests = _copied(checkpoints / "manifests.json", Path(place), state)
        records = _copied(checkpoints / "runtime.json", Path(place), state)
        if manifests is None:
            text = "no manifest is in force there"
            state.notes.append(f"{checkpoints / 'manifests.json'} does not exist: {text}")
        else:
            told = _node_told(manifests)
            state.node_name = node_name or told
            file = ManifestCheckpoint(manifests, state.node_name)
            state.before = file.load()
            state.objects = file.objects
            if file.problem:
                state.notes.append(f"{checkpoints / 'manifests.json'}: {file.problem}")
            elif told not in ("", state.node_name):
                text = f"{checkpoints / 'manifests.json'} is of node {told}: nothing of it counts"
                state.notes.append(text)
        if records is not None:
            state.ran_before = _ran_before(StateFile(records, _RECORDS_VERSION).load())
    return state


def _node_told(manifests: Path) -> str:
    """The node whose manifests a file holds; "" when it does not tell."""
    try:
        return msgspec.json.decode(manifests.read_bytes(), type=_Saved).content.node
    except msgspec.DecodeError:
        return ""


def _copied(file: Path, place: Path, state: NodeState) -> Path | None:
    try:
        return Path(shutil.copyfile(file, place / file.name))
    except FileNotFoundError:
        return None
    except OSError as error:
        why = f"{file} cannot be read: {error.strerror}; run as root, or name another --root-dir"
        if file.name == "manifests.json":
            raise StateUnknownError(why) from error
        state.notes.append(why)
        return None


def _ran_before(content: object) -> dict[str, dict[str, str]]:
    try:
        return msgspec.convert(content, _Records).sections.runtime.started
    except msgspec.ValidationError:
        return {}


# -- the runtime, and a running agent ----------------------------------------------------------


def endpoint_of(root: Path, given: str) -> str:
    """The runtime's socket: the one named, else that of an embedded runtime that serves."""
    embedded = root / "embedded" / "cri.sock"
    if given:
        return given
    return f"unix://{embedded.absolute()}" if embedded.exists() else DEFAULT_ENDPOINT


async def read_runtime(endpoint: str, state: NodeState) -> None:
    """Ask the runtime what it has of the pods that are in force."""
    wanted = {PodUID(document.uid) for document in state.before.values()}
    try:
        with anyio.fail_after(_TIMEOUT):
            async with CRIClient(endpoint, None) as client:
                lister = PodLister(client)
                found = await lister.list_pods()
                state.statuses = {
                    uid: await lister.inspect(pod) for uid, pod in found.items() if uid in wanted
                }
    except (RpcError, OSError) as error:
        why = getattr(error, "message", "") or str(error) or "no answer in time"
        assume_running(state, f"the container runtime cannot be asked ({why})")


def assume_running(state: NodeState, why: str) -> None:
    """Take it that what is in force runs as it should."""
    state.notes.append(f"{why}: it is assumed that everything in force runs")
    state.statuses = {
        PodUID(document.uid): status_of(document.pod) for document in state.before.values()
    }


def read_agent(url: str) -> tuple[Pod, ...]:
    """The pods of files that a running agent runs. Blocks.

    Args:
        url: of its read-only port.

    Raises:
        StateUnknownError: it does not answer, or something else does.
    """
    if urlsplit(url).scheme not in ("http", "https"):
        msg = f"{url}: must be the http URL of an agent's read-only port"
        raise StateUnknownError(msg)
    whole = url.rstrip("/") + "/pods"
    remedy = "start the agent with --read-only-port, or use --root-dir"
    try:
        with urlopen(Request(whole), timeout=_TIMEOUT) as answer:  # noqa: S310 - judged above
            pods = decode(_PodList, answer.read()).items
    except (URLError, OSError) as error:
        reason = getattr(error, "reason", None) or error
        msg = f"{whole} does not answer: {reason}; {remedy}"
        raise StateUnknownError(msg) from error
    except msgspec.DecodeError as error:
        msg = f"{whole} does not answer with pods; {remedy}"
        raise StateUnknownError(msg) from error
    return tuple(p for p in pods if p.metadata.annotations.get(CONFIG_SOURCE) == FILE_SOURCE)


def status_of(pod: Pod) -> PodRuntimeStatus:
    """What the runtime has of a pod, as far as its spec and its status tell.

    Containers of which the status does not speak are taken to run.
    """
    meta, spec = pod.metadata, pod.spec
    told = (*pod.status.init_container_statuses, *pod.status.container_statuses)
    by_name = {status.name: status for status in told}
    containers = [
        _container(container.name, container.image, by_name.get(container.name))
        for container in spec.containers
    ]
    containers += [
        _container(container.name, container.image, by_name[container.name])
        for container in spec.init_containers
        if container.name in by_name
    ]
    sandbox = SandboxRuntimeStatus(_SANDBOX, 0, SandboxState.READY, host_network=spec.host_network)
    uid = PodUID(meta.uid)
    there = tuple(c for c in containers if c is not None)
    return PodRuntimeStatus(uid, meta.name, meta.namespace, (), (sandbox,), there)


def _container(
    name: str, image: str, status: ContainerStatus | None
) -> ContainerRuntimeStatus | None:
    state, code = ContainerState.RUNNING, 0
    if status is not None:
        if status.state.terminated is not None:
            state, code = ContainerState.EXITED, status.state.terminated.exit_code
        elif status.state.running is None:
            if not status.container_id:
                return None
            state = ContainerState.EXITED
    id_ = ContainerID(status.container_id if status is not None else name)
    hash_ = container_hash(name, image)
    return ContainerRuntimeStatus(
        id_, name, state, _SANDBOX, image=image, exit_code=code, hash=hash_
    )


def from_agent(
    pods: Iterable[Pod], files: Sequence[FileVerdicts], node_name: str, *, cluster: bool
) -> dict[Identity, InForce]:
    """The documents in force, as far as the pods of an agent tell.

    A document that comes to the very pod that runs is taken to be the one it was made of.

    Args:
        pods: of files, as the agent shows them.
        files: what the manifests say.
        node_name: name of the node.
        cluster: whether the agent has an API server.
    """
    judged: dict[Identity, tuple[FileVerdicts, Verdict]] = {}
    for file in files:
        for verdict in file.verdicts:
            if verdict.identity is not None:
                judged.setdefault(verdict.identity, (file, verdict))
    allowed = () if cluster else STANDALONE
    found = {}
    for pod in pods:
        meta = pod.metadata
        identity = Identity(meta.namespace, meta.name.removesuffix(f"-{node_name}"))
        written, origin = b"", Path("/")
        if identity in judged:
            file, verdict = judged[identity]
            origin = file.origin if isinstance(file.origin, Path) else origin
            made = judge_static_pod(verdict, meta.uid, node_name, allowed=allowed)[1]
            if made is not None and not semantic_difference(pod, made):
                written = verdict.written
        found[identity] = InForce(identity, origin, written, meta.uid, pod)
    return found


def with_agent(
    state: NodeState, files: Sequence[FileVerdicts], node_name: str, *, cluster: bool
) -> NodeState:
    """The state with what a running agent says: it knows better than files of state what runs."""
    if state.pods is None:
        return state
    uids = {pod.metadata.uid for pod in state.pods}
    told = from_agent(state.pods, files, node_name, cluster=cluster)
    known = {identity: d for identity, d in state.before.items() if d.uid in uids}
    return replace(
        state,
        before={**told, **known},
        statuses={PodUID(pod.metadata.uid): status_of(pod) for pod in state.pods},
    )
