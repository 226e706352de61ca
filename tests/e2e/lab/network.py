"""The pod network of the laboratory: an own bridge and subnet, and nothing left of it later."""

import ipaddress
import json
import shlex
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

CNI_BINARIES: Final = Path("/usr/lib/cni")
CNI_RESULTS: Final = Path("/var/lib/cni/results")
_IP_FORWARD: Final = Path("/proc/sys/net/ipv4/ip_forward")
_CANDIDATES: Final = ipaddress.ip_network("10.213.0.0/16")
#: The portmap plugin makes these nat chains once and never removes them, nor the jumps to them.
_PORTMAP_CHAINS: Final = ("CNI-HOSTPORT-DNAT", "CNI-HOSTPORT-SETMARK", "CNI-HOSTPORT-MASQ")


@dataclass(frozen=True, slots=True)
class PodNetwork:
    """A bridge network; `close` puts the host back to how it was."""

    name: str
    bridge: str
    subnet: str
    forwarding_before: str
    nat_chains_before: tuple[str, ...]

    @classmethod
    def plan(cls, tag: str) -> "PodNetwork":
        """Choose names and a free subnet and note how the host looks; changes nothing yet.

        Args:
            tag: a few characters that make names on this host unique.
        """
        return cls(
            name=f"nodeagent-{tag}",
            bridge=f"na{tag}",
            subnet=_free_subnet(),
            forwarding_before=_IP_FORWARD.read_text(),
            nat_chains_before=tuple(sorted(_portmap_chains())),
        )

    def write_conf(self, conf_dir: Path, ipam_dir: Path) -> None:
        """Write the CNI configuration; the bridge appears with the first pod.

        Args:
            conf_dir: an existing directory for the CNI configuration.
            ipam_dir: where host-local keeps the addresses it gave away.
        """
        conf = json.dumps(self.conflist(ipam_dir), indent=2)
        (conf_dir / "10-nodeagent.conflist").write_text(conf)

    def conflist(self, ipam_dir: Path) -> dict[str, object]:
        """The CNI configuration list."""
        ipam = {
            "type": "host-local",
            "dataDir": str(ipam_dir),
            "ranges": [[{"subnet": self.subnet}]],
            "routes": [{"dst": "0.0.0.0/0"}],
        }
        bridge = {
            "type": "bridge",
            "bridge": self.bridge,
            "isGateway": True,
            "hairpinMode": True,
            "ipam": ipam,
        }
        portmap = {"type": "portmap", "capabilities": {"portMappings": True}}
        return {"cniVersion": "0.4.0", "name": self.name, "plugins": [bridge, portmap]}

    def close(self) -> None:
        """Remove the bridge and everything that CNI remembers of this network's pods."""
        if Path("/sys/class/net", self.bridge).exists():
            _run("ip", "link", "delete", self.bridge)
        for result in CNI_RESULTS.glob(f"{self.name}-*"):
            result.unlink(missing_ok=True)
        self._remove_forgotten_ports()
        for chain in sorted(_portmap_chains() - set(self.nat_chains_before)):
            _remove_chain(chain)
        _IP_FORWARD.write_text(self.forwarding_before)

    def _remove_forgotten_ports(self) -> None:
        """Host ports of pods that were never removed; the rule's comment names the network."""
        for words in _nat_rules():
            if words[0] == "-A" and any(f'"{self.name}"' in word for word in words):
                _run("iptables", "-w", "-t", "nat", "-D", *words[1:])
                _remove_chain(words[-1])


def _free_subnet() -> str:
    """The first /24 of the candidates that no route of this host touches."""
    taken = [ipaddress.ip_network(route) for route in _routes()]
    for subnet in _CANDIDATES.subnets(new_prefix=24):
        if not any(subnet.overlaps(other) for other in taken):
            return str(subnet)
    raise RuntimeError(f"no free /24 in {_CANDIDATES} on this host")


def _routes() -> list[str]:
    entries: list[dict[str, str]] = json.loads(_run("ip", "-4", "-json", "route", "show"))
    return [entry["dst"] for entry in entries if entry["dst"] != "default"]


def _nat_rules() -> list[list[str]]:
    return [shlex.split(line) for line in _run("iptables", "-w", "-t", "nat", "-S").splitlines()]


def _portmap_chains() -> set[str]:
    made = {words[1] for words in _nat_rules() if words[0] == "-N"}
    return made.intersection(_PORTMAP_CHAINS)


def _remove_chain(chain: str) -> None:
    for words in _nat_rules():
        if words[0] == "-A" and words[-2:] == ["-j", chain]:
            _run("iptables", "-w", "-t", "nat", "-D", *words[1:])
    _run("iptables", "-w", "-t", "nat", "-F", chain)
    _run("iptables", "-w", "-t", "nat", "-X", chain)


def _run(*command: str) -> str:
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=30)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout
