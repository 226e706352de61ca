"""Which documents of a source are in force. Pure (docs/behaviour/sources.md, "Selection").

A pod stays as it is while its document is bad; of two files that give one pod the first by
name counts; a document that moves to another file keeps the pod's UID.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from nodeagent.api import Pod
from nodeagent.api.documents import Identity, Verdict
from nodeagent.sources.keeping import FileVerdicts, kept_ones
from nodeagent.sources.origin import Origin, origin_name, origin_text
from nodeagent.sources.static_pod import document_uid, judge_static_pod


@dataclass(frozen=True, slots=True)
class InForce:
    """One document in force.

    Attributes:
        identity: namespace and name as written.
        origin: the file or URL that supplies it.
        written: the document in its one form.
        uid: the pod's UID.
        pod: the static pod.
    """

    identity: Identity
    origin: Origin
    written: bytes
    uid: str
    pod: Pod


@dataclass(frozen=True, slots=True)
class Selection:
    """What is in force after a look at the files of a source.

    Attributes:
        pods: by identity, in the order of files and documents.
        verdicts: final verdicts by file, validation included.
        kept: identities whose last good document stays in force, with the file at fault.
    """

    pods: Mapping[Identity, InForce]
    verdicts: tuple[FileVerdicts, ...]
    kept: Mapping[Identity, Origin]


Unsupported: TypeAlias = Callable[[Pod], Sequence[str]]
"""Paths of the fields of a pod that this version cannot honour."""


def _all_supported(_pod: Pod) -> Sequence[str]:
    return ()


def select(
    files: Sequence[FileVerdicts],
    before: Mapping[Identity, InForce],
    node_name: str,
    unsupported: Unsupported = _all_supported,
    *,
    tolerate: bool = True,
    allowed: Collection[str] = (),
) -> Selection:
    """Decide what is in force.

    Args:
        files: verdicts of all files, in the order in which they count.
        before: what was in force.
        node_name: name of the node.
        unsupported: an edit that adds such fields to a pod that has none is refused, so that
            the pod runs on; a new pod with such fields is let through and waits.
        tolerate: whether the pods tolerate NoExecute taints (those from files do).
        allowed: kinds of API objects that the pods may refer to.
    """
    maker = _Maker(node_name, tolerate, allowed)
    pods: dict[Identity, InForce] = {}
    # A pod that is in force and still wanted as it is keeps its UID against whoever comes anew.
    uids = _held_uids(files, before)
    judged: list[FileVerdicts] = []
    for file in files:
        verdicts = []
        for verdict in file.verdicts:
            final, found = _judge(verdict, file.origin, before, pods, uids, maker)
            if found is not None:
                final, found = _unless_it_stops_it(final, found, before, unsupported)
            verdicts.append(final)
            if found is not None:
                pods[found.identity] = found
                uids[found.uid] = found.identity
        judged.append(replace(file, verdicts=tuple(verdicts)))
    kept = dict(kept_ones(judged, before, pods))
    owners = {before[identity].uid: identity for identity in kept}
    unjudged = {file.origin for file in judged if file.unjudged}
    silent = {identity for identity, origin in kept.items() if origin in unjudged}
    judged = [_without_uids(file, owners, silent, pods) for file in judged]
    for identity in kept:
        pods[identity] = before[identity]
    return Selection(pods, tuple(judged), kept)


def _held_uids(
    files: Sequence[FileVerdicts], before: Mapping[Identity, InForce]
) -> dict[str, Identity]:
    held: dict[str, Identity] = {}
    for file in files:
        for verdict in file.verdicts:
            old = before.get(verdict.identity) if verdict.identity is not None else None
            if old is not None and verdict.pod is not None and old.written == verdict.written:
                held[old.uid] = old.identity
    return held


@dataclass(frozen=True, slots=True)
class _Maker:
    """What all static pods of a source have in common."""

    node_name: str
    tolerate: bool
    allowed: Collection[str]

    def judge(self, verdict: Verdict, uid: str = "") -> tuple[Verdict, Pod | None]:
        return judge_static_pod(
            verdict, uid, self.node_name, tolerate=self.tolerate, allowed=self.allowed
        )

    def uid(self, verdict: Verdict, origin: Origin) -> str:
        return document_uid(verdict.written, self.node_name, origin_text(origin))


def _without_uids(
    file: FileVerdicts,
    owners: Mapping[str, Identity],
    silent: Collection[Identity],
    pods: dict[Identity, InForce],
) -> FileVerdicts:
    """Refuse documents that give the UID of a kept pod to another one: that pod runs on.

    Without a word when it is kept only for a moment (``silent``).
    """
    verdicts = []
    for verdict in file.verdicts:
        found = pods.get(verdict.identity) if verdict.identity is not None else None
        other = owners.get(found.uid) if found is not None and not verdict.errors else None
        if found is None or other is None or other == found.identity:
            verdicts.append(verdict)
            continue
        del pods[found.identity]
        verdicts.append(verdict if other in silent else _same_uid(verdict, other))
    return replace(file, verdicts=tuple(verdicts))


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
    origin: Origin,
    before: Mapping[Identity, InForce],
    pods: Mapping[Identity, InForce],
    uids: Mapping[str, Identity],
    maker: _Maker,
) -> tuple[Verdict, InForce | None]:
    identity = verdict.identity
    if verdict.pod is None or identity is None:
        return maker.judge(verdict)[0], None
    if identity in pods:
        first, name = pods[identity].origin, f"{identity.namespace}/{identity.name}"
        text = f"duplicate: {origin_name(first)} already gives the pod {name}"
        if first == origin:
            text = f"duplicate: an earlier document gives {name}"
        # Its own faults are said too, so that one look at the log is enough.
        judged = maker.judge(verdict)[0]
        return judged.rejected([("metadata.name", text)]), None
    old = before.get(identity)
    if old is not None and old.written == verdict.written:
        # The same document, here or in another file: the very same pod.
        return verdict, InForce(identity, origin, old.written, old.uid, old.pod)
    final, pod = maker.judge(verdict, maker.uid(verdict, origin))
    if pod is None:
        return final, None
    other = uids.get(pod.metadata.uid)
    if other is not None and other != identity:
        return _same_uid(verdict, other), None
    return final, InForce(identity, origin, verdict.written, pod.metadata.uid, pod)
