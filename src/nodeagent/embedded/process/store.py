"""Records on disk: what makes a restarted server know what there is.

Layout below the state directory (mode 0700)::

    images.json
    sandboxes/ID/sandbox.json      and the files its containers see: resolv.conf, hostname
    containers/ID/container.json   what was asked for
    containers/ID/claim, monitor.json, exit.json   written by the container's monitor
    containers/ID/rootfs, merged, cwd              its file system

Files are replaced atomically and not synced: what they describe does not outlive the kernel
that holds them. All functions block.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from nodeagent.embedded.process.isolation import Means
from nodeagent.embedded.process.launcher import procs
from nodeagent.embedded.process.trees import remove_tree
from nodeagent.embedded.records import ContainerRecord, Exit, SandboxRecord
from nodeagent.log import Log
from nodeagent.model import ContainerID, PodUID, SandboxID
from nodeagent.proto.runtime import v1

if TYPE_CHECKING:
    from collections.abc import Sequence

log = Log("embedded.store")

VERSION: Final = 1
T = TypeVar("T")


class SandboxFile(msgspec.Struct, frozen=True):
    """``sandbox.json``; ``config`` is the CRI message as it came."""

    version: int
    boot_id: str
    config: bytes
    ip: str
    created_at: int
    runtime_handler: str
    ready: bool


class ContainerFile(msgspec.Struct, frozen=True):
    """``container.json``; ``config`` is the CRI message as it came."""

    version: int
    sandbox_id: str
    pod_uid: str
    config: bytes
    image_id: str
    log_path: str
    created_at: int


class MonitorFile(msgspec.Struct, frozen=True):
    """``monitor.json``, see the launcher."""

    boot_id: str
    monitor_pid: int
    monitor_start: int
    pid: int
    start: int
    started_at: int
    isolation: Means


class ExitFile(msgspec.Struct, frozen=True):
    """``exit.json``, see the launcher."""

    code: int
    finished_at: int
    reason: str
    message: str


class Store:
    """The state directory.

    Args:
        root: made when it is missing.
    """

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()
        self.boot_id = ""
        self._lock = -1

    def open(self) -> None:
        """Make the directories.

        Raises:
            OSError: they cannot be made, or another server uses them.
        """
        for path in (self.root, self.root / "sandboxes", self.root / "containers"):
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.root.chmod(0o700)
        self._lock = self._take_lock()
        self.boot_id = procs.boot_id()

    def close(self) -> None:
        """Let another server use the directory."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def _take_lock(self) -> int:
        fd = os.open(self.root / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as exc:
            os.close(fd)
            raise BlockingIOError(exc.errno, self._in_use()) from exc
        os.truncate(fd, 0)
        os.write(fd, f"{os.getpid()}\n".encode())
        return fd

    def _in_use(self) -> str:
        holder = (self.root / "lock").read_text(encoding="ascii", errors="replace").strip()
        who = f"process {holder}, another embedded runtime" if holder else "another process"
        return (
            f"{self.root} is in use by {who}: stop that one, or choose another directory"
            " (--root-dir of run, --state-dir of embedded-runtime)"
        )

    def sandbox_dir(self, sandbox_id: str) -> Path:
        """Where a sandbox's files are."""
        return self.root / "sandboxes" / sandbox_id

    def container_dir(self, container_id: str) -> Path:
        """Where a container's files are."""
        return self.root / "containers" / container_id

    # -- writing

    def save_sandbox(self, sandbox: SandboxRecord) -> None:
        """Write a sandbox down, and the files that its containers see."""
        where = self.sandbox_dir(sandbox.id)
        where.mkdir(mode=0o755, exist_ok=True)
        for name, text in sandbox_files(sandbox.config).items():
            (where / name).write_text(text, encoding="utf-8")
        record = SandboxFile(
            version=VERSION,
            boot_id=self.boot_id,
            config=bytes(sandbox.config),
            ip=sandbox.ip,
            created_at=sandbox.created_at,
            runtime_handler=sandbox.runtime_handler,
            ready=sandbox.ready,
        )
        replace_file(where / "sandbox.json", msgspec.json.encode(record))

    def save_container(self, container: ContainerRecord) -> None:
        """Write a container down."""
        where = self.container_dir(container.id)
        where.mkdir(mode=0o755, exist_ok=True)
        record = ContainerFile(
            version=VERSION,
            sandbox_id=container.sandbox_id,
            pod_uid=container.pod_uid,
            config=bytes(container.config),
            image_id=container.image_id,
            log_path=container.log_path,
            created_at=container.created_at,
        )
        replace_file(where / "container.json", msgspec.json.encode(record))

    def save_exit(self, container_id: str, end: Exit) -> None:
        """Write down how a container ended whose monitor did not."""
        record = ExitFile(end.code, end.finished_at, end.reason, end.message)
        replace_file(self.container_dir(container_id) / "exit.json", msgspec.json.encode(record))

    def save_images(self, references: Sequence[str]) -> None:
        """Write down which images are present."""
        replace_file(self.root / "images.json", msgspec.json.encode(list(references)))

    def remove_sandbox(self, sandbox_id: str) -> None:
        """Remove what there is of a sandbox."""
        shutil.rmtree(self.sandbox_dir(sandbox_id), ignore_errors=True)

    def remove_container(self, container_id: str) -> None:
        """Remove what there is of a container."""
        where = self.container_dir(container_id)
        if not remove_tree(where):
            log.warning("container_files_left", path=str(where))

    # -- reading

    def load_images(self) -> list[str]:
        """The images that were present."""
        return _read(self.root / "images.json", list[str]) or []

    def load_sandboxes(self) -> list[SandboxRecord]:
        """The sandboxes there were, by age; after a reboot none of them is ready."""
        found = []
        for where in (self.root / "sandboxes").iterdir():
            record = _read(where / "sandbox.json", SandboxFile)
            if record is None:
                shutil.rmtree(where, ignore_errors=True)
                continue
            found.append(
                SandboxRecord(
                    id=SandboxID(where.name),
                    config=v1.PodSandboxConfig.parse(record.config),
                    ip=record.ip,
                    created_at=record.created_at,
                    runtime_handler=record.runtime_handler,
                    ready=record.ready and record.boot_id == self.boot_id,
                )
            )
        return sorted(found, key=lambda one: one.created_at)

    def load_containers(self) -> tuple[list[ContainerRecord], list[str]]:
        """The containers there were, by age, as created; and ids of those with no record."""
        found, unknown = [], []
        for where in (self.root / "containers").iterdir():
            record = _read(where / "container.json", ContainerFile)
            if record is None:
                unknown.append(where.name)
                continue
            config = v1.ContainerConfig.parse(record.config)
            found.append(
                ContainerRecord(
                    id=ContainerID(where.name),
                    sandbox_id=SandboxID(record.sandbox_id),
                    config=config,
                    image_id=record.image_id,
                    log_path=record.log_path,
                    created_at=record.created_at,
                    resources=config.linux.resources if config.linux else None,
                    pod_uid=PodUID(record.pod_uid),
                )
            )
        return sorted(found, key=lambda one: one.created_at), unknown

    def read_monitor(self, container_id: str) -> MonitorFile | None:
        """What the container's monitor says runs."""
        return _read(self.container_dir(container_id) / "monitor.json", MonitorFile)

    def read_exit(self, container_id: str) -> Exit | None:
        """How the container ended, if it has."""
        record = _read(self.container_dir(container_id) / "exit.json", ExitFile)
        if record is None:
            return None
        return Exit(record.code, record.finished_at, record.reason, record.message)

    def was_claimed(self, container_id: str) -> bool:
        """Whether a start of the container was ever begun."""
        return (self.container_dir(container_id) / "claim").exists()


def sandbox_files(config: v1.PodSandboxConfig) -> dict[str, str]:
    """The files that the containers of a sandbox see, by name, with their content."""
    files = {}
    dns = config.dns_config
    if dns is not None and (dns.servers or dns.searches or dns.options):
        lines = [f"search {' '.join(dns.searches)}"] if dns.searches else []
        lines += [f"nameserver {server}" for server in dns.servers]
        lines += [f"options {' '.join(dns.options)}"] if dns.options else []
        files["resolv.conf"] = "".join(f"{line}\n" for line in lines)
    if config.hostname:
        files["hostname"] = f"{config.hostname}\n"
    return files


def replace_file(path: Path, data: bytes) -> None:
    """Write a file so that a reader sees the old content or the new one."""
    new = path.with_name(path.name + ".new")
    new.write_bytes(data)
    new.chmod(0o600)
    new.replace(path)


def _read(path: Path, kind: type[T]) -> T | None:
    """Read a record; one that is damaged is moved aside and counts as missing."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except FileNotFoundError:
        return None
    except (msgspec.MsgspecError, ValueError) as exc:
        aside = path.with_name(path.name + ".damaged")
        with contextlib.suppress(OSError):
            path.replace(aside)
        log.warning("record_damaged", path=str(path), moved_to=str(aside), error=str(exc))
        return None
