"""Which login belongs to which image (docs/behaviour/images.md, "Credentials"). Pure."""

from __future__ import annotations

import base64
import binascii
import fnmatch
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar

import msgspec

from nodeagent.api.images import parse_image

T = TypeVar("T")

DEFAULT_REGISTRY: Final = "index.docker.io"
_VERSION: Final = re.compile(r"^/v[12](?=/)")


@dataclass(frozen=True, slots=True)
class Login:
    """A user name and a password. Never shown."""

    username: str = field(repr=False)
    password: str = field(repr=False)


class MalformedLoginError(ValueError):
    """What should hold logins cannot be read; the text says why and quotes nothing secret."""


@dataclass(frozen=True, slots=True)
class _Place:
    """A registry, or a part of one."""

    host: str
    port: str
    path: str


def repository(image: str) -> str:
    """The full name of an image's repository: ``busybox`` is ``docker.io/library/busybox``."""
    parsed = parse_image(image)
    name = parsed.repository if parsed is not None else image
    first, slash, rest = name.partition("/")
    known = slash and (set(first) & set(".:") or first == "localhost" or first != first.lower())
    if not known:
        return f"docker.io/{name}" if slash else f"docker.io/library/{name}"
    if first == DEFAULT_REGISTRY:
        first = "docker.io"
    if first == "docker.io" and "/" not in rest:
        rest = f"library/{rest}"
    return f"{first}/{rest}"


def registry_key(name: str) -> str:
    """The place that a key of a docker configuration stands for: no scheme, no API version."""
    rest = re.sub(r"^https?://", "", name)
    host, slash, path = rest.partition("/")
    path = _VERSION.sub("", slash + path)
    return host + ("" if path == "/" else path)


def covers(pattern: str, image: str) -> bool:
    """Whether a pattern such as ``*.example.com:5000/team`` covers an image's repository.

    Host labels match one by one (``*`` stands for one label or a part of it), ports are equal,
    and the path is a prefix.
    """
    wanted, given = _place(pattern), _place(image)
    return (
        wanted.port == given.port
        and given.path.startswith(wanted.path)
        and _host_covers(wanted.host, given.host)
    )


def _host_covers(pattern: str, host: str) -> bool:
    if pattern.startswith("["):
        return pattern == host  # an IPv6 address, no set of characters
    globs, labels = pattern.split("."), host.split(".")
    return len(globs) == len(labels) and all(
        fnmatch.fnmatchcase(label, glob.replace("[^", "[!"))
        for glob, label in zip(globs, labels, strict=True)
    )


def _place(name: str) -> _Place:
    host, slash, path = re.sub(r"^https?://", "", name).partition("/")
    bracket = host.rfind("]")
    bare, colon, port = host.rpartition(":")
    if colon and host.rfind(":") > bracket:
        host = bare
    else:
        port = ""
    return _Place(host, port, slash + path)


class Keyring(Generic[T]):
    """Logins by registry or a part of one; a longer key comes before a shorter one.

    What stands for a login is the caller's to say.

    Args:
        logins: pairs of a key, as a docker configuration has it, and a login.
    """

    def __init__(self, logins: Iterable[tuple[str, T]]) -> None:
        self._logins: dict[str, list[T]] = {}
        for key, login in logins:
            known = self._logins.setdefault(registry_key(key), [])
            if login not in known:
                known.append(login)

    def lookup(self, image: str) -> list[T]:
        """The logins to try for an image, best first.

        Args:
            image: the full name of its repository (:func:`repository`).
        """
        keys = sorted(self._logins, reverse=True)
        found = [login for key in keys if covers(key, image) for login in self._logins[key]]
        if not found and image.startswith("docker.io/"):
            found = list(self._logins.get(DEFAULT_REGISTRY, ()))
        return found


def parse_docker_config(data: bytes, *, legacy: bool = False) -> list[tuple[str, Login]]:
    """The logins of a docker configuration.

    Args:
        data: ``{"auths": {<registry>: <login>}}``.
        legacy: ``data`` is the inner object alone (a ``.dockercfg``).

    Raises:
        MalformedLoginError: it is no such configuration.
    """
    try:
        content = msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError) as error:
        raise MalformedLoginError("it is not JSON") from error
    auths = content if legacy or not isinstance(content, dict) else content.get("auths")
    if auths is None:
        return []
    if not isinstance(auths, dict):
        raise MalformedLoginError("it is no object of registries")
    return list(_logins(auths))


def _logins(auths: Mapping[str, Any]) -> Iterator[tuple[str, Login]]:
    for registry, entry in auths.items():
        if not isinstance(entry, dict):
            msg = f"the entry of {registry} is no object"
            raise MalformedLoginError(msg)
        try:
            username, password = _pair(entry)
        except ValueError as error:
            msg = f"the entry of {registry} has a field auth that is not base64 of user:password"
            raise MalformedLoginError(msg) from error
        yield registry, Login(username, password)


def _pair(entry: Mapping[str, Any]) -> tuple[str, str]:
    auth = entry.get("auth")
    if not auth:
        return str(entry.get("username") or ""), str(entry.get("password") or "")
    text = auth.strip() if isinstance(auth, str) else ""
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except binascii.Error as error:
        raise ValueError from error
    username, colon, password = raw.decode().rstrip("\0").partition(":")
    if not colon:
        raise ValueError
    return username, password
