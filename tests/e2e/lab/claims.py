"""Who has a laboratory on this machine, so that several can live side by side.

A claim is a directory with a file that says whose it is. The first claim remembers how the host
looked; later ones take that over, and whoever gives the last one back restores it. A claim whose
process is gone is given back by the next that comes.
"""

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec
from tests.e2e.lab import processes
from tests.e2e.lab.containerd import Containerd
from tests.e2e.lab.host import HostState
from tests.e2e.lab.network import PodNetwork

_PREFIX: Final = "nodeagent-e2e-"
_FILE: Final = "claim.json"


@dataclass(frozen=True, slots=True)
class Claim:
    """One laboratory's directory and network, and the host as it was before any laboratory."""

    base: str
    process: processes.Process
    network: PodNetwork
    host_before: HostState


@contextmanager
def claim() -> Iterator[Claim]:
    """Take a directory and a network; on exit everything in them is ended and deleted."""
    with _one_at_a_time():
        _reap()
        taken = _take()
    try:
        yield taken
    finally:
        with _one_at_a_time():
            _give_back(taken)


def reap_abandoned() -> None:
    """Give back the claims of processes that were killed before they could do so themselves."""
    with _one_at_a_time():
        _reap()


def _take() -> Claim:
    others = _claims()
    me = processes.find(os.getpid())
    assert me is not None
    taken = Claim(
        base=tempfile.mkdtemp(prefix=_PREFIX),
        process=me,
        network=PodNetwork.plan(f"{me.pid:x}", [other.network.subnet for other in others]),
        host_before=others[0].host_before if others else HostState.now(),
    )
    Path(taken.base, _FILE).write_bytes(msgspec.json.encode(taken))
    return taken


def _give_back(taken: Claim) -> None:
    Containerd(Path(taken.base)).sweep()  # deletes the directory, and with it the claim
    taken.network.close()
    if not _claims():
        taken.host_before.restore()


def _reap() -> None:
    for found in _claims():
        if not found.process.alive():
            _give_back(found)


def _claims() -> list[Claim]:
    files = Path(tempfile.gettempdir()).glob(f"{_PREFIX}*/{_FILE}")
    return [msgspec.json.decode(file.read_bytes(), type=Claim) for file in files]


@contextmanager
def _one_at_a_time() -> Iterator[None]:
    path = Path(tempfile.gettempdir(), f"{_PREFIX}lock")
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
