"""docs/behaviour/server.md, "Certificates from the cluster"."""

from __future__ import annotations

import base64
import ipaddress
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry
from tests.unit.kube.authority import Authority
from tests.unit.kube.cluster_lab import BEGIN, CSRS, Clock

from nodeagent.api.node import NodeAddress
from nodeagent.kube import ApiError
from nodeagent.kube.credentials.key_pair import SubjectNames
from nodeagent.kube.credentials.serving_certificates import (
    Held,
    ServingCertificates,
    subject_names,
    why_due,
)
from nodeagent.kube.validity import Validity
from nodeagent.testing import ApiStore, StoreClient

pytestmark = pytest.mark.anyio

DAY = timedelta(days=1)
ERRORS = "kubelet_server_expiration_renew_errors"
ROTATIONS = "kubelet_certificate_manager_server_rotation_seconds"
HOST, FIRST, SECOND = (
    NodeAddress(type="Hostname", address="n1"),
    NodeAddress(type="InternalIP", address="10.0.0.7"),
    NodeAddress(type="InternalIP", address="10.0.0.8"),
)


@dataclass
class Lab:
    """A node that is given its certificate, and who signs it.

    Attributes:
        addresses: of the Node.
        life: of certificates that are signed.
        told: how often another certificate was said to be there.
    """

    directory: Path
    store: ApiStore = field(default_factory=lambda: ApiStore(clock=Clock()))
    authority: Authority = field(default_factory=Authority)
    addresses: list[NodeAddress] = field(default_factory=lambda: [FIRST, HOST])
    life: timedelta = 365 * DAY
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)
    told: int = 0

    @property
    def requests(self) -> list[dict[str, Any]]:
        return self.store.all(CSRS)

    @property
    def current(self) -> Path:
        return self.directory / "pki" / "kubelet-server-current.pem"

    def names(self) -> SubjectNames:
        """Whom the certificate in force names."""
        leaf = x509.load_pem_x509_certificate(self.current.read_bytes())
        return alternative(leaf.extensions)

    def figure(self, name: str) -> float | None:
        return self.registry.get_sample_value(name)

    def sign(
        self, index: int = -1, *, start: datetime | None = None, other: bytes | None = None
    ) -> None:
        """Approve a request and sign it; ``other`` is signed in its place."""
        item = self.requests[index]
        request = other or base64.b64decode(item["spec"]["request"])
        begin = start or Clock().now() - timedelta(minutes=5)
        life = self.life + (Clock().now() - begin)
        certificate = self.authority.sign(request, start=begin, life=life)
        self.decide(index, "Approved", certificate=base64.b64encode(certificate).decode())

    def decide(self, index: int, decision: str, **status: object) -> None:
        def change(item: dict[str, Any]) -> None:
            condition = {"type": decision, "status": "True", "reason": "ByTest"}
            item["status"] = {"conditions": [condition], **status}

        self.store.edit(CSRS, self.requests[index]["metadata"]["name"], change, status=True)

    def _tell(self) -> None:
        self.told += 1

    @asynccontextmanager
    async def running(self) -> AsyncIterator[ServingCertificates]:
        """A run of the agent."""
        self.registry = CollectorRegistry()
        certificates = ServingCertificates(
            "n1",
            self.directory / "pki",
            client=StoreClient(self.store),
            addresses=lambda: self.addresses,
            clock=Clock(),
            registry=self.registry,
        )
        certificates.changed = self._tell
        async with anyio.create_task_group() as tasks:
            await tasks.start(certificates.run)
            yield certificates
            tasks.cancel_scope.cancel()


def alternative(extensions: x509.Extensions) -> SubjectNames:
    found = extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    ips = map(str, found.get_values_for_type(x509.IPAddress))
    return SubjectNames(frozenset(found.get_values_for_type(x509.DNSName)), frozenset(ips))


async def until(condition: object, seconds: float = 600.0) -> None:
    """Wait in virtual time."""
    assert callable(condition)
    with anyio.fail_after(seconds):
        while not condition():
            await anyio.sleep(max(seconds / 2400, 0.25))


