"""ConfigMaps, Secrets and tokens that pods refer to (docs/behaviour/objects.md)."""

from nodeagent.objects.refs import ObjectRef, pod_references
from nodeagent.objects.standalone import StandaloneObjects
from nodeagent.objects.store import ObjectStore

__all__ = ["ObjectRef", "ObjectStore", "StandaloneObjects", "pod_references"]
