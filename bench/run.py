"""All measurements into one JSON file, and a table of what they must show: ``make bench``.

Usage: bench/run.py [--results FILE] [--markdown] [--soak-minutes N]
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from contextlib import ExitStack
from pathlib import Path

import anyio
import uvloop

from nodeagent.bench import suite, table
from nodeagent.bench.beds import Place
from nodeagent.bench.children import NODE
from nodeagent.bench.cluster import ClusterPlace

HERE = Path(__file__).parent


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, default=HERE / "results.json")
    parser.add_argument(
        "--markdown", action="store_true", help="write bench/RESULTS.md from the results, too"
    )
    parser.add_argument("--soak-minutes", type=float, default=2.0)
    return parser.parse_args()


def say(row: str) -> None:
    """Tell what is going on."""
    print(f"bench: {row}", file=sys.stderr, flush=True)


def containerd(stack: ExitStack) -> suite.Containerd:
    """What the end-to-end tests have, containerd and API server of our own; else why not."""
    if os.geteuid() != 0:
        return suite.Containerd(None, "containerd and pods need root: sudo make bench")
    sys.path[:0] = [str(HERE.parent), str(HERE.parent / "scripts")]
    import e2e_setup
    from tests.e2e.cluster import assets
    from tests.e2e.cluster.control_plane import open_control_plane
    from tests.e2e.lab.containerd_lab import open_lab
    from tests.e2e.lab.images import BUSYBOX

    if packages := e2e_setup.missing():
        how = f"apt-get install --no-install-recommends {' '.join(packages)}, or make e2e"
        return suite.Containerd(None, f"missing Debian packages: {how}")
    say("starting containerd")
    lab = stack.enter_context(open_lab())
    place = Place(lab.endpoint, BUSYBOX)
    if names := assets.missing():
        why = f"missing: {', '.join(names)}; make e2e provides them, or set KUBEBUILDER_ASSETS"
        return suite.Containerd(place, why_no_cluster=why)
    say("starting the API server")
    plane = stack.enter_context(open_control_plane(lab.base / "control-plane"))
    node = plane.node_kubeconfig(plane.base / "node.kubeconfig", NODE)
    return suite.Containerd(place, cluster=ClusterPlace(plane.base / "admin.kubeconfig", node))


def main() -> int:
    """Measure, write, print; returns the exit code."""
    options = arguments()

    sizes = suite.Sizes(soak_minutes=options.soak_minutes)
    with ExitStack() as stack:
        real = containerd(stack)

        async def measure() -> dict[str, object]:
            return await suite.run(sizes, real, tell=say)

        result = anyio.run(measure, backend_options={"loop_factory": uvloop.new_event_loop})
    options.results.write_text(json.dumps(result, indent=2) + "\n")
    if options.markdown:
        (HERE / "RESULTS.md").write_text(table.markdown(result))
    print("\n".join(table.lines(result)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
