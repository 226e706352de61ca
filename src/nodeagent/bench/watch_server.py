"""An API server in a process of its own: pods of one node, which change when it is told to.

Usage: python -m nodeagent.bench.watch_server SETTINGS. It writes its URL and serves; each line
of its input makes that many pods change, one after the other, and is answered when all have.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

import anyio

from nodeagent.bench.api_pods import fill
from nodeagent.bench.manifests import NAMESPACE
from nodeagent.testing import ApiStore
from nodeagent.testing.api_server import serving_api

SENT: Final = "bench/sent-ns"
"""Annotation of a pod that has changed: the monotonic time right before the change."""
_PAUSES: Final = (0.005, 0.025)


def _change(store: ApiStore, pod: dict[str, Any]) -> None:
    """Change a pod without the copies and checks that the store makes for careless tests."""
    meta = pod["metadata"]
    annotations = {**meta["annotations"], SENT: str(time.monotonic_ns())}
    changed = {**pod, "metadata": {**meta, "annotations": annotations}}
    store.put("pods", (NAMESPACE, meta["name"]), changed)


async def serve(settings: Mapping[str, Any]) -> None:
    """Serve until the input ends."""
    store, dice = ApiStore(), random.Random(0)
    fill(store, int(settings["pods"]))
    pods = store.all("pods")
    async with serving_api(store) as server:
        _say({"url": server.url})
        async for line in anyio.wrap_file(sys.stdin):
            for number in range(int(line)):
                await anyio.sleep(dice.uniform(*_PAUSES))
                _change(store, pods[number % len(pods)])
            _say({"changed": int(line)})


def _say(answer: Any) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


def main() -> None:
    """Run with the settings of the command line."""
    import uvloop

    run = partial(serve, json.loads(sys.argv[1]))
    anyio.run(run, backend_options={"loop_factory": uvloop.new_event_loop})


if __name__ == "__main__":
    main()
