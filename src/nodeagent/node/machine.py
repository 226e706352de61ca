"""What the machine is: processors, memory, ids. Blocking; meant for a thread."""

from __future__ import annotations

import os
import shlex
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_ROOT: Final = Path("/")
_MACHINE_IDS: Final = ("etc/machine-id", "var/lib/dbus/machine-id")
_SYSTEM_IDS: Final = (
    "sys/class/dmi/id/product_uuid",
    "proc/device-tree/system-id",
    "proc/device-tree/vm,uuid",
    *_MACHINE_IDS,
)
_BOOT_ID: Final = "proc/sys/kernel/random/boot_id"
_RELEASES: Final = ("etc/os-release", "usr/lib/os-release")
_HUGE_PAGES: Final = "sys/kernel/mm/hugepages"
_KIB: Final = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineInfo:
    """What the machine is; 0 and "" where it does not say.

    Attributes:
        cpus: processors.
        memory: bytes.
        swap: bytes.
        storage: bytes of the file system that holds the agent's directory.
        huge_pages: size of a page in bytes, and how many there are.
        machine_id: of the installation.
        system_uuid: of the hardware, or of the installation when that does not say.
        boot_id: of this boot.
        kernel_version: as ``uname -r`` says.
        os_image: name of the distribution.
        architecture: in Go's words, ``amd64``.
    """

    cpus: int = 0
    memory: int = 0
    swap: int = 0
    storage: int = 0
    huge_pages: tuple[tuple[int, int], ...] = ()
    machine_id: str = ""
    system_uuid: str = ""
    boot_id: str = ""
    kernel_version: str = ""
    os_image: str = ""
    architecture: str = ""


def read_machine(root_dir: Path | None, root: Path = _ROOT) -> MachineInfo:
    """Look at the machine. Blocking.

    Args:
        root_dir: the agent's directory, whose file system is the node's ephemeral storage.
        root: where ``proc``, ``sys`` and ``etc`` are found.
    """
    memory = _memory(root)
    system = os.uname()
    return MachineInfo(
        cpus=os.cpu_count() or 0,
        memory=memory.get("MemTotal", 0),
        swap=memory.get("SwapTotal", 0),
        storage=_storage(root_dir),
        huge_pages=_huge_pages(root),
        machine_id=_first(root, _MACHINE_IDS),
        system_uuid=_first(root, _SYSTEM_IDS),
        boot_id=_first(root, (_BOOT_ID,)),
        kernel_version=system.release,
        os_image=_os_image(root),
        architecture=go_architecture(system.machine),
    )


def go_architecture(machine: str) -> str:
    """What Go calls the kind of machine that the kernel names."""
    return {
        "x86_64": "amd64",
        "aarch64": "arm64",
        "armv7l": "arm",
        "armv6l": "arm",
        "i386": "386",
        "i686": "386",
        "loongarch64": "loong64",
    }.get(machine, machine)


def _memory(root: Path) -> dict[str, int]:
    found = {}
    with suppress(OSError, ValueError):
        for line in (root / "proc/meminfo").read_text().splitlines():
            name, _, amount = line.partition(":")
            if name in ("MemTotal", "SwapTotal"):
                found[name] = int(amount.split()[0]) * _KIB
    return found


def _storage(root_dir: Path | None) -> int:
    with suppress(OSError):
        if root_dir is not None:
            found = os.statvfs(root_dir)
            return found.f_blocks * found.f_frsize
    return 0


def _huge_pages(root: Path) -> tuple[tuple[int, int], ...]:
    found = []
    with suppress(OSError):
        for entry in (root / _HUGE_PAGES).iterdir():
            size = entry.name.removeprefix("hugepages-").removesuffix("kB")
            with suppress(OSError, ValueError):
                count = int((entry / "nr_hugepages").read_text())
                found.append((int(size) * _KIB, count))
    return tuple(sorted(found))


def _first(root: Path, names: tuple[str, ...]) -> str:
    for name in names:
        with suppress(OSError, UnicodeDecodeError):
            # What comes from a device tree ends with a zero byte.
            if text := (root / name).read_text().strip().strip("\0"):
                return text
    return ""


def _os_image(root: Path) -> str:
    for name in _RELEASES:
        with suppress(OSError, ValueError):
            for line in (root / name).read_text().splitlines():
                key, _, value = line.partition("=")
                if key.strip() == "PRETTY_NAME":
                    return " ".join(shlex.split(value))
    return "Linux"
