"""Rules for the containers of a pod."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from nodeagent.api.aggregate import is_sidecar
from nodeagent.api.container import Container, ContainerPort, ContainerRestartRule
from nodeagent.api.pod import PodSpec
from nodeagent.api.validation.env import check_env, check_env_from
from nodeagent.api.validation.errors import (
    FieldError,
    duplicate,
    forbidden,
    invalid,
    required,
    too_many,
)
from nodeagent.api.validation.mounts import check_devices, check_mounts
from nodeagent.api.validation.names import (
    check,
    check_if_set,
    check_one_of,
    check_one_of_if_set,
    check_range,
    ip_fault,
    label_fault,
    port_name_fault,
)
from nodeagent.api.validation.probes import check_lifecycle, check_probes
from nodeagent.api.validation.resources import check_resize_policy, check_resources
from nodeagent.api.validation.security import check_security
from nodeagent.api.volumes import Volume

MAX_RESTART_RULES: Final = 20
MAX_EXIT_CODES: Final = 255


def check_containers(spec: PodSpec, volumes: Mapping[str, Volume]) -> Iterator[FieldError]:
    """Judge regular and init containers, one by one and together."""
    if not spec.containers:
        yield required("spec.containers")
    for index, container in enumerate(spec.containers):
        yield from _check_container(f"spec.containers[{index}]", container, spec, volumes)
    yield from _check_host_ports("spec.containers", spec.containers)
    for index, container in enumerate(spec.init_containers):
        path = f"spec.initContainers[{index}]"
        yield from _check_container(path, container, spec, volumes)
        yield from _check_init(path, container)
        # One after the other, init containers may use the same host port.
        yield from _check_host_ports("spec.initContainers", (container,), first=index)
    yield from _check_names(
        {"spec.containers": spec.containers, "spec.initContainers": spec.init_containers}
    )


def _check_names(lists: Mapping[str, tuple[Container, ...]]) -> Iterator[FieldError]:
    seen: set[str] = set()
    for path, containers in lists.items():
        for index, container in enumerate(containers):
            if container.name and container.name in seen:
                yield duplicate(f"{path}[{index}].name", container.name)
            seen.add(container.name)


def _check_container(
    path: str, container: Container, spec: PodSpec, volumes: Mapping[str, Volume]
) -> Iterator[FieldError]:
    yield from check(f"{path}.name", container.name, label_fault)
    yield from check(f"{path}.image", container.image, _image_fault)
    yield from check_one_of(
        f"{path}.imagePullPolicy", container.image_pull_policy, ("Always", "IfNotPresent", "Never")
    )
    yield from check_one_of(
        f"{path}.terminationMessagePolicy",
        container.termination_message_policy,
        ("File", "FallbackToLogsOnError"),
    )
    yield from _check_ports(f"{path}.ports", container.ports, spec)
    yield from check_env(f"{path}.env", container.env, volumes)
    yield from check_env_from(f"{path}.envFrom", container.env_from)
    yield from check_mounts(path, container, volumes)
    yield from check_devices(path, container, volumes)
    claims = (claim.name for claim in spec.resource_claims)
    yield from check_resources(f"{path}.resources", container.resources, claims)
    yield from check_resize_policy(
        f"{path}.resizePolicy", container.resize_policy, spec.restart_policy
    )
    yield from check_probes(path, container)
    yield from check_lifecycle(f"{path}.lifecycle", container.lifecycle, spec)
    yield from check_security(f"{path}.securityContext", container.security_context, spec)
    yield from _check_restarts(path, container)


def _image_fault(image: str) -> str | None:
    return "must not have blanks around it" if image != image.strip() else None


def _check_init(path: str, container: Container) -> Iterator[FieldError]:
    """Refuse what only makes sense for a container that keeps running."""
    if is_sidecar(container):
        return
    given = {
        "lifecycle": container.lifecycle,
        "livenessProbe": container.liveness_probe,
        "readinessProbe": container.readiness_probe,
        "startupProbe": container.startup_probe,
    }
    for name, value in given.items():
        if value is not None:
            yield forbidden(f"{path}.{name}", "an init container needs restartPolicy Always for it")


def _check_ports(
    path: str, ports: tuple[ContainerPort, ...], spec: PodSpec
) -> Iterator[FieldError]:
    names: set[str] = set()
    for index, port in enumerate(ports):
        here = f"{path}[{index}]"
        if port.name:
            yield from check(f"{here}.name", port.name, port_name_fault)
            if port.name in names:
                yield duplicate(f"{here}.name", port.name)
            names.add(port.name)
        if port.container_port == 0:
            yield required(f"{here}.containerPort")
        else:
            yield from check_range(f"{here}.containerPort", port.container_port, 1, 65535)
        yield from check_range(f"{here}.hostPort", port.host_port, 0, 65535)
        if spec.host_network and port.host_port != port.container_port:
            detail = "must equal containerPort when hostNetwork is true"
            yield invalid(f"{here}.hostPort", port.host_port, detail)
        yield from check_if_set(f"{here}.hostIP", port.host_ip, ip_fault)
        yield from check_one_of(f"{here}.protocol", port.protocol, ("TCP", "UDP", "SCTP"))


def _check_host_ports(
    path: str, containers: Iterable[Container], *, first: int = 0
) -> Iterator[FieldError]:
    """Refuse a host port that two ports want; ``first`` is the index of the first container."""
    seen: set[tuple[str, str, int]] = set()
    for index, container in enumerate(containers, first):
        for position, port in enumerate(container.ports):
            if port.host_port == 0:
                continue
            wanted = (port.protocol, port.host_ip, port.host_port)
            if wanted in seen:
                here = f"{path}[{index}].ports[{position}].hostPort"
                yield duplicate(here, "/".join(str(part) for part in wanted if part))
            seen.add(wanted)


def _check_restarts(path: str, container: Container) -> Iterator[FieldError]:
    yield from check_one_of_if_set(
        f"{path}.restartPolicy", container.restart_policy, ("Always", "OnFailure", "Never")
    )
    rules = container.restart_policy_rules
    here = f"{path}.restartPolicyRules"
    if rules and container.restart_policy is None:
        yield required(f"{path}.restartPolicy", "restart rules need it")
    if len(rules) > MAX_RESTART_RULES:
        yield too_many(here, len(rules), MAX_RESTART_RULES)
    for index, rule in enumerate(rules):
        yield from _check_rule(f"{here}[{index}]", rule)


def _check_rule(path: str, rule: ContainerRestartRule) -> Iterator[FieldError]:
    actions = ("Restart", "RestartAllContainers")
    yield from check_one_of(f"{path}.action", rule.action, actions)
    if rule.exit_codes is None:
        yield required(f"{path}.exitCodes")
        return
    here = f"{path}.exitCodes"
    yield from check_one_of(f"{here}.operator", rule.exit_codes.operator, ("In", "NotIn"))
    if len(rule.exit_codes.values) > MAX_EXIT_CODES:
        yield too_many(f"{here}.values", len(rule.exit_codes.values), MAX_EXIT_CODES)
