"""The pod network of the laboratory: an own bridge and subnet, and nothing left of it later."""

import ipaddress
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.e2e.lab.host import nat_rules, remove_chain, remove_rule, run

CNI_BINARIES: Final = Path("/usr/lib/cni")
CNI_RESULTS: Final = Path("/var/lib/cni/results")
_CANDIDATES: Final = ipaddress.ip_network("10.213.0.0/16")


@dataclass(frozen=True, slots=True)
class PodNetwork:
    """A bridge network of one laboratory."""

    name: str
    bridge: str
    subnet: str

    @classmethod
    def plan(cls, tag: str, taken: Sequence[str]) -> "PodNetwork":
        """Choose names and a free subnet; changes nothing yet.

        Args:
            tag: a few characters that make names on this host unique.
            taken: subnets of other laboratories, whose bridges may not exist yet.
        """
        return cls(name=f"nodeagent-{tag}", bridge=f"na{tag}", subnet=_free_subnet(taken))

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
            run("ip", "link", "delete", self.bridge)
        for result in CNI_RESULTS.glob(f"{self.name}-*"):
            result.unlink(missing_ok=True)
        # Host ports of pods that were never removed; the rule's comment names the network.
        for words in nat_rules():
            if words[0] == "-A" and any(f'"{self.name}"' in word for word in words):
                remove_rule(words)
                remove_chain(words[-1])


def _free_subnet(taken: Sequence[str]) -> str:
    """The first /24 of the candidates that is not taken and that no route of this host touches."""
    used = [ipaddress.ip_network(it) for it in (*taken, *_routes())]
    for subnet in _CANDIDATES.subnets(new_prefix=24):
        if not any(subnet.overlaps(other) for other in used):
            return str(subnet)
    raise RuntimeError(f"no free /24 in {_CANDIDATES} on this host")


def _routes() -> list[str]:
    entries: list[dict[str, str]] = json.loads(run("ip", "-4", "-json", "route", "show"))
    return [entry["dst"] for entry in entries if entry["dst"] != "default"]
