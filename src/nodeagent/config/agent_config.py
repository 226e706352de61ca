"""The agent's settings: frozen, typed, checked once.

Durations are seconds, paths are paths. Defaults are those of the kubelet's configuration
API, except where docs/architecture.md says that we differ: no listener is open unless asked
for, and what is open binds to loopback.
"""

from __future__ import annotations

import ipaddress
import os
import re
import socket
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from nodeagent.config.errors import ConfigError
from nodeagent.config.server_options import ServerOptions
from nodeagent.urls import shown_url, url_fault

DEFAULT_ENDPOINT: Final = "unix:///run/containerd/containerd.sock"
VERIFICATION_POLICIES: Final = (
    "NeverVerify",
    "NeverVerifyPreloadedImages",
    "NeverVerifyAllowlistedImages",
    "AlwaysVerify",
)
_SHORTEST_LOG_INTERVAL: Final = 3.0
_SOCKET_PATH_LIMIT: Final = 107
_EMBEDDED: Final = ("embedded", "embedded:process", "embedded:simulated")
_LABEL: Final = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_NAMESPACED_SYSCTL: Final = re.compile(
    r"(?:kernel[./](?:shm|msg|sem)[-_a-z0-9]*|(?:fs[./]mqueue|net)(?:[./][-_a-z0-9]+)*[./]?)\*?"
)
"""Kernel parameters of which a pod has its own, or prefixes of such."""
_NODE_NAME: Final = re.compile(rf"{_LABEL}(\.{_LABEL})*")
_HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE: Final = re.compile(r"[^\x00-\x08\x0a-\x1f\x7f]*")
_NODE_NAME_LENGTH: Final = 253


def default_node_name() -> str:
    """The machine's host name in lower case, as the kubelet names its node."""
    return socket.gethostname().strip().lower() or "localhost"


