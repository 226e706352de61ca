"""docs/behaviour/objects.md, "Certificates": trust anchors and certificates of pods."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import anyio
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from tests.unit.objects.objects_lab import LoopClock

from nodeagent.api import (
    ClusterTrustBundleProjection,
    LabelSelector,
    LabelSelectorRequirement,
    ObjectMeta,
    PodCertificateProjection,
)
from nodeagent.api.node import Node
from nodeagent.api.times import format_time
from nodeagent.journal import Journal
from nodeagent.model import PodUID, SyncError
from nodeagent.model.volumes import PodCredentials
from nodeagent.objects import ObjectStore, StandaloneObjects
from nodeagent.objects.pod_certificates import PodCertificates
from nodeagent.objects.pod_keys import new_pod_key
from nodeagent.objects.store import FromCluster
from nodeagent.objects.tokens import Tokens
from nodeagent.objects.trust import TrustBundles, selects
from nodeagent.testing import ApiStore, StoreClient, make_pod

pytestmark = pytest.mark.anyio

KINDS = ("RSA3072", "RSA4096", "ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519")
REQUESTS = "podcertificaterequests"


def bundle(name: str, signer: str = "", **labels: str) -> dict[str, Any]:
    return {
        "apiVersion": "certificates.k8s.io/v1beta1",
        "kind": "ClusterTrustBundle",
        "metadata": {"name": name, "labels": labels},
        "spec": {"signerName": signer, "trustBundle": f"PEM of {name}"},
    }


class Lab:
    def __init__(self) -> None:
        self.store = ApiStore(clock=LoopClock())
        account = {"name": "builder", "namespace": "default"}
        self.store.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account})
        self.pod = make_pod("web", uid="uid-web", service_account_name="builder")
        client = StoreClient(self.store)
        node = Node(metadata=ObjectMeta(name="node1", uid="uid-node"))
        self.bundles = TrustBundles(client, Journal())
        self.certificates = PodCertificates(client, lambda: node, LoopClock(), jitter=lambda: 60.0)
        self.line = client
        cluster = FromCluster(
            tokens=Tokens(client, LoopClock()),
            bundles=self.bundles,
            certificates=self.certificates,
        )
        self.objects = ObjectStore(StandaloneObjects(), cluster)

    async def credentials(self, kind: str = "ECDSAP256") -> PodCredentials:
        wanted = PodCertificateProjection(
            signer_name="example.com/mine", key_type=kind, user_annotations={"a": "b"}
        )
        return await self.objects.pod_credentials(self.pod, "certs", 0, wanted)

    def watching(self) -> int:
        return self.store.watching

    def requests(self) -> list[dict[str, Any]]:
        return self.store.all(REQUESTS)

    def issue(self, chain: str, *, renew: float = 1000, end: float = 2000) -> None:
        name, now = self.requests()[-1]["metadata"]["name"], LoopClock().now()
        status = {
            "conditions": [{"type": "Issued", "status": "True"}],
            "certificateChain": chain,
            "beginRefreshAt": format_time(now + timedelta(seconds=renew)),
            "notAfter": format_time(now + timedelta(seconds=end)),
        }
        self.store.edit(REQUESTS, name, lambda item: item.update(status=status), status=True)


@asynccontextmanager
async def at_work(lab: Lab) -> AsyncIterator[None]:
    async with anyio.create_task_group() as tasks:
        await tasks.start(lab.objects.run)
        yield
        tasks.cancel_scope.cancel()


async def test_oc1_bundles_are_found_by_name_or_signer_and_labels() -> None:
    lab = Lab()
    lab.store.create(bundle("plain"))
    lab.store.create(bundle("one", "example.com/mine", env="test"))
    lab.store.create(bundle("two", "example.com/mine", env="live"))
    everything = LabelSelector()
    live = LabelSelector(match_labels={"env": "live"})
    async with at_work(lab):
        ask = lab.objects.trust_anchors
        assert lab.watching() == 0
        assert await ask(ClusterTrustBundleProjection(name="plain")) == "PEM of plain"
        assert lab.watching() == 1
        assert await ask(ClusterTrustBundleProjection(name="none")) is None
        mine = ClusterTrustBundleProjection(signer_name="example.com/mine")
        assert await ask(mine) is None
        for selector, found in ((everything, {"one", "two"}), (live, {"two"})):
            wanted = ClusterTrustBundleProjection(
                signer_name="example.com/mine", label_selector=selector
            )
            text = await ask(wanted)
            assert text is not None
            assert set(text.splitlines()) == {f"PEM of {name}" for name in found}


async def test_oc1_who_follows_bundles_is_told_of_changes() -> None:
    lab, told = Lab(), list[tuple[str, str, str]]()
    lab.objects.subscribe(lambda *what: told.append(what))
    async with at_work(lab):
        assert await lab.objects.trust_anchors(ClusterTrustBundleProjection(name="a")) is None
        told.clear()
        lab.store.create(bundle("a"))
        await anyio.sleep(1)
        assert told == [("", "ClusterTrustBundle", "")]


async def test_oc2_bundles_that_cannot_be_had_are_an_error() -> None:
    lab = Lab()
    lab.line.cut()
    async with at_work(lab):
        with pytest.raises(SyncError, match=r"^failed to sync clustertrustbundle cache: cannot"):
            await lab.objects.trust_anchors(ClusterTrustBundleProjection(name="a"))


@pytest.mark.parametrize(
    ("operator", "values", "takes"),
    [
        ("In", ("x", "y"), True),
        ("In", ("z",), False),
        ("NotIn", ("z",), True),
        ("NotIn", ("x",), False),
        ("Exists", (), True),
        ("DoesNotExist", (), False),
        ("Near", (), False),
    ],
)
def test_oc1_selectors_take_labels(operator: str, values: tuple[str, ...], takes: bool) -> None:
    rule = LabelSelectorRequirement(key="a", operator=operator, values=values)
    assert selects(LabelSelector(match_expressions=(rule,)), {"a": "x"}) is takes
    assert not selects(None, {"a": "x"})


@pytest.mark.parametrize("kind", [k for k in KINDS if not k.startswith("RSA")] + ["RSA3072"])
def test_oc3_a_request_is_signed_by_its_key_and_has_no_name(kind: str) -> None:
    made = new_pod_key(kind)
    request = x509.load_der_x509_csr(made.request)
    assert request.is_signature_valid
    assert not list(request.subject)
    private = load_pem_private_key(made.key, None)
    assert private.public_key() == request.public_key()
    assert made.key.startswith(b"-----BEGIN PRIVATE KEY-----")
    assert "PRIVATE" not in repr(made)


async def test_oc3_a_certificate_is_asked_for_and_waited_for() -> None:
    lab = Lab()
    with pytest.raises(SyncError, match=r"^credential bundle is not issued yet$"):
        await lab.credentials()
    (request,) = lab.requests()
    uid = lab.store.get("serviceaccounts", "builder")["metadata"]["uid"]
    spec = dict(request["spec"])
    der = base64.b64decode(spec.pop("stubPKCS10Request"))
    assert spec == {
        "signerName": "example.com/mine",
        "podName": "web",
        "podUID": "uid-web",
        "serviceAccountName": "builder",
        "serviceAccountUID": uid,
        "nodeName": "node1",
        "nodeUID": "uid-node",
        "unverifiedUserAnnotations": {"a": "b"},
    }
    with pytest.raises(SyncError, match=r"^credential bundle is not issued yet$"):
        await lab.credentials()
    assert len(lab.requests()) == 1
    lab.issue("chain")
    found = await lab.credentials()
    assert found.chain == b"chain"
    key = load_pem_private_key(found.key, None)
    assert key.public_key() == x509.load_der_x509_csr(der).public_key()
    assert repr(found) == "PodCredentials()"


async def test_oc4_a_certificate_is_renewed_when_its_signer_says() -> None:
    lab = Lab()
    with pytest.raises(SyncError):
        await lab.credentials()
    lab.issue("one")
    await lab.credentials()
    await anyio.sleep(1050)
    assert (await lab.credentials()).chain == b"one"
    assert len(lab.requests()) == 1
    await anyio.sleep(20)
    assert (await lab.credentials()).chain == b"one"
    assert len(lab.requests()) == 2
    lab.issue("two")
    assert (await lab.credentials()).chain == b"two"


async def test_oc4_one_that_has_ended_is_not_given() -> None:
    lab = Lab()
    with pytest.raises(SyncError):
        await lab.credentials()
    lab.issue("one")
    await lab.credentials()
    lab.line.cut()
    await anyio.sleep(1999 - 5)
    assert (await lab.credentials()).chain == b"one"
    await anyio.sleep(10)
    with pytest.raises(SyncError, match=r"^connection refused$"):
        await lab.credentials()


@pytest.mark.parametrize("refusal", ["Denied", "Failed"])
async def test_oc5_a_refusal_is_final(refusal: str) -> None:
    lab = Lab()
    with pytest.raises(SyncError):
        await lab.credentials()
    name = lab.requests()[0]["metadata"]["name"]
    condition = {"type": refusal, "status": "True", "reason": "NoGrant", "message": "not you"}
    status = {"conditions": [condition]}
    lab.store.edit(REQUESTS, name, lambda item: item.update(status=status), status=True)
    said = f"^pod certificate request {name} is {refusal.lower()}: NoGrant: not you$"
    for _ in range(3):
        with pytest.raises(SyncError, match=said):
            await lab.credentials()
    assert len(lab.requests()) == 1


async def test_oc5_a_request_that_somebody_removes_is_made_again() -> None:
    lab = Lab()
    for _ in range(2):
        with pytest.raises(SyncError, match="not issued yet"):
            await lab.credentials()
        if lab.requests():
            lab.store.delete(REQUESTS, lab.requests()[0]["metadata"]["name"])
            with pytest.raises(SyncError, match="not issued yet"):
                await lab.credentials()
    assert len(lab.store.requests) > 4


async def test_oc5_an_unknown_type_of_key_is_refused() -> None:
    with pytest.raises(SyncError, match=r"^unsupported key type: DSA$"):
        await Lab().credentials("DSA")


async def test_oc6_keys_go_with_their_pod() -> None:
    lab = Lab()
    with pytest.raises(SyncError):
        await lab.credentials()
    assert lab.objects.remembered() == {"uid-web"}
    lab.objects.unregister(PodUID("uid-web"))
    assert not lab.objects.remembered()


async def test_oc6_without_an_api_server_there_are_none() -> None:
    alone = ObjectStore(StandaloneObjects())
    with pytest.raises(SyncError, match=r"^kube client is not configured$"):
        await alone.trust_anchors(ClusterTrustBundleProjection(name="a"))
    with pytest.raises(SyncError, match=r"^kube client is not configured$"):
        await alone.pod_credentials(make_pod("web"), "v", 0, PodCertificateProjection())
