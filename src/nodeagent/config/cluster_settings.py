"""The settings of a node of a cluster: which API server, as whom, how much and how often."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from nodeagent.config.container_options import ContainerOptions
from nodeagent.config.errors import ConfigError

_QPS: Final = 50
_BURST: Final = 100
_WATCH: Final = "Watch"
_STRATEGIES: Final = ("Get", "Cache", _WATCH)


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """How many requests a client may make.

    Attributes:
        qps: per second; 0 for no limit.
        burst: at once.
    """

    qps: float
    burst: int


@dataclass(frozen=True, kw_only=True, slots=True)
class ClusterSettings(ContainerOptions):
    """What connects a node to a cluster. Without a kubeconfig it stands alone.

    Attributes:
        kubeconfig: how to reach the API server, and as whom; "" for no cluster.
        bootstrap_kubeconfig: the same for the first request of a client certificate, which is
            made when ``kubeconfig`` does not exist yet; "" for none.
        cert_dir: where certificates and keys are kept; "" for ``pki`` below the root directory.
        rotate_certificates: ask for a new client certificate before the present one ends.
        register_node: make the Node object of this machine; without, somebody else does.
        kube_api_qps: requests per second, without events and heartbeats; 0 for the default.
        kube_api_burst: such requests that may come at once; 0 for the default.
        event_record_qps: events written per second; 0 for no limit.
        event_burst: events that may be written at once; 0 for the default.
        node_status_update_frequency: seconds between two looks at the node's own state.
        node_status_report_frequency: seconds between two reports of a state that stays the same.
        node_lease_duration_seconds: seconds after which a node that is silent counts as lost.
        checkpoint_patience: seconds that the API server has for its first answer before the pods
            that it named last are run without one.
        config_map_and_secret_change_detection_strategy: how ConfigMaps and Secrets come to the
            node: ``Watch``, ``Cache`` or ``Get``.
    """

    kubeconfig: Path | str = ""
    bootstrap_kubeconfig: Path | str = ""
    cert_dir: Path | str = ""
    rotate_certificates: bool = False
    register_node: bool = True
    kube_api_qps: int = _QPS
    kube_api_burst: int = _BURST
    event_record_qps: int = _QPS
    event_burst: int = _BURST
    node_status_update_frequency: float = 10.0
    node_status_report_frequency: float = 300.0
    node_lease_duration_seconds: int = 40
    checkpoint_patience: float = 20.0
    config_map_and_secret_change_detection_strategy: str = _WATCH

    def _check_cluster(self) -> None:
        """Raises ConfigError."""
        if str(self.bootstrap_kubeconfig) and not str(self.kubeconfig):
            allowed = "needs kubeconfig, the file in which the credential it obtains is kept"
            raise ConfigError("bootstrap_kubeconfig", self.bootstrap_kubeconfig, allowed)
        for name in ("kube_api_qps", "kube_api_burst", "event_record_qps", "event_burst"):
            value = getattr(self, name)
            if value < 0:
                raise ConfigError(name, value, "must not be negative")
        for name in ("node_status_update_frequency", "node_status_report_frequency"):
            value = getattr(self, name)
            if not value > 0:
                raise ConfigError(name, value, "must be longer than 0 seconds")
        if self.checkpoint_patience < 0:
            value = self.checkpoint_patience
            raise ConfigError("checkpoint_patience", value, "must not be negative")
        if self.node_lease_duration_seconds < 1:
            value = self.node_lease_duration_seconds
            raise ConfigError("node_lease_duration_seconds", value, "must be greater than 0")
        if self.config_map_and_secret_change_detection_strategy not in _STRATEGIES:
            name = "config_map_and_secret_change_detection_strategy"
            raise ConfigError(name, getattr(self, name), f"must be one of {', '.join(_STRATEGIES)}")

    @property
    def standalone(self) -> bool:
        """Whether there is no cluster: static pods only, and nothing is told to anybody."""
        return not str(self.kubeconfig)

    @property
    def api_limits(self) -> RequestLimits:
        """Bounds on requests other than events and heartbeats."""
        return RequestLimits(self.kube_api_qps or _QPS, self.kube_api_burst or _BURST)

    @property
    def event_limits(self) -> RequestLimits:
        """Bounds on events."""
        return RequestLimits(self.event_record_qps, self.event_burst or _BURST)

    @property
    def heartbeat_timeout(self) -> float:
        """Seconds that a report of life may take: a newer one is due then."""
        return min(self.node_status_update_frequency, float(self.node_lease_duration_seconds))
