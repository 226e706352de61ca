"""Feeds the agent random manifests, files, messages and runtime answers for a bounded time.

    python scripts/fuzz.py                       all targets, FUZZ_SECONDS (20) in all
    python scripts/fuzz.py answers --seed 17     one run again, as a failure tells it

A run depends on its seed alone. Seeds go up from FUZZ_SEED, or from one drawn at the start.
"""

from __future__ import annotations

import argparse
import inspect
import logging
import os
import sys
import time
import traceback
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random, SystemRandom
from typing import Final

import anyio

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.fuzz.answers import fuzz_answers
from tests.fuzz.files import fuzz_files
from tests.fuzz.manifests import fuzz_sources
from tests.fuzz.wire import fuzz_wire

from nodeagent.testing.virtual_time import VirtualTimeLoop

Target = Callable[[Random], Awaitable[None]] | Callable[[Random], None]

TARGETS: Final[dict[str, Target]] = {
    "manifests": fuzz_sources,
    "files": fuzz_files,
    "wire": fuzz_wire,
    "answers": fuzz_answers,
}
SHARES: Final = {"manifests": 0.25, "files": 0.15, "wire": 0.1, "answers": 0.5}
"""Of the time, by target."""


def run(name: str, seed: int) -> None:
    """Run a target once; raises what it finds."""
    target = TARGETS[name]
    if inspect.iscoroutinefunction(target):
        options = {"loop_factory": VirtualTimeLoop}
        anyio.run(target, Random(seed), backend_options=options)
    else:
        target(Random(seed))


def tried(name: str, seed: int) -> bool:
    """Whether a run has found nothing; else how to repeat it is told."""
    try:
        run(name, seed)
    except Exception:  # noqa: BLE001 - whatever it is, it is what was looked for
        traceback.print_exc()
        print(f"fuzz: {name} has failed; again with: python scripts/fuzz.py {name} --seed {seed}")
        return False
    return True


def explore(name: str, seed: int, seconds: float) -> bool:
    """Run a target with one seed after the other; False at the first that finds something."""
    end, runs = time.monotonic() + seconds, 0
    while runs == 0 or time.monotonic() < end:
        if not tried(name, seed + runs):
            return False
        runs += 1
    print(f"fuzz: {name}: {runs} runs from seed {seed}, nothing found")
    return True


def main() -> int:
    """The exit code: 1 when something was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("targets", nargs="*", choices=[[], *TARGETS], metavar="target")
    parser.add_argument("--seed", type=int, help="run each target once, with this seed")
    parser.add_argument(
        "--seconds", type=float, default=float(os.environ.get("FUZZ_SECONDS", "20"))
    )
    given = parser.parse_args()
    logging.getLogger("nodeagent").propagate = False
    targets = given.targets or list(TARGETS)
    if given.seed is not None:
        results = [tried(name, given.seed) for name in targets]
        return 0 if all(results) else 1
    first = int(os.environ.get("FUZZ_SEED") or SystemRandom().randrange(2**31))
    whole = sum(SHARES[name] for name in targets)
    found = [explore(n, first, given.seconds * SHARES[n] / whole) for n in targets]
    return 0 if all(found) else 1


if __name__ == "__main__":
    sys.exit(main())
