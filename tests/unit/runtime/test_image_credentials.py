"""What images are pulled with, and who may use them.

docs/behaviour/images.md, "Credentials", "Verification".
"""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path

import anyio
import pytest
from prometheus_client import CollectorRegistry
from tests.unit.runtime.conftest import LoopClock
from tests.unit.runtime.fakes import EventLog, FakeRuntime, make_container, make_pod

from nodeagent.api import LocalObjectReference, Pod
from nodeagent.journal import Journal
from nodeagent.rpc import Unavailable, Unknown
from nodeagent.runtime.credential_config import ProvidersConfig
from nodeagent.runtime.credential_provider import (
    CredentialProviders,
    ProviderMetrics,
    ServiceAccountToken,
)
from nodeagent.runtime.credentials import (
    Credential,
    ImageCredentials,
    Owner,
    node_config_dirs,
    node_keyring,
)
from nodeagent.runtime.errors import ContainerStartError
from nodeagent.runtime.images import ImageAccess, ImageManager, ImageRequest
from nodeagent.runtime.keyring import Login, repository
from nodeagent.runtime.metrics import RuntimeMetrics
from nodeagent.runtime.pull_records import (
    PullRecords,
    RecordMetrics,
    read_records,
)
from nodeagent.runtime.pull_rights import VerificationPolicy
from nodeagent.runtime.pull_secrets import PullSecret, secret_logins
from nodeagent.runtime.settings import ImageSettings

pytestmark = pytest.mark.anyio

IMAGE = "registry.test/team/app:1"
REF = f"sha256:{IMAGE}"
JSON_TYPE = "kubernetes.io/dockerconfigjson"


def config_of(**users: str) -> bytes:
    """A docker configuration: a user (with a password of the same name) for each host."""
    return json.dumps(
        {"auths": {h.replace("_", "."): {"username": u, "password": u} for h, u in users.items()}}
    ).encode()


def secret(name: str, data: bytes, kind: str = JSON_TYPE) -> PullSecret:
    key = ".dockercfg" if kind.endswith("dockercfg") else ".dockerconfigjson"
    return PullSecret(f"uid-{name}", "default", name, kind, {key: data})


class Secrets:
    """Holds secrets by name."""

    def __init__(self) -> None:
        self.secrets: dict[str, PullSecret] = {}

    def add(self, name: str, data: bytes, kind: str = JSON_TYPE) -> None:
        self.secrets[name] = secret(name, data, kind)

    async def read_secret(self, namespace: str, name: str) -> PullSecret | None:
        assert namespace == "default"
        return self.secrets.get(name)


class Account:
    """Gives a token of one service account, or of none."""

    def __init__(self) -> None:
        self.name = "builder"

    async def token(self, pod: Pod, audience: str) -> ServiceAccountToken | None:
        return ServiceAccountToken("default", self.name, f"uid-{self.name}", {}, "token")


class Node:
    """An image manager with its records on a disk, and a runtime."""

    def __init__(self, root: Path, runtime: FakeRuntime, **policy: object) -> None:
        self.root = root
        self.runtime = runtime
        self.events = EventLog()
        self.secrets = Secrets()
        self.records = self.fresh_records(
            dataclasses.replace(VerificationPolicy(), **policy)  # type: ignore[arg-type]
        )
        self.metrics = RuntimeMetrics(self.registry)
        self.manager = ImageManager(
            runtime,
            ImageSettings(),
            events=self.events,
            journal=Journal(),
            metrics=self.metrics,
            clock=LoopClock(),
            access=ImageAccess(
                ImageCredentials(self.events, secrets=self.secrets, config_dirs=(root / "node",)),
                self.records,
            ),
        )

    def fresh_records(self, policy: VerificationPolicy) -> PullRecords:
        """The records as the next agent would find them."""
        self.registry = CollectorRegistry()
        return PullRecords(
            directory=self.root / "image_manager",
            images=self.runtime,
            policy=policy,
            clock=LoopClock(),
            metrics=RecordMetrics(self.registry),
        )

    async def ensure(
        self, *secrets: str, image: str = IMAGE, policy: str = "IfNotPresent", uid: str = "pod-1"
    ) -> str:
        """Pulled, used, or the reason why not."""
        before = len(self.runtime.pulled)
        pod = pod_with(*secrets, image=image, uid=uid)
        container = make_container(image=image, image_pull_policy=policy)
        try:
            await self.manager.ensure(ImageRequest.of(pod, container))
        except ContainerStartError as error:
            return error.reason
        return "pulled" if len(self.runtime.pulled) > before else "used"

    def users(self) -> list[str]:
        return [auth.username if auth else "" for auth in self.runtime.credentials]

    def on_disk(self, kind: str) -> list[dict[str, object]]:
        found = sorted((self.root / "image_manager" / kind).iterdir())
        return [json.loads(path.read_bytes()) for path in found]

    def count(self, name: str, **labels: str) -> float:
        return self.registry.get_sample_value(name, labels) or 0.0


