"""docs/behaviour/cluster.md, "Bootstrap" and "Rotation"."""

from __future__ import annotations

import base64
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import anyio
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry
from tests.unit.kube.authority import Authority
from tests.unit.kube.cluster_lab import BEGIN, Clock, TlsCluster, shown, tls_cluster
from tests.unit.kube.kube_lab import kubeconfig

from nodeagent.api.node import NodeList
from nodeagent.kube import ApiError, KubeClients, UnreachableError, paths
from nodeagent.kube.connect import Connection, open_connection
from nodeagent.kube.credentials.certificates import CertificateSettings
from nodeagent.kube.credentials.key_pair import new_key, signing_request
from nodeagent.kube.credentials.steps import (
    Situation,
    Step,
    new_deadline,
    next_step,
    retry_delay,
    rotation_deadline,
)
from nodeagent.kube.credentials.store import CertificateStore
from nodeagent.kube.validity import Validity, validity_of

pytestmark = pytest.mark.anyio

DAY = timedelta(days=1)
SHORT = timedelta(minutes=20)


@asynccontextmanager
async def joining(
    cluster: TlsCluster,
    *,
    rotate: bool = False,
    bootstrap: bool = True,
    registry: CollectorRegistry | None = None,
) -> AsyncIterator[Connection]:
    """An agent that has a bootstrap kubeconfig and no other."""
    directory = cluster.directory
    settings = CertificateSettings(
        node_name="n1",
        kubeconfig=directory / "kubeconfig",
        cert_dir=directory / "pki",
        bootstrap_kubeconfig=cluster.bootstrap() if bootstrap else None,
        rotate=rotate,
    )
    async with open_connection(
        directory / "kubeconfig", certificates=settings, clock=Clock(), registry=registry
    ) as connection:
        yield connection


async def until(condition: object, seconds: float = 600.0) -> None:
    """Wait in virtual time."""
    assert callable(condition)
    with anyio.fail_after(seconds):
        while not condition():
            await anyio.sleep(0.25)


async def ask(clients: KubeClients) -> None:
    await clients.main.get(paths.NODES, NodeList)


async def joined(cluster: TlsCluster, connection: Connection) -> None:
    await until(lambda: cluster.requests)
    await cluster.sign()
    await until(lambda: connection.keeper.access is not None)


async def test_kb1_a_node_without_kubeconfig_asks_for_a_certificate(tmp_path: Path) -> None:
    async with tls_cluster(tmp_path) as cluster, joining(cluster) as connection:
        await until(lambda: cluster.requests)
        (wanted,) = cluster.requests
        asked = next(request for request in cluster.api.requests if request.method == "POST")
        assert asked.headers["Authorization"] == "Bearer 07401b.f395accd246ae52d"
        spec = wanted["spec"]
        assert spec["signerName"] == "kubernetes.io/kube-apiserver-client-kubelet"
        assert spec["usages"] == ["digital signature", "client auth"]
        assert "expirationSeconds" not in spec
        request = x509.load_pem_x509_csr(base64.b64decode(spec["request"]))
        assert request.subject.rfc4514_string() == "CN=system:node:n1,O=system:nodes"
        assert isinstance(request.public_key(), ec.EllipticCurvePublicKey)
        assert connection.keeper.access is None


