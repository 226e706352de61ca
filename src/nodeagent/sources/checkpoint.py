"""The last good manifests on disk, so that a bad edit loses no pod over an agent restart."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote_from_bytes, unquote_to_bytes

import msgspec

from nodeagent.api.codec import decode_pod
from nodeagent.api.documents import Identity
from nodeagent.log import Log
from nodeagent.sources.origin import Origin, UrlOrigin
from nodeagent.sources.selection import InForce
from nodeagent.sources.static_pod import make_static_pod
from nodeagent.state_file import StateFile

log = Log("source")


class ManifestCheckpoint:
    """Reads and writes the documents in force. Blocking: call it in a thread.

    Args:
        path: the checkpoint file.
        node_name: name of the node; documents of another node are not taken.
        tolerate: whether the pods tolerate NoExecute taints (those from files do).
    """

    def __init__(self, path: Path, node_name: str, *, tolerate: bool = True) -> None:
        self._file = StateFile(path)
        self._node_name = node_name
        self._tolerate = tolerate

    @property
    def problem(self) -> str:
        """What was wrong with the file at the last load; "" when nothing was."""
        return self._file.problem

    @property
    def refused(self) -> dict[str, str]:
        """Why the last save failed, by the file's name; empty when it did not."""
        return {self._file.path.name: self._file.refused} if self._file.refused else {}

    def save(self, documents: Iterable[InForce]) -> None:
        """Write the documents in force.

        Raises:
            OSError: they could not be written; what was there stays.
        """
        entries = [
            {
                "namespace": d.identity.namespace,
                "name": d.identity.name,
                **_saved_origin(d.origin),
                "uid": d.uid,
                "written": d.written.decode(),
            }
            for d in documents
        ]
        self._file.save({"node": self._node_name, "documents": entries})

    def load(self) -> dict[Identity, InForce]:
        """The documents that were in force; empty when there are none or they are damaged."""
        content = self._file.load()
        if not isinstance(content, Mapping) or content.get("node") != self._node_name:
            return {}
        entries = content.get("documents")
        found: dict[Identity, InForce] = {}
        for entry in entries if isinstance(entries, list) else ():
            document = self._restore(entry)
            if document is not None:
                found[document.identity] = document
        return found

    def _restore(self, entry: Mapping[str, Any]) -> InForce | None:
        try:
            identity = Identity(entry["namespace"], entry["name"])
            written = entry["written"].encode()
            pod = make_static_pod(
                decode_pod(written), entry["uid"], self._node_name, tolerate=self._tolerate
            )
            return InForce(identity, _restored_origin(entry), written, entry["uid"], pod)
        except (KeyError, TypeError, AttributeError, msgspec.DecodeError, ValueError) as error:
            log.warning("checkpoint_entry_ignored", entry=_described(entry), cause=str(error))
            return None


def _saved_origin(origin: Origin) -> dict[str, str]:
    if isinstance(origin, UrlOrigin):
        return {"url": origin.url}
    # A file's name may be any bytes, and JSON holds only Unicode.
    return {"path": quote_from_bytes(os.fsencode(origin))}


def _restored_origin(entry: Mapping[str, Any]) -> Origin:
    if isinstance(entry.get("url"), str):
        return UrlOrigin(entry["url"])
    return Path(os.fsdecode(unquote_to_bytes(entry["path"])))


def _described(entry: Any) -> str:
    """An entry for people; what a pod holds may be secret."""
    if not isinstance(entry, Mapping):
        return type(entry).__name__
    return f"{entry.get('namespace')}/{entry.get('name')}"[:80]
