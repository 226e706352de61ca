"""The chains that an agent keeps in iptables: a hint for others, and no way in for strangers.

Rows and their tests: docs/behaviour/node.md, "iptables".
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import anyio
from anyio import TASK_STATUS_IGNORED, to_thread
from anyio.abc import TaskStatus

from nodeagent.journal import Journal
from nodeagent.log import Log
from nodeagent.program import ProgramError, run_program

log = Log("iptables")

HINT: Final = "KUBE-IPTABLES-HINT"
FIREWALL: Final = "KUBE-FIREWALL"
CANARY: Final = "KUBE-KUBELET-CANARY"
_CANARY_TABLES: Final = ("mangle", "nat", "filter")
_COMMENT: Final = "block incoming localnet connections"
_DROP: Final = (
    *("!", "-s", "127.0.0.0/8", "-d", "127.0.0.0/8"),
    *("-m", "comment", "--comment", _COMMENT),
    *("-m", "conntrack", "!", "--ctstate", "RELATED,ESTABLISHED,DNAT"),
    *("-j", "DROP"),
)
_PERIOD: Final = 60.0
_PATIENCE: Final = 30.0
_LOCK_WAIT: Final = "5"
"""Seconds that iptables may wait for others who change the tables."""

Run: TypeAlias = Callable[[Sequence[str]], Awaitable[None]]
"""Runs a command. Raises ProgramError."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule that must be there.

    Attributes:
        table: where.
        chain: in which chain.
        words: what it says.
        first: whether it is put before the others.
    """

    table: str
    chain: str
    words: tuple[str, ...]
    first: bool = False


@dataclass(frozen=True, slots=True)
class Family:
    """What one of the two programs has to keep.

    Attributes:
        program: ``iptables`` or ``ip6tables``.
        chains: table and name, in the order in which they are made.
        rules: in the order in which they are made.
    """

    program: str
    chains: tuple[tuple[str, str], ...]
    rules: tuple[Rule, ...] = ()


FAMILIES: Final = (
    Family(
        "iptables",
        (("mangle", HINT), ("filter", FIREWALL)),
        (
            Rule("filter", FIREWALL, _DROP),
            Rule("filter", "OUTPUT", ("-j", FIREWALL), first=True),
            Rule("filter", "INPUT", ("-j", FIREWALL), first=True),
        ),
    ),
    Family("ip6tables", (("mangle", HINT),)),
)


async def run_iptables(command: Sequence[str]) -> None:
    """Run a command. Raises ProgramError."""
    await run_program(command, b"", dict(os.environ), _PATIENCE)


def find_programs() -> tuple[Family, ...]:
    """The families whose program is there. Blocking."""
    return tuple(family for family in FAMILIES if shutil.which(family.program))


class IptablesKeeper:
    """Makes the chains, and makes them again when somebody has flushed the tables.

    Args:
        journal: flight recorder.
        run: runs a command.
        find: finds the programs; blocking, called in a thread.
    """

    def __init__(
        self,
        journal: Journal,
        *,
        run: Run = run_iptables,
        find: Callable[[], tuple[Family, ...]] = find_programs,
    ) -> None:
        self._journal = journal
        self._run = run
        self._find = find
        self._trouble: dict[str, str] = {}

    async def run(self, *, task_status: TaskStatus[None] = TASK_STATUS_IGNORED) -> None:
        """Look once a minute until cancelled; whatever fails is tried again then."""
        task_status.started()
        families = await to_thread.run_sync(self._find)
        if not families:
            log.info("iptables_absent", effect="no chains are kept")
        while families:
            for family in families:
                await self._keep(family)
            await anyio.sleep(_PERIOD)
        await anyio.sleep_forever()

    async def _keep(self, family: Family) -> None:
        try:
            if await self._has_canary(family.program):
                return
            for command in commands(family):
                await self._ensure(command)
        except ProgramError as error:
            self._note(family.program, str(error))
        else:
            self._note(family.program, "")
            self._journal.record("node", "ChainsMade", program=family.program)

    async def _has_canary(self, program: str) -> bool:
        """Whether nobody has flushed one of the tables since we wrote to them."""
        return all(
            [
                await self._holds((program, "-w", _LOCK_WAIT, "-t", table, "-S", CANARY))
                for table in _CANARY_TABLES
            ]
        )

    async def _ensure(self, command: Ensure) -> None:
        if not await self._holds(command.check):
            await self._run(command.make)

    async def _holds(self, command: Sequence[str]) -> bool:
        """Whether what is asked for is there."""
        try:
            await self._run(command)
        except ProgramError as error:
            if error.code == 1:
                return False
            raise
        return True

    def _note(self, program: str, trouble: str) -> None:
        """Say once that it does not work, and once that it does."""
        if trouble and trouble != self._trouble.get(program):
            log.warning("chains_not_kept", program=program, cause=trouble)
            self._journal.record("node", "ChainsFailed", why=trouble, program=program)
        elif not trouble:
            log.info("chains_kept", program=program)
        self._trouble[program] = trouble


@dataclass(frozen=True, slots=True)
class Ensure:
    """A command that makes something, and one that ends with code 1 when it is not there."""

    check: tuple[str, ...]
    make: tuple[str, ...]


def commands(family: Family) -> Iterator[Ensure]:
    """What has to be made, in order; the canaries last, so that they tell of all the rest."""
    for table, chain in family.chains:
        yield _chain(family.program, table, chain)
    for rule in family.rules:
        base = (family.program, "-w", _LOCK_WAIT, "-t", rule.table)
        position = ("-I", rule.chain, "1") if rule.first else ("-A", rule.chain)
        yield Ensure((*base, "-C", rule.chain, *rule.words), (*base, *position, *rule.words))
    for table in _CANARY_TABLES:
        yield _chain(family.program, table, CANARY)


def _chain(program: str, table: str, chain: str) -> Ensure:
    base = (program, "-w", _LOCK_WAIT, "-t", table)
    return Ensure((*base, "-S", chain), (*base, "-N", chain))
