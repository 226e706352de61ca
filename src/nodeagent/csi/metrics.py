"""Figures about plugins, and about calls of storage drivers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import anyio
from prometheus_client import CollectorRegistry, Gauge, Histogram

from nodeagent.rpc import RpcError

_BUCKETS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 25.0, 50.0, 120.0, 300.0, 600.0)


class CsiMetrics:
    """The metrics of one agent.

    Args:
        registry: where they are registered.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._calls = Histogram(
            "csi_operations_seconds",
            "Seconds that calls of storage drivers took, by their gRPC status",
            ["driver_name", "method_name", "grpc_status_code", "migrated"],
            buckets=_BUCKETS,
            registry=registry,
        )
        self._operations = Histogram(
            "storage_operation_duration_seconds",
            "Seconds that operations on volumes took",
            ["volume_plugin", "operation_name", "status", "migrated"],
            buckets=_BUCKETS,
            registry=registry,
        )
        self._plugins = Gauge(
            "plugin_manager_total_plugins",
            "Sockets of plugins: those that lie there, and those that are registered",
            ["socket_path", "state"],
            registry=registry,
        )

    @contextmanager
    def call(self, driver: str, method: str) -> Iterator[None]:
        """Measure a call of a driver."""
        began, code = anyio.current_time(), "OK"
        try:
            yield
        except RpcError as error:
            code = "".join(word.capitalize() for word in error.code.name.split("_"))
            code = {"Cancelled": "Canceled"}.get(code, code)
            raise
        finally:
            took = anyio.current_time() - began
            self._calls.labels(driver, method, code, "false").observe(took)

    @contextmanager
    def operation(self, plugin: str, operation: str) -> Iterator[None]:
        """Measure an operation on a volume."""
        began, status = anyio.current_time(), "fail-unknown"
        try:
            yield
            status = "success"
        finally:
            took = anyio.current_time() - began
            self._operations.labels(plugin, operation, status, "false").observe(took)

    def plugin_there(self, socket: str, state: str) -> None:
        """A socket is in the ``desired_state_of_world``, or in the ``actual`` one."""
        self._plugins.labels(socket, state).set(1)

    def plugin_gone(self, socket: str, state: str) -> None:
        """It no longer is."""
        try:
            self._plugins.remove(socket, state)
        except KeyError:
            return
