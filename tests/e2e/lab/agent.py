"""nodeagent as its users run it: a subprocess with flags, watched over HTTP."""

import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from tests.e2e.lab.containerd import unmount_below
from tests.e2e.lab.ports import free_port
from tests.e2e.lab.processes import end_all, that_complain_below, with_descendants
from tests.e2e.lab.views import PodView, pod_view
from tests.e2e.lab.waiting import stays, until

T = TypeVar("T")

NODE_NAME = "node1"


def full_name(name: str) -> str:
    """The name under which a static pod of this node is known."""
    return f"{name}-{NODE_NAME}"


class Agent:
    """One agent over one manifest directory; it can die and come back over the same state."""

    def __init__(self, base: Path, endpoint: str, *flags: str) -> None:
        self.manifests = base / "manifests"
        self.root_dir = base / "kubelet"
        self.logs_dir = base / "pod-logs"
        self.log = base / "agent.log"
        self._endpoint = endpoint
        self._flags = flags
        self._healthz_port = free_port()
        self._read_only_port = free_port()
        self.read_only_host = "127.0.0.1"
        self._process: subprocess.Popen[bytes] | None = None
        #: Further variables of its environment.
        self.environment: dict[str, str] = {}
        self.manifests.mkdir(exist_ok=True)

    # --- the process ----------------------------------------------------------------------

    def start(self, *flags: str) -> None:
        """Start the process and return when it serves its pods; further flags come last."""
        command = [
            *(sys.executable, "-m", "nodeagent", "run"),
            f"--pod-manifest-path={self.manifests}",
            f"--container-runtime-endpoint={self._endpoint}",
            f"--root-dir={self.root_dir}",
            f"--pod-logs-dir={self.logs_dir}",
            f"--healthz-port={self._healthz_port}",
            f"--read-only-port={self._read_only_port}",
            f"--hostname-override={NODE_NAME}",
            *self._flags,
            *flags,
        ]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={**os.environ, **self.environment},
            )
        self._until("an answer from the agent", self._serves)

    def _serves(self) -> bool:
        assert self._process is not None
        if (code := self._process.poll()) is not None:
            raise RuntimeError(f"the agent ended with code {code}:\n{self.log_tail()}")
        try:
            self.pods()
        except (OSError, ValueError):
            return False
        return True

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """Of the process that runs."""
        assert self._process is not None
        return self._process.pid

    def kill9(self) -> None:
        """End the process as the OOM killer or a power cut would."""
        assert self._process is not None
        self._process.kill()
        self._process.wait(timeout=10)

    def terminate(self, timeout: float = 30) -> int:
        """Ask the process to stop (SIGTERM); returns its exit code."""
        assert self._process is not None
        self._process.terminate()
        return self._process.wait(timeout=timeout)

    def restart(self) -> None:
        """Kill the process and start it again."""
        self.kill9()
        self.start()

    def close(self) -> None:
        """End the process if it still runs, and what must not outlive the test's directory.

        That is what is mounted, and what the embedded runtime runs: containers outlive an agent.
        Pods of another runtime are left as they are.
        """
        if self.alive:
            self.kill9()
        end_all(with_descendants(that_complain_below(self.root_dir)))
        unmount_below(self.root_dir)

    # --- what it is told ------------------------------------------------------------------

    def put(self, name: str, text: str) -> None:
        """Create or replace a manifest the way editors do: complete, by rename."""
        draft = self.manifests / f".{name}.draft"
        draft.write_text(text)
        draft.rename(self.manifests / f"{name}.yaml")

    def remove(self, name: str) -> None:
        """Delete a manifest."""
        (self.manifests / f"{name}.yaml").unlink()

    def full_name(self, name: str) -> str:
        """The name under which the pod of a manifest is known."""
        return full_name(name)

    # --- what it says ---------------------------------------------------------------------

    def pods(self) -> list[PodView]:
        """All pods of the read-only port; raises OSError while nothing listens there."""
        host = self.read_only_host
        items = json.loads(self._get(self._read_only_port, "/pods", host)).get("items") or []
        return [pod_view(item) for item in items]

    def pod(self, name: str) -> PodView | None:
        """The pod of a manifest, by the name in the manifest."""
        wanted = self.full_name(name)
        return next((pod for pod in self.pods() if pod.name == wanted), None)

    def wait_pod(
        self,
        name: str,
        predicate: Callable[[PodView], bool] = lambda pod: pod.running,
        *,
        what: str = "running",
        timeout: float = 60,
    ) -> PodView:
        """Wait until a pod is as wanted (by default: running and ready) and return it."""

        def look() -> PodView | None:
            pod = self.pod(name)
            return pod if pod is not None and predicate(pod) else None

        return self._until(f"pod {name}: {what}", look, timeout=timeout)

    def wait_gone(self, name: str, *, timeout: float = 60) -> None:
        """Wait until the agent no longer lists a pod."""
        self._until(f"pod {name}: gone", lambda: self.pod(name) is None, timeout=timeout)

    def pod_stays(self, name: str, as_it_is: PodView, *, seconds: float = 5) -> None:
        """Check for a while that a pod keeps its UID, container ids and restart counts."""

        def same() -> bool:
            pod = self.pod(name)
            return pod is not None and _identity(pod) == _identity(as_it_is)

        stays(f"pod {name} is {_identity(as_it_is)}", same, seconds=seconds)

    def healthz(self, path: str = "/healthz") -> tuple[int, str]:
        """Status code and body of a path on the healthz port."""
        try:
            return 200, self._get(self._healthz_port, path)
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def ask(self, path: str) -> str:
        """What its healthz port answers."""
        return self._get(self._healthz_port, path)

    def wait_journal(self, name: str, *words: str, timeout: float = 60) -> str:
        """Wait until the journal has a record of this pod with all these words; returns it.

        The journal also knows the states that a pod passes through too quickly for `wait_pod`.
        """
        shown = f'"default/{self.full_name(name)}"'

        def look() -> str | None:
            lines = self._get(self._healthz_port, "/debug/journal").splitlines()
            about = (line for line in lines if shown in line)
            return next((line for line in about if all(word in line for word in words)), None)

        return self._until(f"pod {name}: a journal record with {words}", look, timeout=timeout)

    def wait_log(self, *words: str, timeout: float = 60) -> str:
        """Wait until one line of the agent's log holds all these words; returns the line."""

        def look() -> str | None:
            lines = self.log.read_text(errors="replace").splitlines()
            return next((line for line in lines if all(word in line for word in words)), None)

        return self._until(f"a log line with {words}", look, timeout=timeout)

    def log_tail(self, chars: int = 6000) -> str:
        """The end of everything that the process printed."""
        return self.log.read_text(errors="replace")[-chars:]

    def container_log(self, pod: PodView, container: str = "main", attempt: int = 0) -> Path:
        """Where the log of one run of a container is kept."""
        directory = self.logs_dir / f"default_{pod.name}_{pod.uid}" / container
        return directory / f"{attempt}.log"

    def _get(self, port: int, path: str, host: str = "127.0.0.1") -> str:
        with urllib.request.urlopen(f"http://{host}:{port}{path}", timeout=10) as answer:
            return bytes(answer.read()).decode()

    def _until(self, what: str, look: Callable[[], T | None], *, timeout: float = 60) -> T:
        try:
            return until(what, look, timeout=timeout)
        except TimeoutError as error:
            error.add_note(f"pods: {self._pods_for_people()}")
            error.add_note(f"agent log:\n{self.log_tail()}")
            raise

    def _pods_for_people(self) -> str:
        try:
            return "\n".join(f"{pod} {pod.why}" for pod in self.pods())
        except (OSError, ValueError) as error:
            return f"(no answer: {error})"


def _identity(pod: PodView) -> tuple[str, list[tuple[str, str, int]]]:
    views = sorted(pod.containers.items())
    return pod.uid, [(name, view.id, view.restarts) for name, view in views]
