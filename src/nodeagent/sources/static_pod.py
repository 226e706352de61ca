"""What makes a written pod a static pod of this node. Pure (docs/behaviour/sources.md)."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Collection, Iterator
from typing import Final

from msgspec.structs import replace

from nodeagent.api import Pod, PodStatus, Toleration
from nodeagent.api.defaults import set_defaults
from nodeagent.api.documents import DEFAULT_NAMESPACE, Verdict
from nodeagent.api.references import SERVICE_ACCOUNTS, api_reference
from nodeagent.api.validation import validate_pod
from nodeagent.api.validation.errors import FieldError, invalid
from nodeagent.api.validation.names import MAX_LABEL, MAX_SUBDOMAIN, check_if_set, uid_fault
from nodeagent.model import PodUID
from nodeagent.model.annotations import CONFIG_HASH

_UID_LENGTH: Final = 32
_LONGEST_FILE_NAME: Final = 255


def document_uid(written: bytes, node_name: str, origin: str) -> PodUID:
    """A pod's UID from its document as written, its node and where it lies.

    Args:
        written: the document in its one form (``Verdict.written``).
        node_name: name of the node.
        origin: ``file:/path`` or ``url:...``.
    """
    digest = hashlib.sha256()
    # A file's name may be any bytes.
    for part in (written, node_name.encode(), origin.encode(errors="surrogateescape")):
        digest.update(len(part).to_bytes(8, "big"))
        digest.update(part)
    return PodUID(digest.hexdigest()[:_UID_LENGTH])


def make_static_pod(pod: Pod, uid: str, node_name: str, *, tolerate: bool = True) -> Pod:
    """The pod that runs here: named after the node, with defaults, hash and phase.

    Args:
        pod: the pod as written.
        uid: UID to give it; one that was written stays.
        node_name: name of the node.
        tolerate: add the toleration of NoExecute taints that pods from files get.
    """
    full = set_defaults(pod)
    uid = full.metadata.uid or uid
    metadata = replace(
        full.metadata,
        uid=uid,
        name=f"{full.metadata.name}-{node_name.lower()}",
        namespace=full.metadata.namespace or DEFAULT_NAMESPACE,
        annotations={**full.metadata.annotations, CONFIG_HASH: uid},
        # Like a status, a copy of some other pod's life: a file that is there wants its pod.
        deletion_timestamp=None,
        deletion_grace_period_seconds=None,
    )
    spec = replace(full.spec, node_name=node_name)
    if tolerate:
        spec = replace(spec, tolerations=_tolerating(spec.tolerations))
    return replace(full, metadata=metadata, spec=spec, status=PodStatus(phase="Pending"))


def _tolerating(tolerations: tuple[Toleration, ...]) -> tuple[Toleration, ...]:
    everything = Toleration(operator="Exists", effect="NoExecute")
    return tolerations if everything in tolerations else (*tolerations, everything)


def judge_static_pod(
    verdict: Verdict,
    uid: str,
    node_name: str,
    *,
    tolerate: bool = True,
    allowed: Collection[str] = (),
) -> tuple[Verdict, Pod | None]:
    """Turn a good document into a static pod, or its verdict into a bad one.

    Args:
        verdict: the document.
        uid: UID to give the pod; one that was written stays.
        node_name: name of the node.
        tolerate: add the toleration of NoExecute taints that pods from files get.
        allowed: kinds of API objects that the pod may refer to.
    """
    if verdict.pod is None:
        return verdict, None
    if not verdict.pod.metadata.name:
        detail = "generateName does not name a static pod" if _generated(verdict.pod) else ""
        text = f"required: {detail}" if detail else "required"
        return verdict.rejected([("metadata.name", text)]), None
    pod = make_static_pod(verdict.pod, uid, node_name, tolerate=tolerate)
    errors = [*check_if_set("metadata.uid", verdict.pod.metadata.uid, uid_fault)]
    errors += [_as_written(e, verdict.pod, pod) for e in (*_too_long(pod), *validate_pod(pod))]
    faults = [(e.path, str(e).removeprefix(f"{e.path}: ")) for e in errors]
    if (what := api_reference(verdict.pod, allowed)) is not None:
        faults.append(("spec", f"static pods may not reference {what}"))
    if faults:
        return verdict.rejected(faults), None
    if SERVICE_ACCOUNTS in allowed and verdict.pod.spec.service_account_name:
        text = "ignored: without an API server there are no service accounts"
        verdict = verdict.warned([("spec.serviceAccountName", text)])
    return verdict, pod


def _too_long(pod: Pod) -> Iterator[FieldError]:
    """A name with which the pod's log directory could never be made."""
    whole = pod.metadata.name
    if _longest_name(pod) < len(whole) <= MAX_SUBDOMAIN:
        yield invalid("metadata.name", whole, "")


def _longest_name(pod: Pod) -> int:
    """Of a static pod, the node's name included."""
    # Parts that are too long themselves are told by themselves.
    namespace, uid = pod.metadata.namespace[:MAX_LABEL], pod.metadata.uid[:MAX_LABEL]
    return min(MAX_SUBDOMAIN, _LONGEST_FILE_NAME - len(f"{namespace}__{uid}"))


def _as_written(error: FieldError, written: Pod, full: Pod) -> FieldError:
    """Speak of the name that someone wrote, not of the one with the node's behind it."""
    name, whole = written.metadata.name, full.metadata.name
    if error.path != "metadata.name" or error.value != whole:
        return error
    detail = error.detail
    if len(whole) > (longest := _longest_name(full)):
        most = longest - (len(whole) - len(name))
        detail = (
            f"must have at most {most} characters, as namespace, node and UID are added to it "
            "in the name of its log directory"
        )
    return dataclasses.replace(error, value=name, detail=detail)


def _generated(pod: Pod) -> bool:
    return bool(pod.metadata.generate_name)
