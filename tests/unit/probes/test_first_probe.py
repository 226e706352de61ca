"""The first probe of an agent loads libraries; that is not the container's time.

docs/behaviour/probes.md, BP5.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.realtime

_SCRIPT = """
import asyncio, importlib.abc, sys
from tests.unit.probes.servers import target
from nodeagent.api import GRPCAction, HTTPGetAction
from nodeagent.bench.probe_targets import listen, port_of
from nodeagent.probes.grpc_probe import GrpcProbe
from nodeagent.probes.http_probe import HttpProbe


class Loop(asyncio.SelectorEventLoop):
    late = 0.0

    def time(self):
        return super().time() + self.late


loop = Loop()


class Slow(importlib.abc.MetaPathFinder):
    # Finds nothing, and seems to take longer for it than a probe may.
    loaded = []

    def find_spec(self, name, path, where=None):
        if name in ("aiohttp", "nodeagent.proto.grpc.health.v1"):
            self.loaded.append(name)
            loop.late += 1000
        return None


async def main():
    sys.meta_path.insert(0, Slow())
    servers = await listen()
    get = HttpProbe()
    page = HTTPGetAction(path="/", port=port_of(servers["http"]))
    health = GRPCAction(port=port_of(servers["grpc"]))
    probes = (
        (get, target(timeout_seconds=60, http_get=page)),
        (GrpcProbe(), target(timeout_seconds=60, grpc=health)),
    )
    for probe, where in probes:
        print((await probe(where)).text)
    await get.aclose()
    print(len(Slow.loaded))

loop.run_until_complete(main())
"""


def test_bp5_loading_libraries_does_not_count() -> None:
    root = Path(__file__).parents[3]
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT], capture_output=True, text=True, timeout=60, cwd=root
    )
    assert done.stdout.splitlines() == ["ok", "service healthy", "2"], done.stderr
