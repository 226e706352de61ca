"""The container runtime interface: protocols, the gRPC client, interned lists, event feeds."""

from nodeagent.cri.services import ImageService, RuntimeService

__all__ = ["ImageService", "RuntimeService"]
