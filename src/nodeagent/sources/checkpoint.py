"""The last good manifests on disk, so that a bad edit loses no pod over an agent restart."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote_from_bytes, unquote_to_bytes

import msgspec

from nodeagent.api.codec import decode, decode_pod
from nodeagent.api.documents import Identity
from nodeagent.api.objects import ConfigMap
from nodeagent.log import Log
from nodeagent.sources.object_selection import ObjectInForce, complete
from nodeagent.sources.origin import Origin, UrlOrigin
from nodeagent.sources.selection import InForce
from nodeagent.sources.static_pod import make_static_pod
from nodeagent.state_file import StateFile

log = Log("source")

_DAMAGE = (KeyError, TypeError, AttributeError, msgspec.DecodeError, ValueError)
"""What reading an entry that is no such entry may raise."""


class ManifestCheckpoint:
    """Reads and writes the documents in force. Blocking: call it in a thread.

    Secrets are left out: nothing confidential is written that does not lie on the disk already.

    Args:
        path: the checkpoint file.
        node_name: name of the node; documents of another node are not taken.
        tolerate: whether the pods tolerate NoExecute taints (those from files do).

    Attributes:
        objects: the ConfigMaps that the last load has found.
    """

    def __init__(self, path: Path, node_name: str, *, tolerate: bool = True) -> None:
        self._file = StateFile(path)
        self._node_name = node_name
        self._tolerate = tolerate
        self.objects: dict[Identity, ObjectInForce] = {}

    @property
    def problem(self) -> str:
        """What was wrong with the file at the last load; "" when nothing was."""
        return self._file.problem

    @property
    def refused(self) -> dict[str, str]:
        """Why the last save failed, by the file's name; empty when it did not."""
        return {self._file.path.name: self._file.refused} if self._file.refused else {}

    def save(self, documents: Iterable[InForce], objects: Iterable[ObjectInForce] = ()) -> None:
        """Write the documents in force, but for Secrets.

        Raises:
            OSError: they could not be written; what was there stays.
        """
        content: dict[str, Any] = {
            "node": self._node_name,
            "documents": [{**_saved(d), "uid": d.uid} for d in documents],
        }
        if config_maps := [_saved(d) for d in objects if isinstance(d.value, ConfigMap)]:
            content["configMaps"] = config_maps
        self._file.save(content)

    async def save_in_time(
        self, documents: Iterable[InForce], objects: Iterable[ObjectInForce] = ()
    ) -> None:
        """:meth:`save` in a thread; see :meth:`nodeagent.state_file.StateFile.in_time`.

        Raises:
            OSError: they could not be written, or not in time.
        """
        await self._file.in_time(partial(self.save, documents, objects))

    def load(self) -> dict[Identity, InForce]:
        """The pods that were in force; empty when there are none or they are damaged."""
        content = self._file.load()
        self.objects = {}
        if not isinstance(content, Mapping) or content.get("node") != self._node_name:
            return {}
        config_maps = content.get("configMaps")
        for entry in config_maps if isinstance(config_maps, list) else ():
            config_map = self._restore_object(entry)
            if config_map is not None:
                self.objects[config_map.identity] = config_map
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
        except _DAMAGE as error:
            log.warning("checkpoint_entry_ignored", entry=_described(entry), cause=str(error))
            return None

    def _restore_object(self, entry: Mapping[str, Any]) -> ObjectInForce | None:
        try:
            identity = Identity(entry["namespace"], entry["name"], "ConfigMap")
            written = entry["written"].encode()
            value = complete(decode(ConfigMap, written), identity, written, self._node_name)
            return ObjectInForce(identity, _restored_origin(entry), written, value)
        except _DAMAGE as error:
            log.warning("checkpoint_entry_ignored", entry=_described(entry), cause=str(error))
            return None


def _saved(document: InForce | ObjectInForce) -> dict[str, str]:
    return {
        "namespace": document.identity.namespace,
        "name": document.identity.name,
        **_saved_origin(document.origin),
        "written": document.written.decode(),
    }


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
