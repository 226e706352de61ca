"""Reads a kubeconfig, or the service account of a pod, into an :class:`Access`.

kubernetes-asyncio understands the files. What it does not do by itself: files named in them are
read anew each time, no secret is written to a disk, and plugins have a deadline.
"""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

from anyio import to_thread

from nodeagent.kube.access import Access, AccessError, Signature, signature
from nodeagent.kube.exec_plugin import (
    PluginCredentials,
    RunProgram,
    ask_plugin,
    program_path,
)
from nodeagent.kube.library import Library, library
from nodeagent.kube.tls import tls_context
from nodeagent.program import run_program

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_SIZE_LIMIT: Final = 10 * 1024 * 1024
_FILES: Final = {
    "cluster": ("certificate-authority",),
    "user": ("client-certificate", "client-key", "tokenFile"),
}


class KubeConfig:
    """A kubeconfig file.

    Args:
        path: where it lies; paths in it count from its directory.
        environment: of plugins.
        run: runs them.
    """

    def __init__(
        self,
        path: Path,
        *,
        environment: Mapping[str, str] | None = None,
        run: RunProgram = run_program,
    ) -> None:
        self._path = path
        self._environment = environment
        self._run = run

    @property
    def source(self) -> str:
        """What it is, for people."""
        return f"kubeconfig {self._path}"

    async def load(self) -> Access:
        """Read everything anew.

        Raises:
            AccessError: something is missing or malformed.
        """
        try:
            draft = await to_thread.run_sync(self._read)
        except AccessError as error:
            msg = f"{self.source}: {error}"
            raise AccessError(msg, error.files or (self._path,)) from error
        try:
            given = await self._ask(draft)
            return await to_thread.run_sync(self._build, draft, given)
        except AccessError as error:
            msg = f"{self.source}: {error}"
            raise AccessError(msg, draft.files) from error

    def _read(self) -> _Draft:
        before = signature((self._path,))
        document = _document(self._path)
        context = _named(document, "contexts", document.get("current-context"), "context")
        cluster = _named(document, "clusters", context.get("cluster"), "cluster")
        user: dict[str, Any] = {}
        if context.get("user"):
            user = _named(document, "users", context["user"], "user")
        base = Path(os.path.abspath(self._path)).parent  # noqa: PTH100 - links stay
        for name, section in (("cluster", cluster), ("user", user)):
            for key in _FILES[name]:
                if section.get(key):
                    section[key] = str(base / _text(section, key))
        paths = [
            Path(section[key])
            for name, section in (("cluster", cluster), ("user", user))
            for key in _FILES[name]
            if section.get(key)
        ]
        return _Draft(
            cluster, user, base, (self._path, *paths), before + signature(paths), library()
        )

    async def _ask(self, draft: _Draft) -> PluginCredentials | None:
        if "auth-provider" in draft.user:
            name = draft.user["auth-provider"]
            shown = name.get("name", "") if isinstance(name, dict) else name
            msg = f"auth-provider {shown!r} is not supported; use an exec plugin"
            raise AccessError(msg)
        wanted = draft.user.get("exec")
        if not wanted:
            return None
        with _plain_errors(draft.library):
            plugin = draft.library.exec_provider(_section(wanted, "exec"))
            command = [str(part) for part in plugin.args]
        if not wanted.get("command") or not isinstance(wanted["command"], str):
            raise AccessError("exec has no command")
        command[0] = program_path(command[0], draft.base)
        environment = plugin.env if self._environment is None else self._environment
        return await ask_plugin(
            command,
            environment,
            api_version=str(plugin.api_version),
            cluster=_told(draft.cluster) if wanted.get("provideClusterInfo") else None,
            install_hint=str(wanted.get("installHint") or ""),
            run=self._run,
        )

    def _build(self, draft: _Draft, given: PluginCredentials | None) -> Access:
        cluster, user = dict(draft.cluster), dict(draft.user)
        user.pop("exec", None)
        certificate = user.get("client-certificate")
        if given is not None:
            user = _with(user, given)
            certificate = None
        with ExitStack() as until_read:
            _to_files(cluster, ("certificate-authority",), until_read)
            _to_files(user, ("client-certificate", "client-key"), until_read)
            target = self._understood(draft.library, cluster, user)
            tls, digest = tls_context(target)
        connection = (target.host, target.tls_server_name, target.proxy, digest)
        return Access(
            server=target.host,
            tls=tls,
            server_name=target.tls_server_name or "",
            proxy=target.proxy or "",
            authorization=" ".join(target.api_key.get("BearerToken", "").split()),
            expires=given.expires if given else None,
            files=draft.files,
            signature=draft.signature,
            connection=hashlib.sha256(repr(connection).encode()).hexdigest(),
            client_certificate=Path(certificate) if certificate else None,
            source=self.source,
        )

    def _understood(self, library: Library, cluster: Any, user: Any) -> Any:
        """The settings, as kubernetes-asyncio understands them."""
        whole = {
            "current-context": "it",
            "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
            "clusters": [{"name": "it", "cluster": cluster}],
            "users": [{"name": "it", "user": user}],
        }
        target = settings()
        with _plain_errors(library):
            loader = library.kubeconfig_loader(whole, config_base_path="")
            _finish(loader.load_and_set(target))
        if not target.host:
            raise AccessError("the cluster has no server")
        if not target.host.startswith(("https://", "http://")):
            msg = f"the server must be a URL such as https://10.0.0.1:6443, not {target.host!r}"
            raise AccessError(msg)
        return target


