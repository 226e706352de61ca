"""The kubelet's API over HTTPS: who may ask for what, logs, exec, attach, port-forward.

Loaded only by an agent that serves it: it needs aiohttp.
"""
