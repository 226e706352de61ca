"""What a change of manifests would do to the pods of a node. Pure.

It foretells with the agent's own decisions: ``select`` says which documents would be in force,
``merge_snapshot`` what that changes for the source, and ``compute_pod_actions`` what each pod would
need done in the runtime. Only the words are made here (docs/configuration.md, "Plan").
"""

from nodeagent.planning.differences import Change, differences, pod_changes
from nodeagent.planning.objects import ObjectPlan, plan_objects
from nodeagent.planning.pods import ContainerStep, Outcome, PodPlan, Step, plan_pods

__all__ = [
    "Change",
    "ContainerStep",
    "ObjectPlan",
    "Outcome",
    "PodPlan",
    "Step",
    "differences",
    "plan_objects",
    "plan_pods",
    "pod_changes",
]
