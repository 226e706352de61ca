"""The container runtime interface: protocols, the gRPC client, interned lists, event feeds."""

from nodeagent.cri.client import STARTUP_TIMEOUT, CRIClient, connect
from nodeagent.cri.containerd_events import ContainerdEventFeed, ContainerdEvents
from nodeagent.cri.endpoint import DEFAULT_ENDPOINT, socket_path
from nodeagent.cri.events import ContainerEventFeed, CRIEventFeed, FeedListener, RuntimeHint
from nodeagent.cri.interned import InternTable
from nodeagent.cri.metrics import RuntimeMetrics
from nodeagent.cri.services import ImageService, RuntimeService

__all__ = [
    "DEFAULT_ENDPOINT",
    "STARTUP_TIMEOUT",
    "CRIClient",
    "CRIEventFeed",
    "ContainerEventFeed",
    "ContainerdEventFeed",
    "ContainerdEvents",
    "FeedListener",
    "ImageService",
    "InternTable",
    "RuntimeHint",
    "RuntimeMetrics",
    "RuntimeService",
    "connect",
    "socket_path",
]
