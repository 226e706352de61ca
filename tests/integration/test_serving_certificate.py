"""A whole agent whose cluster signs the certificate of its port, and the checks that tell of it."""

from __future__ import annotations

import base64
import ssl
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.streams.tls import TLSAttribute
from cluster_ring import ClusterRing, Line, cluster_ring, node_on
from cryptography import x509
from ring import ring, simulated
from test_metrics import ask, free
from tests.unit.kube.authority import Authority
from tests.unit.kube.cluster_lab import CSRS

from nodeagent.clock import SystemClock
from nodeagent.testing import ApiStore

pytestmark = pytest.mark.anyio

TTL = "kubelet_certificate_manager_server_ttl_seconds"


def sign(node: ClusterRing, authority: Authority, life: timedelta = timedelta(days=90)) -> None:
    """Sign the newest request."""
    item = node.store.all(CSRS)[-1]
    begin = SystemClock().now() - timedelta(minutes=5)
    request = base64.b64decode(item["spec"]["request"])
    certificate = authority.sign(request, start=begin, life=life)

    def change(item: dict[str, Any]) -> None:
        condition = {"type": "Approved", "status": "True", "reason": "ByTest"}
        text = base64.b64encode(certificate).decode()
        item["status"] = {"conditions": [condition], "certificate": text}

    node.store.edit(CSRS, item["metadata"]["name"], change, status=True)


def here() -> dict[str, Any]:
    """Where the port is."""
    return {"address": "127.0.0.1", "port": free()}


async def shown(node: ClusterRing, authority: Authority | None) -> x509.Certificate | None:
    """The certificate that the port shows, verified; None when the handshake fails."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if authority is not None:
        context = ssl.create_default_context(cadata=authority.certificate.decode())
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        context.check_hostname = False
    with suppress(ssl.SSLError, anyio.BrokenResourceError, anyio.EndOfStream):
        stream = await anyio.connect_tcp(
            "127.0.0.1", node.agent.ports["api"], ssl_context=context, tls_hostname="node"
        )
        async with stream:
            der = stream.extra(TLSAttribute.peer_certificate_binary)
            assert der
            return x509.load_der_x509_certificate(der)
    return None


async def soon_shown(
    node: ClusterRing, authority: Authority, other_than: x509.Certificate | None = None
) -> x509.Certificate:
    """The certificate that comes into force."""
    with anyio.fail_after(600):
        while (found := await shown(node, authority)) in (None, other_than):
            await anyio.sleep(1)
    assert found is not None
    return found


async def test_hb2_hb3_hb5_a_port_waits_for_its_certificate_and_changes_it(
    tmp_path: Path,
) -> None:
    authority, line = Authority(), Line(ApiStore())
    settings: dict[str, Any] = {"healthz_port": free(), "server_tls_bootstrap": True, **here()}
    async with simulated(tmp_path) as (runtime, endpoint):
        async with node_on(runtime, endpoint, tmp_path, line, **settings) as node:
            await node.until(lambda: bool(node.store.all(CSRS)))
            await node.until(lambda: "is not approved yet" in node.health("serving"))
            assert await shown(node, None) is None
            verbose = await ask(node.agent.ports["healthz"], "/healthz?verbose")
            assert "serving" in verbose
            assert node.agent.registry.get_sample_value(TTL) == float("inf")
            sign(node, authority, timedelta(hours=2))
            await node.until(lambda: node.health("serving") == "")
            first = await soon_shown(node, authority)
            left = node.agent.registry.get_sample_value(TTL)
            assert left is not None
            assert 0 < left <= 7200
        # With another address it needs another one; the present one serves meanwhile.
        settings["node_ip"] = "10.0.0.2"
        async with node_on(runtime, endpoint, tmp_path, line, **settings) as node:
            assert await shown(node, None) == first
            await node.until(lambda: len(node.store.all(CSRS)) == 2)
            sign(node, authority)
            await node.until(lambda: node.health("serving") == "")
            second = await soon_shown(node, authority, first)
            names = second.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
            assert "10.0.0.2" in map(str, names.get_values_for_type(x509.IPAddress))


async def test_hb2_a_configured_certificate_serves_meanwhile(tmp_path: Path) -> None:
    authority = Authority()
    certificate, key = Authority("other").server().write(tmp_path, "served")
    settings: dict[str, Any] = {
        "address": "127.0.0.1",
        "port": free(),
        "tls_cert_file": certificate,
    }
    settings |= {"tls_private_key_file": key, "server_tls_bootstrap": True}
    async with cluster_ring(tmp_path, **settings) as node:
        found = await shown(node, None)
        assert found is not None
        assert found.issuer.rfc4514_string() == "CN=other"
        await node.until(lambda: bool(node.store.all(CSRS)))
        sign(node, authority)
        await node.until(lambda: node.health("serving") == "")
        await soon_shown(node, authority)


async def test_hb8_an_agent_that_stands_alone_makes_its_own(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ca = tmp_path / "ca.crt"
    ca.write_bytes(Authority().certificate)
    settings: dict[str, Any] = {
        "address": "127.0.0.1",
        "port": free(),
        "server_tls_bootstrap": True,
    }
    settings |= {"client_ca_file": ca, "authorization_mode": "AlwaysAllow"}
    async with ring(tmp_path, **settings) as alone:
        assert (tmp_path / "root" / "pki" / "kubelet.crt").exists()
        assert "api" in alone.agent.ports
    assert "no_certificate_asked_for" in [record.getMessage() for record in caplog.records]


@pytest.mark.parametrize("what", ["ended", "garbage"])
async def test_hc7_a_bad_certificate_shows_in_health_and_metrics(what: str, tmp_path: Path) -> None:
    pair = Authority().server()
    certificate, key = pair.write(tmp_path, "served")
    settings: dict[str, Any] = {
        "address": "127.0.0.1",
        "port": free(),
        "tls_cert_file": certificate,
    }
    async with cluster_ring(tmp_path, tls_private_key_file=key, **settings) as node:
        assert node.health("serving") == ""
        first = await shown(node, None)
        if what == "ended":
            ended = Authority().client("x", life=timedelta(minutes=1))
            ended.write(tmp_path, "served")
            said = "the certificate of the API port ended at "
        else:
            certificate.write_text("-----BEGIN nothing")
            said = f"{certificate} and {key} are no certificate with its key"
        await node.until(lambda: said in node.health("serving"))
        left = node.agent.registry.get_sample_value(TTL)
        assert left is not None
        assert (left < 0) == (what == "ended")
        assert (await shown(node, None) == first) == (what == "garbage")
        pair.write(tmp_path, "served")
        await node.until(lambda: node.health("serving") == "")
