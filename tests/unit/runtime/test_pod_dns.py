"""Resolver settings of pods (docs/behaviour/runtime.md, "DNS")."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.runtime.fakes import make_pod

from nodeagent.api import PodDNSConfig, PodDNSConfigOption
from nodeagent.runtime.dns import ResolverSettings, no_resolver, parse_resolv_conf, pod_dns

HOST = ResolverSettings(("10.1.1.1",), ("corp.example",), ("timeout:2",))
CLUSTER = ("10.96.0.10",)


def dns(cluster: tuple[str, ...] = CLUSTER, **spec: Any) -> tuple[ResolverSettings, list[str]]:
    settings, warnings = pod_dns(make_pod(**spec), HOST, cluster, "cluster.local")
    return settings, [w.reason for w in warnings]


CLUSTER_SETTINGS = ResolverSettings(
    CLUSTER,
    ("default.svc.cluster.local", "svc.cluster.local", "cluster.local", "corp.example"),
    ("ndots:5",),
)


@pytest.mark.parametrize(
    ("policy", "host_network", "expected"),
    [
        ("ClusterFirst", False, CLUSTER_SETTINGS),
        ("ClusterFirst", True, HOST),
        ("ClusterFirstWithHostNet", False, CLUSTER_SETTINGS),
        ("ClusterFirstWithHostNet", True, CLUSTER_SETTINGS),
        ("Default", False, HOST),
        ("None", False, ResolverSettings()),
        ("Nonsense", False, CLUSTER_SETTINGS),
        ("", False, CLUSTER_SETTINGS),
    ],
)
def test_the_policy_decides_the_base(
    policy: str, host_network: bool, expected: ResolverSettings
) -> None:
    assert dns(dns_policy=policy, host_network=host_network) == (expected, [])


@pytest.mark.parametrize("policy", ["ClusterFirst", "ClusterFirstWithHostNet"])
def test_without_cluster_dns_the_nodes_settings_are_used_with_a_warning(policy: str) -> None:
    assert dns((), dns_policy=policy) == (HOST, ["MissingClusterDNS"])


def test_a_node_without_a_resolver_file_adds_no_search_domain_to_the_clusters() -> None:
    settings, _ = pod_dns(make_pod(), no_resolver(()), CLUSTER, "cluster.local")
    assert settings.searches == CLUSTER_SETTINGS.searches[:3]


def test_the_pods_own_settings_are_added() -> None:
    own = PodDNSConfig(
        nameservers=("10.1.1.1", "1.1.1.1"),
        searches=("corp.example", "own.example"),
        options=(
            PodDNSConfigOption(name="timeout", value="5"),
            PodDNSConfigOption(name="edns0"),
        ),
    )
    settings, warnings = dns(dns_policy="Default", dns_config=own)
    assert settings == ResolverSettings(
        ("10.1.1.1", "1.1.1.1"), ("corp.example", "own.example"), ("timeout:5", "edns0")
    )
    assert not warnings


@pytest.mark.parametrize(
    ("own", "kept"),
    [
        (PodDNSConfig(nameservers=("1", "2", "3", "4")), "servers"),
        (PodDNSConfig(searches=tuple(f"s{n}" for n in range(33))), "searches"),
        (PodDNSConfig(searches=tuple(f"{n:0200}" for n in range(12))), "searches"),
        (PodDNSConfig(searches=("a" * 254,)), "searches"),
    ],
)
def test_what_exceeds_the_limits_is_left_out_with_a_warning(own: PodDNSConfig, kept: str) -> None:
    settings, warnings = dns(dns_policy="None", dns_config=own)
    assert warnings == ["DNSConfigForming"]
    given = own.nameservers if kept == "servers" else own.searches
    applied: tuple[str, ...] = getattr(settings, kept)
    assert len(applied) < len(given)
    assert set(applied) <= set(given)
    assert len(" ".join(settings.searches)) <= 2048


def test_a_resolver_file_is_read_as_the_resolver_does() -> None:
    text = """
# comment
nameserver 10.0.0.1
nameserver 10.0.0.2  # trailing
nameserver
search old.example
domain ignored.example
search a.example. b.example .
options ndots:1 rotate
options ndots:3
"""
    assert parse_resolv_conf(text) == ResolverSettings(
        ("10.0.0.1", "10.0.0.2"), ("a.example", "b.example"), ("ndots:3", "rotate")
    )


def test_an_empty_resolver_file_gives_nothing() -> None:
    assert parse_resolv_conf("") == ResolverSettings()


@pytest.mark.parametrize(
    ("node_ips", "server"),
    [((), "127.0.0.1"), (("192.0.2.1", "fd00::1"), "127.0.0.1"), (("fd00::1",), "::1")],
)
def test_without_a_resolver_file_the_node_itself_is_asked(
    node_ips: tuple[str, ...], server: str
) -> None:
    assert no_resolver(node_ips) == ResolverSettings((server,), (".",))
