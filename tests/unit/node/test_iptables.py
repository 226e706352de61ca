"""The chains in iptables. docs/behaviour/node.md, "iptables"."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, cast

import anyio
import pytest

from nodeagent.cluster import ClusterLink
from nodeagent.config import AgentConfig
from nodeagent.journal import Journal
from nodeagent.node.iptables import FAMILIES, IptablesKeeper, find_programs
from nodeagent.program import ProgramError
from nodeagent.wiring.node import NodeSide, node_services

pytestmark = pytest.mark.anyio


class Tables:
    """Tables in memory that take the commands which are used."""

    def __init__(self) -> None:
        self.chains: set[tuple[str, str, str]] = set()
        self.rules: dict[tuple[str, str, str], list[tuple[str, ...]]] = {}
        self.ran: list[tuple[str, ...]] = []
        self.broken: set[str] = set()

    async def run(self, command: Sequence[str]) -> None:
        self.ran.append(tuple(command))
        program, wait, _, t, table, what, chain, *words = command
        assert (wait, t) == ("-w", "-t")
        if program in self.broken:
            raise ProgramError("ended with code 4: Permission denied", 4)
        key = program, table, chain
        if what == "-S":
            self.demand(key in self.chains)
        elif what == "-N":
            self.demand(key not in self.chains)
            self.chains.add(key)
        elif what == "-C":
            self.demand(tuple(words) in self.rules.get(key, []))
        elif what == "-I":
            self.rules.setdefault(key, []).insert(int(words[0]) - 1, tuple(words[1:]))
        else:
            assert what == "-A"
            self.rules.setdefault(key, []).append(tuple(words))

    @staticmethod
    def demand(holds: bool) -> None:
        if not holds:
            raise ProgramError("ended with code 1", 1)

    def flush(self, program: str, table: str) -> None:
        self.chains = {c for c in self.chains if c[:2] != (program, table)}
        self.rules = {k: r for k, r in self.rules.items() if k[:2] != (program, table)}


@contextmanager
def kept(tables: Tables) -> Iterator[IptablesKeeper]:
    yield IptablesKeeper(Journal(), run=tables.run, find=lambda: FAMILIES)


async def test_ni1_ni2_ni3_what_is_made() -> None:
    tables = Tables()
    tables.rules["iptables", "filter", "INPUT"] = [("-j", "THEIRS")]
    with kept(tables) as keeper:
        async with anyio.create_task_group() as tasks:
            await tasks.start(keeper.run)
            await anyio.sleep(1)
            tasks.cancel_scope.cancel()
    canaries = {
        (p.program, t, "KUBE-KUBELET-CANARY") for p in FAMILIES for t in ("mangle", "nat", "filter")
    }
    assert tables.chains == canaries | {
        ("iptables", "mangle", "KUBE-IPTABLES-HINT"),
        ("ip6tables", "mangle", "KUBE-IPTABLES-HINT"),
        ("iptables", "filter", "KUBE-FIREWALL"),
    }
    jump = ("-j", "KUBE-FIREWALL")
    assert tables.rules["iptables", "filter", "INPUT"] == [jump, ("-j", "THEIRS")]
    assert tables.rules["iptables", "filter", "OUTPUT"] == [jump]
    (drop,) = tables.rules["iptables", "filter", "KUBE-FIREWALL"]
    assert drop == (
        "!", "-s", "127.0.0.0/8", "-d", "127.0.0.0/8",
        "-m", "comment", "--comment", "block incoming localnet connections",
        "-m", "conntrack", "!", "--ctstate", "RELATED,ESTABLISHED,DNAT", "-j", "DROP",
    )  # fmt: skip
    assert set(tables.rules) == {
        ("iptables", "filter", chain) for chain in ("INPUT", "OUTPUT", "KUBE-FIREWALL")
    }


async def test_ni3_a_flushed_table_is_filled_again_and_nothing_is_made_twice() -> None:
    tables = Tables()
    with kept(tables) as keeper:
        async with anyio.create_task_group() as tasks:
            await tasks.start(keeper.run)
            await anyio.sleep(30)
            made, rules = set(tables.chains), {k: list(r) for k, r in tables.rules.items()}
            await anyio.sleep(600)
            assert (tables.chains, tables.rules) == (made, rules)
            tables.ran.clear()
            await anyio.sleep(60)
            assert len(tables.ran) == 6
            tables.flush("iptables", "filter")
            await anyio.sleep(61)
            assert (tables.chains, tables.rules) == (made, rules)
            tasks.cancel_scope.cancel()


async def test_ni4_what_fails_is_said_once_and_tried_again() -> None:
    tables, journal = Tables(), Journal()
    tables.broken.add("iptables")
    keeper = IptablesKeeper(journal, run=tables.run, find=lambda: FAMILIES)
    async with anyio.create_task_group() as tasks:
        await tasks.start(keeper.run)
        await anyio.sleep(300)
        assert [r.what for r in journal.select()] == ["ChainsFailed", "ChainsMade"]
        assert ("ip6tables", "mangle", "KUBE-IPTABLES-HINT") in tables.chains
        tables.broken.clear()
        await anyio.sleep(61)
        assert ("iptables", "filter", "KUBE-FIREWALL") in tables.chains
        tasks.cancel_scope.cancel()


async def test_ni4_without_the_programs_nothing_is_done() -> None:
    tables = Tables()
    keeper = IptablesKeeper(Journal(), run=tables.run, find=tuple)
    async with anyio.create_task_group() as tasks:
        await tasks.start(keeper.run)
        await anyio.sleep(300)
        tasks.cancel_scope.cancel()
    assert tables.ran == []


@pytest.mark.parametrize(
    ("settings", "cluster", "kept"),
    [
        ({}, True, True),
        ({}, False, False),
        ({"make_iptables_util_chains": False}, True, False),
        ({"container_runtime_endpoint": "embedded"}, True, False),
    ],
)
def test_ni5_who_keeps_chains(settings: dict[str, Any], cluster: bool, kept: bool) -> None:
    side = SimpleNamespace(config=AgentConfig(**settings), journal=Journal())
    link = cast("ClusterLink", object()) if cluster else None
    services = node_services(link, cast("NodeSide", side))
    assert [type(service) for service in services] == [IptablesKeeper] * kept


def test_programs_that_are_there_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """NI4."""
    monkeypatch.setattr(shutil, "which", lambda name: "/x" if name == "ip6tables" else None)
    assert [family.program for family in find_programs()] == ["ip6tables"]


def can_be_apart() -> bool:
    """Whether a network of one's own can be made, and has iptables."""
    if os.geteuid() != 0 or not all(map(shutil.which, ("iptables", "unshare", "nsenter"))):
        return False
    command = ["unshare", "-n", "iptables", "-t", "nat", "-S"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


class Apart:
    """Runs commands in a network of their own, which ends with it."""

    def __init__(self) -> None:
        command = ["unshare", "-n", "sh", "-c", "echo; exec sleep 60"]
        self._holder = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert self._holder.stdout is not None
        self._holder.stdout.readline()

    def run(self, command: Sequence[str]) -> subprocess.CompletedProcess[str]:
        inside = ["nsenter", f"--net=/proc/{self._holder.pid}/ns/net", *command]
        return subprocess.run(inside, capture_output=True, text=True, check=False)

    async def ask(self, command: Sequence[str]) -> None:
        done = await anyio.to_thread.run_sync(self.run, command)
        if done.returncode:
            raise ProgramError(done.stderr, done.returncode)

    def shown(self, table: str) -> str:
        return self.run(["iptables", "-t", table, "-S"]).stdout

    def close(self) -> None:
        self._holder.kill()
        self._holder.wait()
        assert self._holder.stdout is not None
        self._holder.stdout.close()


@pytest.fixture
def apart() -> Iterator[Apart]:
    network = Apart()
    yield network
    network.close()


if can_be_apart():

    @pytest.mark.realtime
    async def test_ni2_the_real_program_takes_it_and_gives_it_back(apart: Apart) -> None:
        for _ in range(2):
            journal = Journal()
            keeper = IptablesKeeper(journal, run=apart.ask, find=lambda: FAMILIES[:1])
            with journal.follower(name="") as records:
                async with anyio.create_task_group() as tasks:
                    await tasks.start(keeper.run)
                    assert (await records.receive()).what == "ChainsMade"
                    tasks.cancel_scope.cancel()
            shown = apart.shown("filter")
            assert shown.count("-j KUBE-FIREWALL") == 2
            assert shown.count("-j DROP") == 1
            assert "-N KUBE-KUBELET-CANARY" in shown
            assert "-N KUBE-IPTABLES-HINT" in apart.shown("mangle")
            # As when somebody has flushed another table.
            assert apart.run(["iptables", "-t", "nat", "-X", "KUBE-KUBELET-CANARY"]).returncode == 0
