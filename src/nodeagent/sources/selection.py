"""Which documents of a file source are in force. Pure (docs/behaviour/sources.md, "Selection").

A pod stays as it is while its document is bad; of two files that give one pod the first by
name counts; a document that moves to another file keeps the pod's UID.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from nodeagent.api import Pod
from nodeagent.api.documents import Identity, Verdict
from nodeagent.sources.static_pod import document_uid, judge_static_pod


@dataclass(frozen=True, slots=True)
class InForce:
    """One document in force.

    Attributes:
        identity: namespace and name as written.
        path: the file that supplies it.
        written: the document in its one form.
        uid: the pod's UID.
        pod: the static pod.
    """

    identity: Identity
    path: Path
    written: bytes
    uid: str
    pod: Pod


@dataclass(frozen=True, slots=True)
class FileVerdicts:
    """All that one file says; ``problem`` when it could not be read at all."""

    path: Path
    verdicts: tuple[Verdict, ...] = ()
    problem: str = ""

    def may_concern(self, identity: Identity) -> bool:
        """Whether the file may be meant to supply that pod and fails to."""
        return bool(self.problem) or any(v.may_concern(identity) for v in self.verdicts)


@dataclass(frozen=True, slots=True)
class Selection:
    """What is in force after a look at the files.

    Attributes:
        pods: by identity, in the order of files and documents.
        verdicts: final verdicts by file, validation included.
        kept: identities whose last good document stays in force, with the file at fault.
    """

    pods: Mapping[Identity, InForce]
    verdicts: tuple[FileVerdicts, ...]
    kept: Mapping[Identity, Path]


Unsupported: TypeAlias = Callable[[Pod], Sequence[str]]
"""Paths of the fields of a pod that this version cannot honour."""


def _all_supported(_pod: Pod) -> Sequence[str]:
    return ()


def select(
    files: Sequence[FileVerdicts],
    before: Mapping[Identity, InForce],
    node_name: str,
    unsupported: Unsupported = _all_supported,
) -> Selection:
    """Decide what is in force.

    Args:
        files: verdicts of all files, in the order in which they count.
        before: what was in force.
        node_name: name of the node.
        unsupported: an edit that adds such fields to a pod that has none is refused, so that
            the pod runs on; a new pod with such fields is let through and waits.
    """
    pods: dict[Identity, InForce] = {}
    uids: dict[str, Identity] = {}
    judged: list[FileVerdicts] = []
    for file in files:
        verdicts = []
        for verdict in file.verdicts:
            final, found = _judge(verdict, file.path, before, pods, uids, node_name)
            if found is not None:
                final, found = _unless_it_stops_it(final, found, before, unsupported)
            verdicts.append(final)
            if found is not None:
                pods[found.identity] = found
                uids[found.uid] = found.identity
        judged.append(FileVerdicts(file.path, tuple(verdicts), file.problem))
    kept = dict(_kept(judged, before, pods))
    owners = {before[identity].uid: identity for identity in kept}
    judged = [_without_uids(file, owners, pods) for file in judged]
    for identity in kept:
        pods[identity] = before[identity]
    return Selection(pods, tuple(judged), kept)


def _without_uids(
    file: FileVerdicts, owners: Mapping[str, Identity], pods: dict[Identity, InForce]
) -> FileVerdicts:
    """Refuse documents that give the UID of a kept pod to another one: that pod runs on."""
    verdicts = []
    for verdict in file.verdicts:
        found = pods.get(verdict.identity) if verdict.identity is not None else None
        other = owners.get(found.uid) if found is not None and not verdict.errors else None
        if found is None or other is None or other == found.identity:
            verdicts.append(verdict)
            continue
        del pods[found.identity]
        verdicts.append(_same_uid(verdict, other))
    return FileVerdicts(file.path, tuple(verdicts), file.problem)


def _unless_it_stops_it(
    verdict: Verdict, found: InForce, before: Mapping[Identity, InForce], unsupported: Unsupported
) -> tuple[Verdict, InForce | None]:
    """Refuse an edit after which the pod could not run any more."""
    old = before.get(found.identity)
    if old is None or old.written == found.written:
        return verdict, found
    fields = unsupported(found.pod)
    if not fields or unsupported(old.pod):
        return verdict, found
    text = "not supported by this version of nodeagent; the pod runs on as it was"
    return verdict.rejected([(path, text) for path in fields]), None


def _same_uid(verdict: Verdict, other: Identity) -> Verdict:
    text = f"duplicate: the pod {other.namespace}/{other.name} has the same uid"
    return verdict.rejected([("metadata.uid", text)])


def _judge(
    verdict: Verdict,
    path: Path,
    before: Mapping[Identity, InForce],
    pods: Mapping[Identity, InForce],
    uids: Mapping[str, Identity],
    node_name: str,
) -> tuple[Verdict, InForce | None]:
    identity = verdict.identity
    if verdict.pod is None or identity is None:
        return judge_static_pod(verdict, "", node_name)[0], None
    if identity in pods:
        first = pods[identity].path
        text = f"duplicate: {first.name} already gives the pod {identity.namespace}/{identity.name}"
        if first == path:
            text = f"duplicate: an earlier document gives {identity.namespace}/{identity.name}"
        # Its own faults are said too, so that one look at the log is enough.
        judged = judge_static_pod(verdict, "", node_name)[0]
        return judged.rejected([("metadata.name", text)]), None
    old = before.get(identity)
    if old is not None and old.written == verdict.written:
        # The same document, here or in another file: the very same pod.
        return verdict, InForce(identity, path, old.written, old.uid, old.pod)
    uid = document_uid(verdict.written, node_name, f"file:{path}")
    final, pod = judge_static_pod(verdict, uid, node_name)
    if pod is None:
        return final, None
    if (other := uids.get(pod.metadata.uid)) is not None:
        return _same_uid(verdict, other), None
    return final, InForce(identity, path, verdict.written, pod.metadata.uid, pod)


def _kept(
    files: Iterable[FileVerdicts],
    before: Mapping[Identity, InForce],
    pods: Mapping[Identity, InForce],
) -> Iterator[tuple[Identity, Path]]:
    """Pods whose file is there and bad: their last good document stays in force."""
    by_path = {file.path: file for file in files}
    for identity, old in before.items():
        file, now = by_path.get(old.path), pods.get(identity)
        if file is None or not file.may_concern(identity):
            continue
        # Another file that gives the same pod must not take over because this one is bad.
        if now is None or (now.path != old.path and now.written != old.written):
            yield identity, old.path
