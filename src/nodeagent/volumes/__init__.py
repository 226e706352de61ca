"""Volumes of pods on the host."""
