"""All measurements into one JSON file, and a table of what they must show: ``make bench``.

Usage: bench/run.py [--results FILE] [--markdown]
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import anyio
import uvloop

from nodeagent.bench import suite, table

HERE = Path(__file__).parent


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, default=HERE / "results.json")
    parser.add_argument(
        "--markdown", action="store_true", help="write bench/RESULTS.md from the results, too"
    )
    return parser.parse_args()


def main() -> int:
    """Measure, write, print; returns the exit code."""
    options = arguments()

    async def measure() -> dict[str, object]:
        return await suite.run(tell=lambda row: print(f"bench: {row}", file=sys.stderr, flush=True))

    result = anyio.run(measure, backend_options={"loop_factory": uvloop.new_event_loop})
    options.results.write_text(json.dumps(result, indent=2) + "\n")
    if options.markdown:
        (HERE / "RESULTS.md").write_text(table.markdown(result))
    print("\n".join(table.lines(result)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
