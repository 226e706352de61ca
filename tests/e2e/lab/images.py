"""Container images made on the spot from files of this machine, without any registry.

An image is an OCI config and its layers. The same bytes are imported into containerd (as
one OCI layout archive) and served by the loopback registry.
"""

import hashlib
import io
import json
import platform
import shutil
import subprocess
import tarfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

PAUSE: Final = "localhost/pause:1"
BUSYBOX: Final = "localhost/busybox:1"
BUSYBOX_2: Final = "localhost/busybox:2"
WITH_USER: Final = "localhost/with-user:1"
WITH_NAMED_USER: Final = "localhost/with-named-user:1"
WITH_STOP_SIGNAL: Final = "localhost/with-stop-signal:1"
WITH_ENTRYPOINT: Final = "localhost/with-entrypoint:1"
WITH_ENV: Final = "localhost/with-env:1"
#: ``grpc-health PORT FILE`` serves gRPC health: NOT_SERVING while the file exists.
WITH_GRPC_HEALTH: Final = "localhost/with-grpc-health:1"
WITH_WORKDIR: Final = "localhost/with-workdir:1"
#: Nothing listens on port 1, so a pull is refused at once.
UNREACHABLE: Final = "127.0.0.1:1/nothing/here:1"

MANIFEST_TYPE: Final = "application/vnd.oci.image.manifest.v1+json"
CONFIG_TYPE: Final = "application/vnd.oci.image.config.v1+json"
LAYER_TYPE: Final = "application/vnd.oci.image.layer.v1.tar"

_PAUSE_SOURCE = """\
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>
static void leave(int s) { (void)s; _exit(0); }
static void reap(int s) { (void)s; while (waitpid(-1, 0, WNOHANG) > 0) {} }
int main(void) {
  signal(SIGINT, leave);
  signal(SIGTERM, leave);
  signal(SIGCHLD, reap);
  for (;;) pause();
}
"""

_PATH = "PATH=/bin"
_PASSWD = "root:x:0:0:root:/root:/bin/sh\nuser:x:1000:1000:user:/home/user:/bin/sh\n"
_GROUP = "root:x:0:\nuser:x:1000:\n"


@dataclass(frozen=True, slots=True)
class Image:
    """One image: its reference, layers, and all blobs by digest (layers included)."""

    name: str
    manifest_digest: str
    layers: Sequence[bytes] = field(repr=False)
    blobs: Mapping[str, bytes] = field(repr=False)

    @property
    def manifest(self) -> bytes:
        """The bytes of the OCI manifest."""
        return self.blobs[self.manifest_digest]


class LayerBuilder:
    """A layer's tar, written entry by entry; equal input gives equal bytes."""

    def __init__(self) -> None:
        self._buffer = io.BytesIO()
        self._tar = tarfile.open(fileobj=self._buffer, mode="w")  # noqa: SIM115 - closed in done()

    def _add(self, name: str, kind: bytes, mode: int, data: bytes = b"", target: str = "") -> None:
        entry = tarfile.TarInfo(name)
        entry.type, entry.mode, entry.size, entry.linkname = kind, mode, len(data), target
        self._tar.addfile(entry, io.BytesIO(data))

    def directory(self, name: str, mode: int = 0o755) -> None:
        """Add a directory."""
        self._add(name, tarfile.DIRTYPE, mode)

    def file(self, name: str, data: bytes, mode: int = 0o644) -> None:
        """Add a regular file."""
        self._add(name, tarfile.REGTYPE, mode, data)

    def link(self, name: str, target: str) -> None:
        """Add a symbolic link."""
        self._add(name, tarfile.SYMTYPE, 0o777, target=target)

    def done(self) -> bytes:
        """Close the layer and return its bytes."""
        self._tar.close()
        return self._buffer.getvalue()


def digest_of(data: bytes) -> str:
    """The content address of some bytes."""
    return "sha256:" + hashlib.sha256(data).hexdigest()


def make_image(name: str, layers: Sequence[bytes], config: Mapping[str, object]) -> Image:
    """Put an image together from layers and the ``config`` object of its OCI config."""
    config_blob = _json(
        {
            "architecture": _architecture(),
            "os": "linux",
            "config": {"Env": [_PATH], **config},
            "rootfs": {"type": "layers", "diff_ids": [digest_of(layer) for layer in layers]},
        }
    )
    manifest = _json(
        {
            "schemaVersion": 2,
            "mediaType": MANIFEST_TYPE,
            "config": _descriptor(CONFIG_TYPE, config_blob),
            "layers": [_descriptor(LAYER_TYPE, layer) for layer in layers],
        }
    )
    blobs = {digest_of(blob): blob for blob in (config_blob, manifest, *layers)}
    return Image(name, digest_of(manifest), layers, blobs)


