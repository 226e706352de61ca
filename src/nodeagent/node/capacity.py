"""What the node has, and what of it pods may have. Pure.

Rows and their tests: docs/behaviour/node.md, "Capacity".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from nodeagent.api.quantity import Quantity
from nodeagent.config import NodeOptions
from nodeagent.config.node_options import reservations, threshold_amount
from nodeagent.node.facts import NodeFacts
from nodeagent.node.machine import MachineInfo

HUGE_PAGES: Final = "hugepages-"
_NOTHING: Final = Quantity(0)
_STORAGE: Final = "ephemeral-storage"
_NATIVE: Final = ("cpu", "memory", "pods", _STORAGE)
_THRESHOLDS: Final = {"memory.available": "memory", "nodefs.available": _STORAGE}
"""What is kept free is taken off the resource."""


def compute_capacity(facts: NodeFacts, old: Mapping[str, Quantity]) -> dict[str, Quantity]:
    """What the node has, by resource; resources that others gave it stay.

    Args:
        facts: what is known of the node.
        old: what the Node object says.
    """
    options, machine = facts.options, facts.machine
    found = {**old, **own_capacity(options, machine)}
    if not options.local_storage_capacity_isolation:
        found.pop(_STORAGE, None)
    found.update(facts.extended.capacity)
    for resource in facts.extended.inactive:
        found[resource] = _NOTHING
    return found


def own_capacity(options: NodeOptions, machine: MachineInfo | None) -> dict[str, Quantity]:
    """What the machine itself has, by resource."""
    pods = options.max_pods
    if machine is None:
        return {"cpu": _NOTHING, "memory": _NOTHING, "pods": Quantity(pods)}
    if options.pods_per_core:
        pods = min(options.pods_per_core * machine.cpus, pods)
    found = {
        "cpu": Quantity(machine.cpus),
        "memory": Quantity.from_bytes(machine.memory),
        "pods": Quantity(pods),
    }
    for size, count in machine.huge_pages:
        found[f"{HUGE_PAGES}{Quantity.from_bytes(size)}"] = Quantity.from_bytes(size * count)
    if options.local_storage_capacity_isolation and machine.storage:
        found[_STORAGE] = Quantity.from_bytes(machine.storage)
    return found


def reserved_amounts(options: NodeOptions, capacity: Mapping[str, Quantity]) -> dict[str, Quantity]:
    """What is taken off the capacity before pods get any: reservations and what stays free."""
    found: dict[str, Quantity] = {}
    for resource, amount in reservations(options):
        found[resource] = found.get(resource, _NOTHING) + amount
    for signal, resource in _THRESHOLDS.items():
        threshold = options.eviction_hard.get(signal)
        if threshold is None or resource not in capacity:
            continue
        amount = threshold_amount(threshold, capacity[resource])
        found[resource] = found.get(resource, _NOTHING) + amount
    return found


def compute_allocatable(facts: NodeFacts, capacity: Mapping[str, Quantity]) -> dict[str, Quantity]:
    """What pods may have of the capacity; never negative."""
    reserved = reserved_amounts(facts.options, capacity)
    found = {
        resource: max(amount - reserved.get(resource, _NOTHING), _NOTHING)
        for resource, amount in capacity.items()
    }
    found.update(facts.extended.allocatable)
    for resource in facts.extended.inactive:
        found[resource] = _NOTHING
    pages = [amount for name, amount in capacity.items() if name.startswith(HUGE_PAGES)]
    if "memory" in found:
        # The kernel keeps memory back for huge pages whether or not somebody uses them.
        found["memory"] = max(found["memory"] - sum(pages, _NOTHING), _NOTHING)
    return found


def reservation_problem(options: NodeOptions, machine: MachineInfo) -> str:
    """Why the node cannot be run with these reservations; "" when it can."""
    capacity = own_capacity(options, machine)
    for resource, amount in reserved_amounts(options, capacity).items():
        have = capacity.get(resource)
        if have is not None and amount > have:
            return (
                f'invalid Node Allocatable configuration. Resource "{resource}" has a reservation '
                f"of {amount} but capacity of {have}: lower --kube-reserved, --system-reserved or "
                "--eviction-hard"
            )
    return ""


def missing_capacity(options: NodeOptions, capacity: Mapping[str, Quantity]) -> tuple[str, ...]:
    """Resources that a node must have and this one does not say that it has."""
    wanted = _NATIVE if options.local_storage_capacity_isolation else _NATIVE[:-1]
    return tuple(resource for resource in wanted if resource not in capacity)
