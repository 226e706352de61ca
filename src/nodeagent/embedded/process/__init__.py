"""The process backend: containers as processes of this machine."""

from nodeagent.embedded.process.backend import ProcessBackend

__all__ = ["ProcessBackend"]