def pod_with(*secrets: str, image: str = IMAGE, uid: str = "pod-1") -> Pod:
    references = tuple(LocalObjectReference(name=name) for name in secrets)
    return make_pod(make_container(image=image), uid=uid, image_pull_secrets=references)


@pytest.fixture
def node(tmp_path: Path, runtime: FakeRuntime) -> Node:
    return Node(tmp_path, runtime)


# -- credentials ------------------------------------------------------------------------------


async def test_ik1_without_any_the_pull_is_anonymous(node: Node) -> None:
    assert await node.ensure() == "pulled"
    assert node.runtime.credentials == [None]


async def test_ik1_secrets_come_before_the_node_and_are_tried_until_one_succeeds(
    node: Node,
) -> None:
    node.secrets.add("a", config_of(registry_test="short"))
    node.secrets.add(
        "b",
        json.dumps({"registry.test/team": {"auth": "bG9uZzpw"}}).encode(),
        "kubernetes.io/dockercfg",
    )
    (node.root / "node").mkdir()
    (node.root / "node" / "config.json").write_bytes(config_of(registry_test="node"))
    node.runtime.fail("pull_image", Unknown("denied"), times=2)
    assert await node.ensure("a", "b") == "pulled"
    assert node.users() == ["long", "short", "node"]


async def test_ik1_of_several_failures_each_text_is_told_once(node: Node) -> None:
    node.secrets.add("a", config_of(registry_test="a"))
    node.secrets.add("b", config_of(registry_test="b"))
    node.runtime.fail("pull_image", Unknown("denied"), times=2)
    assert await node.ensure("a", "b") == "ErrImagePull"
    assert node.events.last("Failed").message.endswith(": denied")
    node.runtime.fail("pull_image", Unknown("denied"))
    node.runtime.fail("pull_image", Unavailable("no route"))
    await node.ensure("a", "b", uid="pod-2")
    assert node.events.last("Failed").message.endswith(
        ": [denied, rpc error: code = Unavailable desc = no route]"
    )


async def test_ik8_ik11_a_missing_secret_is_told_and_the_pull_tried(node: Node) -> None:
    """events.md, EV55."""
    assert await node.ensure("gone", "lost") == "pulled"
    told = node.events.last("FailedToRetrieveImagePullSecret")
    assert (told.kind, told.field_path) == ("Warning", "")
    assert told.message == (
        "Unable to retrieve some image pull secrets (gone, lost); "
        "attempting to pull the image may not succeed."
    )


async def test_ik7_a_malformed_secret_is_left_out_and_named_when_the_pull_fails(
    node: Node,
) -> None:
    node.secrets.add("bad", b"{")
    node.secrets.add("good", config_of(registry_test="good"))
    assert await node.ensure("bad", "good") == "pulled"
    node.runtime.fail("pull_image", Unknown("denied"))
    await node.ensure("bad", image="registry.test/other:1")
    assert node.events.last("Failed").message == (
        'Failed to pull image "registry.test/other:1": '
        "[denied, secret default/bad: .dockerconfigjson: it is not JSON]"
    )


