"""The agent's settings: defaults, what is refused, and what follows from them."""

from __future__ import annotations

import dataclasses
import inspect
import math
import os
import socket
from pathlib import Path
from typing import Any

import pytest

from nodeagent.config import (
    DEFAULT_ENDPOINT,
    AgentConfig,
    ClusterSettings,
    ConfigError,
    NodeOptions,
    RequestLimits,
    default_node_name,
)
from nodeagent.config.agent_config import VERIFICATION_POLICIES
from nodeagent.config.container_options import ContainerOptions
from nodeagent.config.server_options import ServerOptions


def test_the_defaults_are_the_kubelets_and_nothing_listens() -> None:
    config = AgentConfig()
    assert config.container_runtime_endpoint == DEFAULT_ENDPOINT
    assert DEFAULT_ENDPOINT == "unix:///run/containerd/containerd.sock"
    assert (config.healthz_port, config.read_only_port) == (0, 0)
    bound = (config.healthz_bind_address, config.effective_read_only_address)
    assert bound == ("127.0.0.1", "127.0.0.1")
    assert (config.file_check_frequency, config.sync_frequency) == (20.0, 60.0)
    assert (config.housekeeping_period, config.relist_period) == (2.0, 1.0)
    assert (config.relist_threshold, config.runtime_request_timeout) == (180.0, 120.0)
    assert (config.registry_pull_qps, config.registry_burst) == (5.0, 10)
    assert config.pulls_serialized
    assert not config.stop_pods_on_exit
    assert config.manifest_paths == ()


@pytest.mark.parametrize(
    ("serialize", "parallel", "serialized"),
    [(None, 0, True), (None, 1, True), (None, 2, False), (False, 0, False), (True, 1, True)],
)
def test_parallel_pulls_end_the_serial_ones(
    serialize: bool | None, parallel: int, serialized: bool
) -> None:
    config = AgentConfig(serialize_image_pulls=serialize, max_parallel_image_pulls=parallel)
    assert config.pulls_serialized is serialized


def test_parallel_pulls_cannot_be_asked_for_with_serial_ones() -> None:
    with pytest.raises(ConfigError, match="one at a time"):
        AgentConfig(serialize_image_pulls=True, max_parallel_image_pulls=2)


@pytest.mark.parametrize(
    ("given", "missing"),
    [
        ("image_credential_provider_config", "image_credential_provider_bin_dir"),
        ("image_credential_provider_bin_dir", "image_credential_provider_config"),
    ],
)
def test_the_settings_of_credential_providers_go_together(given: str, missing: str) -> None:
    with pytest.raises(ConfigError) as caught:
        AgentConfig(**{given: Path("/etc/x")})  # type: ignore[arg-type]
    assert caught.value.field == missing
    assert caught.value.allowed == f"is needed with {given.replace('_', '-')}"


def test_an_agent_without_a_kubeconfig_stands_alone() -> None:
    assert AgentConfig().standalone
    assert not AgentConfig(kubeconfig=Path("/etc/kubernetes/kubelet.conf")).standalone


def test_certificates_are_kept_with_the_rest_unless_told_otherwise() -> None:
    assert AgentConfig(root_dir="/r").certificates_dir == Path("/r/pki")
    assert AgentConfig(root_dir="/r", cert_dir="/c").certificates_dir == Path("/c")


def test_limits_of_requests() -> None:
    config = AgentConfig()
    assert config.api_limits == config.event_limits == RequestLimits(50, 100)
    config = AgentConfig(kube_api_qps=0, kube_api_burst=0, event_record_qps=0, event_burst=0)
    assert config.api_limits == RequestLimits(50, 100)
    assert config.event_limits == RequestLimits(0, 100)


def test_a_report_of_life_is_given_up_when_the_next_one_is_due() -> None:
    assert AgentConfig().heartbeat_timeout == 10.0
    config = AgentConfig(node_status_update_frequency=60.0, node_lease_duration_seconds=40)
    assert config.heartbeat_timeout == 40.0


