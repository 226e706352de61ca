"""Generate ``src/nodeagent/proto`` from ``protos``.

    python scripts/gen_protos.py           write the generated code
    python scripts/gen_protos.py --check   exit 1 and name the files that are stale

The bytes depend on nothing but ``protos`` and the packages of the extra ``protos``, which is
pinned exactly: the tools run in an empty directory, so that no configuration of the project or
of the user reaches them.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from importlib import metadata, resources
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROTOS = ROOT / "protos"
TARGET = ROOT / "src" / "nodeagent" / "proto"
OPTIONS = "client_generation=async,server_generation=async"
PINS = ("betterproto2", "betterproto2_compiler", "grpcio-tools", "ruff")
RUFF_SETTINGS = 'line-length = 100\ntarget-version = "py311"\n'


class GenerationError(Exception):
    """The tools are missing, of another version, or refused the protos."""


def pinned_versions() -> dict[str, str]:
    """Read the exact versions that the extra ``protos`` asks for, by package name."""
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    wanted = (line.split("==") for line in project["optional-dependencies"]["protos"])
    return {name.strip(): version.strip() for name, version in wanted}


def check_tools() -> None:
    """Refuse to run with tools of other versions, which would give other bytes.

    Raises:
        GenerationError: A tool is missing or differs from its pin.
    """
    pins = pinned_versions()
    for name in PINS:
        try:
            found = metadata.version(name)
        except metadata.PackageNotFoundError:
            found = "none"
        if found != pins[name]:
            msg = f"{name} {pins[name]} is needed, {found} is installed: pip install -e '.[protos]'"
            raise GenerationError(msg)


def generate(into: Path) -> None:
    """Write the whole generated package to the empty directory ``into``.

    Raises:
        GenerationError: The compiler refused the protos; its own words are in the message.
    """
    sources = sorted(str(path.relative_to(PROTOS)) for path in PROTOS.rglob("*.proto"))
    includes = resources.files("grpc_tools") / "_proto"
    scripts = str(Path(sys.executable).parent)
    with tempfile.TemporaryDirectory() as scratch:
        Path(scratch, "ruff.toml").write_text(RUFF_SETTINGS, "utf-8")
        command = [
            *(sys.executable, "-m", "grpc_tools.protoc"),
            f"--proto_path={PROTOS}",
            f"--proto_path={includes}",
            f"--python_betterproto2_opt={OPTIONS}",
            f"--python_betterproto2_out={into}",
            *sources,
        ]
        path = os.pathsep.join((scripts, os.environ.get("PATH", os.defpath)))
        env = {**os.environ, "PATH": path, "RUFF_NO_CACHE": "true"}
        done = subprocess.run(
            command, cwd=scratch, env=env, capture_output=True, text=True, check=False
        )
    if done.returncode != 0:
        raise GenerationError(done.stderr.strip())


def contents(directory: Path) -> dict[str, bytes]:
    """Map the relative name of every file under ``directory`` to its bytes."""
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }


def stale_files(fresh: Path, committed: Path) -> list[str]:
    """Name the files that differ, are missing or are left over in ``committed``."""
    new, old = contents(fresh), contents(committed)
    return sorted(name for name in new.keys() | old.keys() if new.get(name) != old.get(name))


def main(argv: list[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    parser = argparse.ArgumentParser(description="Generate src/nodeagent/proto from protos.")
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as scratch:
        fresh = Path(scratch, "proto")
        fresh.mkdir()
        try:
            check_tools()
            generate(fresh)
        except GenerationError as exc:
            sys.stderr.write(f"gen_protos: {exc}\n")
            return 2
        if options.check:
            stale = stale_files(fresh, TARGET)
            sys.stdout.writelines(f"src/nodeagent/proto/{name}\n" for name in stale)
            return 1 if stale else 0
        shutil.rmtree(TARGET, ignore_errors=True)
        shutil.copytree(fresh, TARGET)
    return 0


if __name__ == "__main__":
    sys.exit(main())
