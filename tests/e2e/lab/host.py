"""What all laboratories on a machine share and change: put back when the last one goes."""

import shlex
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.e2e.lab.waiting import until

_IP_FORWARD: Final = Path("/proc/sys/net/ipv4/ip_forward")
_CGROUPS: Final = Path("/sys/fs/cgroup")
#: The portmap plugin makes these nat chains once and never removes them, nor the jumps to them.
_PORTMAP_CHAINS: Final = ("CNI-HOSTPORT-DNAT", "CNI-HOSTPORT-SETMARK", "CNI-HOSTPORT-MASQ")


@dataclass(frozen=True, slots=True)
class HostState:
    """The shared things as they are at one moment."""

    forwarding: str
    nat_chains: tuple[str, ...]
    cgroups: tuple[str, ...]

    @classmethod
    def now(cls) -> "HostState":
        """Look at the host."""
        return cls(_IP_FORWARD.read_text(), _portmap_chains(), _pod_cgroups())

    def restore(self) -> None:
        """Put the host back to this state; nobody may be using it."""
        for chain in set(_portmap_chains()).difference(self.nat_chains):
            remove_chain(chain)
        for cgroup in sorted(set(_pod_cgroups()).difference(self.cgroups), reverse=True):
            _remove_cgroup(Path(cgroup))
        _IP_FORWARD.write_text(self.forwarding)


def nat_rules() -> list[list[str]]:
    """The nat table's rules in iptables' own words."""
    return [shlex.split(line) for line in run("iptables", "-w", "-t", "nat", "-S").splitlines()]


def remove_rule(words: list[str]) -> None:
    """Delete one of the rules that `nat_rules` returned."""
    run("iptables", "-w", "-t", "nat", "-D", *words[1:])


def remove_chain(chain: str) -> None:
    """Delete a nat chain and the jumps to it."""
    for words in nat_rules():
        if words[0] == "-A" and words[-2:] == ["-j", chain]:
            remove_rule(words)
    run("iptables", "-w", "-t", "nat", "-F", chain)
    run("iptables", "-w", "-t", "nat", "-X", chain)


def run(*command: str) -> str:
    """Run a command and return its output; raises RuntimeError with what it said on failure."""
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    if done.returncode:
        raise RuntimeError(f"{shlex.join(command)}: {done.stderr.strip()}")
    return done.stdout


def _portmap_chains() -> tuple[str, ...]:
    made = {words[1] for words in nat_rules() if words[0] == "-N"}
    return tuple(sorted(made.intersection(_PORTMAP_CHAINS)))


def _pod_cgroups() -> tuple[str, ...]:
    """The cgroups that pods live in, in every hierarchy: containerd's default and Kubernetes'."""
    names = ("k8s.io", "kubepods")
    roots = [_CGROUPS, *(path for path in _CGROUPS.iterdir() if path.is_dir())]
    tops = [root / name for root in roots for name in names if (root / name).is_dir()]
    return tuple(sorted(str(path) for top in tops for path in (top, *top.rglob("*/"))))


def _remove_cgroup(cgroup: Path) -> None:
    """Remove a cgroup; its processes were killed, but the kernel takes a moment to agree."""

    def gone() -> bool:
        with suppress(OSError):
            cgroup.rmdir()
        return not cgroup.exists()

    until(f"the removal of cgroup {cgroup}", gone, timeout=10)
