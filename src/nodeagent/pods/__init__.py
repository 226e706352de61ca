"""Pods on this node: who is wanted, who works on whom, and what is said about them.

The pod manager knows what the sources want, one pod worker per UID brings it about, the
handlers turn what the sync loop hears into work, and housekeeping sweeps up what nobody
wants. Tables and guarantees: docs/behaviour/workers.md.
"""
