"""What the server tells the launcher, as JSON. Only read by type checkers at run time."""

from __future__ import annotations

from typing import Literal, TypedDict


class MountSpec(TypedDict):
    """A host path that the container sees at ``target``."""

    source: str
    target: str
    readonly: bool
    private: bool


class IsolationSpec(TypedDict):
    """Namespaces and file system of a container.

    ``user`` says whether it is in a user namespace, for want of privileges. ``upper`` says
    where changes to the root file system go: files next to the container's record, or memory.
    ``hide`` are host directories whose mounts the container does not see.
    """

    user: bool
    upper: Literal["dir", "tmpfs"]
    hostname: str
    own_pid: bool
    own_ipc: bool
    mounts: list[MountSpec]
    devices: list[MountSpec]
    all_devices: bool
    masked: list[str]
    readonly_paths: list[str]
    readonly_root: bool
    hide: list[str]


class IdentitySpec(TypedDict):
    """Who a process runs as. ``None`` leaves a thing as it is.

    ``merge_groups`` adds the user's groups of ``/etc/group``; ``capabilities`` are the numbers
    of those that remain.
    """

    uid: int | None
    username: str
    gid: int | None
    groups: list[int]
    merge_groups: bool
    capabilities: list[int] | None
    no_new_privs: bool
    oom_score_adj: int | None


class ProcessSpec(TypedDict):
    """A program to run."""

    argv: list[str]
    env: dict[str, str]
    cwd: str
    identity: IdentitySpec


class ContainerSpec(TypedDict):
    """A container to start. ``dir`` is where its monitor leaves its records.

    ``stdin`` says whether it reads what those who attach to it write, ``stdin_once`` whether its
    input ends with that of the first of them.
    """

    dir: str
    name: str
    process: ProcessSpec
    tty: bool
    stdin: bool
    stdin_once: bool
    log_directory: str
    log_path: str
    isolation: IsolationSpec | None


class ExecSpec(TypedDict):
    """A command to run in a container, by its first process and when that started.

    ``isolated`` says whether the container is in namespaces of its own, ``tty`` whether what it
    writes to is its terminal.
    """

    pid: int
    start_time: int
    isolated: bool
    tty: bool
    process: ProcessSpec


class MonitorRecord(TypedDict):
    """``monitor.json``: what runs, identified beyond the reuse of process ids.

    Start times are clock ticks since the boot; ``started_at`` is wall time in nanoseconds, 0
    until the program runs.
    """

    isolation: Literal["root", "user", "none"]

    boot_id: str
    monitor_pid: int
    monitor_start: int
    pid: int
    start: int
    started_at: int


class ExitRecord(TypedDict):
    """``exit.json``: how it ended. ``finished_at`` is wall time in nanoseconds."""

    code: int
    finished_at: int
    reason: str
    message: str


class ProbeSpec(TypedDict):
    """A try whether containers can be isolated: can ``file`` be made in one?"""

    dir: str
    user: bool
    upper: Literal["dir", "tmpfs"]
    file: str