class InCluster:
    """The service account of the pod that the agent runs in.

    Args:
        directory: where its token and the cluster's certificates are mounted.
        environment: tells where the server is.
    """

    source = "service account of this pod"

    def __init__(
        self, directory: Path = SERVICE_ACCOUNT, environment: Mapping[str, str] | None = None
    ) -> None:
        self._directory = directory
        self._environment = environment

    async def load(self) -> Access:
        """Read everything anew.

        Raises:
            AccessError: this is no pod, or something of it is missing.
        """
        return await to_thread.run_sync(self._load)

    def _load(self) -> Access:
        files = (self._directory / "token", self._directory / "ca.crt")
        before = signature(files)
        parts, target = library(), settings()
        environment = os.environ if self._environment is None else self._environment
        try:
            with _plain_errors(parts):
                parts.in_cluster_loader(
                    str(files[0]), str(files[1]), try_refresh_token=False, environ=environment
                ).load_and_set(target)
            tls, digest = tls_context(target)
        except AccessError as error:
            msg = f"{self.source}: {error}"
            raise AccessError(msg, files) from error
        return Access(
            server=target.host,
            tls=tls,
            authorization=" ".join(target.api_key["BearerToken"].split()),
            files=files,
            signature=before,
            connection=hashlib.sha256(f"{target.host} {digest}".encode()).hexdigest(),
            source=self.source,
        )


@dataclass(frozen=True, slots=True)
class _Draft:
    """A kubeconfig that was read, with absolute paths, before anything was asked."""

    cluster: dict[str, Any] = field(repr=False)
    user: dict[str, Any] = field(repr=False)
    base: Path
    files: tuple[Path, ...]
    signature: Signature
    library: Library


def settings() -> SimpleNamespace:
    """What kubernetes-asyncio fills in: like its ``Configuration``, which however changes the
    loggers of the whole process."""
    return SimpleNamespace(
        host="",
        api_key={},
        ssl_ca_cert=None,
        cert_file=None,
        key_file=None,
        verify_ssl=True,
        tls_server_name=None,
        proxy=None,
    )