def test_settings_are_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        AgentConfig().healthz_port = 1  # type: ignore[misc]


REFUSED: list[tuple[str, Any, str]] = [
    ("healthz_port", 70000, "must be a port between 1 and 65535, or 0 for none"),
    ("healthz_port", -1, "must be a port between 1 and 65535, or 0 for none"),
    ("read_only_port", 65536, "must be a port between 1 and 65535, or 0 for none"),
    *(
        (name, value, "must be longer than 0 seconds")
        for name in (
            "file_check_frequency",
            "http_check_frequency",
            "sync_frequency",
            "housekeeping_period",
            "relist_period",
            "relist_threshold",
            "inspection_timeout",
            "runtime_request_timeout",
            "stop_pods_timeout",
        )
        for value in (0, -1.5)
    ),
    ("sync_frequency", math.nan, "must be longer than 0 seconds"),
    ("inspection_concurrency", 0, "must be at least 1"),
    ("journal_size", 0, "must be at least 1"),
    ("max_parallel_image_pulls", -1, "must not be negative"),
    ("image_pull_timeout", -1.0, "must not be negative"),
    (
        "image_pull_credentials_verification_policy",
        "Sometimes",
        f"must be one of {', '.join(VERIFICATION_POLICIES)}",
    ),
    (
        "preloaded_images_verification_allowlist",
        ("registry.test/app",),
        "needs the policy NeverVerifyAllowlistedImages",
    ),
    ("container_log_max_files", 1, "must be at least 2"),
    ("container_log_max_workers", 0, "must be at least 1"),
    ("container_log_monitor_interval", 2.0, "must be at least 3 seconds"),
    ("image_gc_high_threshold_percent", 101, "must be between 0 and 100"),
    ("image_gc_low_threshold_percent", -1, "must be between 0 and 100"),
    (
        "image_gc_low_threshold_percent",
        85,
        "must be less than image-gc-high-threshold-percent (85)",
    ),
    ("image_minimum_gc_age", -1.0, "must not be negative"),
    (
        "image_maximum_gc_age",
        60.0,
        "must be longer than image-minimum-gc-age, or 0 for never",
    ),
    ("minimum_container_ttl_duration", -1.0, "must not be negative"),
    ("maximum_dead_containers_per_container", -1, "must not be negative"),
    ("registry_pull_qps", -0.1, "must not be negative"),
    ("registry_burst", -1, "must not be negative"),
    ("node_ip", "localhost", "must be an IP address, or one of each family"),
    ("node_ip", "10.0.0.1/24", "must be an IP address, or one of each family"),
    ("healthz_bind_address", "localhost", "must be an IP address"),
    ("healthz_bind_address", "", "must be an IP address"),
    ("read_only_address", "localhost", "must be an IP address"),
    ("root_dir", "", "must be a directory"),
    (
        "embedded_scenario",
        "s.yaml",
        "goes with the embedded runtime only (container_runtime_endpoint=embedded)",
    ),
    ("pod_logs_dir", "", "must be a directory"),
    (
        "bootstrap_kubeconfig",
        "/etc/b",
        "needs kubeconfig, the file in which the credential it obtains is kept",
    ),
    ("kube_api_qps", -1, "must not be negative"),
    ("kube_api_burst", -1, "must not be negative"),
    (
        "config_map_and_secret_change_detection_strategy",
        "Poll",
        "must be one of Get, Cache, Watch",
    ),
    ("event_record_qps", -1, "must not be negative"),
    ("event_burst", -1, "must not be negative"),
    ("node_status_update_frequency", 0.0, "must be longer than 0 seconds"),
    ("node_status_report_frequency", 0.0, "must be longer than 0 seconds"),
    ("checkpoint_patience", -1.0, "must not be negative"),
    ("node_lease_duration_seconds", 0, "must be greater than 0"),
]


