"""Reads a kubeconfig into an :class:`Access`.

kubernetes-asyncio understands the files. What it does not do by itself: files named in them are
read anew each time, no secret is written to a disk, and plugins have a deadline.
"""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from anyio import to_thread

from nodeagent.clock import Clock, SystemClock
from nodeagent.kube.access import Access, AccessError, Signature, signature
from nodeagent.kube.config_text import (
    has_certificate,
    named,
    read_document,
    text_of,
    to_files,
    told_to_plugins,
)
from nodeagent.kube.exec_plugin import (
    PluginCredentials,
    RunProgram,
    ask_plugin,
    program_path,
)
from nodeagent.kube.library import Library, library
from nodeagent.kube.tls import read_tls
from nodeagent.kube.understood import plain_errors, settings
from nodeagent.kube.validity import validity_of
from nodeagent.program import run_program

_FILES: Final = {
    "cluster": ("certificate-authority",),
    "user": ("client-certificate", "client-key", "tokenFile"),
}
_TEXTS: Final = ("server", "proxy-url", "tls-server-name")


class KubeConfig:
    """A kubeconfig file.

    Args:
        path: where it lies; paths in it count from its directory.
        environment: of plugins.
        run: runs them.
        rotated: where rotation keeps its certificates; one that is good counts in place of the
            client certificate of the file. None without rotation.
        clock: tells whether it is good.
    """

    def __init__(
        self,
        path: Path,
        *,
        environment: Mapping[str, str] | None = None,
        run: RunProgram = run_program,
        rotated: Path | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._path = path
        self._environment = environment
        self._run = run
        self._rotated = rotated
        self._clock = clock or SystemClock()

    @property
    def source(self) -> str:
        """What it is, for people."""
        return f"kubeconfig {self._path}"

    async def load(self) -> Access:
        """Read everything anew.

        Raises:
            AccessError: something is missing or malformed.
        """
        draft = await self._draft()
        try:
            given = await self._ask(draft)
            return await to_thread.run_sync(self._build, draft, given)
        except AccessError as error:
            msg = f"{self.source}: {error}"
            raise AccessError(msg, draft.files, passing=error.passing) from error

    def _read(self, now: datetime) -> _Draft:
        watched = (self._path,) if self._rotated is None else (self._path, self._rotated)
        before = signature(watched)
        document = read_document(self._path)
        context = named(document, "contexts", document.get("current-context"), "context")
        cluster = named(document, "clusters", context.get("cluster"), "cluster")
        user: dict[str, Any] = {}
        if context.get("user"):
            user = named(document, "users", context["user"], "user")
        for key in _TEXTS:
            if cluster.get(key):
                text_of(cluster, key)
        base = Path(os.path.abspath(self._path)).parent  # noqa: PTH100 - links stay
        if self._rotated is not None and has_certificate(user):
            _prefer_rotated(user, self._rotated, now)
        for name, section in (("cluster", cluster), ("user", user)):
            for key in _FILES[name]:
                if section.get(key):
                    section[key] = str(base / text_of(section, key))
        paths = [
            Path(section[key])
            for name, section in (("cluster", cluster), ("user", user))
            for key in _FILES[name]
            if section.get(key)
        ]
        files = (*watched, *paths)
        return _Draft(cluster, user, base, files, before + signature(paths), library())

    async def cluster(self) -> dict[str, Any]:
        """The cluster as the file describes it, with absolute paths.

        Raises:
            AccessError: something is missing or malformed.
        """
        return (await self._draft()).cluster

    async def _draft(self) -> _Draft:
        try:
            return await to_thread.run_sync(self._read, self._clock.now())
        except AccessError as error:
            msg = f"{self.source}: {error}"
            raise AccessError(msg, error.files or (self._path,)) from error

    async def _ask(self, draft: _Draft) -> PluginCredentials | None:
        if "auth-provider" in draft.user:
            name = draft.user["auth-provider"]
            shown = name.get("name", "") if isinstance(name, dict) else name
            msg = f"auth-provider {shown!r} is not supported; use an exec plugin"
            raise AccessError(msg)
        wanted = draft.user.get("exec")
        if not wanted:
            return None
        with plain_errors(draft.library):
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
            cluster=told_to_plugins(draft.cluster) if wanted.get("provideClusterInfo") else None,
            install_hint=str(wanted.get("installHint") or ""),
            run=self._run,
        )

    def _build(self, draft: _Draft, given: PluginCredentials | None) -> Access:
        cluster, user = dict(draft.cluster), dict(draft.user)
        user.pop("exec", None)
        if given is not None:
            user = _with(user, given)
        with ExitStack() as until_read:
            to_files(cluster, ("certificate-authority",), until_read)
            to_files(user, ("client-certificate", "client-key"), until_read)
            target = self._understood(draft.library, cluster, user)
            tls = read_tls(target)
        connection = (target.host, target.tls_server_name, target.proxy, tls.digest)
        expires = given.expires if given else None
        if given and given.certificate and tls.validity and expires is None:
            expires = tls.validity.ends
        return Access(
            server=target.host,
            tls=tls.context,
            server_name=target.tls_server_name or "",
            proxy=target.proxy or "",
            authorization=" ".join(target.api_key.get("BearerToken", "").split()),
            expires=expires,
            files=draft.files,
            signature=draft.signature,
            connection=hashlib.sha256(repr(connection).encode()).hexdigest(),
            validity=tls.validity,
            rotatable=tls.validity is not None and not (given and given.certificate),
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
        with plain_errors(library):
            loader = library.kubeconfig_loader(whole, config_base_path="")
            _finish(loader.load_and_set(target))
        if not target.host:
            raise AccessError("the cluster has no server")
        if not target.host.startswith(("https://", "http://")):
            given = target.host.rpartition("@")[2]
            msg = f"the server must be a URL such as https://10.0.0.1:6443, not {given!r}"
            raise AccessError(msg)
        return target


@dataclass(frozen=True, slots=True)
class _Draft:
    """A kubeconfig that was read, with absolute paths, before anything was asked."""

    cluster: dict[str, Any] = field(repr=False)
    user: dict[str, Any] = field(repr=False)
    base: Path
    files: tuple[Path, ...]
    signature: Signature
    library: Library


def _prefer_rotated(user: dict[str, Any], rotated: Path, now: datetime) -> None:
    """Use the certificate that rotation has left, if it is good."""
    try:
        validity = validity_of(rotated.read_bytes())
    except OSError:
        return
    if validity is not None and now < validity.ends:
        for key in ("client-certificate", "client-key"):
            user.pop(f"{key}-data", None)
            user[key] = str(rotated)


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


def _finish(coroutine: Any) -> None:
    """Run a coroutine that has nothing to wait for."""
    try:
        coroutine.send(None)
    except StopIteration:
        return
    coroutine.close()
    raise AccessError("the credentials of this kind are not supported; use an exec plugin")