async def test_kb1_that_there_is_no_kubeconfig_yet_is_no_trouble(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with tls_cluster(tmp_path) as cluster, joining(cluster) as connection:
        await until(lambda: cluster.requests)
        await until(lambda: "is not approved yet" in connection.problem)
        assert "credentials_refused" not in caplog.text
        # One that is of no use is another matter.
        (cluster.directory / "kubeconfig").write_text("{")
        await until(lambda: "credentials_refused" in caplog.text)


@pytest.mark.parametrize(
    ("life", "said"),
    [
        (timedelta(days=9), ""),
        (timedelta(hours=-1), "is not good before"),
        (timedelta(minutes=1), "ended"),
    ],
)
async def test_kc7_a_certificate_that_is_out_of_date_is_a_problem(
    tmp_path: Path, life: timedelta, said: str
) -> None:
    authority = Authority()
    key = new_key()
    start = BEGIN + DAY if life < timedelta() else BEGIN - timedelta(hours=1)
    request = signing_request(key, "n1").request
    certificate = authority.sign(request, start=start, life=abs(life))
    (tmp_path / "crt").write_bytes(certificate)
    (tmp_path / "key").write_bytes(key)
    user = {"client-certificate": "crt", "client-key": "key"}
    config = kubeconfig(tmp_path / "kubeconfig", "https://127.0.0.1:1", user=user)
    async with open_connection(config, clock=Clock()) as connection:
        assert said in connection.problem
        assert bool(said) == bool(connection.problem)


async def test_kb2_until_it_is_approved_requests_say_what_is_waited_for(tmp_path: Path) -> None:
    async with tls_cluster(tmp_path) as cluster, joining(cluster) as connection:
        await until(lambda: cluster.requests)
        name = cluster.requests[0]["metadata"]["name"]
        await anyio.sleep(1000)
        with pytest.raises(UnreachableError, match=f"{name} is not approved yet"):
            await ask(connection.clients)
        assert name in connection.problem
        await joined(cluster, connection)
        await ask(connection.clients)
        assert cluster.api.peers[-1] == "system:node:n1"
        assert connection.problem == ""
        assert len(cluster.requests) == 1


async def test_kb3_it_leaves_the_files_that_the_kubelet_leaves(tmp_path: Path) -> None:
    async with tls_cluster(tmp_path) as cluster, joining(cluster) as connection:
        await joined(cluster, connection)
    current = tmp_path / "pki" / "kubelet-client-current.pem"
    assert current.is_symlink()
    file = current.resolve()
    assert file.name.startswith("kubelet-client-2026-01-01-00-0")
    assert file.suffix == ".pem"
    assert file.stat().st_mode & 0o777 == 0o600
    content = file.read_text()
    assert content.index("BEGIN CERTIFICATE") < content.index("BEGIN EC PRIVATE KEY")
    assert sorted(p.name for p in (tmp_path / "pki").iterdir()) == sorted([file.name, current.name])
    assert (tmp_path / "kubeconfig").stat().st_mode & 0o777 == 0o600
    assert shown(tmp_path / "kubeconfig") == {
        "cluster": {
            "server": cluster.api.url,
            "certificate-authority": str(tmp_path / "ca.crt"),
        },
        "user": {"client-certificate": str(current), "client-key": str(current)},
        "context": "default-context",
    }


async def test_kb4_a_restart_takes_the_request_up(tmp_path: Path) -> None:
    async with tls_cluster(tmp_path) as cluster:
        async with joining(cluster):
            await until(lambda: cluster.requests)
        key = tmp_path / "pki" / "kubelet-client.key.tmp"
        assert key.stat().st_mode & 0o777 == 0o600
        async with joining(cluster) as connection:
            await anyio.sleep(20)
            await joined(cluster, connection)
            await ask(connection.clients)
        assert len(cluster.requests) == 1
        assert not key.exists()
        async with joining(cluster) as connection:
            await ask(connection.clients)
        assert len(cluster.requests) == 1


async def test_kb4_a_key_that_was_damaged_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "pki").mkdir()
    (tmp_path / "pki" / "kubelet-client.key.tmp").write_text("junk")
    async with tls_cluster(tmp_path) as cluster, joining(cluster) as connection:
        await joined(cluster, connection)


