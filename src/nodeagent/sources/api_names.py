"""Names that become names of files. Pure (docs/behaviour/api-source.md, WA18)."""

from __future__ import annotations

from nodeagent.api import Pod
from nodeagent.api.validation.names import Fault, label_fault, subdomain_fault, uid_fault


def name_fault(pod: Pod) -> str:
    """Why files of a pod cannot be called after it; "" when they can.

    A server sees to that, but whoever answers in its place must not choose where the agent, which
    may do anything, writes and removes.
    """
    meta, spec = pod.metadata, pod.spec
    if fault := _fault("metadata.name", meta.name, subdomain_fault):
        return fault
    if fault := _fault("metadata.namespace", meta.namespace, label_fault):
        return fault
    if fault := _fault("metadata.uid", meta.uid, uid_fault):
        return fault
    for container in (*spec.init_containers, *spec.containers, *spec.ephemeral_containers):
        if fault := _fault("a container's name", container.name, label_fault):
            return fault
    for volume in spec.volumes:
        if fault := _fault("a volume's name", volume.name, label_fault):
            return fault
    return ""


def _fault(what: str, name: str, judge: Fault) -> str:
    fault = judge(name)
    return f"{what} {name[:80]!r} {fault}" if fault else ""
