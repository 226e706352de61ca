"""Pods in the container runtime: deciding, building, performing, cleaning up."""
