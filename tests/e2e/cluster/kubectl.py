"""kubectl as a person uses it: the real binary, its words in and out."""

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from tests.e2e.cluster import assets
from tests.e2e.cluster.terminal import Terminal, in_terminal

Json = dict[str, Any]


class Kubectl:
    """Runs kubectl with one kubeconfig.

    Args:
        kubeconfig: as whom and where.
        home: an existing directory for its caches.
        binary: which one.
    """

    def __init__(self, kubeconfig: Path, home: Path, binary: str = "kubectl") -> None:
        self._binary = assets.binary(binary)
        self._environment = {**os.environ, "KUBECONFIG": str(kubeconfig), "HOME": str(home)}

    def __call__(self, *words: str, said: str | None = None, timeout: float = 60) -> str:
        """What it prints.

        Args:
            words: of the command line.
            said: its standard input.
            timeout: in seconds.

        Raises:
            RuntimeError: it failed; says what it said.
        """
        done = subprocess.run(
            [self._binary, *words],
            check=False,
            capture_output=True,
            text=True,
            input=said,
            env=self._environment,
            timeout=timeout,
        )
        if done.returncode:
            raise RuntimeError(f"kubectl {' '.join(words)}: {done.stderr.strip()}")
        return done.stdout

    def outcome(
        self, *words: str, said: bytes = b"", timeout: float = 60
    ) -> subprocess.CompletedProcess[bytes]:
        """What it prints, as bytes, and its exit code; ``said`` is its standard input."""
        return subprocess.run(
            [self._binary, *words],
            check=False,
            capture_output=True,
            input=said,
            env=self._environment,
            timeout=timeout,
        )

    @contextmanager
    def running(self, *words: str) -> Iterator[subprocess.Popen[bytes]]:
        """A command that goes on, with pipes; it is ended on leaving."""
        pipe = subprocess.PIPE
        process = subprocess.Popen(
            [self._binary, *words], stdin=pipe, stdout=pipe, stderr=pipe, env=self._environment
        )
        with process:
            try:
                yield process
            finally:
                process.kill()

    def in_terminal(self, *words: str) -> AbstractContextManager[Terminal]:
        """A command in a terminal."""
        return in_terminal([self._binary, *words], {**self._environment, "TERM": "dumb"})

    def json(self, *words: str) -> Json:
        """An object as JSON."""
        value = json.loads(self(*words, "-o", "json"))
        assert isinstance(value, dict)
        return value

    def row(self, *words: str) -> dict[str, str]:
        """The one row of a table that it prints, by its headings.

        Cells must not contain runs of blanks; headings are separated by at least two.
        """
        heading, *rows = self(*words).splitlines()
        assert len(rows) == 1, rows
        starts = _columns(heading)
        ends = [*starts[1:], None]
        cells = [rows[0][start:end].strip() for start, end in zip(starts, ends, strict=True)]
        names = [heading[start:end].strip() for start, end in zip(starts, ends, strict=True)]
        return dict(zip(names, cells, strict=True))

    def apply(self, manifest: str) -> str:
        """``kubectl apply`` of a manifest."""
        return self("apply", "-f", "-", said=manifest)


def _columns(heading: str) -> list[int]:
    """Where the columns of a table begin."""
    padded = f"  {heading}"
    return [
        index
        for index in range(len(heading))
        if padded[index : index + 2] == "  " and heading[index] != " "
    ]
