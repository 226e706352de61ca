"""A start that fails: exit code 1, and one last line that says what, why and what to do.

docs/architecture.md, "Start and stop".
"""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from nodeagent.agent import root_lock
from nodeagent.kube.credentials.key_pair import new_key

pytestmark = pytest.mark.realtime


def start(home: Path, *flags: str, code: int = 1, root: str = "root") -> str:
    """Run the agent to its end; the last line of what it says."""
    done = subprocess.run(
        [
            sys.executable, "-m", "nodeagent", "run",
            "--container-runtime-endpoint=embedded:simulated", f"--root-dir={home / root}",
            f"--pod-logs-dir={home / 'logs'}", "--healthz-port=0", "--port=0",
            "--hostname-override=n1", "--node-ip=127.0.0.1", *flags,
        ],
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    last = done.stderr.splitlines()[-1]
    assert last.startswith("nodeagent: ")
    return last.removeprefix("nodeagent: ")


@pytest.fixture
def taken() -> Iterator[int]:
    """A port that somebody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        yield port


def test_directories_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert start(tmp_path, root="file/root") == (
        f"cannot make the directory {tmp_path}/file/root: Not a directory; "
        "choose another with --root-dir"
    )
    assert start(tmp_path, f"--pod-logs-dir={tmp_path}/file/logs") == (
        f"cannot make the directory {tmp_path}/file/logs: Not a directory; "
        "choose another with --pod-logs-dir"
    )


def test_a_second_agent_on_the_same_directory(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    with root_lock(root):
        assert start(tmp_path) == (
            f"another nodeagent uses {root}; stop it, or choose another with --root-dir"
        )


def test_no_runtime(tmp_path: Path) -> None:
    told = start(tmp_path, f"--container-runtime-endpoint=unix://{tmp_path}/cri.sock")
    assert told.startswith(
        f"no container runtime at unix://{tmp_path}/cri.sock: there is no such socket; "
    )
    assert told.endswith("or try --container-runtime-endpoint=embedded, which needs no runtime")


def test_a_scenario_that_cannot_be_read(tmp_path: Path) -> None:
    told = start(tmp_path, f"--embedded-scenario={tmp_path}/none.yaml")
    assert f"{tmp_path}/none.yaml" in told
    assert "No such file" in told


def test_ports_that_are_taken(tmp_path: Path, taken: int) -> None:
    for flag in ("--healthz-port", "--read-only-port"):
        told = start(tmp_path, f"{flag}={taken}")
        assert str(taken) in told
        assert flag in told


def certificates(home: Path) -> Mapping[str, Path]:
    """A key, something that is no certificate, and a file that is not there."""
    key, bad = home / "some.key", home / "bad.crt"
    key.write_bytes(new_key())
    bad.write_text("no certificate\n")
    return {"key": key, "bad": bad, "none": home / "none.crt"}


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (
            lambda f: [f"--tls-cert-file={f['bad']}", f"--tls-private-key-file={f['key']}"],
            "are no certificate with its key",
        ),
        (
            lambda f: [f"--tls-cert-file={f['none']}", f"--tls-private-key-file={f['key']}"],
            "none.crt cannot be read: No such file or directory",
        ),
        (lambda f: [f"--client-ca-file={f['none']}"], "none.crt cannot be read: No such file"),
        (lambda f: [f"--client-ca-file={f['bad']}"], "has no certificate that can be read"),
    ],
)
def test_certificates_that_cannot_be_used(
    tmp_path: Path, flags: Callable[[Mapping[str, Path]], list[str]], told: str
) -> None:
    files = certificates(tmp_path)
    given = [f"--client-ca-file={files['bad']}", *flags(files)]
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    assert told in start(tmp_path, f"--port={port}", "--authorization-mode=AlwaysAllow", *given)


def test_nobody_to_ask_who_may_do_what(tmp_path: Path) -> None:
    files = certificates(tmp_path)
    told = start(tmp_path, "--port=1", f"--client-ca-file={files['bad']}")
    assert told.startswith("no client provided, cannot use webhook authorization: give --kube")


def test_reservations_that_are_more_than_there_is(tmp_path: Path) -> None:
    told = start(tmp_path, "--kube-reserved=memory=1Pi")
    assert told.startswith('invalid Node Allocatable configuration. Resource "memory"')


def test_credential_providers_that_cannot_be_read(tmp_path: Path) -> None:
    told = start(
        tmp_path,
        f"--image-credential-provider-config={tmp_path}/none.yaml",
        f"--image-credential-provider-bin-dir={tmp_path}",
    )
    assert f"{tmp_path}/none.yaml" in told


def test_settings_that_cannot_be_used_end_with_two(tmp_path: Path) -> None:
    assert start(tmp_path, "--exit-on-lock-contention", code=2) == (
        "cannot exit on lock file contention: no lock file specified (--lock-file)"
    )
    assert start(tmp_path, f"--config={tmp_path}/none", code=2) == (
        f"--config={tmp_path}/none: cannot be read: No such file or directory"
    )


def test_a_lock_file_that_cannot_be_made(tmp_path: Path) -> None:
    assert f"{tmp_path}/none/lock" in start(tmp_path, f"--lock-file={tmp_path}/none/lock")


def test_a_watchdog_that_cannot_be_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
    monkeypatch.setenv("WATCHDOG_USEC", "much")
    monkeypatch.delenv("WATCHDOG_PID", raising=False)
    assert "WATCHDOG_USEC" in start(tmp_path)
