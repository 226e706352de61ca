"""A containerd of our own: own root, state, socket and pod network, gone without a trace."""

import json
import shutil
import subprocess
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.e2e.lab import images, processes
from tests.e2e.lab.network import CNI_BINARIES, CNI_RESULTS
from tests.e2e.lab.waiting import until

_SHIM_SOCKETS: Final = Path("/run/containerd/s")

_CONFIG = """\
version = 2
root = {root}
state = {state}
disabled_plugins = [
  "io.containerd.snapshotter.v1.aufs",
  "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.zfs",
  "io.containerd.tracing.processor.v1.otlp",
]

[grpc]
  address = {address}

[plugins."io.containerd.internal.v1.opt"]
  path = {opt}

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = {pause}
  # Root in a container or a small VM often lacks CAP_SYS_RESOURCE.
  restrict_oom_score_adj = true
  # Namespace mounts below our own state directory, so that a clean-up can find them all.
  netns_mounts_under_state_dir = true

[plugins."io.containerd.grpc.v1.cri".cni]
  bin_dir = {cni_bin}
  conf_dir = {cni_conf}

[plugins."io.containerd.grpc.v1.cri".containerd]
  snapshotter = {snapshotter}

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
  Root = {runc_root}
"""


@dataclass(frozen=True, slots=True)
class Paths:
    """Where one laboratory keeps its things."""

    base: Path

    @property
    def root(self) -> Path:
        """Images, snapshots and metadata."""
        return self.base / "root"

    @property
    def state(self) -> Path:
        """Mounts, fifos and namespaces of running containers."""
        return self.base / "state"

    @property
    def socket(self) -> Path:
        """The socket that serves CRI (and containerd's own API)."""
        return self.base / "containerd.sock"

    @property
    def config(self) -> Path:
        """Containerd's configuration file."""
        return self.base / "config.toml"

    @property
    def log(self) -> Path:
        """Everything containerd said."""
        return self.base / "containerd.log"

    @property
    def bundles(self) -> Path:
        """One directory per running sandbox or container, named by its id."""
        return self.state / "io.containerd.runtime.v2.task" / "k8s.io"

    @property
    def cni_conf(self) -> Path:
        """The CNI configuration directory."""
        return self.base / "cni"

    @property
    def ipam(self) -> Path:
        """The addresses given to pods."""
        return self.base / "ipam"


class Containerd:
    """One containerd process; it can be stopped and started again over the same state."""

    def __init__(self, base: Path) -> None:
        self.paths = Paths(base)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def endpoint(self) -> str:
        """What goes into ``--container-runtime-endpoint``."""
        return f"unix://{self.paths.socket}"

    def write_config(self) -> None:
        """Write the configuration file and make the directories it names."""
        paths = self.paths
        paths.cni_conf.mkdir(exist_ok=True)
        values = {
            "root": paths.root,
            "state": paths.state,
            "address": paths.socket,
            "opt": paths.base / "opt",
            "pause": images.PAUSE,
            "cni_bin": CNI_BINARIES,
            "cni_conf": paths.cni_conf,
            "snapshotter": _snapshotter(paths.base),
            "runc_root": paths.base / "runc",
        }
        # A JSON string is a valid TOML basic string.
        quoted = {key: json.dumps(str(value)) for key, value in values.items()}
        paths.config.write_text(_CONFIG.format_map(quoted))

    def start(self) -> None:
        """Start the process and return as soon as it answers; its CRI service included."""
        with self.paths.log.open("ab") as log:
            self._process = subprocess.Popen(
                ["containerd", "-c", str(self.paths.config)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        until("an answer from containerd", self._answers, timeout=30)

    def ctr(self, *arguments: str) -> str:
        """Run containerd's own client in the namespace that CRI uses; returns its output."""
        command = ["ctr", "-a", str(self.paths.socket), "-n", "k8s.io", *arguments]
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
        return done.stdout

    def import_images(self, made: Iterable[images.Image]) -> None:
        """Create images by name from their bytes."""
        archive = self.paths.base / "images.tar"
        images.write_oci_archive(made, archive)
        self.ctr("images", "import", "--snapshotter", _snapshotter(self.paths.base), str(archive))
        archive.unlink()

    def stop(self) -> None:
        """End the process (SIGTERM, then SIGKILL); containers go on running."""
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        try:
            process.wait(timeout=15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(timeout=15)

    def kill_tasks(self) -> None:
        """Kill and delete what CRI cannot remove.

        A caller that dies in the middle of a start makes this containerd forget, now and then,
        that a task exists: CRI calls the container dead and refuses to remove what still runs.
        """
        for task in self.ctr("tasks", "ls", "-q").split():
            with suppress(RuntimeError):  # one that ends by itself meanwhile
                self.ctr("tasks", "delete", "--force", task)

    def sweep(self) -> None:
        """End what is left of a containerd that is stopped or was abandoned, and delete it all."""
        named = processes.that_name(self.paths.base)  # containerd, shims, agents, clients
        processes.end_all(processes.with_descendants(named))
        _remove_dead_shim_sockets()
        for bundle in self.paths.bundles.glob("*/"):
            for result in CNI_RESULTS.glob(f"cni-loopback-{bundle.name}-*"):
                result.unlink()
        unmount_below(self.paths.base)
        shutil.rmtree(self.paths.base)

    def pid(self) -> int:
        """The id of the running process."""
        assert self._process is not None, "containerd is not running"
        return self._process.pid

    def _answers(self) -> bool:
        assert self._process is not None
        if (code := self._process.poll()) is not None:
            tail = self.paths.log.read_text(errors="replace")[-2000:]
            raise RuntimeError(f"containerd ended with code {code}:\n{tail}")
        if not self.paths.socket.exists():
            return False
        try:
            rows = [line.split() for line in self.ctr("plugins", "ls").splitlines()]
        except RuntimeError:
            return False
        return any(row[:2] == ["io.containerd.grpc.v1", "cri"] and row[-1] == "ok" for row in rows)


def unmount_below(base: Path) -> None:
    """Unmount everything that is mounted below a directory, innermost first."""
    table = Path("/proc/self/mountinfo").read_text().splitlines()
    points = [line.split()[4].encode().decode("unicode_escape") for line in table]
    for point in sorted(points, reverse=True):
        if Path(point).is_relative_to(base):
            subprocess.run(["umount", "--lazy", point], check=False, timeout=30)


def _snapshotter(base: Path) -> str:
    """``overlayfs`` where this file system can carry an overlay, else ``native`` (copies)."""
    lower, upper, work, merged = (base / "probe" / n for n in ("lower", "upper", "work", "merged"))
    for directory in (lower, upper, work, merged):
        directory.mkdir(parents=True, exist_ok=True)
    options = f"lowerdir={lower},upperdir={upper},workdir={work}"
    mounted = subprocess.run(
        ["mount", "-t", "overlay", "overlay", "-o", options, str(merged)],
        check=False,
        capture_output=True,
        timeout=30,
    )
    if mounted.returncode == 0:
        subprocess.run(["umount", str(merged)], check=True, timeout=30)
    shutil.rmtree(base / "probe")
    return "native" if mounted.returncode else "overlayfs"


def _remove_dead_shim_sockets() -> None:
    """Delete the sockets that killed shims leave in containerd's one directory for them."""
    listening = Path("/proc/net/unix").read_text()
    for socket in _SHIM_SOCKETS.glob("*"):
        if str(socket) not in listening:
            socket.unlink(missing_ok=True)
