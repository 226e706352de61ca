"""Credential provider plugins (docs/behaviour/images.md, "Providers")."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest
from prometheus_client import CollectorRegistry
from tests.unit.runtime.fakes import make_pod

from nodeagent.api import Pod
from nodeagent.errors import StartError
from nodeagent.journal import Journal
from nodeagent.program import ProgramError, run_program
from nodeagent.runtime.credential_config import (
    ProvidersConfig,
    ProviderSettings,
    TokenAttributes,
    load_providers,
)
from nodeagent.runtime.credential_provider import (
    CredentialProviders,
    ProviderMetrics,
    ServiceAccountToken,
)

pytestmark = pytest.mark.anyio

V1 = "credentialprovider.kubelet.k8s.io/v1"
IMAGE = "eu.registry.test/team/app"
SETTINGS = ProviderSettings(
    name="ecr",
    program=Path("/plugins/ecr"),
    match_images=("*.registry.test",),
    cache_duration=100.0,
    api_version=V1,
    args=("get", "--quiet"),
    env=(("REGION", "eu"),),
)
TOKEN = TokenAttributes(
    service_account_token_audience="registry",
    cache_type="ServiceAccount",
    require_service_account=True,
    required_service_account_annotation_keys=("team",),
    optional_service_account_annotation_keys=("region",),
)


class Program:
    """A plugin that answers as the test wants."""

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []
        self.commands: list[tuple[str, ...]] = []
        self.env: Mapping[str, str] = {}
        self.answer: dict[str, Any] = {
            "kind": "CredentialProviderResponse",
            "apiVersion": V1,
            "cacheKeyType": "Image",
            "auth": {"*.registry.test": {"username": "u", "password": "p"}},
        }
        self.output: bytes | None = None
        self.seconds = 0.0
        self.error: ProgramError | None = None

    async def __call__(
        self, command: Sequence[str], request: bytes, env: Mapping[str, str], timeout: float
    ) -> bytes:
        assert timeout == 60
        self.commands.append(tuple(command))
        self.requests.append(json.loads(request))
        self.env = env
        await anyio.sleep(self.seconds)
        if self.error is not None:
            raise self.error
        return self.output if self.output is not None else json.dumps(self.answer).encode()


class Accounts:
    """Gives tokens of one service account."""

    def __init__(self) -> None:
        self.present = True
        self.annotations = {"team": "a", "region": "eu", "other": "x"}
        self.serial = 1
        self.name = "builder"

    async def token(self, pod: Pod, audience: str) -> ServiceAccountToken | None:
        assert audience == "registry"
        if not self.present:
            return None
        return ServiceAccountToken(
            "default", self.name, f"uid-{self.name}", self.annotations, f"token-{self.serial}"
        )


class Node:
    """Plugins, and what they say."""

    def __init__(self, *settings: ProviderSettings) -> None:
        self.program = Program()
        self.accounts = Accounts()
        self.journal = Journal()
        self.registry = CollectorRegistry()
        self.providers = CredentialProviders(
            ProvidersConfig(settings or (SETTINGS,), "sha256:abc"),
            journal=self.journal,
            metrics=ProviderMetrics(self.registry),
            tokens=self.accounts,
            run=self.program,
        )

    async def users(self, image: str = IMAGE) -> list[str]:
        return [g.login.username for g in await self.providers.lookup(make_pod(), image)]

    @property
    def runs(self) -> int:
        return len(self.program.requests)


@pytest.fixture
def node() -> Node:
    return Node()


async def test_ix1_ix2_it_is_asked_about_images_that_it_covers(node: Node) -> None:
    assert await node.users() == ["u"]
    assert await node.users("registry.test/team/app") == []
    assert node.program.commands == [("/plugins/ecr", "get", "--quiet")]
    assert node.program.requests == [
        {"kind": "CredentialProviderRequest", "apiVersion": V1, "image": IMAGE}
    ]
    assert node.program.env["REGION"] == "eu"
    assert node.program.env["PATH"] == os.environ["PATH"]


async def test_ix2_an_answer_for_another_registry_is_none_for_this(node: Node) -> None:
    node.program.answer["auth"] = {"other.test": {"username": "u", "password": "p"}}
    assert await node.users() == []
    node.program.answer["auth"] = None
    assert await node.users("other.registry.test/a") == []


@pytest.mark.parametrize(
    ("changes", "cause"),
    [
        ({"apiVersion": "credentialprovider.kubelet.k8s.io/v1beta1"}, "answered with"),
        ({"kind": "Other"}, "answered with"),
        ({"cacheKeyType": "Pod"}, "cacheKeyType 'Pod' is not Image, Registry or Global"),
        ({"cacheDuration": "soon"}, "cacheDuration: 'soon' is not a duration"),
        ({"auth": 5}, "printed something that is no CredentialProviderResponse"),
    ],
)
async def test_ix3_an_answer_that_is_none_gives_no_logins(
    node: Node, changes: dict[str, Any], cause: str
) -> None:
    node.program.answer |= changes
    assert await node.users() == []
    (record,) = node.journal.select()
    assert record.what == "CredentialProviderFailed"
    assert record.why.startswith("credential provider ecr: ")
    assert cause in record.why


async def test_ix3_what_it_prints_is_not_shown(node: Node) -> None:
    node.program.output = b'{"password": "hidden'
    assert await node.users() == []
    assert "hidden" not in node.journal.select()[0].why


async def test_ix3_one_that_fails_does_not_keep_others_from_their_turn() -> None:
    node = Node(SETTINGS, replace(SETTINGS, name="gcr"))
    node.program.error = ProgramError("ended with code 1: no network")
    assert await node.users() == []
    assert node.runs == 2
    node.program.error = None
    assert await node.users() == ["u", "u"]
    errors = "kubelet_credential_provider_plugin_errors_total"
    assert node.registry.get_sample_value(errors, {"plugin_name": "ecr"}) == 1
    runs = "kubelet_credential_provider_plugin_duration_count"
    assert node.registry.get_sample_value(runs, {"plugin_name": "gcr"}) == 2
    info = "kubelet_credential_provider_config_info"
    assert node.registry.get_sample_value(info, {"hash": "sha256:abc"}) == 1


@pytest.mark.parametrize(
    ("kind", "asked_again"),
    [
        ("Image", [IMAGE + "2", "us.registry.test/x"]),
        ("Registry", ["us.registry.test/x"]),
        ("Global", []),
    ],
)
async def test_ix4_answers_are_kept_for_what_they_say(
    node: Node, kind: str, asked_again: list[str]
) -> None:
    node.program.answer["cacheKeyType"] = kind
    for image in (IMAGE, IMAGE, IMAGE + "2", "us.registry.test/x"):
        assert await node.users(image) == ["u"]
    assert [r["image"] for r in node.program.requests] == [IMAGE, *asked_again]


@pytest.mark.parametrize(
    ("duration", "kept"), [(None, 100.0), ("10s", 10.0), ("0s", 0.0), ("1h", 3600.0)]
)
async def test_ix4_answers_are_kept_as_long_as_they_say(
    node: Node, duration: str | None, kept: float
) -> None:
    node.program.answer["cacheDuration"] = duration
    await node.users()
    if kept:
        await anyio.sleep(kept - 1)
        await node.users()
        assert node.runs == 1
    await anyio.sleep(2)
    await node.users()
    assert node.runs == 2


async def test_ix4_what_has_expired_is_dropped_in_time(node: Node) -> None:
    node.program.answer["cacheDuration"] = "1s"
    for number in range(3):
        await node.users(f"a{number}.registry.test/x")
        await anyio.sleep(901)
    (plugin,) = node.providers._plugins
    assert len(plugin._kept) == 1


async def test_ix5_one_run_answers_all(node: Node) -> None:
    node.program.seconds = 5.0
    node.program.answer["cacheDuration"] = "0s"
    found: Counter[str] = Counter()

    async def ask() -> None:
        found.update(await node.users())

    async with anyio.create_task_group() as tasks:
        for _ in range(4):
            tasks.start_soon(ask)
    assert (found["u"], node.runs) == (4, 1)


async def test_ix5_who_waits_for_a_run_that_is_cut_makes_its_own(node: Node) -> None:
    node.program.seconds = 5.0
    found: list[list[str]] = []

    async def ask() -> None:
        found.append(await node.users())

    async with anyio.create_task_group() as tasks:
        with anyio.move_on_after(2):
            async with anyio.create_task_group() as cut:
                cut.start_soon(ask)
                await anyio.sleep(1)
                tasks.start_soon(ask)
    assert found == [["u"]]
    assert node.runs == 2


async def test_ix6_a_token_goes_with_the_request_and_the_answer_is_for_its_bearer() -> None:
    node = Node(replace(SETTINGS, token=TOKEN))
    (given,) = await node.providers.lookup(make_pod(), IMAGE)
    assert given.account is not None
    assert given.account.name == "builder"
    assert node.program.requests[0]["serviceAccountToken"] == "token-1"
    assert node.program.requests[0]["serviceAccountAnnotations"] == {"team": "a", "region": "eu"}
    node.accounts.serial = 2
    await node.users()
    assert node.runs == 1
    node.accounts.name = "deployer"
    await node.users()
    assert node.runs == 2
    (account,) = await node.providers.accounts(make_pod(), IMAGE)
    assert account.name == "deployer"
    assert "token-2" not in repr(account)


async def test_ix6_answers_may_be_for_one_token() -> None:
    token = TokenAttributes(
        service_account_token_audience="registry", cache_type="Token", require_service_account=True
    )
    node = Node(replace(SETTINGS, token=token))
    await node.users()
    await node.users()
    node.accounts.serial = 2
    await node.users()
    assert node.runs == 2


async def test_ix6_without_an_account_or_an_annotation_it_is_not_asked() -> None:
    node = Node(replace(SETTINGS, token=TOKEN))
    node.accounts.annotations = {}
    assert await node.users() == []
    node.accounts.present = False
    assert await node.users() == []
    assert await node.providers.accounts(make_pod(), IMAGE) == []
    assert node.runs == 0
    optional = TokenAttributes(
        service_account_token_audience="registry",
        cache_type="ServiceAccount",
        require_service_account=False,
    )
    other = Node(replace(SETTINGS, token=optional))
    other.accounts.present = False
    assert await other.users() == ["u"]
    assert "serviceAccountToken" not in other.program.requests[0]


@pytest.mark.parametrize(("kind", "users"), [("ServiceAccount", []), ("Token", ["u"])])
async def test_ix7_a_token_that_comes_back_is_refused(kind: str, users: list[str]) -> None:
    token = TokenAttributes(
        service_account_token_audience="registry", cache_type=kind, require_service_account=True
    )
    node = Node(replace(SETTINGS, token=token))
    node.program.answer["auth"] = {"*.registry.test": {"username": "u", "password": "token-1"}}
    assert await node.users() == users


# -- programs ---------------------------------------------------------------------------------


def script(directory: Path, text: str) -> tuple[str, ...]:
    path = directory / "plugin"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return (str(path),)


@pytest.mark.realtime
async def test_ix1_a_program_gets_input_and_environment(tmp_path: Path) -> None:
    command = script(tmp_path, 'printf "%s %s" "$(cat)" "$REGION"')
    assert (
        await run_program(command, b"request", {**os.environ, "REGION": "eu"}, 30) == b"request eu"
    )


@pytest.mark.realtime
@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("echo no network >&2; exit 3", "ended with code 3: no network"),
        ("exit 1", "ended with code 1"),
        ("kill -9 $$", "ended with code -9"),
        ("yes | head -c 1100000", "printed more than 1 MiB"),
    ],
)
async def test_ix3_a_program_that_fails(tmp_path: Path, text: str, cause: str) -> None:
    with pytest.raises(ProgramError) as caught:
        await run_program(script(tmp_path, text), b"x" * 200_000, os.environ, 30)
    assert str(caught.value) == cause


@pytest.mark.realtime
async def test_ix3_one_that_does_not_end_is_killed_with_its_children(tmp_path: Path) -> None:
    command = script(tmp_path, f"sleep 600 & echo $! > {tmp_path}/child; wait")
    with pytest.raises(ProgramError, match="did not end within 1s"):
        await run_program(command, b"", os.environ, 1)
    child = int((tmp_path / "child").read_text())
    with anyio.fail_after(20):
        while _runs(child):
            await anyio.lowlevel.checkpoint()


def _runs(pid: int) -> bool:
    try:
        return ") Z" not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False


@pytest.mark.realtime
async def test_ix3_a_program_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(ProgramError, match="cannot be run: No such file or directory"):
        await run_program((str(tmp_path / "none"),), b"", os.environ, 1)


# -- configuration ----------------------------------------------------------------------------


PROVIDER: dict[str, Any] = {
    "name": "ecr",
    "matchImages": ["*.registry.test"],
    "defaultCacheDuration": "1h",
    "apiVersion": V1,
}


def write(directory: Path, *providers: dict[str, Any], name: str = "config.yaml") -> Path:
    path = directory / name
    config = {
        "apiVersion": "kubelet.config.k8s.io/v1",
        "kind": "CredentialProviderConfig",
        "providers": providers,
    }
    path.write_text(json.dumps(config))
    return path


@pytest.fixture
def bin_dir(tmp_path: Path) -> Path:
    directory = tmp_path / "bin"
    directory.mkdir()
    for name in ("ecr", "gcr"):
        (directory / name).write_text("#!/bin/sh\n")
        (directory / name).chmod(0o755)
    return directory


def test_a_configuration_names_plugins(tmp_path: Path, bin_dir: Path) -> None:
    full = {
        **PROVIDER,
        "args": ["get"],
        "env": [{"name": "REGION", "value": "eu"}],
        "tokenAttributes": {
            "serviceAccountTokenAudience": "registry",
            "cacheType": "ServiceAccount",
            "requireServiceAccount": True,
            "requiredServiceAccountAnnotationKeys": ["team"],
        },
    }
    config = load_providers(write(tmp_path, full), bin_dir)
    assert config.hash.startswith("sha256:")
    (settings,) = config.providers
    assert settings.program == bin_dir / "ecr"
    assert settings.cache_duration == 3600
    assert (settings.args, settings.env) == (("get",), (("REGION", "eu"),))
    assert settings.token is not None
    assert settings.token.required_service_account_annotation_keys == ("team",)


def test_a_directory_is_read_in_order(tmp_path: Path, bin_dir: Path) -> None:
    directory = tmp_path / "conf"
    directory.mkdir()
    with pytest.raises(StartError, match=r"holds no credential provider configuration \(\.json"):
        load_providers(directory, bin_dir)
    write(directory, {**PROVIDER, "name": "gcr"}, name="b.json")
    write(directory, PROVIDER, name="a.yml")
    (directory / "README").write_text("not read")
    assert [p.name for p in load_providers(directory, bin_dir).providers] == ["ecr", "gcr"]
    write(directory, PROVIDER, name="c.yaml")
    with pytest.raises(StartError, match="there are two credential providers ecr"):
        load_providers(directory, bin_dir)


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"name": ""}, "providers[0].name: required"),
        ({"name": "../ecr"}, "providers[0].name: '../ecr' is not the name of a program"),
        ({"name": "none"}, "the credential provider none has no program"),
        ({"apiVersion": "v1"}, "providers[0].apiVersion: 'v1' is not one of credentialprovider"),
        ({"matchImages": []}, "providers[0].matchImages: at least 1 is required"),
        ({"matchImages": ["https://a"]}, "providers[0].matchImages[0]: 'https://a' is not a host"),
        ({"defaultCacheDuration": None}, "providers[0].defaultCacheDuration: required"),
        ({"defaultCacheDuration": "-1s"}, "providers[0].defaultCacheDuration: -1s is negative"),
        ({"defaultCacheDuration": "1"}, "providers[0].defaultCacheDuration: '1' is not a duration"),
        ({"env": [{"name": "A=B"}]}, "providers[0].env[0].name: 'A=B' is not the name"),
        ({"matchImage": ["a"]}, "matchImage"),
        ({"args": "get"}, "args"),
        ({"tokenAttributes": {}}, "tokenAttributes.serviceAccountTokenAudience: required"),
        ({"tokenAttributes": {}}, "tokenAttributes.requireServiceAccount: required"),
        ({"tokenAttributes": {}}, "tokenAttributes.cacheType: '' is not one of ServiceAccount"),
        (
            {"tokenAttributes": {"requiredServiceAccountAnnotationKeys": ["a", "a"]}},
            "an annotation key stands there twice",
        ),
    ],
)
def test_what_is_wrong_is_named(
    tmp_path: Path, bin_dir: Path, changes: dict[str, Any], fault: str
) -> None:
    path = write(tmp_path, {**PROVIDER, **changes})
    with pytest.raises(StartError) as caught:
        load_providers(path, bin_dir)
    assert str(caught.value).startswith(str(path))
    assert fault in str(caught.value)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "must hold one document, has 0"),
        ("a: [", ""),
        ("kind: Pod\n", "must be kind CredentialProviderConfig of apiVersion"),
        (
            "apiVersion: kubelet.config.k8s.io/v1\nkind: CredentialProviderConfig\n",
            "providers: at least 1 is required",
        ),
    ],
)
def test_a_file_that_is_no_configuration_is_refused(
    tmp_path: Path, bin_dir: Path, text: str, fault: str
) -> None:
    (tmp_path / "c.yaml").write_text(text)
    with pytest.raises(StartError) as caught:
        load_providers(tmp_path / "c.yaml", bin_dir)
    assert fault in str(caught.value)


def test_what_is_not_there_is_named(tmp_path: Path, bin_dir: Path) -> None:
    with pytest.raises(StartError, match="cannot be read: No such file or directory"):
        load_providers(tmp_path / "none.yaml", bin_dir)
    with pytest.raises(StartError, match="no such directory"):
        load_providers(write(tmp_path, PROVIDER), tmp_path / "none")
