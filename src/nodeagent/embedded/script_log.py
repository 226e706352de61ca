"""The log files of simulated containers."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path


def log_record(now: int, stream: str, text: str) -> bytes:
    """A whole line as the CRI has it; ``now`` is wall time in nanoseconds."""
    seconds, nanos = divmod(now, 10**9)
    stamp = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{stamp}.{nanos:09d}Z {stream} F {text}\n".encode()


def append_log(path: str, record: bytes) -> None:
    """Write to the end of a log, which is made when it is missing. Blocking."""
    Path(path).parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o640)
    try:
        os.write(descriptor, record)
    finally:
        os.close(descriptor)