@pytest.mark.parametrize(
    ("kind", "data", "count"),
    [
        (JSON_TYPE, config_of(registry_test="u"), 1),
        ("kubernetes.io/dockercfg", b'{"registry.test": {"username": "u"}}', 1),
        ("Opaque", config_of(registry_test="u"), 0),
        (JSON_TYPE, b"", 0),
    ],
)
def test_ik9_two_types_of_secrets_hold_logins(kind: str, data: bytes, count: int) -> None:
    assert len(secret_logins(secret("s", data, kind))) == count


def test_ik10_the_first_docker_configuration_of_the_node_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, root, here = tmp_path / "home", tmp_path / "root", tmp_path / "here"
    for directory in (home / ".docker", root, here):
        directory.mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(here)
    places = node_config_dirs(root)
    assert places == (root, here, home / ".docker", Path("/.docker"))

    def user() -> list[str]:
        return [found.username for found in node_keyring(places).lookup("registry.test/a")]

    assert user() == []
    (home / ".dockercfg").write_bytes(b'{"registry.test": {"username": "legacy"}}')
    assert user() == ["legacy"]
    (home / ".docker" / "config.json").write_bytes(config_of(registry_test="home"))
    assert user() == ["home"]
    (here / "config.json").write_bytes(b"not for us")
    assert user() == ["home"]
    (root / "config.json").write_bytes(config_of(registry_test="root"))
    assert user() == ["root"]


# -- verification -----------------------------------------------------------------------------


async def test_iv5_what_was_pulled_anonymously_is_for_all(node: Node) -> None:
    assert await node.ensure() == "pulled"
    assert await node.ensure(uid="other") == "used"
    (record,) = node.on_disk("pulled")
    assert record["imageRef"] == REF
    assert record["kind"] == "ImagePulledRecord"
    assert record["credentialMapping"] == {"registry.test/team/app": {"nodePodsAccessible": True}}
    assert node.on_disk("pulling") == []
    assert (node.root / "image_manager").stat().st_mode & 0o777 == 0o700


async def test_iv6_iv8_a_right_is_that_of_the_secret(node: Node) -> None:
    node.secrets.add("mine", config_of(registry_test="u"))
    node.secrets.add("copy", config_of(registry_test="u"))
    node.secrets.add("other", config_of(registry_test="v"))
    assert await node.ensure("mine") == "pulled"
    assert await node.ensure("mine", uid="b") == "used"
    assert await node.ensure("copy", uid="c") == "used"
    assert await node.ensure("other", uid="d") == "pulled"
    assert await node.ensure("other", uid="e") == "used"
    node.runtime.fail("pull_image", Unknown("denied"))
    assert await node.ensure(uid="f") == "ErrImagePull"
    assert await node.ensure(uid="f") == "ImagePullBackOff"
    (record,) = node.on_disk("pulled")
    access = record["credentialMapping"]["registry.test/team/app"]  # type: ignore[index]
    assert [s["name"] for s in access["kubernetesSecrets"]] == ["mine", "copy", "other"]
    assert "password" not in json.dumps(record)


async def test_iv6_a_secret_may_change_its_content(node: Node) -> None:
    node.secrets.add("mine", config_of(registry_test="u"))
    await node.ensure("mine")
    node.secrets.add("mine", config_of(registry_test="w"))
    assert await node.ensure("mine", uid="b") == "used"
    node.secrets.add("again", config_of(registry_test="w"))
    assert await node.ensure("again", uid="c") == "used"


async def test_iv8_an_anonymous_success_opens_it_for_all(node: Node) -> None:
    node.secrets.add("mine", config_of(registry_test="u"))
    await node.ensure("mine")
    assert await node.ensure(uid="b") == "pulled"
    assert await node.ensure(uid="c") == "used"


async def test_iv8_a_right_is_to_one_repository(node: Node) -> None:
    await node.ensure()
    node.runtime.images["registry.test/twin:1"] = node.runtime.images[IMAGE]
    assert await node.ensure(image="registry.test/twin:1", uid="b") == "pulled"


