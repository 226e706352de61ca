"""Build the wheel, install it in a clean environment, and run a pod with it.

What is checked is what a user gets: nothing of the source tree is on the path.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
import venv
import zipfile
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DEADLINE_SECONDS = 60
MANIFEST = """\
apiVersion: v1
kind: Pod
metadata: {name: wheel}
spec:
  terminationGracePeriodSeconds: 1
  containers:
    - {name: main, image: busybox, command: ["/bin/sh", "-c", "exec sleep 600"]}
"""


def main() -> int:
    """Do it all; the exit code."""
    with tempfile.TemporaryDirectory(prefix="nodeagent-wheel-") as name:
        work = Path(name)
        wheel = build(work)
        check_content(wheel)
        python = install(wheel, work)
        check_version(python, wheel)
        check_cluster_libraries(python, work)
        run_pod(python, work)
    sys.stdout.write(f"{wheel.name}: built, installed in a clean environment, ran a pod\n")
    return 0


def build(work: Path) -> Path:
    """The wheel, built from the tree."""
    run(sys.executable, "-m", "build", "--wheel", "--outdir", str(work), str(ROOT))
    (wheel,) = work.glob("*.whl")
    return wheel


def check_content(wheel: Path) -> None:
    """Types and generated stubs ship; tests do not."""
    names = zipfile.ZipFile(wheel).namelist()
    assert "nodeagent/py.typed" in names, "py.typed is missing: users get no types"
    assert any(n.startswith("nodeagent/proto/") for n in names), "generated stubs are missing"
    assert not any(n.startswith("tests/") for n in names), "tests do not belong into the wheel"


def install(wheel: Path, work: Path) -> Path:
    """The interpreter of a new environment with nothing but the wheel and what it needs."""
    environment = work / "env"
    venv.create(environment, with_pip=True)
    python = environment / "bin" / "python"
    run(str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", str(wheel))
    return python


def check_version(python: Path, wheel: Path) -> None:
    """Both ways to call it say the version that the wheel's name says."""
    version = wheel.name.split("-")[1]
    for command in ([str(python), "-m", "nodeagent"], [str(python.parent / "nodeagent")]):
        said = run(*command, "--version").strip()
        assert said == f"nodeagent {version}", f"{command}: {said!r}"


def check_cluster_libraries(python: Path, work: Path) -> None:
    """What a connection to a cluster needs comes with the wheel and loads."""
    program = (
        "from nodeagent.kube.library import library; library()\n"
        "from nodeagent.kube.credentials.key_pair import new_key, signing_request\n"
        "print(signing_request(new_key(), 'n1').name)\n"
    )
    script = work / "libraries.py"
    script.write_text(program)
    assert run(str(python), str(script)).startswith("node-csr-")


def run_pod(python: Path, work: Path) -> None:
    """The agent runs a pod on the embedded runtime and stops it when it ends."""
    manifests = work / "manifests"
    manifests.mkdir()
    (manifests / "pod.yaml").write_text(MANIFEST)
    health, pods = free_port(), free_port()
    agent = subprocess.Popen(
        [
            str(python), "-m", "nodeagent", "run", "--container-runtime-endpoint=embedded",
            f"--pod-manifest-path={manifests}", f"--root-dir={work / 'root'}",
            f"--pod-logs-dir={work / 'logs'}", f"--healthz-port={health}",
            f"--read-only-port={pods}", "--hostname-override=wheel-node", "--stop-pods-on-exit",
        ],
        cwd=work,
        env={k: v for k, v in os.environ.items() if not k.startswith("PYTHON")},
    )  # fmt: skip
    try:
        wait_for(lambda: phase(pods) == "Running", "the pod to run", agent)
        wait_for(lambda: fetch(health, "/healthz") == "ok", "healthz to be ok", agent)
        agent.send_signal(signal.SIGTERM)
        code = agent.wait(DEADLINE_SECONDS)
        assert code == 0, f"the agent ended with {code}"
    finally:
        if agent.poll() is None:
            agent.kill()
            agent.wait()


def phase(port: int) -> str:
    """Phase of the one pod."""
    items = json.loads(fetch(port, "/pods") or '{"items": []}')["items"]
    return items[0]["status"].get("phase", "") if items else ""


def fetch(port: int, path: str) -> str:
    """A page of the agent, "" while it does not answer well."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
            text: str = answer.read().decode()
            return text
    except (urllib.error.URLError, OSError):
        return ""


def wait_for(condition: Callable[[], bool], what: str, agent: subprocess.Popen[bytes]) -> None:
    """Wait for something to become true, with a deadline."""
    end = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        assert agent.poll() is None, f"the agent ended while waiting for {what}"
        assert time.monotonic() < end, f"waited {DEADLINE_SECONDS} s for {what}"
        time.sleep(0.1)


def free_port() -> int:
    """A port that nobody uses at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def run(*command: str) -> str:
    """Run a command and give its output; its errors are shown."""
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