@dataclass(frozen=True, kw_only=True, slots=True)
class AgentConfig(ServerOptions):
    """Everything a :class:`nodeagent.NodeAgent` needs to know.

    What concerns a cluster is described in :class:`ClusterSettings`, what its Node object says
    in :class:`NodeOptions`, how the kubelet's API is served in :class:`ServerOptions`, how
    containers are limited in :class:`ContainerOptions`.

    Attributes:
        static_pod_path: a manifest directory or file, or several of them.
        static_pod_url: a URL with manifests; "" means none.
        static_pod_url_header: headers to send there, name and value; never shown.
        container_runtime_endpoint: ``unix:///path``, ``embedded`` or ``embedded:simulated``.
        embedded_scenario: what is to happen to the embedded runtime, a file; "" for nothing.
        image_service_endpoint: another endpoint for images; "" means the same.
        root_dir: where the agent keeps its state, in the kubelet's layout.
        pod_logs_dir: where the runtime writes container logs.
        container_logs_dir: where links to them are made; "" for ``/var/log/containers`` when
            ``pod_logs_dir`` is the default, and for nowhere otherwise.
        node_name: name of this node; "" means the host name in lower case.
        healthz_port: port of healthz, metrics and the journal; 0 opens none.
        healthz_bind_address: address of that port.
        read_only_port: port of ``/pods``; 0 opens none.
        read_only_address: address of that port; "" means ``address``, or loopback.
        file_check_frequency: seconds between full rescans of manifests.
        http_check_frequency: seconds between two requests of the manifest URL.
        sync_frequency: seconds between two syncs of a pod at rest.
        housekeeping_period: seconds between clean-ups.
        relist_period: seconds between two PLEG relists.
        evented_relist_period: the same while the runtime's events tell of changes.
        fast_relist_period: the same while something goes on of which no event tells.
        relist_threshold: seconds without a relist after which PLEG is not healthy.
        inspection_concurrency: pods inspected side by side.
        inspection_timeout: seconds after which one pod's inspection is given up.
        runtime_request_timeout: deadline of a runtime call, seconds.
        serialize_image_pulls: pull one image at a time; None means unless several are
            allowed by ``max_parallel_image_pulls``.
        max_parallel_image_pulls: bound on parallel pulls; 0 means none.
        registry_pull_qps: pulls per second; 0 means no limit.
        registry_burst: pulls that may come at once.
        image_pull_timeout: seconds after which a pull is given up; 0 for never.
        image_credential_provider_config: file or directory that names credential provider
            plugins; "" for none.
        image_credential_provider_bin_dir: where the plugins' programs lie.
        image_pull_credentials_verification_policy: which images that are there need no
            right (KEP-2535).
        preloaded_images_verification_allowlist: images that need none, for that policy.
        image_gc_high_threshold_percent: usage of the image file system at which images are
            removed; 100 for never.
        image_gc_low_threshold_percent: usage down to which they are.
        image_minimum_gc_age: seconds that an image is left alone after it was first seen.
        image_maximum_gc_age: seconds without use after which an image goes; 0 for never.
        minimum_container_ttl_duration: seconds that a dead container is left alone.
        maximum_dead_containers_per_container: dead containers kept of each name in a pod.
        maximum_dead_containers: dead containers kept over all; negative for no bound.
        container_log_max_size: bytes at which a container's log is rotated; negative for never.
        container_log_max_files: log files kept of one run of a container.
        container_log_max_workers: logs rotated side by side.
        container_log_monitor_interval: seconds between two looks at the sizes of logs.
        resolv_conf: the node's resolver file.
        cluster_dns: name servers of the cluster, for pods that ask for ClusterFirst.
        cluster_domain: the cluster's domain.
        seccomp_default: containers that name no seccomp profile have the runtime's.
        allowed_unsafe_sysctls: kernel parameters that pods may set beside the safe ones; an
            entry may end with ``*``.
        stop_pods_on_exit: stop all pods when the agent ends (for development).
        stop_pods_timeout: seconds that stopping them may take.
        journal_size: records that the flight recorder keeps.
    """

    static_pod_path: Path | str | Sequence[Path | str] = ()
    static_pod_url: str = field(default="", repr=False)
    static_pod_url_header: Sequence[tuple[str, str]] = field(default=(), repr=False)
    container_runtime_endpoint: str = DEFAULT_ENDPOINT
    embedded_scenario: Path | str = ""
    image_service_endpoint: str = ""
    root_dir: Path | str = Path("/var/lib/kubelet")
    pod_logs_dir: Path | str = Path("/var/log/pods")
    container_logs_dir: Path | str = ""
    node_name: str = ""
    healthz_port: int = 0
    healthz_bind_address: str = "127.0.0.1"
    read_only_port: int = 0
    read_only_address: str = ""
    file_check_frequency: float = 20.0
    http_check_frequency: float = 20.0
    sync_frequency: float = 60.0
    housekeeping_period: float = 2.0
    relist_period: float = 1.0
    evented_relist_period: float = 1.0
    fast_relist_period: float = 0.2
    relist_threshold: float = 180.0
    inspection_concurrency: int = 32
    inspection_timeout: float = 30.0
    runtime_request_timeout: float = 120.0
    serialize_image_pulls: bool | None = None
    max_parallel_image_pulls: int = 0
    registry_pull_qps: float = 5.0
    registry_burst: int = 10
    image_pull_timeout: float = 0.0
    image_credential_provider_config: Path | str = ""
    image_credential_provider_bin_dir: Path | str = ""
    image_pull_credentials_verification_policy: str = "NeverVerifyPreloadedImages"
    preloaded_images_verification_allowlist: tuple[str, ...] = ()
    image_gc_high_threshold_percent: int = 85
    image_gc_low_threshold_percent: int = 80
    image_minimum_gc_age: float = 120.0
    image_maximum_gc_age: float = 0.0
    minimum_container_ttl_duration: float = 0.0
    maximum_dead_containers_per_container: int = 1
    maximum_dead_containers: int = -1
    container_log_max_size: int = 10 * 1024**2
    container_log_max_files: int = 5
    container_log_max_workers: int = 1
    container_log_monitor_interval: float = 10.0
    resolv_conf: Path | str = Path("/etc/resolv.conf")
    cluster_dns: tuple[str, ...] = ()
    cluster_domain: str = ""
    seccomp_default: bool = False
    allowed_unsafe_sysctls: tuple[str, ...] = ()
    stop_pods_on_exit: bool = False
    stop_pods_timeout: float = 40.0
    journal_size: int = 16384

    def __post_init__(self) -> None:
        self._check_numbers()
        self._check_cluster()
        self._check_endpoint("container_runtime_endpoint", self.container_runtime_endpoint)
        if self.image_service_endpoint:
            self._check_endpoint("image_service_endpoint", self.image_service_endpoint)
        if str(self.embedded_scenario) and not self.embedded:
            allowed = "goes with the embedded runtime only (container_runtime_endpoint=embedded)"
            raise ConfigError("embedded_scenario", self.embedded_scenario, allowed)
        self._check_node_name()
        self._check_image_credentials()
        self._check_url()
        self._check_garbage()
        self._check_logs()
        self._check_node()
        self._check_server()
        self._check_containers()
        # An empty bind address would mean every address of the machine.
        for name in ("healthz_bind_address", "effective_read_only_address"):
            value = getattr(self, name)
            if not _is_ip(value):
                name = name.removeprefix("effective_")  # noqa: PLW2901
                raise ConfigError(name, value, "must be an IP address")
        for server in self.cluster_dns:
            if not _is_ip(server):
                raise ConfigError("cluster_dns", server, "must be IP addresses")
        for sysctl in self.allowed_unsafe_sysctls:
            if not _NAMESPACED_SYSCTL.fullmatch(sysctl):
                allowed = "must belong to a pod alone: kernel.shm*, .msg*, .sem, fs.mqueue.*, net.*"
                raise ConfigError("allowed_unsafe_sysctls", sysctl, allowed)
        for name in ("root_dir", "pod_logs_dir"):
            if not str(getattr(self, name)):
                raise ConfigError(name, "", "must be a directory")

    def _check_numbers(self) -> None:
        for name in ("healthz_port", "read_only_port"):
            value = getattr(self, name)
            if not 0 <= value <= 65535:
                raise ConfigError(name, value, "must be a port between 1 and 65535, or 0 for none")
        if self.healthz_port and self.healthz_port == self.read_only_port:
            raise ConfigError("read_only_port", self.read_only_port, "is the healthz port already")
        for name in ("healthz_port", "read_only_port"):
            if self.port and self.port == getattr(self, name):
                other = name.replace("_", "-").removesuffix("-port")
                raise ConfigError("port", self.port, f"is the {other} port already")
        for name in (
            "file_check_frequency",
            "http_check_frequency",
            "sync_frequency",
            "housekeeping_period",
            "relist_period",
            "evented_relist_period",
            "fast_relist_period",
            "relist_threshold",
            "inspection_timeout",
            "runtime_request_timeout",
            "stop_pods_timeout",
        ):
            value = getattr(self, name)
            if not value > 0:
                raise ConfigError(name, value, "must be longer than 0 seconds")
        for name in ("inspection_concurrency", "journal_size"):
            value = getattr(self, name)
            if value < 1:
                raise ConfigError(name, value, "must be at least 1")
        for name in (
            "max_parallel_image_pulls",
            "registry_pull_qps",
            "registry_burst",
            "image_pull_timeout",
        ):
            value = getattr(self, name)
            if value < 0:
                raise ConfigError(name, value, "must not be negative")
        if self.serialize_image_pulls and self.max_parallel_image_pulls > 1:
            raise ConfigError(
                "max_parallel_image_pulls",
                self.max_parallel_image_pulls,
                "must not be more than 1 while images are pulled one at a time",
            )

    def _check_garbage(self) -> None:
        low, high = self.image_gc_low_threshold_percent, self.image_gc_high_threshold_percent
        for name, value in (
            ("image_gc_high_threshold_percent", high),
            ("image_gc_low_threshold_percent", low),
        ):
            if not 0 <= value <= 100:
                raise ConfigError(name, value, "must be between 0 and 100")
        if low >= high:
            allowed = f"must be less than image-gc-high-threshold-percent ({high})"
            raise ConfigError("image_gc_low_threshold_percent", low, allowed)
        for name in (
            "image_minimum_gc_age",
            "image_maximum_gc_age",
            "minimum_container_ttl_duration",
            "maximum_dead_containers_per_container",
        ):
            value = getattr(self, name)
            if value < 0:
                raise ConfigError(name, value, "must not be negative")
        if 0 < self.image_maximum_gc_age <= self.image_minimum_gc_age:
            allowed = "must be longer than image-minimum-gc-age, or 0 for never"
            raise ConfigError("image_maximum_gc_age", self.image_maximum_gc_age, allowed)

    def _check_logs(self) -> None:
        if self.container_log_max_files <= 1:
            value = self.container_log_max_files
            raise ConfigError("container_log_max_files", value, "must be at least 2")
        if self.container_log_max_workers < 1:
            value = self.container_log_max_workers
            raise ConfigError("container_log_max_workers", value, "must be at least 1")
        if self.container_log_monitor_interval < _SHORTEST_LOG_INTERVAL:
            raise ConfigError(
                "container_log_monitor_interval",
                self.container_log_monitor_interval,
                f"must be at least {_SHORTEST_LOG_INTERVAL:g} seconds",
            )

    def _check_image_credentials(self) -> None:
        files = ("image_credential_provider_config", "image_credential_provider_bin_dir")
        given = [name for name in files if str(getattr(self, name))]
        if len(given) == 1:
            other = next(name for name in files if name not in given)
            raise ConfigError(other, "", f"is needed with {given[0].replace('_', '-')}")
        policy = self.image_pull_credentials_verification_policy
        if policy not in VERIFICATION_POLICIES:
            allowed = f"must be one of {', '.join(VERIFICATION_POLICIES)}"
            raise ConfigError("image_pull_credentials_verification_policy", policy, allowed)
        name = "preloaded_images_verification_allowlist"
        if self.preloaded_images_verification_allowlist and "Allowlisted" not in policy:
            value = self.preloaded_images_verification_allowlist
            raise ConfigError(name, value, f"needs the policy {VERIFICATION_POLICIES[2]}")

    def _check_node_name(self) -> None:
        name = self.effective_node_name
        if len(name) > _NODE_NAME_LENGTH or not _NODE_NAME.fullmatch(name):
            raise ConfigError(
                "node_name",
                self.node_name or name,
                "must be a DNS subdomain: letters, digits, '-' and '.', at most 253 characters",
            )

    def _check_url(self) -> None:
        if self.static_pod_url and (fault := url_fault(self.static_pod_url)):
            raise ConfigError("static_pod_url", shown_url(self.static_pod_url), fault)
        for name, value in self.static_pod_url_header:
            # A value may be a password, and is not shown.
            if not _HEADER_NAME.fullmatch(name):
                shown = name if name.isprintable() and len(name) < 40 else "(not shown)"
                raise ConfigError("static_pod_url_header", shown, "must be the name of a header")
            if not _HEADER_VALUE.fullmatch(value):
                allowed = "the value must be on one line, without control characters"
                raise ConfigError("static_pod_url_header", name, allowed)

    @staticmethod
    def _check_endpoint(field: str, endpoint: str) -> None:
        embedded = field == "container_runtime_endpoint"
        if embedded and endpoint in _EMBEDDED:
            return
        path = endpoint.removeprefix("unix://")
        if not endpoint.startswith("unix:///") or path == "/":
            other = f", or {' or '.join(_EMBEDDED[::2])}" if embedded else ""
            raise ConfigError(field, endpoint, f"must be unix:///path/to.sock{other}")
        if len(os.fsencode(path)) > _SOCKET_PATH_LIMIT:
            allowed = f"the path of a socket may have at most {_SOCKET_PATH_LIMIT} bytes"
            raise ConfigError(field, endpoint, allowed)

    @property
    def embedded(self) -> str:
        """Backend of the embedded runtime (``process`` or ``simulated``), "" for a real one."""
        if self.container_runtime_endpoint not in _EMBEDDED:
            return ""
        return self.container_runtime_endpoint.partition(":")[2] or "process"

    @property
    def effective_read_only_address(self) -> str:
        """Where the read-only port is bound to."""
        return self.read_only_address or self.address or "127.0.0.1"

    @property
    def certificates_dir(self) -> Path:
        """Where certificates and keys are kept."""
        return Path(self.cert_dir) if str(self.cert_dir) else Path(self.root_dir) / "pki"

    @property
    def pulls_serialized(self) -> bool:
        """Whether images are pulled one at a time."""
        if self.serialize_image_pulls is None:
            return self.max_parallel_image_pulls <= 1
        return self.serialize_image_pulls

    @property
    def manifest_paths(self) -> tuple[Path, ...]:
        """The static pod paths, absolute, in order, without repeats."""
        given = self.static_pod_path
        paths = (given,) if isinstance(given, (str, os.PathLike)) else tuple(given)
        return tuple(dict.fromkeys(Path(os.path.abspath(p)) for p in paths if str(p)))  # noqa: PTH100

    @property
    def effective_node_name(self) -> str:
        """The node's name in force."""
        return (self.node_name or default_node_name()).lower()


def _is_ip(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True
