"""A command that cannot be forked: has its container ended, or is there no memory?"""

from __future__ import annotations

import errno
import os
from typing import NoReturn

import pytest

from nodeagent.embedded.process.launcher import execs, linux, procs
from nodeagent.embedded.process.launcher.spec import ExecSpec

PROCESS_NAMESPACE = {"pid": -1}


@pytest.fixture(autouse=True)
def no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def fork() -> NoReturn:
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))

    def enter(_fd: int) -> None:
        """It is there as far as anybody can tell."""

    monkeypatch.setattr(os, "fork", fork)
    monkeypatch.setattr(linux, "setns", enter)
    monkeypatch.setattr(execs, "_END_SECONDS", 0.0)


def command_in(pid: int, start_time: int) -> ExecSpec:
    """A command for a container with that first process."""
    return {
        "pid": pid,
        "start_time": start_time,
        "tty": False,
        "isolated": True,
        "process": {
            "argv": ["true"],
            "env": {},
            "cwd": "/",
            "identity": {
                "uid": None,
                "username": "",
                "gid": None,
                "groups": [],
                "merge_groups": False,
                "capabilities": None,
                "no_new_privs": False,
                "oom_score_adj": None,
            },
        },
    }


def test_where_the_first_process_has_ended_the_container_has() -> None:
    earlier = procs.start_time(os.getpid()) - 1
    with pytest.raises(execs.ContainerEndedError, match="the container has just ended"):
        execs.start(command_in(os.getpid(), earlier), PROCESS_NAMESPACE, -1, -1)


@pytest.mark.parametrize("inside", [PROCESS_NAMESPACE, {}])
def test_where_it_goes_on_there_is_no_memory(inside: dict[str, int]) -> None:
    now = procs.start_time(os.getpid())
    with pytest.raises(OSError, match="Cannot allocate memory"):
        execs.start(command_in(os.getpid(), now), inside, -1, -1)


def test_where_processes_are_not_in_a_namespace_of_their_own_there_is_no_memory() -> None:
    with pytest.raises(OSError, match="Cannot allocate memory"):
        execs.start(command_in(os.getpid(), 0), {}, -1, -1)
