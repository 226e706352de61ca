"""Pods in the container runtime: deciding, building, performing, cleaning up."""

from nodeagent.model.probes import ProbeResults
from nodeagent.runtime.actions import compute_pod_actions
from nodeagent.runtime.events import PodEvents
from nodeagent.runtime.manager import RuntimeManager
from nodeagent.runtime.metrics import RuntimeMetrics
from nodeagent.runtime.qos import QOSClass, compute_qos
from nodeagent.runtime.reasons import ReasonCache
from nodeagent.runtime.settings import HostFacts, ImageSettings, RuntimeSettings, detect_host
from nodeagent.runtime.unsupported import unsupported_fields

__all__ = [
    "HostFacts",
    "ImageSettings",
    "PodEvents",
    "ProbeResults",
    "QOSClass",
    "ReasonCache",
    "RuntimeManager",
    "RuntimeMetrics",
    "RuntimeSettings",
    "compute_pod_actions",
    "compute_qos",
    "detect_host",
    "unsupported_fields",
]
