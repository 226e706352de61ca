"""Validation of pods: everything that Kubernetes would refuse, all at once."""

from nodeagent.api.validation.errors import FieldError, Reason
from nodeagent.api.validation.pod import validate_pod

__all__ = ["FieldError", "Reason", "validate_pod"]
