"""The actions of one pod while they are being decided."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from nodeagent.api import Container, Pod
from nodeagent.model import SandboxID
from nodeagent.model.actions import ContainerToKill, ContainerToReset, PodActions


@dataclass(slots=True)
class Plan:
    """Mutable counterpart of :class:`PodActions`; starts are sets of container names."""

    attempt: int
    sandbox_id: SandboxID
    sandbox_why: str
    kill_pod: bool = False
    create_sandbox: bool = False
    init_starts: set[str] = field(default_factory=set)
    ephemeral_starts: set[str] = field(default_factory=set)
    starts: set[str] = field(default_factory=set)
    kills: list[ContainerToKill] = field(default_factory=list)
    resets: list[ContainerToReset] = field(default_factory=list)

    def give_up(self) -> None:
        """Nothing of the pod is to run any more: stop what is left, sandbox included."""
        self.kill_pod = True
        self.init_starts.clear()
        self.ephemeral_starts.clear()
        self.starts.clear()
        self.kills.clear()

    def actions(self, pod: Pod) -> PodActions:
        """The finished plan, in the order of the spec."""
        spec = pod.spec
        return PodActions(
            kill_pod=self.kill_pod,
            create_sandbox=self.create_sandbox,
            sandbox_id=self.sandbox_id,
            attempt=self.attempt,
            sandbox_why=self.sandbox_why,
            init_containers_to_start=_in_order(spec.init_containers, self.init_starts),
            ephemeral_containers_to_start=_in_order(
                spec.ephemeral_containers, self.ephemeral_starts
            ),
            containers_to_start=_in_order(spec.containers, self.starts),
            containers_to_kill=tuple(self.kills),
            containers_to_reset=tuple(self.resets),
        )


def _in_order(containers: Iterable[Container], names: Collection[str]) -> tuple[str, ...]:
    return tuple(c.name for c in containers if c.name in names) if names else ()


def changed_message(container: str) -> str:
    """Why a container whose definition changed is killed."""
    return f"Container {container} definition changed, will be restarted"


def probe_message(container: str, kind: str, restart: bool) -> str:
    """Why a container whose probe failed is killed."""
    outlook = ", will be restarted" if restart else ""
    return f"Container {container} failed {kind} probe{outlook}"
