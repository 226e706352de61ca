"""Measurements that people can repeat: each module has a ``run`` that returns its figures."""
