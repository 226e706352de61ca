"""Volumes of pods on the host."""

from nodeagent.volumes.manager import VolumeManager

__all__ = ["VolumeManager"]
