"""What storage drivers change in the Node and in the CSINode. Pure.

Rows and their tests: docs/behaviour/csi.md, "Node objects".
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from msgspec.structs import replace

from nodeagent.api.meta import ObjectMeta, OwnerReference
from nodeagent.api.node import Node
from nodeagent.api.storage import CSINode, CSINodeDriver, VolumeNodeResources
from nodeagent.csi.client import NodeInfo

NODE_ID: Final = "csi.volume.kubernetes.io/nodeid"


class TopologyError(Exception):
    """The driver's place contradicts what the Node says."""


def node_patch(node: Node, driver: str, info: NodeInfo) -> dict[str, Any]:
    """What a driver adds to the Node; empty when nothing is missing.

    Raises:
        TopologyError: the Node has another value for one of the driver's keys.
    """
    labels = {}
    for key, value in info.topology.items():
        have = node.metadata.labels.get(key)
        if have is not None and have != value:
            msg = (
                f'detected topology value collision: driver reported "{key}":"{value}" '
                f'but existing label is "{key}":"{have}"'
            )
            raise TopologyError(msg)
        if have is None:
            labels[key] = value
    metadata: dict[str, Any] = {"labels": labels} if labels else {}
    ids = _node_ids(node)
    if ids.get(driver) != info.node_id:
        metadata["annotations"] = {NODE_ID: _text({**ids, driver: info.node_id})}
    return {"metadata": metadata} if metadata else {}


def node_patch_without(node: Node, driver: str) -> dict[str, Any]:
    """What goes from the Node with a driver; empty for nothing. Labels stay."""
    ids = _node_ids(node)
    if driver not in ids:
        return {}
    del ids[driver]
    return {"metadata": {"annotations": {NODE_ID: _text(ids) if ids else None}}}


def _node_ids(node: Node) -> dict[str, str]:
    text = node.metadata.annotations.get(NODE_ID, "")
    with suppress(ValueError):
        found = json.loads(text) if text else {}
        if isinstance(found, dict):
            return {str(name): str(value) for name, value in found.items()}
    return {}


def _text(ids: Mapping[str, str]) -> str:
    return json.dumps(ids, sort_keys=True, separators=(",", ":"))


def new_csi_node(node: Node) -> CSINode:
    """The CSINode of a Node that has no drivers."""
    owner = OwnerReference(
        api_version="v1", kind="Node", name=node.metadata.name, uid=node.metadata.uid
    )
    return CSINode(metadata=ObjectMeta(name=node.metadata.name, owner_references=(owner,)))


def belongs_to(found: CSINode, node: Node) -> bool:
    """Whether it is of this very Node, and not of one of that name that was there before."""
    owners = [o.uid for o in found.metadata.owner_references if o.kind == "Node"]
    return node.metadata.uid in owners


def with_driver(found: CSINode, driver: str, info: NodeInfo) -> CSINode:
    """The CSINode with a driver in it."""
    allocatable = VolumeNodeResources(count=info.max_volumes) if info.max_volumes > 0 else None
    entry = CSINodeDriver(
        name=driver,
        node_id=info.node_id,
        topology_keys=tuple(sorted(info.topology)) or None,
        allocatable=allocatable,
    )
    others = tuple(one for one in found.spec.drivers if one.name != driver)
    return replace(found, spec=replace(found.spec, drivers=(*others, entry)))


def without_driver(found: CSINode, driver: str) -> CSINode:
    """The CSINode without it."""
    others = tuple(one for one in found.spec.drivers if one.name != driver)
    return replace(found, spec=replace(found.spec, drivers=others))