@pytest.mark.parametrize(("field", "value", "allowed"), REFUSED)
def test_what_cannot_be_used_is_named_with_its_value(field: str, value: Any, allowed: str) -> None:
    with pytest.raises(ConfigError) as caught:
        AgentConfig(**{field: value})
    assert (caught.value.field, caught.value.allowed) == (field, allowed)
    assert caught.value.value is value
    assert str(caught.value) == f"{field}={value}: {allowed}"
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("example.com/pods", "example.com/pods"),
        ("ftp://example.com/", "ftp://example.com/"),
        ("http://", "http://"),
        ("http://example.com:port/", "http://example.com:port/"),
        ("http://me:secret@/x?token=secret", "http:///x?..."),
        ("http://[::1/", "(not a URL)"),
        ("http://example.com/a b", "http://example.com/a b"),
        ("http://example.com/\u00e9", "http://example.com/\u00e9"),
    ],
)
def test_a_manifest_url_must_be_one_and_is_shown_without_secrets(url: str, shown: str) -> None:
    with pytest.raises(ConfigError) as caught:
        AgentConfig(static_pod_url=url)
    assert caught.value.field == "static_pod_url"
    assert caught.value.value == shown
    assert caught.value.allowed.startswith("must be a URL such as https://example.com/pods.yaml")


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("", "secret", ""),
        ("X Token", "secret", "X Token"),
        ("X-T\u00f6ken", "secret", "X-T\u00f6ken"),
        ("Bearer secret" * 5, "", "(not shown)"),
        ("X-Token", "secret\r\nX-Other: 1", "X-Token"),
        ("X-Token", "secret\0", "X-Token"),
    ],
)
def test_a_header_must_be_one_and_its_value_is_never_shown(
    name: str, value: str, shown: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        AgentConfig(static_pod_url_header=((name, value),))
    assert (caught.value.field, caught.value.value) == ("static_pod_url_header", shown)
    assert "secret" not in str(caught.value)


def test_what_is_secret_is_not_in_the_representation() -> None:
    config = AgentConfig(
        static_pod_url="https://me:hidden@example.com/",
        static_pod_url_header=(("Authorization", "Bearer hidden"), ("X-Tab", "a\tb")),
    )
    assert "hidden" not in repr(config)


def test_name_servers_must_be_addresses() -> None:
    with pytest.raises(ConfigError, match=r"cluster_dns=dns\.local: must be IP addresses"):
        AgentConfig(cluster_dns=("10.96.0.10", "dns.local"))
    assert AgentConfig(cluster_dns=("10.96.0.10", "fd00::a")).cluster_dns == (
        "10.96.0.10",
        "fd00::a",
    )


def test_both_listeners_on_one_port_are_refused() -> None:
    with pytest.raises(ConfigError, match="read_only_port=10248: is the healthz port already"):
        AgentConfig(healthz_port=10248, read_only_port=10248)
    AgentConfig(healthz_port=0, read_only_port=0)


@pytest.mark.parametrize(
    "endpoint",
    [
        "",
        "tcp://127.0.0.1:1",
        "/run/containerd/containerd.sock",
        "unix://run/x.sock",
        "unix:///",
        "unix:",
        "embedded:docker",
        "Embedded",
        "npipe:////./pipe/x",
    ],
)
def test_an_endpoint_is_a_socket_or_the_embedded_runtime(endpoint: str) -> None:
    allowed = "must be unix:///path/to.sock, or embedded or embedded:simulated"
    with pytest.raises(ConfigError) as caught:
        AgentConfig(container_runtime_endpoint=endpoint)
    assert caught.value.allowed == allowed
    if endpoint:
        with pytest.raises(ConfigError, match="image_service_endpoint"):
            AgentConfig(image_service_endpoint=endpoint)


@pytest.mark.parametrize(
    ("endpoint", "backend"),
    [
        ("unix:///run/x.sock", ""),
        ("embedded", "process"),
        ("embedded:process", "process"),
        ("embedded:simulated", "simulated"),
    ],
)
def test_the_endpoint_tells_the_embedded_backend(endpoint: str, backend: str) -> None:
    assert AgentConfig(container_runtime_endpoint=endpoint).embedded == backend


@pytest.mark.parametrize(
    "name",
    ["a_b", "-a", "a-", ".a", "a.", "a..b", "a.-b", "a b", "é", "a\n", "a" * 254, "a/b"],
)
def test_a_node_name_must_be_a_dns_subdomain(name: str) -> None:
    with pytest.raises(ConfigError, match="must be a DNS subdomain") as caught:
        AgentConfig(node_name=name)
    assert caught.value.value == name


@pytest.mark.parametrize("name", ["a", "Node-1", "n1.example.com", "0", "a" * 253, "a--b"])
def test_a_node_name_counts_in_lower_case(name: str) -> None:
    assert AgentConfig(node_name=name).effective_node_name == name.lower()


def test_without_a_name_the_host_gives_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: " My-Host.Lan\n")
    assert default_node_name() == "my-host.lan"
    assert AgentConfig().effective_node_name == "my-host.lan"
    monkeypatch.setattr(socket, "gethostname", lambda: "")
    assert default_node_name() == "localhost"


