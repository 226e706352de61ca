"""A second statement of docs/behaviour/runtime.md, "Actions", in another form than the code.

Where the code walks and collects, this asks for each container on its own what must happen
to it. It is compared with the code on random pods.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from nodeagent.api import Container, Pod
from nodeagent.model import (
    ContainerRuntimeStatus,
    ContainerState,
    PodRuntimeStatus,
    ProbeResult,
    SandboxState,
)
from nodeagent.model.actions import PodActions
from nodeagent.model.probes import ProbeResults
from nodeagent.runtime.hash import container_hash

CREATED, RUNNING = ContainerState.CREATED, ContainerState.RUNNING
EXITED, UNKNOWN = ContainerState.EXITED, ContainerState.UNKNOWN


@dataclass(frozen=True)
class Expected:
    """The actions without their texts."""

    kill_pod: bool = False
    create_sandbox: bool = False
    sandbox_id: str = ""
    attempt: int = 0
    init: tuple[str, ...] = ()
    ephemeral: tuple[str, ...] = ()
    regular: tuple[str, ...] = ()
    kills: frozenset[tuple[str, str]] = frozenset()
    resets: tuple[tuple[str, bool], ...] = ()


def without_texts(actions: PodActions) -> Expected:
    return Expected(
        kill_pod=actions.kill_pod,
        create_sandbox=actions.create_sandbox,
        sandbox_id=actions.sandbox_id,
        attempt=actions.attempt,
        init=actions.init_containers_to_start,
        ephemeral=actions.ephemeral_containers_to_start,
        regular=actions.containers_to_start,
        kills=frozenset((k.id, k.reason.value) for k in actions.containers_to_kill),
        resets=tuple((r.id, r.kill) for r in actions.containers_to_reset),
    )


class Oracle:
    def __init__(
        self,
        pod: Pod,
        status: PodRuntimeStatus,
        probes: ProbeResults,
        *,
        restart_all: bool,
        ran_before: Mapping[str, str],
    ) -> None:
        self.pod = pod
        self.spec = pod.spec
        self.status = status
        self.probes = probes
        self.restart_all = restart_all
        self.ran_before = ran_before
        self.deleted = pod.metadata.deletion_timestamp is not None

    def latest(self, container: Container) -> ContainerRuntimeStatus | None:
        records = [c for c in self.status.containers if c.name == container.name]
        return records[0] if records else None

    def state(self, container: Container) -> ContainerState | None:
        latest = self.latest(container)
        return latest.state if latest else None

    def policy(self, container: Container) -> str:
        return container.restart_policy or self.spec.restart_policy

    def action_of_rules(self, container: Container, code: int) -> str | None:
        if not container.restart_policy:
            return None
        for rule in container.restart_policy_rules:
            assert rule.exit_codes is not None
            named = code in rule.exit_codes.values
            if named if rule.exit_codes.operator == "In" else not named:
                return rule.action
        return None

    def may_rerun(self, container: Container, code: int) -> bool:
        if self.action_of_rules(container, code):
            return True
        return {"Always": True, "OnFailure": code != 0, "Never": False}[self.policy(container)]

    def expected(self) -> Expected:
        changed, attempt, sandbox_id = self.sandbox()
        base = Expected(attempt=attempt, sandbox_id=sandbox_id)
        if self.restart_all:
            return self.reset(base)
        return self.renewed(base) if changed else self.in_place(base)

    def sandbox(self) -> tuple[bool, int, str]:
        sandboxes = self.status.sandboxes
        if not sandboxes:
            return True, 0, ""
        newest = sandboxes[0]
        ready = [s for s in sandboxes if s.state is SandboxState.READY]
        own_network = not self.spec.host_network
        if ready != [newest]:
            return True, newest.attempt + 1, newest.id
        if newest.host_network == own_network:
            return True, newest.attempt + 1, ""
        if own_network and newest.has_network_status and newest.ips == ():
            return True, newest.attempt + 1, newest.id
        return False, newest.attempt, newest.id

    def reset(self, base: Expected) -> Expected:
        def rank(item: tuple[int, bool, Container]) -> tuple[bool, bool, int]:
            index, init, container = item
            latest = self.latest(container)
            source = (
                latest is not None
                and latest.state is EXITED
                and self.action_of_rules(container, latest.exit_code) == "RestartAllContainers"
            )
            return source, init, index

        items = [(i, False, c) for i, c in enumerate(self.spec.containers)]
        items += [(i, True, c) for i, c in enumerate(self.spec.init_containers)]
        resets = [
            (record.id, record.state is not EXITED)
            for _, _, container in sorted(items, key=rank)
            for record in self.status.containers
            if record.name == container.name
        ]
        return Expected(base.kill_pod, False, base.sandbox_id, base.attempt, resets=tuple(resets))

    def renewed(self, base: Expected) -> Expected:
        nothing = Expected(True, False, base.sandbox_id, base.attempt)
        begun = base.attempt > 0 and bool(self.status.containers)
        begun = begun or any(map(self.had_its_only_run, self.spec.init_containers))
        wanted = [c for c in self.spec.containers if not self.done_for_good(c)]
        stubborn = any(self.policy(c) in ("Always", "OnFailure") for c in wanted)
        inits_once = "Never" in map(self.policy, self.spec.init_containers)
        if self.spec.restart_policy == "Never" and begun and (inits_once or not stubborn):
            return nothing
        lived = any(
            self.state(c) in (CREATED, RUNNING, EXITED) or c.name in self.ran_before
            for c in self.spec.containers
        )
        if not wanted and lived:
            return nothing
        init = tuple(c.name for c in self.spec.init_containers[:1])
        regular = () if init else tuple(c.name for c in wanted)
        return Expected(True, True, base.sandbox_id, base.attempt, init=init, regular=regular)

    def done_for_good(self, container: Container) -> bool:
        latest = self.latest(container)
        if self.had_its_only_run(container):
            return True
        if latest is None or latest.state is CREATED:
            return False
        if self.policy(container) == "Never":
            return latest.state is not EXITED or not self.may_rerun(container, latest.exit_code)
        success = latest.state is EXITED and latest.exit_code == 0
        return success and self.policy(container) == "OnFailure"

    def had_its_only_run(self, container: Container) -> bool:
        latest, ran_as = self.latest(container), self.ran_before.get(container.name)
        if self.policy(container) != "Never" or ran_as is None:
            return False
        return latest is None or (latest.state is CREATED and latest.id != ran_as)

    def in_place(self, base: Expected) -> Expected:
        give_up = Expected(True, False, base.sandbox_id, base.attempt)
        ephemeral = tuple(
            c.name
            for c in self.spec.ephemeral_containers
            if self.latest(c) is None and c.name not in self.ran_before
        )
        running = self.status.running
        kills: set[tuple[str, str]] = {
            (c.id, "")
            for place, c in enumerate(running)
            if not self.in_spec(c.name) or any(n.name == c.name for n in running[:place])
        }
        init = self.init()
        if init is None:
            return give_up
        init_starts, init_kills, initialised = init
        kills |= init_kills
        regular: tuple[str, ...] = ()
        if initialised:
            fates = [(c, *self.fate(c)) for c in self.spec.containers]
            regular = tuple(c.name for c, start, _, _ in fates if start)
            kills |= {kill for _, _, kill, _ in fates if kill}
            if not regular and not any(kept for *_, kept in fates):
                return give_up
        return Expected(
            False,
            False,
            base.sandbox_id,
            base.attempt,
            tuple(c.name for c in self.spec.init_containers if c.name in init_starts),
            ephemeral,
            regular,
            frozenset(kills),
        )

    def in_spec(self, name: str) -> bool:
        spec = self.spec
        groups = (spec.containers, spec.init_containers, spec.ephemeral_containers)
        return any(c.name == name for group in groups for c in group)

    def fate(self, container: Container) -> tuple[bool, tuple[str, str] | None, bool]:
        """Start it; kill it, and why; keep it."""
        latest = self.latest(container)
        if self.had_its_only_run(container):
            return False, None, False
        if latest is None:
            return not self.deleted, None, False
        if latest.state is not RUNNING and self.deleted:
            return False, None, False
        if latest.state is CREATED:
            return True, None, False
        if latest.state is UNKNOWN:
            return True, (latest.id, "Unknown"), False
        if latest.state is EXITED:
            return self.may_rerun(container, latest.exit_code), None, False
        if latest.hash != container_hash(container.name, container.image):
            return True, (latest.id, ""), False
        again = self.policy(container) != "Never"
        if self.probes.liveness.get(latest.id) is ProbeResult.FAILURE:
            return again, (latest.id, "LivenessProbe"), False
        if self.probes.startup.get(latest.id) is ProbeResult.FAILURE:
            return again, (latest.id, "StartupProbe"), False
        return False, None, True

    def init(self) -> tuple[set[str], set[tuple[str, str]], bool] | None:
        """Names to start, kills, and whether init is over; None when it failed for good."""
        inits = self.spec.init_containers
        starts: set[str] = set()
        kills: set[tuple[str, str]] = set()
        over = not inits or any(self.state(c) in (CREATED, RUNNING) for c in self.spec.containers)
        front = max((i for i, c in enumerate(inits) if self.latest(c)), default=None)
        ahead = inits[front or 0 :] if not over else ()
        if any(map(self.had_its_only_run, ahead)):
            return None
        if front is None and not over:
            return {inits[0].name}, kills, False
        for index, container in enumerate(inits):
            if container.restart_policy == "Always" and (over or index <= (front or 0)):
                start, kill = self.sidecar(container)
                starts |= {container.name} if start else set()
                kills |= {kill} if kill else set()
        if over or front is None:
            return starts, kills, True
        at_front = inits[front]
        complete = self.sidecar_started(at_front)
        if at_front.restart_policy != "Always":
            step = self.plain(at_front)
            if step is None:
                return None
            start, kill, complete = step
            starts |= {at_front.name} if start else set()
            kills |= {kill} if kill else set()
        if complete and front + 1 < len(inits):
            starts.add(inits[front + 1].name)
        return starts, kills, complete and front + 1 == len(inits)

    def plain(self, container: Container) -> tuple[bool, tuple[str, str] | None, bool] | None:
        latest = self.latest(container)
        assert latest is not None
        if latest.state is CREATED:
            return True, None, False
        if latest.state is RUNNING:
            return False, None, False
        if latest.state is UNKNOWN:
            if self.policy(container) == "Never":
                return None
            return True, (latest.id, "Unknown"), False
        if latest.exit_code == 0 and latest.reason != "OOMKilled":
            return False, None, True
        again = self.may_rerun(container, latest.exit_code or 137)
        return (True, None, False) if again else None

    def sidecar(self, container: Container) -> tuple[bool, tuple[str, str] | None]:
        latest = self.latest(container)
        if latest is None or latest.state in (CREATED, EXITED):
            return True, None
        if latest.state is UNKNOWN:
            return True, (latest.id, "Unknown")
        startup = self.probes.startup.get(latest.id)
        if container.startup_probe and startup is not ProbeResult.SUCCESS:
            failed = startup is ProbeResult.FAILURE
            return failed, (latest.id, "StartupProbe") if failed else None
        if latest.hash != container_hash(container.name, container.image):
            return True, (latest.id, "")
        liveness = self.probes.liveness.get(latest.id)
        if container.liveness_probe and liveness is ProbeResult.FAILURE:
            return True, (latest.id, "LivenessProbe")
        return False, None

    def sidecar_started(self, container: Container) -> bool:
        latest = self.latest(container)
        if container.restart_policy != "Always" or latest is None or latest.state is not RUNNING:
            return False
        startup = self.probes.startup.get(latest.id)
        return container.startup_probe is None or startup is ProbeResult.SUCCESS