def _document(path: Path) -> dict[str, Any]:
    import yaml

    try:
        with path.open("rb") as file:
            data = file.read(_SIZE_LIMIT + 1)
    except OSError as error:
        msg = f"cannot be read: {error.strerror}"
        raise AccessError(msg) from error
    if len(data) > _SIZE_LIMIT:
        raise AccessError("10 MiB or more")
    try:
        document = yaml.safe_load(data)
    except (yaml.YAMLError, UnicodeDecodeError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f", line {mark.line + 1}" if mark else ""
        # The text around a fault may be secret.
        problem = getattr(error, "problem", None) or type(error).__name__
        msg = f"no YAML: {problem}{where}"
        raise AccessError(msg) from error
    if not isinstance(document, dict):
        raise AccessError("no kubeconfig: a mapping with clusters, users and contexts is needed")
    return document


def _named(document: dict[str, Any], section: str, name: Any, key: str) -> dict[str, Any]:
    """An item of one of the lists, copied."""
    if not name:
        what = "current-context" if key == "context" else f"{key} of the context"
        msg = f"{what} is not given"
        raise AccessError(msg)
    items = document.get(section) or []
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        msg = f"{section} must be a list of named objects"
        raise AccessError(msg)
    found = [item for item in items if item.get("name") == name]
    if not found:
        msg = f"there is no {key} {name!r} in {section}"
        raise AccessError(msg)
    value = found[0].get(key)
    if value is None:
        value = {}
    if not isinstance(value, dict):
        msg = f"{key} {name!r} must be a mapping"
        raise AccessError(msg)
    return dict(value)


def _text(section: dict[str, Any], key: str) -> str:
    value = section[key]
    if not isinstance(value, str):
        msg = f"{key} must be a string"
        raise AccessError(msg)
    return value


def _told(cluster: dict[str, Any]) -> dict[str, Any]:
    """The cluster as a plugin may want to know it."""
    names = (
        "server",
        "tls-server-name",
        "insecure-skip-tls-verify",
        "certificate-authority-data",
        "proxy-url",
    )
    return {name: cluster[name] for name in names if name in cluster}


def _with(user: dict[str, Any], given: PluginCredentials) -> dict[str, Any]:
    """The user with what a plugin gave."""
    result = {k: v for k, v in user.items() if k not in ("token", "tokenFile")}
    if given.token:
        result["token"] = given.token
    if given.certificate:
        result.pop("client-certificate", None)
        result.pop("client-key", None)
        result["client-certificate-data"] = _encoded(given.certificate)
        result["client-key-data"] = _encoded(given.key)
    return result


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _to_files(section: dict[str, Any], keys: tuple[str, ...], until_read: ExitStack) -> None:
    """Put what is given as data into files in memory: the ssl module reads nothing else."""
    for key in keys:
        data = section.pop(f"{key}-data", None)
        if not data:
            continue
        try:
            content = base64.b64decode("".join(data.split()), validate=True)
        except (ValueError, TypeError, AttributeError) as error:
            msg = f"{key}-data is no base64"
            raise AccessError(msg) from error
        file = os.memfd_create(key)
        until_read.callback(os.close, file)
        with os.fdopen(os.dup(file), "wb") as writer:
            writer.write(content)
        section[key] = f"/proc/self/fd/{file}"


def _section(value: Any, name: str) -> Any:
    """A mapping in the form that the library's parts take one another's."""

    class Node(dict[str, Any]):
        safe_get = dict.get

    if not isinstance(value, dict):
        msg = f"{name} must be a mapping"
        raise AccessError(msg)
    node = Node(value)
    if isinstance(node.get("args"), list):
        node["args"] = _List(node["args"])
    return node


class _List(list[Any]):
    @property
    def value(self) -> list[Any]:
        return list(self)


@contextmanager
def _plain_errors(library: Library) -> Iterator[None]:
    """Whatever malformed input makes the library raise becomes one sentence."""
    try:
        yield
    except library.error as error:
        raise AccessError(str(error)) from error
    except OSError as error:
        msg = f"{error.filename}: {error.strerror}"
        raise AccessError(msg) from error
    except (TypeError, ValueError, AttributeError, KeyError, AssertionError) as error:
        msg = f"malformed ({type(error).__name__})"
        raise AccessError(msg) from error


def _finish(coroutine: Any) -> None:
    """Run a coroutine that has nothing to wait for."""
    try:
        coroutine.send(None)
    except StopIteration:
        return
    coroutine.close()
    raise AccessError("the credentials of this kind are not supported; use an exec plugin")
