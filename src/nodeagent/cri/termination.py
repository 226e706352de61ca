"""The last words of a container: what it wrote into its termination log, or else its log.

docs/behaviour/runtime.md, "Termination message".
"""

from __future__ import annotations

from typing import Final

from anyio import to_thread

from nodeagent.cri.log_tail import read_tail, tail_log
from nodeagent.proto.runtime import v1

TERMINATION_PATH_ANNOTATION: Final = "io.kubernetes.container.terminationMessagePath"
TERMINATION_POLICY_ANNOTATION: Final = "io.kubernetes.container.terminationMessagePolicy"
MESSAGE_LIMIT: Final = 4096
"""Bytes; of a longer message the end counts."""
_FALL_BACK: Final = "FallbackToLogsOnError"
_NEVER_RAN: Final = "ContainerCannotRun"
"""Reason of a container that was not even started: it has no log."""


async def final_message(status: v1.ContainerStatus) -> str:
    """The runtime's message, followed by an ended container's last words.

    What cannot be read is the message's end itself: somebody waits for what was in it.
    """
    if int(status.state) != v1.ContainerState.CONTAINER_EXITED.value:
        return status.message
    source, log = termination_log(status), fallback_log(status)
    if source is None and log is None:
        return status.message
    words = await to_thread.run_sync(_last_words, source, log)
    return ": ".join(part for part in (status.message, words) if part)


def termination_log(status: v1.ContainerStatus) -> str | None:
    """Where the termination log of a container lies on this machine; None when it has none."""
    path = status.annotations.get(TERMINATION_PATH_ANNOTATION)
    if not path:
        return None
    # A later mount covers an earlier one, and the log is mounted last.
    found = [m.host_path for m in status.mounts if m.container_path == path and m.host_path]
    return found[-1] if found else None


def fallback_log(status: v1.ContainerStatus) -> str | None:
    """The log that speaks for an ended container without words; None when it must not."""
    if status.annotations.get(TERMINATION_POLICY_ANNOTATION) != _FALL_BACK:
        return None
    if status.exit_code == 0 or status.reason == _NEVER_RAN:
        return None
    return status.log_path or None


def _last_words(source: str | None, log: str | None) -> str:
    words = ""
    if source is not None:
        try:
            words = read_tail(source, MESSAGE_LIMIT).decode(errors="replace")
        except FileNotFoundError as error:
            words = "" if log is not None else _trouble("termination log", source, error)
        except OSError as error:
            return _trouble("termination log", source, error)
    if words or log is None:
        return words
    try:
        return tail_log(log)
    except OSError as error:
        return _trouble("log", log, error)


def _trouble(what: str, path: str, error: OSError) -> str:
    return f"cannot read the {what} {path}: {error.strerror}"