async def test_hb1_a_node_asks_for_the_certificate_of_its_port(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    async with lab.running() as certificates:
        await until(lambda: lab.requests)
        (wanted,) = lab.requests
        spec = wanted["spec"]
        assert wanted["metadata"]["name"].startswith("csr-")
        assert spec["signerName"] == "kubernetes.io/kubelet-serving"
        assert spec["usages"] == ["digital signature", "server auth"]
        request = x509.load_pem_x509_csr(base64.b64decode(spec["request"]))
        assert request.subject.rfc4514_string() == "CN=system:node:n1,O=system:nodes"
        assert isinstance(request.public_key(), ec.EllipticCurvePublicKey)
        assert alternative(request.extensions) == SubjectNames(
            frozenset({"n1"}), frozenset({"10.0.0.7"})
        )
        await until(lambda: "is not approved yet" in certificates.problem)
        assert certificates.problem.startswith("the API port has no certificate yet: ")


async def test_hb1_without_an_address_nothing_is_asked_for(tmp_path: Path) -> None:
    lab = Lab(tmp_path, addresses=[])
    async with lab.running() as certificates:
        await until(lambda: "the Node has no address" in certificates.problem)
        await anyio.sleep(100)
        assert lab.requests == []
        lab.addresses = [HOST]
        await until(lambda: lab.requests, 5)


async def test_hb3_it_leaves_the_files_that_the_kubelet_leaves(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    async with lab.running() as certificates:
        await until(lambda: lab.requests)
        lab.sign()
        await until(lambda: lab.told == 1)
        assert certificates.file == lab.current
        await until(lambda: certificates.problem == "")
    assert lab.current.is_symlink()
    file = lab.current.resolve()
    assert file.name.startswith("kubelet-server-2026-01-01-00-0")
    assert file.stat().st_mode & 0o777 == 0o600
    content = file.read_text()
    assert content.index("BEGIN CERTIFICATE") < content.index("BEGIN EC PRIVATE KEY")
    found = sorted(path.name for path in (tmp_path / "pki").iterdir())
    assert found == sorted([file.name, lab.current.name])
    assert (lab.figure(ERRORS), lab.figure(f"{ROTATIONS}_count")) == (0, 0)


async def test_hb4_it_is_replaced_before_it_ends(tmp_path: Path) -> None:
    lab = Lab(tmp_path, life=timedelta(hours=10))
    async with lab.running() as certificates:
        await until(lambda: lab.requests)
        lab.sign()
        begun = Clock().now()
        for count in range(2, 6):
            await until(lambda count=count: len(lab.requests) == count, 36000)
            age = (Clock().now() - begun).total_seconds()
            assert 0.69 * 36000 < age < 0.91 * 36000
            lab.sign()
            begun = Clock().now()
            await until(lambda count=count: lab.told == count)
        await until(lambda: certificates.problem == "")
        assert lab.figure(f"{ROTATIONS}_count") == 4
        total = lab.figure(f"{ROTATIONS}_sum")
        assert total is not None
        assert 4 * 0.69 * 36000 < total < 4 * 0.92 * 36000
    keys = {public_part(item) for item in lab.requests}
    assert len(keys) == 5


def public_part(item: dict[str, Any]) -> object:
    request = x509.load_pem_x509_csr(base64.b64decode(item["spec"]["request"]))
    key = request.public_key()
    assert isinstance(key, ec.EllipticCurvePublicKey)
    return key.public_numbers()


async def test_hb5_another_address_means_another_certificate(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    async with lab.running() as certificates:
        await until(lambda: lab.requests)
        lab.sign()
        await until(lambda: lab.told == 1)
        lab.addresses = [SECOND, HOST]
        await until(lambda: len(lab.requests) == 2, 30)
        # The one that waits is of no use any more.
        lab.addresses = [FIRST, SECOND, HOST]
        await until(lambda: len(lab.requests) == 3, 30)
        lab.sign(2)
        await until(lambda: lab.told == 2)
        assert lab.names() == subject_names(lab.addresses)
        # Fewer are no reason.
        lab.addresses = [FIRST]
        await anyio.sleep(1000)
        assert len(lab.requests) == 3
        assert certificates.problem == ""


async def test_hb6_a_denied_request_is_told_and_another_one_made_later(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    async with lab.running() as certificates:
        await until(lambda: lab.requests)
        lab.decide(0, "Denied")
        await until(lambda: "was denied: ByTest" in certificates.problem)
        assert lab.figure(ERRORS) == 1
        await anyio.sleep(50)
        assert len(lab.requests) == 1
        await until(lambda: len(lab.requests) == 2)
        # With other addresses it need not wait.
        lab.decide(1, "Denied")
        await until(lambda: lab.figure(ERRORS) == 2)
        lab.addresses = [SECOND]
        await until(lambda: len(lab.requests) == 3, 30)
        lab.sign(2)
        await until(lambda: certificates.problem == "")


async def test_hb6_after_a_quarter_of_an_hour_the_same_request_is_taken_up(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    async with lab.running() as certificates:
        await until(lambda: lab.requests)
        await until(lambda: "nobody has approved" in certificates.problem, 1000)
        assert lab.figure(ERRORS) == 1
        await anyio.sleep(2000)
        assert len(lab.requests) == 1
        lab.sign()
        await until(lambda: certificates.problem == "")


async def test_hb6_a_server_that_fails_is_asked_again(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    lab.store.refuse("POST", CSRS, ApiError(500, "InternalError", "no"), times=4)
    async with lab.running():
        await until(lambda: lab.requests, 60)
        assert lab.figure(ERRORS) == 4


@pytest.mark.parametrize("fault", ["has ended already", "does not name all", "is not for the key"])
async def test_hb6_a_certificate_of_no_use_is_refused(
    tmp_path: Path, fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    lab = Lab(tmp_path)
    async with lab.running() as certificates:
        await until(lambda: lab.requests)
        if fault == "has ended already":
            lab.life = timedelta(seconds=-1)
            lab.sign(start=BEGIN - DAY)
        else:
            lab.sign(other=csr(own=fault == "does not name all", key_of=lab))
        await until(lambda: fault in certificates.problem)
        assert not lab.current.exists()
        lab.life = DAY
        await until(lambda: len(lab.requests) == 2)
        lab.sign()
        await until(lambda: certificates.problem == "")
    assert any(
        record.getMessage() == "serving_certificate_not_obtained" for record in caplog.records
    )


def csr(*, own: bool, key_of: Lab) -> bytes:
    """A request without names, with the node's key or another one."""
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    pending = (key_of.directory / "pki" / "kubelet-server.key.tmp").read_bytes()
    key = load_pem_private_key(pending, None) if own else ec.generate_private_key(ec.SECP256R1())
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "system:node:n1")])
    made = x509.CertificateSigningRequestBuilder().subject_name(name).sign(key, hashes.SHA256())
    return made.public_bytes(serialization.Encoding.PEM)


async def test_hb7_a_restart_takes_up_what_there_is(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lab = Lab(tmp_path)
    async with lab.running():
        await until(lambda: lab.requests)
    async with lab.running() as certificates:
        await anyio.sleep(100)
        lab.sign()
        await until(lambda: certificates.problem == "")
    async with lab.running() as certificates:
        await anyio.sleep(1000)
        assert certificates.problem == ""
        assert len(lab.requests) == 1
    lab.current.resolve().write_text("garbage")
    caplog.set_level(logging.WARNING)
    async with lab.running() as certificates:
        assert not lab.current.is_symlink()
        await until(lambda: len(lab.requests) == 2)
        lab.sign()
        await until(lambda: certificates.problem == "")
    assert "serving_certificate_unusable" in [record.getMessage() for record in caplog.records]


async def test_hb4_one_that_ended_while_the_agent_was_away_is_replaced(tmp_path: Path) -> None:
    lab = Lab(tmp_path, life=timedelta(hours=1))
    async with lab.running():
        await until(lambda: lab.requests)
        lab.sign()
        await until(lambda: lab.told == 1)
    await anyio.sleep(7200)
    async with lab.running() as certificates:
        await until(lambda: len(lab.requests) == 2, 10)
        assert lab.current.exists()
        lab.sign()
        await until(lambda: certificates.problem == "")


# -- decisions ---------------------------------------------------------------------------------

NAMES = st.builds(
    SubjectNames,
    st.frozensets(st.sampled_from(["n1", "n2"])),
    st.frozensets(st.sampled_from(["10.0.0.1", "fd00::1"])),
)


@given(NAMES, NAMES, st.integers(0, 20))
def test_hb4_hb5_when_one_is_due(held: SubjectNames, now: SubjectNames, hours: int) -> None:
    life = Validity(BEGIN, BEGIN + timedelta(hours=12))
    have = Held(life, held, BEGIN + timedelta(hours=10))
    due = why_due(have, now, BEGIN + timedelta(hours=hours))
    assert bool(due) == (bool(now) and (not held.covers(now) or hours >= 10))
    assert bool(why_due(None, now, BEGIN)) == bool(now)


def test_hb1_which_names_addresses_are() -> None:
    found = subject_names(
        [
            NodeAddress(type="InternalIP", address="fd00:0::1"),
            NodeAddress(type="ExternalIP", address="192.0.2.7"),
            NodeAddress(type="InternalIP", address="nonsense"),
            NodeAddress(type="Hostname", address="n1"),
            NodeAddress(type="InternalDNS", address="n1.internal"),
            NodeAddress(type="ExternalDNS", address="n1.example.com"),
            NodeAddress(type="Hostname", address="10.0.0.1"),
            NodeAddress(type="Hostname", address=""),
            NodeAddress(type="Hostname", address="kn\u00f6ten"),
        ]
    )
    assert found.dns == {"n1", "n1.internal", "n1.example.com"}
    wanted = ("fd00::1", "192.0.2.7", "10.0.0.1")
    assert found.ips == {str(ipaddress.ip_address(text)) for text in wanted}
