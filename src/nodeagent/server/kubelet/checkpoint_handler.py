"""Checkpoints of containers over the kubelet's API.

docs/behaviour/server.md, "Checkpoints".
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

import msgspec

from nodeagent.api import Pod
from nodeagent.log import Log
from nodeagent.rpc import RpcError
from nodeagent.server.app import Response
from nodeagent.server.kubelet.api import Answer, Route
from nodeagent.server.kubelet.exchange import Exchange
from nodeagent.server.kubelet.targets import Pods, has_container

log = Log("server")

Write: TypeAlias = Callable[[Pod, str, int], Awaitable[Path]]
"""Writes a checkpoint of a pod's container within so many seconds; 0 for the usual ones."""

_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,19}")
_MOST: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class CheckpointHandler:
    """Has checkpoints written.

    Attributes:
        pods: of the node.
        write: writes one; raises LookupError for a container that does not run, RpcError, OSError.
    """

    pods: Pods
    write: Write

    def routes(self) -> list[Route]:
        """What is answered here."""
        return [Route("checkpoint", ("POST",), self.checkpoint, steps=(3,))]

    async def checkpoint(self, exchange: Exchange, steps: Sequence[str]) -> Answer:
        """Where the checkpoint lies."""
        namespace, name, container = steps
        pod = self.pods.find(namespace, name)
        if pod is None:
            return _text(404, "pod does not exist")
        if not has_container(pod, container):
            return _text(404, f"container {container} does not exist")
        timeout = 0
        if exchange.request.has("timeout"):
            text = exchange.request.value("timeout")
            if not _INTEGER.fullmatch(text) or not -_MOST <= int(text) <= _MOST:
                return _text(404, "cannot parse value of timeout parameter")
            timeout = int(text)
        try:
            path = await self.write(pod, container, timeout)
        except (LookupError, RpcError, OSError) as error:
            cause = error.args[0] if isinstance(error, LookupError) else error
            log.warning("checkpoint_failed", pod=name, container=container, cause=str(cause))
            what = f"{namespace}/{name}/{container}"
            return _text(500, f"checkpointing of {what} failed ({cause})")
        body = msgspec.json.encode({"items": [str(path)]})
        return Response(200, body, "application/json")


def _text(status: int, text: str) -> Response:
    return Response(status, text.encode(errors="replace"))
