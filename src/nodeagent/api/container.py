"""Containers of a pod: regular, init and ephemeral."""

from nodeagent.api.base import ApiObject, always
from nodeagent.api.env import EnvFromSource, EnvVar
from nodeagent.api.probes import Lifecycle, Probe
from nodeagent.api.resources import ContainerResizePolicy, ResourceRequirements
from nodeagent.api.security import SecurityContext


class ContainerPort(ApiObject):
    """A port the container listens on, and the host port that leads to it."""

    name: str = ""
    host_port: int = 0
    container_port: int = always(0)
    protocol: str = ""
    host_ip: str = ""


class VolumeMount(ApiObject):
    """A volume of the pod made visible in the container's file system."""

    name: str = ""
    read_only: bool = False
    recursive_read_only: str | None = None
    mount_path: str = ""
    sub_path: str = ""
    mount_propagation: str | None = None
    sub_path_expr: str = ""


class VolumeDevice(ApiObject):
    """A raw block volume of the pod made visible as a device."""

    name: str = ""
    device_path: str = ""


class ContainerRestartRuleOnExitCodes(ApiObject):
    """Exit codes a restart rule looks at: In or NotIn the values."""

    operator: str = ""
    values: tuple[int, ...] = ()


class ContainerRestartRule(ApiObject):
    """What to do when the container ends with certain exit codes; the first match wins."""

    action: str = ""
    exit_codes: ContainerRestartRuleOnExitCodes | None = None


class Container(ApiObject):
    """One container: image, process, environment, resources, mounts, checks."""

    name: str = ""
    image: str = ""
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    working_dir: str = ""
    ports: tuple[ContainerPort, ...] = ()
    env_from: tuple[EnvFromSource, ...] = ()
    env: tuple[EnvVar, ...] = ()
    resources: ResourceRequirements = ResourceRequirements()
    resize_policy: tuple[ContainerResizePolicy, ...] = ()
    restart_policy: str | None = None
    restart_policy_rules: tuple[ContainerRestartRule, ...] = ()
    volume_mounts: tuple[VolumeMount, ...] = ()
    volume_devices: tuple[VolumeDevice, ...] = ()
    liveness_probe: Probe | None = None
    readiness_probe: Probe | None = None
    startup_probe: Probe | None = None
    lifecycle: Lifecycle | None = None
    termination_message_path: str = ""
    termination_message_policy: str = ""
    image_pull_policy: str = ""
    security_context: SecurityContext | None = None
    stdin: bool = False
    stdin_once: bool = False
    tty: bool = False


class EphemeralContainer(Container):
    """A container added to a running pod for debugging, next to its target."""

    target_container_name: str = ""
