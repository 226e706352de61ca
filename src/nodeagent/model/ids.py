"""Identifiers that must not be mixed up."""

from __future__ import annotations

from typing import NewType

PodUID = NewType("PodUID", str)
ContainerID = NewType("ContainerID", str)
SandboxID = NewType("SandboxID", str)
FullName = NewType("FullName", str)
"""``<name>_<namespace>``: what two pods may never share while they run."""


def full_name(name: str, namespace: str) -> FullName:
    """The pod's full name, ``<name>_<namespace>``."""
    return FullName(f"{name}_{namespace}")
