"""Certificates, and whether there is an API port at all.

docs/behaviour/server.md, "Listener" and "Certificates".
"""

from __future__ import annotations

import ipaddress
import logging
import stat
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import anyio.lowlevel
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from prometheus_client import CollectorRegistry
from tests.unit.kube.authority import Authority
from tests.unit.server.review_fakes import Reviews

from nodeagent.api import Pod
from nodeagent.clock import SystemClock
from nodeagent.cluster import ClusterLink
from nodeagent.config import AgentConfig
from nodeagent.config.effective import effective_configuration
from nodeagent.config.reload import LiveSettings
from nodeagent.config.report import ConfigReport
from nodeagent.cri import RuntimeService
from nodeagent.errors import StartError
from nodeagent.journal import Journal
from nodeagent.kube import KubeClients
from nodeagent.kube.reach import Reach
from nodeagent.model import RuntimePod
from nodeagent.pleg import PodCache
from nodeagent.pods.manager import PodManager
from nodeagent.pods.status_manager import StatusManager
from nodeagent.server import HealthChecks
from nodeagent.server.http_metrics import HttpMetrics
from nodeagent.server.kubelet.self_signed import self_signed
from nodeagent.server.kubelet.serving import (
    ServingError,
    ServingFiles,
    own_addresses,
    server_context,
    serving_files,
)
from nodeagent.stats import StatsCollector
from nodeagent.wiring.server import ServerSide, api_opener, api_port

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)


def test_hc1_a_certificate_is_made_once_and_kept(tmp_path: Path) -> None:
    directory, addresses = tmp_path / "pki", own_addresses(("10.0.0.7", "0.0.0.0", "", "10.0.0.7"))
    files = serving_files(AgentConfig(), directory, "n1", addresses)
    assert files == ServingFiles(directory / "kubelet.crt", directory / "kubelet.key", None)
    assert stat.S_IMODE(files.key.stat().st_mode) == 0o600
    leaf, authority = x509.load_pem_x509_certificates(files.certificate.read_bytes())
    leaf.verify_directly_issued_by(authority)
    names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["n1"]
    assert names.get_values_for_type(x509.IPAddress) == [
        ipaddress.ip_address(text) for text in ("10.0.0.7", "127.0.0.1", "::1")
    ]
    key = load_pem_private_key(files.key.read_bytes(), None)
    assert key.public_key() == leaf.public_key()
    assert server_context(files, AgentConfig()) is not None
    kept = files.certificate.read_bytes()
    serving_files(AgentConfig(), directory, "n1", addresses)
    assert files.certificate.read_bytes() == kept
    files.key.unlink()
    serving_files(AgentConfig(), directory, "n1", addresses)
    assert files.certificate.read_bytes() != kept


def test_hc1_it_is_good_for_a_year_from_an_hour_ago() -> None:
    made = self_signed("a" * 100, ["127.0.0.1"], NOW)
    leaf, authority = x509.load_pem_x509_certificates(made.chain)
    for certificate in (leaf, authority):
        assert certificate.not_valid_before_utc == NOW - timedelta(hours=1)
        assert certificate.not_valid_after_utc == NOW + timedelta(days=365)
    assert str(int(NOW.timestamp())) in leaf.subject.rfc4514_string()
    assert "PRIVATE" not in repr(made)


def test_hc2_files_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    authority = Authority()
    certificate, key = authority.server().write(tmp_path, "served")
    options = AgentConfig(tls_cert_file=certificate, tls_private_key_file=key)
    files = serving_files(options, tmp_path / "pki", "n1", [])
    assert not (tmp_path / "pki").exists()
    server_context(files, options)
    other = ServingFiles(certificate, authority.server().write(tmp_path, "other")[1], None)
    with pytest.raises(ServingError, match=f"{certificate} and .*other.key are no certificate"):
        server_context(other, options)
    with pytest.raises(ServingError, match=r"missing cannot be read: No such file"):
        server_context(ServingFiles(tmp_path / "missing", key, None), options)
    garbage = tmp_path / "garbage"
    garbage.write_text("x")
    with pytest.raises(ServingError, match="garbage has no certificate"):
        server_context(ServingFiles(certificate, key, garbage), options)


