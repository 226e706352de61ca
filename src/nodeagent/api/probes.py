"""Probes, lifecycle hooks and the actions both run."""

from nodeagent.api.base import ApiObject, IntOrString, always


class ExecAction(ApiObject):
    """A command run in the container, without a shell."""

    command: tuple[str, ...] = ()


class HTTPHeader(ApiObject):
    """One header of a request."""

    name: str = ""
    value: str = ""


class HTTPGetAction(ApiObject):
    """An HTTP GET; the host defaults to the pod's address."""

    path: str = ""
    port: IntOrString = always(0)
    host: str = ""
    scheme: str = ""
    http_headers: tuple[HTTPHeader, ...] = ()


class TCPSocketAction(ApiObject):
    """A TCP connection that must open; the host defaults to the pod's address."""

    port: IntOrString = always(0)
    host: str = ""


class GRPCAction(ApiObject):
    """A call of the gRPC health service."""

    port: int = always(0)
    service: str | None = None


class SleepAction(ApiObject):
    """A pause of whole seconds."""

    seconds: int = always(0)


class Probe(ApiObject):
    """A check of a container: one action, how often, and how many answers count."""

    exec: ExecAction | None = None
    http_get: HTTPGetAction | None = None
    tcp_socket: TCPSocketAction | None = None
    grpc: GRPCAction | None = None
    initial_delay_seconds: int = 0
    timeout_seconds: int = 0
    period_seconds: int = 0
    success_threshold: int = 0
    failure_threshold: int = 0
    termination_grace_period_seconds: int | None = None


class LifecycleHandler(ApiObject):
    """What a hook does; exactly one field is set."""

    exec: ExecAction | None = None
    http_get: HTTPGetAction | None = None
    tcp_socket: TCPSocketAction | None = None
    sleep: SleepAction | None = None


class Lifecycle(ApiObject):
    """Hooks after start and before stop, and the signal that stops the container."""

    post_start: LifecycleHandler | None = None
    pre_stop: LifecycleHandler | None = None
    stop_signal: str | None = None
