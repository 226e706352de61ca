"""Where a node's certificates lie: the kubelet's files. Blocking."""

from __future__ import annotations

import os
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Final

from nodeagent.state_file import remove_leftovers, write_atomically

CLIENT_FILES: Final = "kubelet-client"
SERVING_FILES: Final = "kubelet-server"
_DIRECTORY_MODE: Final = 0o700


class CertificateStore:
    """Certificates, each in one file with its key, and a link to the one in use.

    Args:
        directory: where they lie; it is made when it is missing.
        name: how their files' names begin.

    Attributes:
        current: the link.
    """

    def __init__(self, directory: Path, name: str = CLIENT_FILES) -> None:
        self.current = directory / f"{name}-current.pem"
        self._name = name
        self._directory = directory
        self._pending = directory / f"{name}.key.tmp"

    def load(self) -> bytes:
        """The certificate in use and its key, PEM; b"" when there is none that can be read."""
        with suppress(OSError):
            return self.current.read_bytes()
        return b""

    def drop(self) -> None:
        """Nothing is in use any more; the files stay."""
        with suppress(OSError):
            self.current.unlink(missing_ok=True)

    def save(self, certificate: bytes, key: bytes, now: datetime) -> Path:
        """Keep a new pair and let the link lead to it; the older files stay.

        Raises:
            OSError: it could not be written; the link is as it was.
        """
        self._prepare()
        file = self._free(now)
        write_atomically(file, certificate.rstrip() + b"\n" + key)
        updated = self._directory / f"{self._name}-updated.pem"
        updated.unlink(missing_ok=True)
        updated.symlink_to(file)
        updated.replace(self.current)
        return file

    def pending_key(self) -> bytes:
        """The key that a certificate was asked for before a restart; b"" for none."""
        with suppress(OSError):
            return self._pending.read_bytes()
        return b""

    def keep_key(self, key: bytes) -> None:
        """Keep a key until its certificate is there.

        Raises:
            OSError: it could not be written.
        """
        self._prepare()
        write_atomically(self._pending, key)

    def forget_key(self) -> None:
        """The key is not needed any more."""
        with suppress(OSError):
            self._pending.unlink(missing_ok=True)

    def _prepare(self) -> None:
        self._directory.mkdir(mode=_DIRECTORY_MODE, parents=True, exist_ok=True)
        remove_leftovers(self._directory)

    def _free(self, now: datetime) -> Path:
        """A name by the time that no file has."""
        stem = f"{self._name}-{now:%Y-%m-%d-%H-%M-%S}"
        names = (stem, *(f"{stem}-{number}" for number in range(1, 100)))
        return next(
            file
            for file in (self._directory / f"{name}.pem" for name in names)
            if not os.path.lexists(file)
        )
