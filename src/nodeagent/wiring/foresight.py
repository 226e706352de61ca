"""What admission would say of pods on this machine, without an agent that runs.

The rules are those of the agent (``pods.admission.decide``), and the node is the one that it would
make of this machine and of its configuration.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from nodeagent.api import Pod
from nodeagent.clock import Clock, SystemClock
from nodeagent.config import AgentConfig
from nodeagent.model import RuntimeFeatures
from nodeagent.node.facts import NodeFacts
from nodeagent.node.machine import read_machine
from nodeagent.node.registering import initial_node
from nodeagent.pods.admission import AskForNode, Case, Preempt, decide
from nodeagent.pods.rejection import Rejection
from nodeagent.runtime.settings import detect_host
from nodeagent.wiring.admission import admission_rules
from nodeagent.wiring.settings import runtime_settings

ALL_FEATURES = RuntimeFeatures(supplemental_groups_policy=True, user_namespaces_host_network=True)
"""What a runtime can do that is not asked: nothing is refused for its sake."""


def foresee(
    config: AgentConfig, pods: Sequence[Pod], clock: Clock | None = None
) -> Iterator[Rejection | None]:
    """What becomes of each pod of a node that is given these and no others. Blocks.

    Args:
        config: the agent's settings.
        pods: in the order in which they would come.
        clock: wall clock.
    """
    root = Path(config.root_dir).absolute()
    machine = read_machine(root)
    host = detect_host(Path("/"), root)
    facts = NodeFacts(
        name=config.effective_node_name, options=config, machine=machine, features=ALL_FEATURES
    )
    node = initial_node(facts, (clock or SystemClock()).now()).node
    settings = runtime_settings(config, root, "")
    rules = admission_rules(host, lambda: settings, lambda: ALL_FEATURES)
    admitted: list[Pod] = []
    for pod in pods:
        case = Case(pod=pod, others=tuple(admitted), node=node, node_is_fresh=True)
        verdict = decide(case, rules)
        match verdict:
            case Rejection():
                yield verdict
            case AskForNode(rejection):
                yield rejection
            case Preempt(victims, signal):
                names = ", ".join(f"{p.metadata.namespace}/{p.metadata.name}" for p in victims)
                admitted = [other for other in admitted if other not in victims]
                admitted.append(pod)
                yield Rejection("Preempting", f"{signal} is needed, so these would end: {names}")
            case None:
                admitted.append(pod)
                yield None
