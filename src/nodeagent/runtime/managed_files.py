"""Files that the agent makes for a container (docs/behaviour/runtime.md, "Starting")."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from nodeagent.api import Container, Pod
from nodeagent.runtime.context import RuntimeContext
from nodeagent.runtime.hosts_file import write_hosts_file
from nodeagent.runtime.logs import make_log_dir, next_attempt, pod_log_dir
from nodeagent.runtime.mounts import ManagedFiles
from nodeagent.runtime.names import PodNames
from nodeagent.runtime.sandbox_config import pod_hostname

KEPT: Final = 4
"""Termination logs that are kept: those of the runs whose end may still be shown, and more."""
_NUMBER: Final = re.compile("[0-9a-f]{8}")
_LAST: Final = 2**32 - 1


def make_files(
    context: RuntimeContext, pod: Pod, container: Container, ips: tuple[str, ...]
) -> tuple[ManagedFiles, int]:
    """Make what the agent mounts into the container, and its log directory. Blocking.

    Returns:
        The files, and the attempt that follows the log files that are there.

    Raises:
        OSError: the container cannot do without what could not be made.
    """
    settings = context.settings
    log_dir = pod_log_dir(settings.pod_logs_dir, PodNames.of(pod)) / container.name
    logged = next_attempt(log_dir)
    make_log_dir(log_dir)
    pod_dir = context.pod_dir(pod.metadata.uid)
    etc_hosts: Path | None = None
    if ips or pod.spec.host_network:
        etc_hosts = pod_dir / "etc-hosts"
        host = pod_hostname(pod, settings.cluster_domain)
        write_hosts_file(etc_hosts, pod, ips, host.hostname, host.domain)
    words: Path | None = None
    if container.termination_message_path:
        try:
            words = termination_log(pod_dir / "containers" / container.name)
        except OSError as error:
            # It runs without: a full disk is no reason to leave a container down.
            context.log.warning(
                "no_termination_log",
                pod=pod.metadata.uid,
                container=container.name,
                cause=str(error),
            )
    return ManagedFiles(etc_hosts, words), logged


def termination_log(directory: Path) -> Path:
    """Make a file for the last words of a run; those of runs long ago go. Blocking."""
    directory.mkdir(parents=True, exist_ok=True, mode=0o750)
    found = sorted(directory.iterdir(), key=_written)
    for stale in found[: 1 - KEPT]:
        stale.unlink(missing_ok=True)
    path = directory / _next_name(path.name for path in found)
    path.touch()
    path.chmod(0o666)
    return path


def _written(path: Path) -> tuple[int, str]:
    # Two files of one moment: the later one has the higher name.
    return path.stat().st_mtime_ns, path.name


def _next_name(names: Iterable[str]) -> str:
    """The number after the highest one, in eight digits; any number after the last of all."""
    numbers = [int(name, 16) for name in names if _NUMBER.fullmatch(name)]
    following = max(numbers, default=-1) + 1
    return f"{following:08x}" if following <= _LAST else secrets.token_hex(4)
