"""The real-containerd laboratory of the end-to-end tests and benches.

Everything here is synchronous and waits by polling with a deadline: containerd, its shims
and the agent are other processes, and nothing in this package runs on the agent's loop.
`lab.Lab` (in `containerd_lab`) puts the parts together; `agent` starts nodeagent on it.
"""