def build_all(workdir: Path) -> list[Image]:
    """Build every image the tests use; takes well under a second.

    Args:
        workdir: an existing directory for the compiler's files.
    """
    base = _busybox_layer()
    return [
        make_image(PAUSE, [_pause_layer(workdir)], {"Entrypoint": ["/pause"]}),
        make_image(BUSYBOX, [base, _version_layer("1")], {"Cmd": ["sh"]}),
        make_image(BUSYBOX_2, [base, _version_layer("2")], {"Cmd": ["sh"]}),
        make_image(WITH_USER, [base], {"Cmd": ["sh"], "User": "1000:1000"}),
        make_image(WITH_NAMED_USER, [base], {"Cmd": ["sh"], "User": "user"}),
        make_image(WITH_STOP_SIGNAL, [base], {"Cmd": ["sh"], "StopSignal": "SIGUSR1"}),
        make_image(
            WITH_ENTRYPOINT, [base], {"Entrypoint": ["echo", "entrypoint"], "Cmd": ["of-image"]}
        ),
        make_image(WITH_ENV, [base], {"Cmd": ["sh"], "Env": [_PATH, "COLOR=green", "SIZE=small"]}),
        make_image(WITH_GRPC_HEALTH, [base, _grpc_health_layer(workdir)], {"Cmd": ["sh"]}),
        make_image(WITH_WORKDIR, [base], {"Cmd": ["sh"], "WorkingDir": "/srv/work"}),
    ]


def write_oci_archive(images: Iterable[Image], target: Path) -> None:
    """Write an OCI layout archive with which ``ctr images import`` creates all images by name."""
    index = []
    blobs: dict[str, bytes] = {}
    for image in images:
        blobs.update(image.blobs)
        entry = _descriptor(MANIFEST_TYPE, image.manifest)
        index.append({**entry, "annotations": {"io.containerd.image.name": image.name}})
    layout = LayerBuilder()
    layout.file("oci-layout", _json({"imageLayoutVersion": "1.0.0"}))
    layout.file("index.json", _json({"schemaVersion": 2, "manifests": index}))
    for digest, blob in blobs.items():
        layout.file("blobs/" + digest.replace(":", "/"), blob)
    target.write_bytes(layout.done())


def _pause_layer(workdir: Path) -> bytes:
    source = workdir / "pause.c"
    source.write_text(_PAUSE_SOURCE)
    return _compiled_layer(source, workdir / "pause", "pause")


def _grpc_health_layer(workdir: Path) -> bytes:
    source = Path(__file__).with_name("grpc_health.c")
    return _compiled_layer(source, workdir / "grpc-health", "bin/grpc-health")


def _compiled_layer(source: Path, binary: Path, path: str) -> bytes:
    command = ["gcc", "-static", "-Os", "-s", "-o", str(binary), str(source)]
    subprocess.run(command, check=True, timeout=60)
    layer = LayerBuilder()
    layer.file(path, binary.read_bytes(), 0o755)
    return layer.done()


def _busybox_layer() -> bytes:
    binary = shutil.which("busybox")
    if binary is None:
        raise FileNotFoundError("busybox: not installed (Debian package busybox-static)")
    applets = subprocess.run(
        [binary, "--list"], check=True, capture_output=True, text=True, timeout=10
    ).stdout.split()
    layer = LayerBuilder()
    for name in ("bin", "etc", "root", "home/user", "proc", "sys", "dev", "srv/work"):
        layer.directory(name)
    layer.directory("tmp", 0o1777)
    layer.file("bin/busybox", Path(binary).read_bytes(), 0o755)
    for applet in applets:
        if applet != "busybox":
            layer.link(f"bin/{applet}", "busybox")
    layer.file("etc/passwd", _PASSWD.encode())
    layer.file("etc/group", _GROUP.encode())
    return layer.done()


def _version_layer(version: str) -> bytes:
    layer = LayerBuilder()
    layer.file("etc/image-version", f"{version}\n".encode())
    return layer.done()


def _descriptor(media_type: str, blob: bytes) -> dict[str, object]:
    return {"mediaType": media_type, "digest": digest_of(blob), "size": len(blob)}


def _architecture() -> str:
    machine = platform.machine()
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(machine, machine)


def _json(value: object) -> bytes:
    return json.dumps(value, sort_keys=True).encode()
