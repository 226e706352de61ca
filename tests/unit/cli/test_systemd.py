"""docs/configuration.md, "systemd"."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from nodeagent.cli.systemd import Notifier, from_environment
from nodeagent.errors import StartError

USEC = 10_000_000


class Manager:
    """Hears what services say."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(path))
        self.socket.settimeout(60)

    def next(self) -> str:
        return self.socket.recv(1000).decode()

    def heard(self) -> list[str]:
        self.socket.setblocking(False)
        found = []
        try:
            while True:
                found.append(self.socket.recv(1000).decode())
        except BlockingIOError:
            return found
        finally:
            self.socket.settimeout(60)


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Manager]:
    made = Manager(tmp_path / "notify")
    yield made
    made.socket.close()


def test_nobody_listens() -> None:
    for environment in ({}, {"NOTIFY_SOCKET": "relative"}, {"WATCHDOG_USEC": "5"}):
        notifier = Notifier.of(environment, 1)
        assert notifier == Notifier()
        assert not notifier.tell("READY=1")


def test_what_the_environment_says() -> None:
    where = {"NOTIFY_SOCKET": "/run/x"}
    assert Notifier.of(where, 1) == Notifier("/run/x")
    assert Notifier.of({**where, "WATCHDOG_USEC": str(USEC)}, 1).watchdog == 10.0
    given = {**where, "WATCHDOG_USEC": str(USEC), "WATCHDOG_PID": "7"}
    assert Notifier.of(given, 7).watchdog == 10.0
    assert Notifier.of(given, 8).watchdog == 0.0


@pytest.mark.parametrize(
    ("usec", "told"),
    [
        ("1000000", "configure watchdog timeout too small: 1s"),
        ("x", "configure watchdog: WATCHDOG_USEC=x is no number of microseconds"),
        ("0", "configure watchdog: WATCHDOG_USEC=0 is no number of microseconds"),
        ("-5", "configure watchdog: WATCHDOG_USEC=-5 is no number of microseconds"),
    ],
)
def test_a_watchdog_that_cannot_be_kept(usec: str, told: str) -> None:
    with pytest.raises(StartError, match=told):
        Notifier.of({"NOTIFY_SOCKET": "/run/x", "WATCHDOG_USEC": usec}, 1)


def test_a_state_reaches_the_manager(manager: Manager) -> None:
    assert Notifier(str(manager.path)).tell("READY=1")
    assert manager.next() == "READY=1"


def test_names_without_a_file_are_reached_too() -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        name = f"nodeagent-test-{os.getpid()}"
        listener.bind("\0" + name)
        assert Notifier("@" + name).tell("STOPPING=1")
        assert listener.recv(100) == b"STOPPING=1"


def test_a_manager_that_has_gone_is_no_fault_of_the_agent(tmp_path: Path) -> None:
    assert not Notifier(str(tmp_path / "gone")).tell("READY=1")


def test_programs_that_are_started_do_not_inherit_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", "/run/x")
    monkeypatch.setenv("WATCHDOG_USEC", str(USEC))
    assert from_environment() == Notifier("/run/x", 10.0)
    assert not {"NOTIFY_SOCKET", "WATCHDOG_USEC"} & set(os.environ)


@pytest.mark.anyio
async def test_signs_of_life_come_each_half_interval_while_all_is_well(manager: Manager) -> None:
    trouble = ""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(Notifier(str(manager.path), 10.0).keep_alive, lambda: trouble)
        await anyio.sleep(16)
        assert manager.heard() == ["WATCHDOG=1"] * 3
        trouble = "the loop stands still"
        await anyio.sleep(20)
        assert manager.heard() == []
        trouble = ""
        await anyio.sleep(7)
        assert "WATCHDOG=1" in manager.heard()
        tasks.cancel_scope.cancel()


@pytest.mark.anyio
async def test_what_passes_within_a_second_costs_no_sign(manager: Manager) -> None:
    answers = iter(["a moment", ""])
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(Notifier(str(manager.path), 10.0).keep_alive, lambda: next(answers))
        await anyio.sleep(6.5)
        assert manager.heard() == ["WATCHDOG=1"]
        tasks.cancel_scope.cancel()


def test_a_service_says_ready_alive_and_stopping(manager: Manager, tmp_path: Path) -> None:
    (tmp_path / "manifests").mkdir()
    command = [sys.executable, "-m", "nodeagent", "run", "--healthz-port=0"]
    command += ["--container-runtime-endpoint=embedded:simulated", f"--root-dir={tmp_path}/root"]
    command += [f"--pod-logs-dir={tmp_path}/logs", f"--pod-manifest-path={tmp_path}/manifests"]
    environment = {
        **os.environ,
        "NOTIFY_SOCKET": str(manager.path),
        "WATCHDOG_USEC": "1500000",
    }
    with subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL) as agent:
        try:
            assert [manager.next() for _ in range(2)] == ["READY=1", "WATCHDOG=1"]
        finally:
            agent.terminate()
        told = manager.next()
        while told == "WATCHDOG=1":
            told = manager.next()
        assert told == "STOPPING=1"
        assert agent.wait(60) == 0