def test_a_change_of_any_file_shows(tmp_path: Path) -> None:
    certificate, key = Authority().server().write(tmp_path, "served")
    files = ServingFiles(certificate, key, tmp_path / "ca.crt")
    seen = [files.signature()]
    for file in files.all:
        file.write_text("another")
        assert files.signature() not in seen
        seen.append(files.signature())


# -- whether there is a port -------------------------------------------------------------------


def side(tmp_path: Path, **settings: Any) -> ServerSide:
    async def none() -> list[RuntimePod]:
        return []

    async def no_checkpoint(_pod: Pod, _container: str, _timeout: int) -> Path:
        raise LookupError

    config = AgentConfig(root_dir=tmp_path, node_name="n1", **settings)
    return ServerSide(
        config=config,
        settings=LiveSettings(config),
        report=ConfigReport(),
        manager=PodManager(),
        statuses=cast(StatusManager, None),
        cache=PodCache(),
        runtime=cast(RuntimeService, None),
        checks=HealthChecks([]),
        journal=Journal(16),
        registry=CollectorRegistry(),
        clock=SystemClock(),
        addresses=("127.0.0.1",),
        checkpoint=no_checkpoint,
        list_pods=none,
        stats=cast(StatsCollector, None),
        http=HttpMetrics(CollectorRegistry()),
        refresh=anyio.lowlevel.checkpoint,
    )


def link() -> ClusterLink:
    client = Reviews().client
    return ClusterLink(
        clients=KubeClients(main=client, events=client, heartbeat=client), reach=Reach()
    )


@pytest.mark.parametrize(
    ("settings", "cluster", "port"),
    [
        ({"port": 10250}, True, 10250),
        ({"port": 10250, "client_ca_file": "ca.crt"}, False, 10250),
        ({"port": 10250}, False, 0),
        ({"port": 0}, True, 0),
        ({"port": 10250, "enable_server": False}, True, 0),
    ],
)
def test_ht1_when_there_is_a_port(
    settings: dict[str, Any], cluster: bool, port: int, tmp_path: Path
) -> None:
    found, connection = side(tmp_path, **settings), link() if cluster else None
    assert api_port(found.config, connection) == port
    assert (api_opener(found, connection) is not None) == bool(port)


def test_ht2_a_node_that_stands_alone_says_why_it_has_none(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    assert api_opener(side(tmp_path, port=10250), None) is None
    assert [record.getMessage() for record in caplog.records] == ["no_api_port"]
    caplog.clear()
    assert api_opener(side(tmp_path), None) is None
    assert caplog.records == []


async def opened(found: ServerSide, connection: ClusterLink | None) -> None:
    open_api = api_opener(found, connection)
    assert open_api is not None
    async with AsyncExitStack() as stack:
        await open_api(stack)


@pytest.mark.anyio
async def test_ht3_somebody_must_be_able_to_prove_who_they_are(tmp_path: Path) -> None:
    found = side(tmp_path, port=10250, authentication_token_webhook=False)
    with pytest.raises(StartError, match="no authentication method configured"):
        await opened(found, link())


@pytest.mark.anyio
async def test_ht4_ha9_alone_nobody_can_be_asked_about_rights(tmp_path: Path) -> None:
    found = side(tmp_path, port=10250, client_ca_file="ca.crt")
    with pytest.raises(StartError, match="no client provided, cannot use webhook authorization"):
        await opened(found, None)
    found = side(
        tmp_path, port=10250, client_ca_file=tmp_path / "no", authorization_mode="AlwaysAllow"
    )
    with pytest.raises(StartError, match="no cannot be read: No such file"):
        await opened(found, None)


def test_the_configuration_in_force_is_shown_without_secrets(tmp_path: Path) -> None:
    config = AgentConfig(
        static_pod_path=tmp_path,
        static_pod_url="https://user:password@example.com/pods?key=secret",
        static_pod_url_header=(("X-Token", "secret"),),
        client_ca_file="/ca.crt",
        sync_frequency=90.0,
    )
    shown = effective_configuration(config)
    assert (shown["kind"], shown["port"]) == ("KubeletConfiguration", 0)
    assert shown["staticPodURLHeader"] == {"X-Token": ["<masked>"]}
    assert shown["syncFrequency"] == "1m30s"
    assert shown["authentication"]["x509"] == {"clientCAFile": "/ca.crt"}
    assert shown["authorization"]["mode"] == "Webhook"
    assert shown["address"] == "0.0.0.0"
    text = repr(shown)
    assert "secret" not in text
    assert "password" not in text