async def test_ip8_without_a_right_never_means_never(node: Node) -> None:
    node.secrets.add("mine", config_of(registry_test="u"))
    await node.ensure("mine")
    assert await node.ensure("mine", policy="Never", uid="b") == "used"
    assert await node.ensure(policy="Never", uid="c") == "ErrImageNeverPull"
    assert "has not shown a right" in node.events.last("ErrImageNeverPull").message


@pytest.mark.parametrize(
    ("policy", "allowlist", "preloaded", "after"),
    [
        ("NeverVerify", (), "used", "used"),
        ("NeverVerifyPreloadedImages", (), "used", "pulled"),
        ("NeverVerifyAllowlistedImages", (), "pulled", "pulled"),
        ("NeverVerifyAllowlistedImages", ("registry.test/team/app",), "used", "pulled"),
        ("NeverVerifyAllowlistedImages", ("registry.test/team/*",), "used", "pulled"),
        ("NeverVerifyAllowlistedImages", ("registry.test/tea*",), "pulled", "pulled"),
        ("AlwaysVerify", (), "pulled", "pulled"),
    ],
)
async def test_iv1_iv2_iv3_iv4_the_policy_says_which_images_are_free(
    tmp_path: Path,
    runtime: FakeRuntime,
    policy: str,
    allowlist: tuple[str, ...],
    preloaded: str,
    after: str,
) -> None:
    node = Node(tmp_path, runtime, name=policy, allowlist=allowlist)
    node.secrets.add("mine", config_of(registry_test="u"))
    runtime.add_image(IMAGE)
    assert await node.ensure("mine") == preloaded
    # Once a pod has pulled it with its secret, it is no preloaded image any more.
    assert await node.ensure("mine", policy="Always", uid="b") == "pulled"
    assert await node.ensure(uid="c") == after


async def test_iv9_a_record_that_cannot_be_read_counts_as_no_right(
    node: Node, tmp_path: Path
) -> None:
    await node.ensure()
    (path,) = (node.root / "image_manager" / "pulled").iterdir()
    path.write_bytes(b"\0\0\0")
    node.records = node.fresh_records(VerificationPolicy())
    assert not await node.records.may_use(IMAGE, REF, nothing)
    assert node.count("kubelet_imagemanager_image_mustpull_checks_total", result="error") == 1
    await node.records.intend(IMAGE)
    await node.records.pulled(IMAGE, REF, Credential())
    assert await node.records.may_use(IMAGE, REF, nothing)


async def test_iv9_a_directory_that_cannot_be_read_counts_as_no_right(node: Node) -> None:
    (node.root / "image_manager").mkdir()
    (node.root / "image_manager" / "pulled").write_text("no directory")
    assert not await node.records.may_use(IMAGE, REF, nothing)


NO_PROCESS = 2**22 + 1
"""No process has this number: Linux gives lower ones only."""


async def nothing() -> tuple[list[Credential], list[Owner]]:
    return [], []


async def test_iv10_a_pull_that_was_cut_leaves_an_image_without_a_right(node: Node) -> None:
    await node.records.intend(IMAGE)
    node.runtime.add_image(IMAGE)
    after = node.fresh_records(VerificationPolicy())
    assert not await after.may_use(IMAGE, REF, nothing)
    assert node.on_disk("pulling") == []
    assert len(node.on_disk("pulled")) == 1


async def test_iv10_a_pull_that_was_cut_before_it_had_anything_leaves_nothing(node: Node) -> None:
    await node.records.intend(IMAGE)
    after = node.fresh_records(VerificationPolicy())
    assert await after.may_use(IMAGE, REF, nothing)
    assert node.on_disk("pulling") == []


async def test_iv10_what_a_killed_writer_left_goes(node: Node) -> None:
    await node.records.intend(IMAGE)
    pulling = node.root / "image_manager" / "pulling"
    (pulling / f".sha256-aa.{NO_PROCESS}.new").write_text("{")
    live = pulling / f".sha256-bb.{os.getpid()}.new"
    live.write_text("{")
    await node.fresh_records(VerificationPolicy()).may_use(IMAGE, REF, nothing)
    assert list(pulling.iterdir()) == [live], "a program that lives may be writing it"


