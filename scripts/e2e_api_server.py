"""Provide etcd, kube-apiserver and a kubectl of its age for the end-to-end tests (stdlib only).

All come from Debian: etcd and kubectl as the packages' binaries, kube-apiserver built from the
source package with Debian's Go. Nothing is installed and no file of the machine's is changed:
packages are unpacked below a temporary directory, apt gets lists of its own there, and only the
binaries stay, in the user's cache directory.
"""

from __future__ import annotations

import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.e2e.cluster import assets  # noqa: E402

#: The release whose source package has an API server, and what it is built with.
RELEASE = "bookworm"
GO = "1.19"
SERVER_VERSION = "v1.20.2"
COMPILER = (f"golang-{GO}-go", f"golang-{GO}-src")
PACKAGED = {
    "etcd": ("etcd-server", "usr/bin/etcd"),
    assets.OLD_KUBECTL: ("kubernetes-client", "usr/bin/kubectl"),
}
SERVER = "kube-apiserver"
#: Groups that carry an OpenAPI marker but that no server of ours serves.
UNSERVED = ("/config/", "audit", "code-generator", "example", "metrics", "sample", "testapi")
#: A build directory of this age is nobody's any more.
ABANDONED_S = 6 * 3600
COMPONENT = "k8s.io/kubernetes/vendor/k8s.io/component-base/version"


def main() -> int:
    """Provide what is missing; returns the exit code."""
    names = assets.missing()
    if not names:
        return 0
    reason = provide(names)
    if reason is None:
        return 0
    print(f"e2e: {', '.join(names)} could not be provided: {reason}", file=sys.stderr)
    print(
        "e2e: set KUBEBUILDER_ASSETS to a directory with etcd and kube-apiserver of any version",
        file=sys.stderr,
    )
    return 1


def provide(names: list[str]) -> str | None:
    """Fetch and build binaries into the cache; returns why that failed."""
    cache = assets.cache()
    if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
        return "they are made from Debian's packages, and there is no apt-get"
    cache.mkdir(parents=True, exist_ok=True)
    for left in cache.parent.glob("build-*"):  # by a build that was killed
        if time.time() - left.stat().st_mtime > ABANDONED_S:
            shutil.rmtree(left, ignore_errors=True)
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="build-", dir=cache.parent) as directory:
        work = Workshop(Path(directory))
        try:
            work.fetch(names)
            for name, (_, path) in PACKAGED.items():
                if name in names:
                    keep(work.root / path, cache / name)
            if SERVER in names:
                keep(work.build_server(), cache / SERVER)
        except subprocess.CalledProcessError as error:
            said = (error.stderr or b"").decode(errors="replace").strip()[-2000:]
            return f"{' '.join(map(str, error.cmd[:3]))} ... ended with {error.returncode}: {said}"
        except OSError as error:
            return str(error)
    print(f"e2e: {' and '.join(names)} are in {cache} ({time.monotonic() - begin:.0f} s)")
    return None


def keep(made: Path, target: Path) -> None:
    """Put a binary into the cache in one step: it is there complete, or not at all."""
    draft = target.with_name(f".{target.name}.{os.getpid()}")
    shutil.copy2(made, draft)
    draft.rename(target)


def say(text: str) -> None:
    """Tell what is going on."""
    print("e2e:", text, flush=True)


