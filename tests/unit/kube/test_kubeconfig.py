"""docs/behaviour/cluster.md, "Kubeconfig"."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.kube.authority import Authority
from tests.unit.kube.kube_lab import api_server, kubeconfig, server_tls

from nodeagent.api.node import NodeList
from nodeagent.kube import KubeClients, UnreachableError, paths
from nodeagent.kube.access import Access, AccessError
from nodeagent.kube.config import KubeConfig
from nodeagent.kube.connect import open_clients
from nodeagent.kube.service_account import InCluster
from nodeagent.program import ProgramError

pytestmark = pytest.mark.anyio

SERVER = "https://127.0.0.1:6443"
V1 = "client.authentication.k8s.io/v1"


async def problem(config: KubeConfig | InCluster) -> str:
    with pytest.raises(AccessError) as caught:
        await config.load()
    return str(caught.value)


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


async def ask(config: Path) -> None:
    async with open_clients(config) as clients:
        await clients.main.get(paths.NODES, NodeList)


@pytest.mark.parametrize("as_data", [False, True])
async def test_kf1_certificates_secure_both_sides(tmp_path: Path, as_data: bool) -> None:
    authority, other = Authority(), Authority("other-ca")
    certificate, key = authority.server().write(tmp_path, "server")
    mine = authority.client("system:node:n1")
    mine.write(tmp_path, "mine")
    (tmp_path / "ca.crt").write_bytes(authority.certificate)
    (tmp_path / "other.crt").write_bytes(other.certificate)
    if as_data:
        cluster = {"certificate-authority-data": encoded(authority.certificate)}
        user = {
            "client-certificate-data": encoded(mine.certificate),
            "client-key-data": encoded(mine.key),
        }
    else:
        cluster = {"certificate-authority": "ca.crt"}
        user = {"client-certificate": "mine.crt", "client-key": str(tmp_path / "mine.key")}
    tls = server_tls(certificate, key, authority.certificate, required=True)
    async with api_server(tls) as api:
        path = kubeconfig(tmp_path / "kubeconfig", api.url, user=user, cluster=cluster)
        await ask(path)
        assert api.peers == ["system:node:n1"]
        kubeconfig(path, api.url, user=user, cluster={"certificate-authority": "other.crt"})
        with pytest.raises(UnreachableError, match=r"of 127\.0\.0\.1 is not accepted"):
            await ask(path)
        insecure = {"insecure-skip-tls-verify": True}
        kubeconfig(path, api.url, user=user, cluster=insecure)
        await ask(path)


async def test_kf1_a_server_of_another_name(tmp_path: Path) -> None:
    authority = Authority()
    certificate, key = authority.server("api.example").write(tmp_path, "server")
    cluster: dict[str, Any] = {"certificate-authority-data": encoded(authority.certificate)}
    async with api_server(server_tls(certificate, key)) as api:
        path = kubeconfig(tmp_path / "kubeconfig", api.url, cluster=cluster)
        with pytest.raises(UnreachableError, match=r"of 127\.0\.0\.1 is not accepted"):
            await ask(path)
        kubeconfig(path, api.url, cluster={**cluster, "tls-server-name": "api.example"})
        await ask(path)


async def test_kf2_tokens_and_passwords(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("from-file\n")
    path = tmp_path / "kubeconfig"
    for user, expected in (
        ({"token": "abc"}, "Bearer abc"),
        ({"tokenFile": "token"}, "Bearer from-file"),
        ({"username": "me", "password": "pw"}, f"Basic {encoded(b'me:pw')}"),
        ({}, ""),
    ):
        kubeconfig(path, SERVER, user=user)
        access = await KubeConfig(path).load()
        assert access.authorization == expected
        assert "abc" not in repr(access)


class Plugin:
    """A program that answers what the test says."""

    def __init__(self, **status: object) -> None:
        self.answer: bytes = json.dumps(
            {"apiVersion": V1, "kind": "ExecCredential", "status": status}
        ).encode()
        self.error: ProgramError | None = None
        self.commands: list[list[str]] = []
        self.info: dict[str, Any] = {}
        self.env: dict[str, str] = {}

    async def run(
        self, command: Sequence[str], _input: bytes, env: Mapping[str, str], _timeout: float
    ) -> bytes:
        self.commands.append(list(command))
        self.env = dict(env)
        self.info = json.loads(env["KUBERNETES_EXEC_INFO"])
        if self.error is not None:
            raise self.error
        return self.answer


def with_plugin(path: Path, **more: object) -> Path:
    plugin = {"apiVersion": V1, "command": "get-token", **more}
    return kubeconfig(path, SERVER, user={"exec": plugin}, cluster={"tls-server-name": "api"})


async def test_kf3_a_plugin_gives_a_token(tmp_path: Path) -> None:
    plugin = Plugin(token="t1", expirationTimestamp="2030-01-01T00:00:00Z")
    path = with_plugin(
        tmp_path / "kubeconfig",
        args=["--region", "x"],
        env=[{"name": "A", "value": "b"}],
        provideClusterInfo=True,
    )
    access = await KubeConfig(path, run=plugin.run).load()
    assert access.authorization == "Bearer t1"
    assert access.expires == datetime(2030, 1, 1, tzinfo=UTC)
    assert plugin.commands == [["get-token", "--region", "x"]]
    assert plugin.env["A"] == "b"
    assert plugin.info["spec"] == {
        "interactive": False,
        "cluster": {"server": SERVER, "tls-server-name": "api"},
    }
    with_plugin(path, command="./bin/get")
    await KubeConfig(path, run=plugin.run).load()
    assert plugin.commands[-1] == [str(tmp_path / "bin/get")]


async def test_kf3_a_plugin_gives_a_certificate(tmp_path: Path) -> None:
    authority = Authority()
    mine = authority.client("by-plugin")
    plugin = Plugin(
        clientCertificateData=mine.certificate.decode(), clientKeyData=mine.key.decode()
    )
    path = with_plugin(tmp_path / "kubeconfig")
    first = await KubeConfig(path, run=plugin.run).load()
    assert first.authorization == ""
    other = authority.client("again")
    plugin = Plugin(
        clientCertificateData=other.certificate.decode(), clientKeyData=other.key.decode()
    )
    second = await KubeConfig(path, run=plugin.run).load()
    assert second.connection != first.connection


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"nonsense", "exec plugin get-token printed no ExecCredential"),
        (b'{"apiVersion":"v1","kind":"Pod"}', "printed 'v1 Pod' instead of"),
        (json.dumps({"apiVersion": V1, "kind": "ExecCredential"}).encode(), "neither a token"),
        (
            json.dumps(
                {"apiVersion": V1, "kind": "ExecCredential", "status": {"clientKeyData": "x"}}
            ).encode(),
            "only one of clientCertificateData and clientKeyData",
        ),
    ],
)
async def test_kf4_what_a_plugin_does_wrong_is_told(
    tmp_path: Path, answer: bytes, said: str
) -> None:
    plugin = Plugin()
    plugin.answer = answer
    path = with_plugin(tmp_path / "kubeconfig")
    message = await problem(KubeConfig(path, run=plugin.run))
    assert message.startswith(f"kubeconfig {path}: ")
    assert said in message


async def test_kf4_a_plugin_that_is_missing_or_fails(tmp_path: Path) -> None:
    plugin = Plugin()
    plugin.error = ProgramError("cannot be run: No such file or directory")
    path = with_plugin(tmp_path / "kubeconfig", installHint="install get-token\nfrom x")
    assert (await problem(KubeConfig(path, run=plugin.run))).endswith(
        "exec plugin get-token cannot be run: No such file or directory; install get-token from x"
    )
    with_plugin(path, apiVersion="v3")
    assert "apiVersion must be one of" in await problem(KubeConfig(path, run=plugin.run))
    with_plugin(path, command=None)
    assert "command" in await problem(KubeConfig(path, run=plugin.run))
    kubeconfig(path, SERVER, user={"auth-provider": {"name": "gcp"}})
    assert "auth-provider 'gcp' is not supported; use an exec" in await problem(KubeConfig(path))


@pytest.mark.realtime
async def test_kf4_a_real_plugin(tmp_path: Path) -> None:
    script = tmp_path / "plugin.sh"
    script.write_text(
        '#!/bin/sh\necho "$KUBERNETES_EXEC_INFO" > "$OUT"\n'
        f"""echo '{{"apiVersion":"{V1}","kind":"ExecCredential","status":{{"token":"real"}}}}'\n"""
    )
    script.chmod(0o755)
    env = [{"name": "OUT", "value": str(tmp_path / "out")}]
    path = with_plugin(tmp_path / "kubeconfig", command="./plugin.sh", env=env)
    assert (await KubeConfig(path).load()).authorization == "Bearer real"
    assert "ExecCredential" in (tmp_path / "out").read_text()
    script.write_text("#!/bin/sh\necho no login >&2\nexit 3\n")
    assert (await problem(KubeConfig(path))).endswith("plugin.sh ended with code 3: no login")


async def test_kf5_the_service_account_of_a_pod(tmp_path: Path) -> None:
    environment = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}
    source = InCluster(tmp_path, environment)
    assert "token file does not exist" in await problem(source)
    (tmp_path / "token").write_text("sa\n")
    (tmp_path / "ca.crt").write_bytes(Authority().certificate)
    access = await source.load()
    assert access.server == "https://[fd00::1]:443"
    assert access.authorization == "Bearer sa"
    assert access.files == (tmp_path / "token", tmp_path / "ca.crt")
    assert "host/port is not set" in await problem(InCluster(tmp_path, {}))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: [", "no YAML"),
        ("[]", "no kubeconfig"),
        ("", "no kubeconfig"),
        ("{}", "current-context is not given"),
        ("current-context: x", "there is no context 'x' in contexts"),
        ("{current-context: x, contexts: 5}", "contexts must be a list"),
        (
            "{current-context: x, contexts: [{name: x, context: 5}]}",
            "context 'x' must be a mapping",
        ),
        ("{current-context: x, contexts: [{name: x}]}", "cluster of the context is not given"),
    ],
)
async def test_kf6_a_malformed_file_is_told_in_one_line(
    tmp_path: Path, text: str, said: str
) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(text)
    message = await problem(KubeConfig(path))
    assert message.startswith(f"kubeconfig {path}: {said}")
    assert "\n" not in message


async def test_kf6_what_is_named_in_it_must_be_there_and_fit(tmp_path: Path) -> None:
    authority = Authority()
    authority.client("a").write(tmp_path, "a")
    authority.client("b").write(tmp_path, "b")
    (tmp_path / "junk").write_text("-----BEGIN CERTIFICATE-----\nAAAA\n")
    path = tmp_path / "kubeconfig"
    for user, cluster, said in (
        ({}, {"certificate-authority": "none"}, f"{tmp_path}/none"),
        ({}, {"certificate-authority": "junk"}, f"certificate-authority {tmp_path}/junk has no"),
        ({}, {"certificate-authority-data": "%%%"}, "certificate-authority-data"),
        ({"client-certificate": "a.crt"}, {}, "client-certificate is given without client-key"),
        ({"client-certificate": "a.crt", "client-key": "b.key"}, {}, "does not belong to"),
        ({"client-certificate": "junk", "client-key": "a.key"}, {}, "is no PEM file"),
        ({"client-certificate": 5}, {}, "client-certificate must be a string"),
        ({"tokenFile": "none"}, {}, f"{tmp_path}/none"),
        ({}, {"server": ""}, "the cluster has no server"),
        ({}, {"server": "127.0.0.1:6443"}, "the server must be a URL such as https://"),
        ({}, {"server": 5}, "server must be a string"),
        ({}, {"proxy-url": {"a": "b"}}, "proxy-url must be a string"),
        ({}, {"tls-server-name": ["a"]}, "tls-server-name must be a string"),
        ({"exec": 5}, {}, "exec must be a mapping"),
    ):
        kubeconfig(path, SERVER, user=user, cluster=cluster)
        message = await problem(KubeConfig(path))
        assert said in message
        assert "\n" not in message
        assert "/proc/self" not in message


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)
_CLUSTER_KEYS = ("server", "certificate-authority-data", "insecure-skip-tls-verify", "proxy-url")
_USER_KEYS = ("token", "tokenFile", "client-certificate", "client-key-data", "exec", "username")
_KEYS = st.sampled_from((*_CLUSTER_KEYS, *_USER_KEYS, "tls-server-name", "password"))


@settings(max_examples=40)
@given(st.dictionaries(_KEYS, _JSON), st.dictionaries(_KEYS, _JSON))
def test_kf6_no_content_makes_it_raise_anything_else(
    tmp_path_factory: pytest.TempPathFactory, user: dict[str, Any], cluster: dict[str, Any]
) -> None:
    path = tmp_path_factory.mktemp("fuzz") / "kubeconfig"
    kubeconfig(path, SERVER, user=user, cluster=cluster)
    plugin = Plugin(token="t")

    async def load() -> Access | None:
        try:
            return await KubeConfig(path, run=plugin.run).load()
        except AccessError:
            return None

    access = anyio.run(load)
    if access is not None:
        told = (access.server, access.server_name, access.proxy, access.authorization)
        assert all(isinstance(text, str) for text in told)


def test_kf7_only_what_reads_kubeconfigs_is_loaded(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path / "kubeconfig", SERVER, user={"token": "x"})
    program = (
        "import anyio, sys\n"
        "from pathlib import Path\n"
        "from nodeagent.kube.connect import open_clients\n"
        "assert not {'aiohttp', 'kubernetes_asyncio', 'cryptography'} & set(sys.modules)\n"
        "async def main():\n"
        f"    async with open_clients(Path({str(path)!r})):\n"
        "        print(*sorted({'aiohttp', 'kubernetes_asyncio', 'cryptography', 'urllib3'}"
        " & set(sys.modules)))\n"
        "anyio.run(main)\n"
        "import kubernetes_asyncio\n"
        "print(kubernetes_asyncio.client.V1Pod.__name__)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, stdout=subprocess.PIPE)
    assert done.stdout.split() == [b"aiohttp", b"V1Pod"]


async def test_a_client_finds_its_way_through_a_path_prefix(tmp_path: Path) -> None:
    async with api_server() as api:
        config = kubeconfig(tmp_path / "kubeconfig", f"{api.url}/k8s/clusters/c1/")
        clients: KubeClients
        async with open_clients(config) as clients:
            await clients.main.get(paths.NODES, NodeList)
        assert api.requests[0].path == "/k8s/clusters/c1/api/v1/nodes"