def test_a_host_name_that_cannot_name_a_node_is_refused_unless_another_is_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "my_host")
    with pytest.raises(ConfigError, match="node_name=my_host: must be a DNS subdomain"):
        AgentConfig()
    assert AgentConfig(node_name="mine").effective_node_name == "mine"


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ("a", ["a"]),
        (Path("a"), ["a"]),
        ("", []),
        ((), []),
        (("a", Path("b"), "a", "./a", "b/../b"), ["a", "b"]),
        (["", "a"], ["a"]),
        (("b", "a"), ["b", "a"]),
    ],
)
def test_manifest_paths_are_absolute_in_order_and_without_repeats(
    given: Any, names: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    config = AgentConfig(static_pod_path=given)
    assert config.manifest_paths == tuple(Path(os.path.realpath(tmp_path)) / n for n in names)


def test_a_link_is_kept_as_it_is_named(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    config = AgentConfig(static_pod_path=tmp_path / "link" / "")
    assert config.manifest_paths == (tmp_path / "link",)


def test_every_setting_is_documented() -> None:
    classes = (AgentConfig, ClusterSettings, ContainerOptions, NodeOptions, ServerOptions)
    text = "".join(inspect.cleandoc(c.__doc__ or "") for c in classes)
    for field in dataclasses.fields(AgentConfig):
        assert f"\n    {field.name}: " in text


@pytest.mark.parametrize(
    "name",
    ["kernel.msgmax", "kernel/shm*", "kernel.sem", "net.*", "net.core.somaxconn", "fs.mqueue.x"],
)
def test_kernel_parameters_that_a_pod_has_for_itself_may_be_allowed(name: str) -> None:
    assert AgentConfig(allowed_unsafe_sysctls=(name,)).allowed_unsafe_sysctls == (name,)


@pytest.mark.parametrize("name", ["", "*", "vm.swappiness", "kernel.*", "kernel.pid_max", "net*x"])
def test_no_others_may(name: str) -> None:
    with pytest.raises(ConfigError, match="must belong to a pod alone") as caught:
        AgentConfig(allowed_unsafe_sysctls=(name,))
    assert caught.value.field == "allowed_unsafe_sysctls"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("cpu_cfs_quota_period", 0.0009),
        ("cpu_cfs_quota_period", 1.1),
        ("swap_behavior", "All"),
        ("max_container_restart_period", 0.5),
        ("max_container_restart_period", 301.0),
    ],
)
def test_limits_of_containers_that_cannot_be(name: str, value: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        AgentConfig(**{name: value})
    assert caught.value.field == name
