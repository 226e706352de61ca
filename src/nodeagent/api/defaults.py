"""The values that Kubernetes fills in where a pod says nothing.

Pure: a pod goes in, a complete pod comes out, and what was written stays as written. Doing it
again changes nothing.
"""

from typing import Final, TypeVar

from msgspec.structs import replace

from nodeagent.api.aggregate import Amounts, aggregate
from nodeagent.api.container import Container, ContainerPort
from nodeagent.api.defaults_volumes import default_volume, round_to_milli, with_api_version
from nodeagent.api.env import EnvVar
from nodeagent.api.images import default_pull_policy
from nodeagent.api.pod import Pod, PodSpec
from nodeagent.api.probes import HTTPGetAction, Lifecycle, LifecycleHandler, Probe
from nodeagent.api.resources import ResourceRequirements
from nodeagent.api.security import PodSecurityContext

C = TypeVar("C", bound=Container)
T = TypeVar("T")

DEFAULT_GRACE_PERIOD_SECONDS: Final = 30
DEFAULT_TERMINATION_MESSAGE_PATH: Final = "/dev/termination-log"

_HUGEPAGES: Final = "hugepages-"


def set_defaults(pod: Pod) -> Pod:
    """Return the pod with every default filled in; a complete one comes back equal."""
    return replace(pod, spec=_default_spec(pod.spec))


def _default_spec(spec: PodSpec) -> PodSpec:
    grace = _or(spec.termination_grace_period_seconds, DEFAULT_GRACE_PERIOD_SECONDS)
    spec = replace(
        spec,
        volumes=tuple(map(default_volume, spec.volumes)),
        init_containers=_default_containers(spec.init_containers, spec),
        containers=_default_containers(spec.containers, spec),
        ephemeral_containers=tuple(map(_default_container, spec.ephemeral_containers)),
        restart_policy=spec.restart_policy or "Always",
        dns_policy=spec.dns_policy or "ClusterFirst",
        scheduler_name=spec.scheduler_name or "default-scheduler",
        service_account_name=spec.service_account_name or spec.service_account,
        termination_grace_period_seconds=grace,
        enable_service_links=_or(spec.enable_service_links, default=True),
        security_context=_or(spec.security_context, PodSecurityContext()),
        overhead=round_to_milli(spec.overhead),
    )
    if spec.resources is None:
        return spec
    return replace(spec, resources=_default_pod_resources(spec, spec.resources))


def _or(value: T | None, default: T) -> T:
    """Return the value unless it is absent; a zero is a value."""
    return default if value is None else value


def _default_containers(containers: tuple[Container, ...], spec: PodSpec) -> tuple[Container, ...]:
    """Fill in regular or init containers, which unlike ephemeral ones reserve things."""
    return tuple(
        replace(
            container,
            ports=tuple(_default_host_port(port, spec) for port in container.ports),
            resources=_request_limits(container.resources),
        )
        for container in map(_default_container, containers)
    )


def _default_container(container: C) -> C:
    """Fill in what containers of all kinds have in common."""
    pull_policy = container.image_pull_policy or default_pull_policy(container.image)
    message_path = container.termination_message_path or DEFAULT_TERMINATION_MESSAGE_PATH
    return replace(
        container,
        image_pull_policy=pull_policy,
        termination_message_path=message_path,
        termination_message_policy=container.termination_message_policy or "File",
        ports=tuple(replace(port, protocol=port.protocol or "TCP") for port in container.ports),
        env=tuple(map(_default_env, container.env)),
        resources=_round_resources(container.resources),
        liveness_probe=_default_probe(container.liveness_probe),
        readiness_probe=_default_probe(container.readiness_probe),
        startup_probe=_default_probe(container.startup_probe),
        lifecycle=_default_lifecycle(container.lifecycle),
    )


def _default_host_port(port: ContainerPort, spec: PodSpec) -> ContainerPort:
    """In the host's network, a port of the container is one of the host."""
    if spec.host_network and port.host_port == 0:
        return replace(port, host_port=port.container_port)
    return port


def _default_env(variable: EnvVar) -> EnvVar:
    source = variable.value_from
    if source is None:
        return variable
    if source.field_ref is not None:
        source = replace(source, field_ref=with_api_version(source.field_ref))
    if source.file_key_ref is not None:
        optional = _or(source.file_key_ref.optional, default=False)
        source = replace(source, file_key_ref=replace(source.file_key_ref, optional=optional))
    return replace(variable, value_from=source)


def _default_probe(probe: Probe | None) -> Probe | None:
    if probe is None:
        return None
    grpc = probe.grpc
    if grpc is not None:
        grpc = replace(grpc, service=_or(grpc.service, ""))
    return replace(
        probe,
        http_get=_default_http_get(probe.http_get),
        grpc=grpc,
        timeout_seconds=probe.timeout_seconds or 1,
        period_seconds=probe.period_seconds or 10,
        success_threshold=probe.success_threshold or 1,
        failure_threshold=probe.failure_threshold or 3,
    )


def _default_http_get(action: HTTPGetAction | None) -> HTTPGetAction | None:
    if action is None:
        return None
    return replace(action, path=action.path or "/", scheme=action.scheme or "HTTP")


def _default_lifecycle(lifecycle: Lifecycle | None) -> Lifecycle | None:
    if lifecycle is None:
        return None
    return replace(
        lifecycle,
        post_start=_default_hook(lifecycle.post_start),
        pre_stop=_default_hook(lifecycle.pre_stop),
    )


def _default_hook(hook: LifecycleHandler | None) -> LifecycleHandler | None:
    return None if hook is None else replace(hook, http_get=_default_http_get(hook.http_get))


def _request_limits(resources: ResourceRequirements) -> ResourceRequirements:
    """Ask for what is limited, where no less is asked for."""
    if not resources.limits:
        return resources
    return replace(resources, requests={**resources.limits, **resources.requests})


def _round_resources(resources: ResourceRequirements) -> ResourceRequirements:
    if not (resources.limits or resources.requests):
        return resources
    return replace(
        resources,
        limits=round_to_milli(resources.limits),
        requests=round_to_milli(resources.requests),
    )


def _default_pod_resources(spec: PodSpec, given: ResourceRequirements) -> ResourceRequirements:
    """Fill in pod-level resources from those of the (already complete) containers."""
    rounded = _round_resources(given)
    limits: Amounts = dict(rounded.limits)
    for name, amount in aggregate(spec, "limits").items():
        if name.startswith(_HUGEPAGES) and name not in rounded.requests:
            limits.setdefault(name, amount)
    requests: Amounts = dict(rounded.requests)
    if limits:
        wanted = aggregate(spec, "requests")
        for name in ("cpu", "memory"):
            if name in wanted:
                requests.setdefault(name, wanted[name])
        requests = {**limits, **requests}
    return replace(rounded, limits=limits, requests=requests)