async def test_iv10_while_the_runtime_does_not_answer_the_intent_stays(node: Node) -> None:
    await node.records.intend(IMAGE)
    node.runtime.fail("image_status", Unavailable("gone"))
    after = node.fresh_records(VerificationPolicy())
    assert not await after.may_use(IMAGE, REF, nothing)
    assert len(node.on_disk("pulling")) == 1


async def test_iv11_a_pull_that_cannot_be_noted_fails(node: Node) -> None:
    (node.root / "image_manager").write_text("a file")
    assert await node.ensure() == "ErrImagePull"
    assert "the pull cannot be noted in" in node.events.last("Failed").message
    assert node.runtime.pulled == []


async def test_an_intent_goes_when_the_last_pull_has_ended(node: Node) -> None:
    await node.records.intend(IMAGE)
    await node.records.intend(IMAGE)
    assert node.count("kubelet_imagemanager_ondisk_pullintents") == 1
    await node.records.failed(IMAGE)
    assert len(node.on_disk("pulling")) == 1
    await node.records.failed(IMAGE)
    assert node.on_disk("pulling") == []


async def test_a_pull_that_is_cancelled_leaves_no_intent(node: Node) -> None:
    node.runtime.hang("pull_image")
    with anyio.move_on_after(5):
        await node.ensure()
    assert node.on_disk("pulling") == []


async def test_iv12_records_of_images_that_are_gone_go(node: Node) -> None:
    await node.ensure()
    await node.ensure(image="registry.test/other:1")
    await node.records.prune({REF: None})
    assert [r["imageRef"] for r in node.on_disk("pulled")] == [REF]
    assert node.count("kubelet_imagemanager_ondisk_pulledrecords") == 1
    ((ref, written),) = read_records(node.root / "image_manager").times()
    assert ref == REF
    assert written > 0


async def test_iv7_a_right_may_be_that_of_a_service_account(node: Node) -> None:
    owner = Owner("uid-builder", "default", "builder")
    await node.records.intend(IMAGE)
    await node.records.pulled(IMAGE, REF, Credential(Login("u", "p"), account=owner))

    async def rights() -> tuple[list[Credential], list[Owner]]:
        return [], [owner]

    assert await node.records.may_use(IMAGE, REF, rights)
    assert not await node.records.may_use(IMAGE, REF, nothing)


async def test_records_survive_the_agent_and_what_they_do_not_know(node: Node) -> None:
    node.secrets.add("mine", config_of(registry_test="u"))
    await node.ensure("mine")
    (path,) = (node.root / "image_manager" / "pulled").iterdir()
    content = json.loads(path.read_bytes())
    path.write_bytes(json.dumps({**content, "later": 1, "apiVersion": "other/v1"}).encode())
    found = read_records(node.root / "image_manager")
    assert found.complete
    assert list(found.records) == [REF]


async def test_what_is_asked_for_is_counted(node: Node) -> None:
    await node.ensure()
    await node.ensure(uid="b")
    await node.ensure(uid="c", policy="Always")
    name = "kubelet_image_manager_ensure_image_requests_total"
    for policy, present, required in (
        ("ifnotpresent", "false", "true"),
        ("ifnotpresent", "true", "false"),
        ("always", "unknown", "true"),
    ):
        labels = {"pull_policy": policy, "present_locally": present, "pull_required": required}
        assert node.count(name, **labels) == 1


async def test_an_image_that_is_a_volume_is_told_of_the_pod(node: Node) -> None:
    request = ImageRequest(pod_with(), IMAGE, "IfNotPresent", "")
    assert (await node.manager.ensure(request)).ref == REF
    assert node.events.last("Pulled").field_path == ""


async def test_plugins_come_last(node: Node) -> None:
    providers = CredentialProviders(
        ProvidersConfig(), journal=Journal(), metrics=ProviderMetrics(), tokens=Account()
    )
    credentials = ImageCredentials(node.events, providers=providers)
    pod = pod_with()
    found = await credentials.candidates(pod, await credentials.of_pod(pod), repository(IMAGE))
    assert found == [Credential()]
    assert await credentials.accounts(pod, repository(IMAGE)) == []
