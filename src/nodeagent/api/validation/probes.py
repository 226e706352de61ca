"""Rules for probes, lifecycle hooks and what they do."""

import signal
from collections.abc import Iterator, Mapping
from typing import Any, Final

from nodeagent.api.container import Container
from nodeagent.api.pod import PodSpec
from nodeagent.api.probes import (
    ExecAction,
    GRPCAction,
    HTTPGetAction,
    Lifecycle,
    LifecycleHandler,
    Probe,
    SleepAction,
    TCPSocketAction,
)
from nodeagent.api.validation.errors import FieldError, forbidden, invalid, required, unsupported
from nodeagent.api.validation.names import (
    check,
    check_one_of,
    check_range,
    check_set,
    http_header_fault,
    port_name_fault,
)

_STOP_SIGNALS: Final[Mapping[str, frozenset[str]]] = {
    "linux": frozenset(
        {each.name for each in signal.Signals}
        | {"SIGRTMIN", "SIGRTMAX"}
        | {f"SIGRTMIN+{number}" for number in range(1, 16)}
        | {f"SIGRTMAX-{number}" for number in range(1, 15)}
    ),
    "windows": frozenset({"SIGTERM", "SIGKILL"}),
}


def check_probes(path: str, container: Container) -> Iterator[FieldError]:
    """Judge the three probes of a container."""
    kinds = {
        "livenessProbe": container.liveness_probe,
        "readinessProbe": container.readiness_probe,
        "startupProbe": container.startup_probe,
    }
    for kind, probe in kinds.items():
        if probe is not None:
            yield from _check_probe(f"{path}.{kind}", probe, kind)


def _check_probe(path: str, probe: Probe, kind: str) -> Iterator[FieldError]:
    handlers = {
        "exec": probe.exec,
        "httpGet": probe.http_get,
        "tcpSocket": probe.tcp_socket,
        "grpc": probe.grpc,
    }
    yield from _check_handlers(path, handlers)
    yield from check_range(f"{path}.initialDelaySeconds", probe.initial_delay_seconds, 0)
    yield from check_range(f"{path}.timeoutSeconds", probe.timeout_seconds, 0)
    yield from check_range(f"{path}.periodSeconds", probe.period_seconds, 0)
    yield from check_range(f"{path}.successThreshold", probe.success_threshold, 0)
    yield from check_range(f"{path}.failureThreshold", probe.failure_threshold, 0)
    if kind != "readinessProbe" and probe.success_threshold != 1:
        yield invalid(f"{path}.successThreshold", probe.success_threshold, "must be 1")
    grace = probe.termination_grace_period_seconds
    if grace is None:
        return
    if kind == "readinessProbe":
        detail = "a readiness probe stops nothing"
        yield forbidden(f"{path}.terminationGracePeriodSeconds", detail)
    else:
        yield from check_range(f"{path}.terminationGracePeriodSeconds", grace, 1)


def check_lifecycle(path: str, lifecycle: Lifecycle | None, spec: PodSpec) -> Iterator[FieldError]:
    """Judge the hooks of a container, if it has any."""
    if lifecycle is None:
        return
    if lifecycle.post_start is not None:
        yield from _check_hook(f"{path}.postStart", lifecycle.post_start, spec)
    if lifecycle.pre_stop is not None:
        yield from _check_hook(f"{path}.preStop", lifecycle.pre_stop, spec)
    if lifecycle.stop_signal is None:
        return
    here = f"{path}.stopSignal"
    system = spec.os.name if spec.os is not None else ""
    if system not in _STOP_SIGNALS:
        yield forbidden(here, "needs spec.os.name to be linux or windows")
    elif lifecycle.stop_signal not in _STOP_SIGNALS[system]:
        yield unsupported(here, lifecycle.stop_signal, sorted(_STOP_SIGNALS[system]))


def _check_hook(path: str, hook: LifecycleHandler, spec: PodSpec) -> Iterator[FieldError]:
    handlers = {
        "exec": hook.exec,
        "httpGet": hook.http_get,
        "tcpSocket": hook.tcp_socket,
        "sleep": hook.sleep,
    }
    yield from _check_handlers(path, handlers, spec.termination_grace_period_seconds or 0)


def _check_handlers(
    path: str, handlers: Mapping[str, Any], grace_seconds: int = 0
) -> Iterator[FieldError]:
    """Require exactly one handler, and judge what is there."""
    given = {name: handler for name, handler in handlers.items() if handler is not None}
    if not given:
        yield required(path, f"one of {', '.join(handlers)}")
    for name in list(given)[1:]:
        yield forbidden(f"{path}.{name}", "may not have more than one handler")
    for name, handler in given.items():
        yield from _check_action(f"{path}.{name}", handler, grace_seconds)


def _check_action(
    path: str,
    action: ExecAction | HTTPGetAction | TCPSocketAction | GRPCAction | SleepAction,
    grace_seconds: int,
) -> Iterator[FieldError]:
    match action:
        case ExecAction():
            if not action.command:
                yield required(f"{path}.command")
        case HTTPGetAction():
            yield from _check_http_get(path, action)
        case TCPSocketAction():
            yield from check_port(f"{path}.port", action.port)
        case GRPCAction():
            yield from check_port(f"{path}.port", action.port)
        case SleepAction():
            yield from check_range(f"{path}.seconds", action.seconds, 0, grace_seconds)


def _check_http_get(path: str, action: HTTPGetAction) -> Iterator[FieldError]:
    yield from check_set(f"{path}.path", action.path)
    yield from check_port(f"{path}.port", action.port)
    yield from check_one_of(f"{path}.scheme", action.scheme, ("HTTP", "HTTPS"))
    for index, header in enumerate(action.http_headers):
        yield from check(f"{path}.httpHeaders[{index}].name", header.name, http_header_fault)


def check_port(path: str, port: int | str) -> Iterator[FieldError]:
    """Judge a port by number or by name."""
    if isinstance(port, int):
        yield from check_range(path, port, 1, 65535)
    else:
        yield from check(path, port, port_name_fault)
