"""A node's configuration while it runs: watched, judged, tried, and taken back.

docs/reload-and-rollback.md.
"""
