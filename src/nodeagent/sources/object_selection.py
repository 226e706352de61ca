"""Which ConfigMaps and Secrets of a source are in force. Pure.

docs/behaviour/objects.md, "Without an API server". The rules are those of pods (``selection``):
an object stays as it is while its document is bad, and of two files that give one object the
first by name counts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from msgspec.structs import replace as replace_struct

from nodeagent.api.documents import Identity, Verdict
from nodeagent.api.objects import ConfigMap, Secret
from nodeagent.api.validation.objects import (
    OPAQUE,
    validate_change,
    validate_config_map,
    validate_secret,
)
from nodeagent.sources.keeping import FileVerdicts, kept_ones
from nodeagent.sources.origin import Origin, origin_name
from nodeagent.sources.static_pod import document_uid

_ORIGIN_OF_OBJECTS = "object"


@dataclass(frozen=True, slots=True)
class ObjectInForce:
    """One document in force. Shows nothing of its content.

    Attributes:
        identity: namespace, name and kind as written.
        origin: the file or URL that supplies it.
        written: the document in its one form.
        value: the object.
    """

    identity: Identity
    origin: Origin
    written: bytes = field(repr=False)
    value: ConfigMap | Secret = field(repr=False)


@dataclass(frozen=True, slots=True)
class ObjectSelection:
    """What is in force after a look at the files of a source.

    Attributes:
        objects: by identity, in the order of files and documents.
        verdicts: final verdicts by file.
        kept: identities whose last good document stays in force, with the file at fault.
    """

    objects: Mapping[Identity, ObjectInForce] = field(default_factory=dict)
    verdicts: tuple[FileVerdicts, ...] = ()
    kept: Mapping[Identity, Origin] = field(default_factory=dict)


def select_objects(
    files: Sequence[FileVerdicts], before: Mapping[Identity, ObjectInForce], node_name: str
) -> ObjectSelection:
    """Decide what is in force.

    Args:
        files: verdicts of all files, in the order in which they count.
        before: what was in force.
        node_name: name of the node.
    """
    found: dict[Identity, ObjectInForce] = {}
    judged: list[FileVerdicts] = []
    for file in files:
        verdicts = []
        for verdict in file.verdicts:
            final, made = _judge(verdict, file.origin, before, found, node_name)
            verdicts.append(final)
            if made is not None:
                found[made.identity] = made
        judged.append(replace(file, verdicts=tuple(verdicts)))
    kept = dict(kept_ones(judged, before, found))
    found.update({identity: before[identity] for identity in kept})
    return ObjectSelection(found, tuple(judged), kept)


def _judge(
    verdict: Verdict,
    origin: Origin,
    before: Mapping[Identity, ObjectInForce],
    found: Mapping[Identity, ObjectInForce],
    node_name: str,
) -> tuple[Verdict, ObjectInForce | None]:
    if verdict.config is None:
        return verdict, None
    identity = verdict.identity
    if identity is None:
        what = "generateName does not name it" if verdict.config.metadata.generate_name else ""
        return verdict.rejected([("metadata.name", f"required: {what}".removesuffix(": "))]), None
    if identity in found:
        return verdict.rejected([("metadata.name", _duplicate(identity, found, origin))]), None
    old = before.get(identity)
    if old is not None and old.written == verdict.written:
        # The same document, here or in another file: the very same object.
        return verdict, replace(old, origin=origin)
    value = complete(verdict.config, identity, verdict.written, node_name)
    errors = [
        *(validate_secret(value) if isinstance(value, Secret) else validate_config_map(value)),
        *(validate_change(old.value, value) if old is not None else ()),
    ]
    if errors:
        faults = [(e.path, str(e).removeprefix(f"{e.path}: ")) for e in errors]
        return verdict.rejected(faults), None
    return verdict, ObjectInForce(identity, origin, verdict.written, value)


def _duplicate(identity: Identity, found: Mapping[Identity, ObjectInForce], origin: Origin) -> str:
    name, first = f"{identity.namespace}/{identity.name}", found[identity].origin
    if first == origin:
        return f"duplicate: an earlier document gives {name}"
    return f"duplicate: {origin_name(first)} already gives the {identity.kind} {name}"


def complete(
    config: ConfigMap | Secret, identity: Identity, written: bytes, node_name: str
) -> ConfigMap | Secret:
    """The object as a server would give it: with namespace, UID, version and type.

    Args:
        config: as written.
        identity: who it is.
        written: the document in its one form.
        node_name: name of the node.
    """
    # The UID is the name's, not the document's: an edit makes no other object.
    name = "/".join(identity).encode()
    metadata = replace_struct(
        config.metadata,
        namespace=identity.namespace,
        uid=config.metadata.uid or document_uid(name, node_name, _ORIGIN_OF_OBJECTS),
        resource_version=hashlib.sha256(written).hexdigest()[:16],
        deletion_timestamp=None,
        deletion_grace_period_seconds=None,
    )
    if isinstance(config, ConfigMap):
        return replace_struct(config, metadata=metadata)
    texts = {key: text.encode(errors="replace") for key, text in config.string_data.items()}
    return replace_struct(
        config,
        metadata=metadata,
        type=config.type or OPAQUE,
        data={**config.data, **texts},
        string_data={},
    )