async def test_kb5_a_denied_request_is_told_and_another_one_made_later(tmp_path: Path) -> None:
    async with tls_cluster(tmp_path) as cluster, joining(cluster) as connection:
        await until(lambda: cluster.requests)
        name = cluster.requests[0]["metadata"]["name"]
        cluster.decide(name, "Denied", "not one of ours")
        await until(lambda: "denied" in connection.problem)
        expected = f"the certificate signing request {name} was denied: ByTest: not one of ours"
        assert expected in connection.problem
        with pytest.raises(UnreachableError, match="was denied"):
            await ask(connection.clients)
        await anyio.sleep(50)
        assert len(cluster.requests) == 1
        await until(lambda: len(cluster.requests) == 2)
        await joined(cluster, connection)


async def test_kb5_who_may_not_ask_is_told_what_is_missing(tmp_path: Path) -> None:
    async with tls_cluster(tmp_path) as cluster:
        denied = ApiError(403, "Forbidden", "")
        cluster.store.refuse("POST", "certificatesigningrequests", denied, times=5)
        async with joining(cluster) as connection:
            await until(lambda: "create certificatesigningrequests" in connection.problem)
            await joined(cluster, connection)


async def test_kb5_a_request_that_is_removed_is_made_again(tmp_path: Path) -> None:
    async with tls_cluster(tmp_path) as cluster, joining(cluster) as connection:
        await until(lambda: cluster.requests)
        name = cluster.requests[0]["metadata"]["name"]
        cluster.store.delete("certificatesigningrequests", name)
        await until(lambda: not cluster.requests)
        await joined(cluster, connection)


async def test_kb5_without_watching_it_looks_again(tmp_path: Path) -> None:
    async with tls_cluster(tmp_path) as cluster, joining(cluster) as connection:
        await until(lambda: cluster.requests)
        cluster.store.end_watches()
        await anyio.sleep(1)
        await joined(cluster, connection)


async def test_kb6_a_certificate_that_has_ended_leads_to_a_bootstrap(tmp_path: Path) -> None:
    async with tls_cluster(tmp_path) as cluster:
        cluster.life = SHORT
        async with joining(cluster) as connection:
            await joined(cluster, connection)
            await anyio.sleep(1100)
            assert len(cluster.requests) == 1
            await anyio.sleep(150)
            assert len(cluster.requests) == 2
            cluster.life = DAY
            await cluster.sign(cluster.requests[1]["metadata"]["name"])
            await until(lambda: connection.problem == "")
            await ask(connection.clients)


async def test_kb6_a_certificate_that_ends_while_the_next_one_is_waited_for(
    tmp_path: Path,
) -> None:
    async with tls_cluster(tmp_path) as cluster:
        cluster.life = timedelta(seconds=60)
        async with joining(cluster, rotate=True) as connection:
            await joined(cluster, connection)
            await until(lambda: len(cluster.requests) == 2)
            await anyio.sleep(20)
            cluster.known = {""}  # who shows a certificate that has ended is not let in
            await until(lambda: len(cluster.requests) == 3, 60)
            cluster.known.add("system:node:n1")
            await joined(cluster, connection)


async def test_kb6_a_kubeconfig_that_comes_meanwhile_counts(tmp_path: Path) -> None:
    async with tls_cluster(tmp_path) as cluster, joining(cluster) as connection:
        await until(lambda: cluster.requests)
        own = kubeconfig(
            tmp_path / "kubeconfig",
            cluster.api.url,
            user={"token": "mine"},
            cluster={"certificate-authority": "ca.crt"},
        ).read_text()
        await anyio.sleep(10)
        await ask(connection.clients)
        await cluster.sign()
        await anyio.sleep(20)
        assert (tmp_path / "kubeconfig").read_text() == own
        assert connection.problem == ""


async def test_kb6_a_plugin_that_fails_is_no_reason_for_a_bootstrap(tmp_path: Path) -> None:
    async with tls_cluster(tmp_path) as cluster:
        plugin = {"apiVersion": "client.authentication.k8s.io/v1", "command": "/none"}
        kubeconfig(tmp_path / "kubeconfig", cluster.api.url, user={"exec": plugin})
        async with joining(cluster) as connection:
            await anyio.sleep(120)
            assert "exec plugin /none cannot be run" in connection.problem
        assert cluster.requests == []


