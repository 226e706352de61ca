"""etcd and kube-apiserver as processes on loopback; each can be stopped and started again."""

import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.e2e.cluster import assets
from tests.e2e.lab.waiting import until


class Server:
    """One process with its log; it is what its command line says.

    Args:
        name: of the binary, and of the log.
        base: an existing directory that the command line mentions, so that what a killed test
            leaves can be found.
        arguments: of the command line.
        answers: whether it serves.
    """

    def __init__(
        self, name: str, base: Path, arguments: Sequence[str], answers: Callable[[], bool]
    ) -> None:
        self._command = [assets.binary(name), *arguments]
        self._name = name
        self._answers = answers
        self.log = base / f"{name}.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *, timeout: float = 60) -> None:
        """Start the process and return as soon as it serves."""
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        until(f"an answer from {self._name}", self._serves, timeout=timeout)

    def _serves(self) -> bool:
        assert self._process is not None
        if (code := self._process.poll()) is not None:
            raise RuntimeError(f"{self._name} ended with code {code}:\n{self.log_tail()}")
        return self._answers()

    def stop(self, *, timeout: float = 30) -> None:
        """End the process (SIGTERM, then SIGKILL); no more than that if it does not run."""
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        try:
            process.wait(timeout=timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(timeout=10)

    def kill(self) -> None:
        """End the process as a power cut would; connections break at once."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait(timeout=10)

    def log_tail(self, chars: int = 4000) -> str:
        """The end of everything that the process printed."""
        return self.log.read_text(errors="replace")[-chars:]
