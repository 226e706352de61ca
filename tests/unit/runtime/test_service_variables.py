"""Variables of services. docs/behaviour/runtime.md, "Service variables"."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pytest

from nodeagent.api import Container, EnvVar, ObjectMeta, Pod, PodSpec
from nodeagent.api.service import Service, ServicePort, ServiceSpec
from nodeagent.model.annotations import CONFIG_SOURCE
from nodeagent.runtime.environment import EnvironmentSources, build_environment
from nodeagent.runtime.errors import ContainerStartError
from nodeagent.runtime.service_variables import choose, pod_service_variables, variables


def service(
    name: str, namespace: str = "ns", address: str = "10.0.0.1", *ports: ServicePort
) -> Service:
    return Service(
        metadata=ObjectMeta(name=name, namespace=namespace),
        spec=ServiceSpec(cluster_ip=address, ports=ports or (ServicePort(port=80),)),
    )


def test_a_service_with_several_ports() -> None:
    found = variables(
        [
            service(
                "my-db",
                "ns",
                "10.0.0.1",
                ServicePort(name="sql", protocol="TCP", port=5432),
                ServicePort(name="stat-d", protocol="UDP", port=8125),
            )
        ]
    )
    assert found == {
        "MY_DB_SERVICE_HOST": "10.0.0.1",
        "MY_DB_SERVICE_PORT": "5432",
        "MY_DB_SERVICE_PORT_SQL": "5432",
        "MY_DB_SERVICE_PORT_STAT_D": "8125",
        "MY_DB_PORT": "tcp://10.0.0.1:5432",
        "MY_DB_PORT_5432_TCP": "tcp://10.0.0.1:5432",
        "MY_DB_PORT_5432_TCP_PROTO": "tcp",
        "MY_DB_PORT_5432_TCP_PORT": "5432",
        "MY_DB_PORT_5432_TCP_ADDR": "10.0.0.1",
        "MY_DB_PORT_8125_UDP": "udp://10.0.0.1:8125",
        "MY_DB_PORT_8125_UDP_PROTO": "udp",
        "MY_DB_PORT_8125_UDP_PORT": "8125",
        "MY_DB_PORT_8125_UDP_ADDR": "10.0.0.1",
    }


def test_ipv6_has_brackets_in_urls_only() -> None:
    found = variables([service("a", "ns", "fd00::1")])
    assert found["A_SERVICE_HOST"] == found["A_PORT_80_TCP_ADDR"] == "fd00::1"
    assert found["A_PORT"] == "tcp://[fd00::1]:80"


def test_a_service_without_ports_has_an_address_only() -> None:
    bare = Service(metadata=ObjectMeta(name="a"), spec=ServiceSpec(cluster_ip="10.0.0.1"))
    assert variables([bare]) == {"A_SERVICE_HOST": "10.0.0.1"}


def test_which_services_a_pod_is_told_of() -> None:
    everything = [
        service("web"),
        service("headless", "ns", "None"),
        service("pending", "ns", ""),
        service("other", "elsewhere"),
        service("kubernetes", "default", "10.96.0.1"),
        service("dns", "default"),
    ]
    names = [s.metadata.name for s in choose(everything, "ns", links=True)]
    assert names == ["kubernetes", "web"]
    names = [s.metadata.name for s in choose(everything, "ns", links=False)]
    assert names == ["kubernetes"]


@pytest.mark.parametrize("first", [True, False])
def test_a_service_of_ones_own_wins_over_the_api_server(first: bool) -> None:
    both = [service("kubernetes", "default", "10.96.0.1"), service("kubernetes", "ns", "10.0.0.9")]
    chosen = choose(both if first else both[::-1], "ns", links=True)
    assert [s.spec.cluster_ip for s in chosen] == ["10.0.0.9"]


@dataclass
class Known:
    services: list[Service]
    synced: bool = True

    def in_namespaces(self, namespaces: Iterable[str]) -> Iterable[Service]:
        return [s for s in self.services if s.metadata.namespace in set(namespaces)]


def pod(*, static: bool = False, links: bool | None = True) -> Pod:
    annotations = {CONFIG_SOURCE: "file"} if static else {}
    container = Container(
        name="c",
        env=(
            EnvVar(name="URL", value="http://$(WEB_SERVICE_HOST)/"),
            EnvVar(name="WEB_PORT", value="mine"),
        ),
    )
    return Pod(
        metadata=ObjectMeta(name="p", namespace="ns", annotations=annotations),
        spec=PodSpec(containers=(container,), enable_service_links=links),
    )


def test_services_that_are_not_known_yet_hold_up_pods_of_the_api_server_only() -> None:
    unknown = Known([], synced=False)
    with pytest.raises(ContainerStartError, match="have not been read from the API server yet"):
        pod_service_variables(pod(), unknown)
    assert pod_service_variables(pod(static=True), unknown) == {}


def test_the_environment_has_them_last_and_values_may_refer_to_them() -> None:
    wanted = pod()
    given = pod_service_variables(wanted, Known([service("web")]))
    sources = EnvironmentSources(services=given)
    environment = build_environment(wanted, wanted.spec.containers[0], sources)
    assert environment["URL"] == "http://10.0.0.1/"
    assert environment["WEB_PORT"] == "mine"
    assert environment["WEB_SERVICE_PORT"] == "80"
