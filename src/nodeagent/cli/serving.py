"""The process of ``nodeagent run``: its event loop, its signals, and its service manager."""

from __future__ import annotations

import gc
import resource
import signal
from contextlib import nullcontext
from typing import Any, Final

import anyio
import click

from nodeagent.aio import leaves
from nodeagent.cli.lock_file import LockFile
from nodeagent.cli.reloading import Hangups, Reloading
from nodeagent.config import AgentConfig
from nodeagent.log import Log

log = Log("cli")

LEAST_DESCRIPTORS: Final = 64
"""Open files that an agent without pods gets along with."""
MOST_DESCRIPTORS: Final = 1_000_000
"""As many as the kubelet asks for: each who follows a log needs two, a connection and a file."""


def _descriptors() -> int:
    """How many files the process may have open, after the limit was raised to what is allowed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MOST_DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST_DESCRIPTORS if soft == resource.RLIM_INFINITY else soft


def serve(
    config: AgentConfig, lock: LockFile | None = None, reloading: Reloading | None = None
) -> int:
    """Run an agent in an event loop of its own, while it holds the lock; the exit code."""
    from nodeagent.errors import StartError

    # Event loops answer too few of them with a traceback, each in its own way.
    if (allowed := _descriptors()) < LEAST_DESCRIPTORS:
        click.echo(
            f"nodeagent: only {allowed} files may be open (ulimit -n), at least "
            f"{LEAST_DESCRIPTORS} are needed: raise the limit",
            err=True,
        )
        return 1
    options: dict[str, Any] = {}
    try:
        import uvloop

        options["loop_factory"] = uvloop.new_event_loop
    except ImportError:  # pragma: no cover - uvloop is optional off CPython
        pass
    failed: list[BaseException] = []
    try:
        return anyio.run(_serve, config, lock, reloading, backend_options=options)
    except* StartError as group:
        failed = list(leaves(group))
    for error in failed:
        click.echo(f"nodeagent: {error}", err=True)
    return 1


async def _serve(
    config: AgentConfig, lock: LockFile | None = None, reloading: Reloading | None = None
) -> int:
    """The first signal ends the agent in order, a second one at once."""
    async with anyio.create_task_group() as tg:
        stop = anyio.Event()
        tg.start_soon(_watch_signals, stop)
        hangups = Hangups()
        await tg.start(hangups.listen)
        async with nullcontext(enter_result=True) if lock is None else lock.held(stop) as held:
            code = await _run(config, stop, reloading, hangups) if held else 0
        tg.cancel_scope.cancel()
    return code


async def _run(
    config: AgentConfig, stop: anyio.Event, reloading: Reloading | None, hangups: Hangups
) -> int:
    """Run the agent until ``stop`` is set, and tell the service manager of it."""
    from nodeagent.agent import NodeAgent
    from nodeagent.cli.systemd import CHECKS, from_environment

    manager, agent = from_environment(), NodeAgent(config)

    async with agent, anyio.create_task_group() as at_work:
        # What an agent is made of stays as long as it does: collections of all generations, which
        # hold the loop up for some 30 ms, need not look at it again.
        gc.collect()
        gc.freeze()
        manager.tell("READY=1")
        at_work.start_soon(manager.keep_alive, lambda: agent.parts.checks.trouble(CHECKS))
        if reloading is not None:
            at_work.start_soon(reloading.run, agent, manager, hangups)
        await stop.wait()
        at_work.cancel_scope.cancel()
        manager.tell("STOPPING=1")
    return 1 if agent.left_running else 0


async def _watch_signals(stop: anyio.Event) -> None:
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async for number in signals:
            name = signal.Signals(number).name
            if stop.is_set():
                log.warning("second_signal", signal=name, action="ending at once")
                # Nothing may hold the process up now; the kernel releases what it holds.
                signal.signal(number, signal.SIG_DFL)
                signal.raise_signal(number)
            log.info("stopping", signal=name)
            stop.set()
