"""Linux capabilities by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from nodeagent.rpc import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Iterable

NUMBERS: Final = {
    name: number
    for number, name in enumerate(
        [
            "CHOWN",
            "DAC_OVERRIDE",
            "DAC_READ_SEARCH",
            "FOWNER",
            "FSETID",
            "KILL",
            "SETGID",
            "SETUID",
            "SETPCAP",
            "LINUX_IMMUTABLE",
            "NET_BIND_SERVICE",
            "NET_BROADCAST",
            "NET_ADMIN",
            "NET_RAW",
            "IPC_LOCK",
            "IPC_OWNER",
            "SYS_MODULE",
            "SYS_RAWIO",
            "SYS_CHROOT",
            "SYS_PTRACE",
            "SYS_PACCT",
            "SYS_ADMIN",
            "SYS_BOOT",
            "SYS_NICE",
            "SYS_RESOURCE",
            "SYS_TIME",
            "SYS_TTY_CONFIG",
            "MKNOD",
            "LEASE",
            "AUDIT_WRITE",
            "AUDIT_CONTROL",
            "SETFCAP",
            "MAC_OVERRIDE",
            "MAC_ADMIN",
            "SYSLOG",
            "WAKE_ALARM",
            "BLOCK_SUSPEND",
            "AUDIT_READ",
            "PERFMON",
            "BPF",
            "CHECKPOINT_RESTORE",
        ]
    )
}
DEFAULT: Final = frozenset(
    [
        "AUDIT_WRITE",
        "CHOWN",
        "DAC_OVERRIDE",
        "FOWNER",
        "FSETID",
        "KILL",
        "MKNOD",
        "NET_BIND_SERVICE",
        "NET_RAW",
        "SETFCAP",
        "SETGID",
        "SETPCAP",
        "SETUID",
        "SYS_CHROOT",
    ]
)
"""What a container has when nothing is said."""


def kept_numbers(add: Iterable[str], drop: Iterable[str]) -> list[int]:
    """The numbers of the capabilities that remain: the default ones, less and more.

    Names may have the prefix ``CAP_`` and be in any case; ``ALL`` stands for all.

    Raises:
        InvalidArgument: there is no such capability.
    """
    dropped, added = _names(drop), _names(add)
    kept = (DEFAULT - dropped) | added
    return sorted(NUMBERS[name] for name in kept)


def _names(given: Iterable[str]) -> frozenset[str]:
    found: set[str] = set()
    for text in given:
        name = text.upper().removeprefix("CAP_")
        if name == "ALL":
            found.update(NUMBERS)
        elif name in NUMBERS:
            found.add(name)
        else:
            msg = f"unknown capability {text!r}"
            raise InvalidArgument(msg)
    return frozenset(found)
