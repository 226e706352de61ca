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
from nodeagent.sources.selection import InForce
from nodeagent.sources.static_pod import make_static_pod
from nodeagent.state_file import StateFile

log = Log("source.file")


class ManifestCheckpoint:
    """Reads and writes the documents in force. Blocking: call it in a thread.

    Args:
        path: the checkpoint file.
        node_name: name of the node; documents of another node are not taken.
    """

    def __init__(self, path: Path, node_name: str) -> None:
        self._file = StateFile(path)
        self._node_name = node_name

    def save(self, documents: Iterable[InForce]) -> None:
        """Write the documents in force.

        Raises:
            OSError: they could not be written; what was there stays.
        """
        entries = [
            {
                "namespace": d.identity.namespace,
                "name": d.identity.name,
                # A file's name may be any bytes, and JSON holds only Unicode.
                "path": quote_from_bytes(os.fsencode(d.path)),
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
            pod = make_static_pod(decode_pod(written), entry["uid"], self._node_name)
            path = Path(os.fsdecode(unquote_to_bytes(entry["path"])))
            return InForce(identity, path, written, entry["uid"], pod)
        except (KeyError, TypeError, AttributeError, msgspec.DecodeError, ValueError) as error:
            log.warning("checkpoint_entry_ignored", entry=str(entry)[:80], cause=str(error))
            return None
