"""Reads the service account of the pod that the agent runs in."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from anyio import to_thread

from nodeagent.kube.access import Access, AccessError, signature
from nodeagent.kube.library import library
from nodeagent.kube.tls import read_tls
from nodeagent.kube.understood import plain_errors, settings

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class InCluster:
    """The service account of the pod that the agent runs in.

    Args:
        directory: where its token and the cluster's certificates are mounted.
        environment: tells where the server is.
    """

    source = "service account of this pod"

    def __init__(
        self, directory: Path = SERVICE_ACCOUNT, environment: Mapping[str, str] | None = None
    ) -> None:
        self._directory = directory
        self._environment = environment

    async def load(self) -> Access:
        """Read everything anew.

        Raises:
            AccessError: this is no pod, or something of it is missing.
        """
        return await to_thread.run_sync(self._load)

    def _load(self) -> Access:
        files = (self._directory / "token", self._directory / "ca.crt")
        before = signature(files)
        parts, target = library(), settings()
        environment = os.environ if self._environment is None else self._environment
        try:
            with plain_errors(parts):
                parts.in_cluster_loader(
                    str(files[0]), str(files[1]), try_refresh_token=False, environ=environment
                ).load_and_set(target)
            tls = read_tls(target)
        except AccessError as error:
            msg = f"{self.source}: {error}"
            raise AccessError(msg, files) from error
        return Access(
            server=target.host,
            tls=tls.context,
            authorization=" ".join(target.api_key["BearerToken"].split()),
            files=files,
            signature=before,
            connection=hashlib.sha256(f"{target.host} {tls.digest}".encode()).hexdigest(),
            source=self.source,
        )
