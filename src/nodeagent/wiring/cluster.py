"""How the parts that talk to the API server are wired."""

from __future__ import annotations

import anyio.lowlevel

from nodeagent.cluster import Cluster, ClusterLink
from nodeagent.node.event_sender import EventSender


def build_cluster(link: ClusterLink | None, sender: EventSender | None) -> Cluster | None:
    """What runs for the API server; None without one."""
    if link is None or sender is None:
        return None
    return Cluster(link=link, services=(sender,), told=anyio.lowlevel.checkpoint)