async def test_kr1_a_certificate_is_replaced_before_it_ends(tmp_path: Path) -> None:
    registry = CollectorRegistry()
    async with tls_cluster(tmp_path) as cluster, anyio.create_task_group() as tasks:
        cluster.life = timedelta(seconds=60)
        tasks.start_soon(cluster.keep_signing)
        async with joining(cluster, rotate=True, registry=registry) as connection:
            await until(lambda: connection.keeper.access is not None)
            first = connection.certificate_ends
            assert first is not None
            await ask(connection.clients)
            left = registry.get_sample_value("kubelet_certificate_manager_client_ttl_seconds")
            assert left is not None
            assert 50 < left < 60
            await until(lambda: connection.certificate_ends != first, 60)
            age = 60 - (first - Clock().now()).total_seconds()
            assert 0.7 * 60 <= age <= 0.9 * 60 + 4
            for _ in range(20):
                await anyio.sleep(30)
                await ask(connection.clients)
            assert connection.problem == ""
            name = "kubelet_certificate_manager_client_expiration_renew_errors"
            assert registry.get_sample_value(name) == 0
        tasks.cancel_scope.cancel()
    keys = {public_part(item["spec"]["request"]) for item in cluster.requests}
    assert len(keys) == len(cluster.requests) >= 11
    assert len(list((tmp_path / "pki").glob("kubelet-client-2*.pem"))) == len(keys)


async def test_kr1_the_life_counts_from_when_it_was_obtained(tmp_path: Path) -> None:
    async with tls_cluster(tmp_path) as cluster:
        cluster.life = timedelta(hours=100)
        async with joining(cluster, rotate=True) as connection:
            await until(lambda: cluster.requests)
            name = cluster.requests[0]["metadata"]["name"]
            await cluster.sign(name, start=Clock().now() - timedelta(hours=99, minutes=50))
            await until(lambda: connection.keeper.access is not None)
            await anyio.sleep(400)
            assert len(cluster.requests) == 1
            await anyio.sleep(150)
            assert len(cluster.requests) == 2


async def test_kr2_connections_move_to_the_new_certificate(tmp_path: Path) -> None:
    async with tls_cluster(tmp_path) as cluster, anyio.create_task_group() as tasks:
        cluster.life = timedelta(seconds=60)
        tasks.start_soon(cluster.keep_signing)
        async with joining(cluster, rotate=True) as connection:
            await until(lambda: connection.keeper.access is not None)
            first = connection.certificate_ends
            async with connection.clients.main.watch(paths.PODS, {}) as lines:
                assert [line async for line in lines] == []
            await until(lambda: connection.certificate_ends != first)
            before = set(cluster.api.ports)
            await ask(connection.clients)
            assert cluster.api.ports[-1] not in before
        tasks.cancel_scope.cancel()


async def test_kr3_what_fails_is_tried_again_and_counted(tmp_path: Path) -> None:
    registry = CollectorRegistry()
    async with tls_cluster(tmp_path) as cluster:
        cluster.life = timedelta(minutes=20)
        async with joining(cluster, rotate=True, registry=registry) as connection:
            await joined(cluster, connection)
            cluster.store.refuse(
                "POST", "certificatesigning", ApiError(500, "InternalError", "etcd is away"), 10
            )
            await until(lambda: "etcd is away" in connection.problem, 1200)
            await until(lambda: len(cluster.requests) == 2)
            name = "kubelet_certificate_manager_client_expiration_renew_errors"
            assert registry.get_sample_value(name) == 10
            await ask(connection.clients)
            await cluster.sign(cluster.requests[1]["metadata"]["name"])
            await until(lambda: connection.problem == "")


