"""How the API server is reached, and as whom: the outcome of reading a kubeconfig."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeAlias

from nodeagent.kube.validity import Validity

if TYPE_CHECKING:
    import ssl

Signature: TypeAlias = tuple[tuple[int, int, int, int] | None, ...]
"""What tells whether files have changed."""


class AccessError(Exception):
    """It is not known how to reach the server or as whom: which file, why, what to do.

    Attributes:
        files: what was looked at: when one of them changes, it is worth another try.
        passing: it may be otherwise in a while though no file has changed: a plugin failed.
    """

    def __init__(self, message: str, files: Iterable[Path] = (), *, passing: bool = False) -> None:
        super().__init__(message)
        self.files = tuple(files)
        self.passing = passing


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """How to reach an API server, and as whom.

    Attributes:
        server: base URL, without a slash at its end; ``shown`` is for people.
        tls: how connections are secured; None for http.
        server_name: the name that the server's certificate must have; "" for that of the URL.
        proxy: URL of the proxy to use; "" to choose by the environment.
        authorization: value of the header, "" for none.
        expires: when the authorization ends, if that is known.
        files: all files that this was read from.
        signature: of these files, taken before they were read.
        connection: digest of everything that connections depend on; it stays when only the
            authorization changes.
        validity: from when to when the client certificate is good; None without one.
        rotatable: the client certificate is of the kubeconfig itself, not of a plugin.
        source: what it was read from, for people.
    """

    server: str
    tls: ssl.SSLContext | None = field(default=None, repr=False)
    server_name: str = ""
    proxy: str = field(default="", repr=False)
    authorization: str = field(default="", repr=False)
    expires: datetime | None = None
    files: tuple[Path, ...] = ()
    signature: Signature = ()
    connection: str = ""
    validity: Validity | None = None
    rotatable: bool = False
    source: str = ""

    @property
    def shown(self) -> str:
        """The server for people: a URL may have a password in it."""
        scheme, slashes, rest = self.server.partition("://")
        host, slash, path = rest.partition("/")
        return f"{scheme}{slashes}{host.rpartition('@')[2]}{slash}{path}"


class AccessSource(Protocol):
    """Where access comes from: a kubeconfig, the service account of a pod."""

    @property
    def source(self) -> str:
        """What it is, for people."""
        ...

    async def load(self) -> Access:
        """Read everything anew; plugins are run.

        Raises:
            AccessError: something is missing or malformed.
        """
        ...


def signature(files: Iterable[Path]) -> Signature:
    """What the files are now, links followed. Blocking."""
    return tuple(_look(file) for file in files)


def _look(file: Path) -> tuple[int, int, int, int] | None:
    try:
        found = os.stat(file)  # noqa: PTH116 - the same for str and Path
    except (OSError, ValueError):  # such a name cannot be that of a file
        return None
    return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size
