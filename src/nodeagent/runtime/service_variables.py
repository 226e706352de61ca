"""Variables that tell a container where services are. Pure.

docs/behaviour/runtime.md, "Service variables".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from nodeagent.api import Pod
from nodeagent.api.service import Service
from nodeagent.model.annotations import CONFIG_SOURCE
from nodeagent.runtime.errors import ContainerStartError, Waiting
from nodeagent.runtime.lookups import Services

_DEFAULT: Final = "default"
_API_SERVER: Final = "kubernetes"


def pod_service_variables(pod: Pod, services: Services) -> dict[str, str]:
    """The variables of services that containers of the pod get.

    Raises:
        ContainerStartError: with CreateContainerConfigError, as long as the services are not
            known; a static pod does without them.
    """
    if not services.synced:
        if pod.metadata.annotations.get(CONFIG_SOURCE, "api") != "api":
            return {}
        message = "services have not been read from the API server yet, cannot make variables"
        raise ContainerStartError(Waiting.CONFIG, message)
    links = pod.spec.enable_service_links is not False
    namespace = pod.metadata.namespace
    return variables(choose(services.in_namespaces((namespace, _DEFAULT)), namespace, links))


def choose(services: Iterable[Service], namespace: str, links: bool) -> list[Service]:
    """The services that a pod is told of, by name.

    Args:
        services: those of the pod's namespace and of ``default``.
        namespace: the pod's.
        links: whether the pod wants to know those of its namespace. The API server it knows
            always, unless a service of its own has that name.
    """
    chosen: dict[str, Service] = {}
    for service in services:
        name = service.metadata.name
        if service.spec.cluster_ip in ("", "None"):
            continue
        if links and service.metadata.namespace == namespace:
            chosen[name] = service
        elif name == _API_SERVER and service.metadata.namespace == _DEFAULT:
            chosen.setdefault(name, service)
    return [chosen[name] for name in sorted(chosen)]


def variables(services: Iterable[Service]) -> dict[str, str]:
    """The variables of these services, by name."""
    return {name: value for service in services for name, value in _of_service(service)}


def _of_service(service: Service) -> Iterator[tuple[str, str]]:
    name, address = _variable_name(service.metadata.name), service.spec.cluster_ip
    ports = service.spec.ports
    yield f"{name}_SERVICE_HOST", address
    if not ports:
        return
    yield f"{name}_SERVICE_PORT", str(ports[0].port)
    for port in ports:
        if port.name:
            yield f"{name}_SERVICE_PORT_{_variable_name(port.name)}", str(port.port)
    host = f"[{address}]" if ":" in address else address
    for index, port in enumerate(ports):
        protocol = port.protocol or "TCP"
        url = f"{protocol.lower()}://{host}:{port.port}"
        prefix = f"{name}_PORT_{port.port}_{protocol.upper()}"
        if index == 0:
            yield f"{name}_PORT", url
        yield prefix, url
        yield f"{prefix}_PROTO", protocol.lower()
        yield f"{prefix}_PORT", str(port.port)
        yield f"{prefix}_ADDR", address


def _variable_name(name: str) -> str:
    return name.replace("-", "_").upper()