async def test_kr3_a_certificate_that_is_of_no_use_is_not_taken(tmp_path: Path) -> None:
    async with tls_cluster(tmp_path) as cluster:
        cluster.life = timedelta(minutes=20)
        async with joining(cluster, rotate=True) as connection:
            await joined(cluster, connection)
            kept = connection.certificate_ends
            await until(lambda: len(cluster.requests) == 2, 1200)
            name = cluster.requests[1]["metadata"]["name"]
            await cluster.sign(name, start=BEGIN - 2 * DAY)
            await until(lambda: "ended 2025-12-30" in connection.problem)
            assert connection.certificate_ends == kept
            await until(lambda: len(cluster.requests) == 3)
            name = cluster.requests[2]["metadata"]["name"]
            other = Authority().client("x").certificate
            cluster.decide(name, "Approved", certificate=base64.b64encode(other).decode())
            await until(lambda: "is not for the key" in connection.problem)
            assert connection.certificate_ends == kept


async def test_kr4_a_certificate_of_the_kubeconfig_is_replaced_too(tmp_path: Path) -> None:
    async with tls_cluster(tmp_path) as cluster:
        request = signing_request(new_key(), "n1")
        certificate = cluster.authority.sign(request.request, start=BEGIN, life=SHORT)
        kubeconfig(
            tmp_path / "kubeconfig",
            cluster.api.url,
            user={
                "client-certificate-data": base64.b64encode(certificate).decode(),
                "client-key-data": base64.b64encode(request.key).decode(),
            },
            cluster={
                "certificate-authority-data": base64.b64encode(
                    cluster.authority.certificate
                ).decode()
            },
        )
        before = (tmp_path / "kubeconfig").read_text()
        async with joining(cluster, rotate=True, bootstrap=False) as connection:
            await ask(connection.clients)
            await until(lambda: cluster.requests, 1200)
            await cluster.sign()
            await until(lambda: connection.problem == "")
            new = connection.certificate_ends
            await ask(connection.clients)
        assert (tmp_path / "kubeconfig").read_text() == before
        async with joining(cluster, rotate=True, bootstrap=False) as connection:
            assert connection.certificate_ends == new
        (tmp_path / "pki" / "kubelet-client-current.pem").resolve().write_text("junk")
        async with joining(cluster, rotate=True, bootstrap=False) as connection:
            assert connection.certificate_ends == BEGIN + SHORT


async def test_kr4_a_token_is_not_rotated(tmp_path: Path) -> None:
    async with tls_cluster(tmp_path) as cluster:
        kubeconfig(tmp_path / "kubeconfig", cluster.api.url, user={"token": "t"})
        async with joining(cluster, rotate=True, bootstrap=False):
            await anyio.sleep(3600)
        assert cluster.requests == []


def public_part(request: str) -> ec.EllipticCurvePublicNumbers:
    key = x509.load_pem_x509_csr(base64.b64decode(request)).public_key()
    assert isinstance(key, ec.EllipticCurvePublicKey)
    return key.public_numbers()


def situation(
    *,
    access: bool = True,
    passing: bool = False,
    validity: Validity | None = None,
    deadline: datetime | None = None,
    can_bootstrap: bool = False,
) -> Situation:
    return Situation(
        now=BEGIN,
        access=access,
        passing=passing,
        validity=validity,
        deadline=deadline,
        can_bootstrap=can_bootstrap,
    )


def test_kr5_the_next_step() -> None:
    fresh, ended = Validity(BEGIN, BEGIN + DAY), Validity(BEGIN - DAY, BEGIN)
    assert next_step(situation()) is Step.WAIT
    assert next_step(situation(access=False)) is Step.WAIT
    assert next_step(situation(access=False, can_bootstrap=True)) is Step.BOOTSTRAP
    assert next_step(situation(access=False, passing=True, can_bootstrap=True)) is Step.WAIT
    assert next_step(situation(validity=ended, can_bootstrap=True)) is Step.BOOTSTRAP
    assert next_step(situation(validity=ended, deadline=BEGIN)) is Step.ROTATE
    assert next_step(situation(validity=fresh, deadline=BEGIN)) is Step.ROTATE
    assert next_step(situation(validity=fresh, deadline=BEGIN + DAY)) is Step.WAIT


