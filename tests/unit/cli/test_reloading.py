"""docs/reload-and-rollback.md: SIGHUP, and what the service manager hears."""

from __future__ import annotations

import os
import signal
import socket
from pathlib import Path

import anyio
import pytest

from nodeagent.cli.reloading import Hangups, tell_manager
from nodeagent.cli.systemd import Notifier


@pytest.mark.anyio
@pytest.mark.realtime
async def test_each_hangup_asks_and_none_that_comes_early_is_lost() -> None:
    hangups, early, late = Hangups(), anyio.Event(), list[str]()
    async with anyio.create_task_group() as tasks:
        await tasks.start(hangups.listen)
        hangups.tell(early.set)
        os.kill(os.getpid(), signal.SIGHUP)
        with anyio.fail_after(60):
            await early.wait()
        hangups.tell(lambda: late.append("asked"))
        assert late == ["asked"]
        again = anyio.Event()
        hangups.tell(lambda: again.set() if len(late) > 1 else None)
        os.kill(os.getpid(), signal.SIGHUP)
        with anyio.fail_after(60):
            await again.wait()
        tasks.cancel_scope.cancel()
    assert late == ["asked", "asked"]


def test_nothing_is_asked_for_without_a_hangup() -> None:
    asked: list[str] = []
    Hangups().tell(lambda: asked.append("asked"))
    assert asked == []


def test_the_manager_hears_that_a_reload_begins_and_ends(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as heard:
        heard.bind(str(tmp_path / "notify"))
        heard.settimeout(60)
        manager = Notifier.of({"NOTIFY_SOCKET": str(tmp_path / "notify")}, os.getpid())
        tell_manager(manager, "reloading")
        tell_manager(manager, "ready")
        first, second = heard.recv(1000).decode(), heard.recv(1000).decode()
    name, _, at = first.partition("\nMONOTONIC_USEC=")
    assert (name, at.isdigit(), second) == ("RELOADING=1", True, "READY=1")
