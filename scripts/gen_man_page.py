"""Write ``docs/man/nodeagent.1`` from the commands and the table of fields.

python scripts/gen_man_page.py           write the page
python scripts/gen_man_page.py --check   exit 1 if it is stale
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import click

from nodeagent._version import __version__
from nodeagent.cli.app import cli
from nodeagent.cli.run_help import NO_EFFECT, grouped, ignored

PAGE = Path(__file__).resolve().parent.parent / "docs" / "man" / "nodeagent.1"
COMMANDS = ("run", "validate", "plan", "config", "gc", "embedded-runtime", "bench", "completion")
FILES = (
    ("/var/lib/kubelet", "The agent's state (--root-dir), in the kubelet's layout for pods."),
    ("/var/lib/kubelet/checkpoints", "What cannot be rebuilt: last good manifests, back-offs."),
    ("/var/lib/kubelet/pki", "Certificates and keys (--cert-dir)."),
    ("/var/log/pods", "Logs of containers (--pod-logs-dir)."),
    ("/run/containerd/containerd.sock", "The container runtime (--container-runtime-endpoint)."),
)
CODES = (
    ("0", "All is well: the agent has ended in order; the check found nothing."),
    (
        "1",
        (
            "The agent could not start, or left pods running that it was to stop; a check found "
            "something. One line on standard error says what, why and what to do."
        ),
    ),
    ("2", "The command line or a configuration cannot be used."),
    ("3", "plan --exit-code: something would change."),
    ("130", "Interrupted while a command was at work."),
)


def command_named(name: str) -> click.Command:
    """One command of the program, which loads it when it is asked for."""
    found = cli.get_command(click.Context(cli), name)
    assert found is not None, name
    return found


def page() -> str:
    """The whole page."""
    return "\n".join(_page()) + "\n"


def _page() -> Iterator[str]:
    yield f'.TH NODEAGENT 1 "" "nodeagent {__version__}" "User Commands"'
    yield ".SH NAME"
    yield r"nodeagent \- the Kubernetes node agent, as an event-driven Python system"
    yield ".SH SYNOPSIS"
    for name in COMMANDS:
        command = command_named(name)
        ctx = click.Context(command, info_name=f"nodeagent {name}")
        usage = " ".join(command.collect_usage_pieces(ctx))
        yield f".B nodeagent {_safe(name)}"
        yield _safe(usage)
        yield ".br"
    yield ".SH DESCRIPTION"
    yield from _paragraphs(
        "nodeagent runs the pods of static manifests, and of an API server when there is one, on "
        "a container runtime, as the kubelet does. It takes the kubelet's configuration files, "
        "drop-ins and flags."
    )
    yield ".SH COMMANDS"
    for name in COMMANDS:
        yield from _command(name, command_named(name))
    yield ".SH OPTIONS OF RUN"
    run = command_named("run")
    for title, rows in grouped(run, click.Context(run, info_name="nodeagent run")):
        yield f".SS {_safe(title)}"
        yield from _list(rows)
    yield f".SS {_safe(NO_EFFECT)}"
    yield _safe(", ".join(f"--{flag}" for flag in ignored()))
    yield ".SH EXIT STATUS"
    yield from _list(CODES)
    yield ".SH FILES"
    yield from _list(FILES)
    yield ".SH SEE ALSO"
    yield _safe("The documentation of the project: configuration, join-a-cluster, offline, limits.")


def _command(name: str, command: click.Command) -> Iterator[str]:
    yield f".SS {_safe(name)}"
    yield from _paragraphs(command.help or "")
    if isinstance(command, click.Group):
        for inner in command.commands.values():
            yield ".TP"
            yield f".B {_safe(f'{name} {inner.name}')}"
            yield _safe(" ".join(inspect.cleandoc(inner.help or "").split()))
    elif name != "run":
        yield from _list(_own_rows(command))


def _own_rows(command: click.Command) -> Iterator[tuple[str, str]]:
    ctx = click.Context(command, info_name=command.name)
    for param in command.get_params(ctx):
        record = param.get_help_record(ctx)
        if record is not None and record[1]:
            yield record


def _list(rows: Iterable[tuple[str, str]]) -> Iterator[str]:
    for term, text in rows:
        yield ".TP"
        # A command remembers its option for help as it was asked for first.
        yield f".B {_safe('-h, --help' if term == '--help' else term)}"
        yield _safe(" ".join(text.split()))


def _paragraphs(text: str) -> Iterator[str]:
    for paragraph in inspect.cleandoc(text).split("\n\n"):
        yield ".PP"
        yield _safe(" ".join(paragraph.split()))


def _safe(text: str) -> str:
    """Text that roff prints as it is."""
    plain = text.replace("\\", r"\e").replace("-", r"\-")
    return rf"\&{plain}" if plain.startswith((".", "'")) else plain


def main(args: list[str]) -> int:
    """Write or check; the exit code."""
    wanted = page()
    if "--check" in args:
        fresh = PAGE.exists() and PAGE.read_text("utf-8") == wanted
        if not fresh:
            print("docs/man/nodeagent.1: stale, run this script without --check")
        return 0 if fresh else 1
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(wanted, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
