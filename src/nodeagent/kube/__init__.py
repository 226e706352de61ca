"""The one door to the API server: client, watches, credentials.

Importing this package loads neither aiohttp nor kubernetes-asyncio; connecting does.
"""

from nodeagent.kube import paths
from nodeagent.kube.client import KubeClient, KubeClients, PatchKind, Query
from nodeagent.kube.errors import ApiError, KubeError, UndecodableError, UnreachableError

__all__ = [
    "ApiError",
    "KubeClient",
    "KubeClients",
    "KubeError",
    "PatchKind",
    "Query",
    "UndecodableError",
    "UnreachableError",
    "paths",
]