class Workshop:
    """A directory with everything that a build needs."""

    def __init__(self, base: Path) -> None:
        self._base = base
        self._sources = base / "sources"
        self._apt = base / "apt"
        self.root = base / "root"
        self._tree = base / "go/src/k8s.io/kubernetes"

    # --- apt, with lists of its own -------------------------------------------------------

    def fetch(self, names: list[str]) -> None:
        """Download the packages and sources that some binaries come from, and unpack them."""
        packages = [package for name, (package, _) in PACKAGED.items() if name in names]
        if SERVER in names:
            say(f"fetching Go {GO} and the sources of Kubernetes {SERVER_VERSION} with apt")
            packages += COMPILER
        for directory in ("lists/partial", "archives/partial", "parts"):
            (self._apt / directory).mkdir(parents=True)
        for directory in (self._sources, self.root, self._tree):
            directory.mkdir(parents=True)
        for name, text in own_sources():
            (self._apt / "parts" / name).write_text(text)
        # Of several sources, any one may have no index of sources: what counts is the download.
        self._apt_get("update", check=False)
        say(f"fetching {', '.join(packages)} with apt")
        self._apt_get("download", *packages)
        if SERVER in names:
            self._apt_get("source", "--download-only", "kubernetes")
        for package in self._sources.glob("*.deb"):
            run("dpkg", "-x", package, self.root)
        if SERVER not in names:
            return
        (archive,) = self._sources.glob("kubernetes_*.orig.tar.*")
        run("tar", "-xf", archive, "-C", self._tree, "--strip-components=1")

    def _apt_get(self, *words: str, check: bool = True) -> None:
        options = {
            "Dir::Etc::sourcelist": "/dev/null",
            "Dir::Etc::sourceparts": self._apt / "parts",
            "Dir::State::lists": self._apt / "lists",
            "Dir::Cache": self._apt,
            "Dir::Cache::archives": self._apt / "archives",
            # The download directory belongs to the user, not to apt's own one.
            "APT::Sandbox::User": "root",
        }
        flags = [word for key, value in options.items() for word in ("-o", f"{key}={value}")]
        run("apt-get", "-qq", *flags, *words, cwd=self._sources, check=check)

    # --- Go -------------------------------------------------------------------------------

    def build_server(self) -> Path:
        """Generate what the sources lack, and build the API server; returns the binary."""
        say(f"building kube-apiserver {SERVER_VERSION} (once, for some minutes)")
        generator, server = self._base / "openapi-gen", self._base / "kube-apiserver"
        self._go_build(generator, "k8s.io/kubernetes/vendor/k8s.io/kube-openapi/cmd/openapi-gen")
        run(
            generator,
            *("-i", ",".join(sorted(set(self._documented())))),
            *("-p", "k8s.io/kubernetes/pkg/generated/openapi", "-O", "zz_generated.openapi"),
            *("-h", self._tree / "vendor/k8s.io/code-generator/hack/boilerplate.go.txt"),
            *("-r", self._base / "violations"),
            cwd=self._tree,
            env=self._environment(),
        )
        self._go_build(server, "k8s.io/kubernetes/cmd/kube-apiserver")
        return server

    def _documented(self) -> Iterator[str]:
        """The Go packages whose types the server describes to its clients."""
        staging = self._tree / "staging/src"
        for file in staging.glob("k8s.io/**/*.go"):
            where = file.parent.relative_to(staging).as_posix()
            if any(part in f"/{where}/" for part in UNSERVED):
                continue
            if "+k8s:openapi-gen=true" in file.read_text(encoding="utf-8"):
                yield f"k8s.io/kubernetes/vendor/{where}"

    def _go_build(self, target: Path, package: str) -> None:
        major, minor, _ = SERVER_VERSION.removeprefix("v").split(".")
        version = {"gitVersion": SERVER_VERSION, "gitMajor": major, "gitMinor": minor}
        stamps = [f"-X {COMPONENT}.{key}={value}" for key, value in version.items()]
        run(
            # Go's own packages are there compiled, as long as no flag is meant for them, too.
            *("go", "build", "-tags", "providerless", "-gcflags=k8s.io/...=-dwarf=false"),
            *("-ldflags", " ".join(["-s", "-w", *stamps])),
            *("-o", target, package),
            cwd=self._tree,
            env=self._environment(),
        )

    def _environment(self) -> dict[str, str]:
        go = self.root / f"usr/lib/go-{GO}/bin"
        return {
            **{name: os.environ[name] for name in ("HOME", "TMPDIR") if name in os.environ},
            "PATH": os.pathsep.join([str(go), os.environ.get("PATH", os.defpath)]),
            "GOPATH": str(self._base / "go"),
            "GOCACHE": str(self._base / "go-cache"),
            "GO111MODULE": "off",
            "CGO_ENABLED": "0",
            "GOGC": "400",  # the compiler collects less: memory for time
        }


def own_sources(etc: Path = Path("/etc/apt")) -> Iterator[tuple[str, str]]:
    """The machine's lists of package sources, for sources too, and for the wanted release."""
    present = platform.freedesktop_os_release().get("VERSION_CODENAME") or RELEASE
    for file in [etc / "sources.list", *sorted((etc / "sources.list.d").glob("*"))]:
        if not file.is_file() or file.suffix not in (".list", ".sources"):
            continue
        out: list[str] = []
        for line in file.read_text().replace(present, RELEASE).splitlines():
            if file.suffix == ".list" and line.startswith("deb "):
                out += [line, f"deb-src {line.removeprefix('deb ')}"]
            elif line.startswith("Types:"):
                out.append("Types: deb deb-src")
            elif not line.startswith("deb-src "):
                out.append(line)
        yield file.name, "\n".join([*out, ""])


def run(
    *command: str | Path,
    cwd: Path | None = None,
    env: dict[str, str] | None = None,
    check: bool = True,
) -> None:
    """Run a command quietly; raises CalledProcessError with what it said."""
    process = subprocess.Popen(
        command, cwd=cwd, env=env, stderr=subprocess.PIPE, start_new_session=True
    )
    try:
        _, said = process.communicate(timeout=3600)
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()  # until nobody of the group is left to write
        raise
    if check and process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command, stderr=said)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the work directory goes
    sys.exit(main())