@given(st.datetimes(datetime(1990, 1, 1), datetime(2090, 1, 1)), st.timedeltas(min_value=DAY * 0))  # noqa: DTZ001
def test_kr5_a_deadline_is_at_70_to_90_percent(begin: datetime, life: timedelta) -> None:
    begins = begin.replace(tzinfo=UTC)
    life = min(life, timedelta(days=36500))
    deadline = rotation_deadline(Validity(begins, begins + life))
    assert life * 0.7 - DAY / 86400 <= deadline - begins <= life * 0.9 + DAY / 86400


@given(st.timedeltas(-DAY, DAY), st.timedeltas(DAY * 0, DAY * 365))
def test_kr5_the_life_of_a_new_certificate_counts_from_now_on(
    age: timedelta, left: timedelta
) -> None:
    now = BEGIN
    deadline = new_deadline(Validity(now - age, now + left), now)
    assert now <= deadline <= max(now + left, now - age)


@given(st.integers(0, 10**6))
def test_kr5_tries_come_less_and_less_often(failures: int) -> None:
    assert 2 <= retry_delay(failures, refused=False) <= 32
    assert 60 <= retry_delay(failures, refused=True) <= 600


@given(
    begin=st.datetimes(datetime(1951, 1, 1), datetime(2200, 1, 1)),  # noqa: DTZ001
    life=st.integers(1, 10**9),
)
def test_when_a_certificate_ends_is_read_as_cryptography_does(begin: datetime, life: int) -> None:
    begins = begin.replace(tzinfo=UTC, microsecond=0)
    request = signing_request(KEY, "n1")
    pem = AUTHORITY.sign(request.request, start=begins, life=timedelta(seconds=life))
    found = x509.load_pem_x509_certificate(pem)
    expected = Validity(found.not_valid_before_utc, found.not_valid_after_utc)
    assert validity_of(b"some text\n" + pem + request.key) == expected


@given(st.binary(max_size=400))
def test_what_is_no_certificate_has_no_end(data: bytes) -> None:
    assert validity_of(data) is None
    body = base64.encodebytes(data)
    pem = b"-----BEGIN CERTIFICATE-----\n" + body + b"-----END CERTIFICATE-----\n"
    assert validity_of(pem) is None


KEY = new_key()
AUTHORITY = Authority()


def test_a_name_of_a_request_depends_on_key_and_node() -> None:
    request = signing_request(KEY, "n1")
    assert request.name == signing_request(KEY, "n1").name
    assert request.name.startswith("node-csr-")
    assert request.name == request.name.lower()
    assert len({request.name, signing_request(KEY, "n2").name}) == 2
    assert signing_request(new_key(), "n1").name != request.name
    assert "PRIVATE" not in repr(request)
    for bad in (b"", b"junk", x509.load_pem_x509_certificate(AUTHORITY.certificate).signature):
        with pytest.raises(ValueError, match="no private key"):
            signing_request(bad, "n1")


def test_files_of_one_second_do_not_overwrite_each_other(tmp_path: Path) -> None:
    store = CertificateStore(tmp_path / "pki")
    assert store.load() == b""
    files = [store.save(b"cert%d\n" % n, b"key", BEGIN) for n in range(3)]
    assert len(set(files)) == 3
    assert store.load() == b"cert2\nkey"
    assert store.current.resolve() == files[2]


def test_cryptography_is_loaded_only_to_ask_for_a_certificate() -> None:
    program = (
        "import sys, nodeagent.kube.connect, nodeagent.kube.credentials.certificates\n"
        "print('cryptography' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, stdout=subprocess.PIPE)
    assert done.stdout.strip() == b"False"
