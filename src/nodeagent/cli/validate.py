"""``nodeagent validate``: what the agent would say of manifests, before it is given them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click

from nodeagent.api.documents import OBJECTS, PODS, Identity, Verdict
from nodeagent.api.references import STANDALONE
from nodeagent.config import default_node_name
from nodeagent.runtime.unsupported import unsupported_fields
from nodeagent.sources.file_book import FileBook
from nodeagent.sources.manifest_scan import scan
from nodeagent.sources.object_selection import select_objects
from nodeagent.sources.selection import InForce, select

REFUSED = 1


@dataclass(frozen=True, slots=True)
class Judged:
    """What is said of one document, or of a file that cannot be read.

    Attributes:
        name: the object, ``namespace/name``, or the file.
        kind: its kind; "" for a file that cannot be read.
        errors: why the agent would refuse it.
        waits: fields of the pod that would keep it Pending.
        warnings: what would be ignored.
    """

    file: str
    name: str
    kind: str = ""
    line: int = 0
    errors: tuple[str, ...] = ()
    waits: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def good(self) -> bool:
        """Whether it would run as it says."""
        return not self.errors and not self.waits


@click.command()
@click.argument("manifests", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--cluster", is_flag=True, help="The node belongs to a cluster.")
@click.option("--hostname-override", "node_name", default="", help="Default: the host's name.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def validate(manifests: tuple[Path, ...], cluster: bool, node_name: str, as_json: bool) -> int:
    """Judge MANIFESTS, files or directories, as the agent would that is given all of them.

    Every error and warning is told with its line. Exit codes: 0 everything would run, 1 something
    would not, 2 the command was not understood.
    """
    name = (node_name or default_node_name()).lower()
    judged = list(judge(manifests, name, cluster=cluster))
    if as_json:
        click.echo(json.dumps([_as_dict(each) for each in judged], indent=2))
    else:
        for line in (line for each in judged for line in _lines(each)):
            click.echo(line)
        if not judged:
            click.echo("no manifests there")
    return 0 if all(each.good for each in judged) else REFUSED


def judge(paths: Sequence[Path], node_name: str, *, cluster: bool) -> Iterator[Judged]:
    """What the file source of an agent would say. Blocks.

    Args:
        paths: files and directories, in the order in which they count.
        node_name: name of the node.
        cluster: whether there is an API server.
    """
    seen = scan([Path(path).absolute() for path in paths], {})
    book = FileBook(PODS if cluster else OBJECTS)
    for given, path in zip(paths, seen, strict=True):
        if path.problem:
            problem = "does not exist" if path.missing else path.problem
            yield Judged(str(given), str(given), errors=(f"{given}: {problem}",))
    files = book.judge(seen, (), 0.0)
    allowed = () if cluster else STANDALONE
    pods = select(files, {}, node_name, allowed=allowed)
    verdicts = pods.verdicts
    if not cluster:
        verdicts = select_objects(verdicts, {}, node_name).verdicts
    for file in verdicts:
        if file.problem:
            if not any(path.problem and path.path == file.origin for path in seen):
                text = f"{file.origin}: {file.problem}"
                yield Judged(str(file.origin), str(file.origin), errors=(text,))
            continue
        for verdict in file.verdicts:
            yield _judged(str(file.origin), verdict, pods.pods, cluster=cluster)


def _judged(
    file: str, verdict: Verdict, pods: Mapping[Identity, InForce], *, cluster: bool
) -> Judged:
    identity = verdict.identity
    found = Judged(
        file,
        f"{identity.namespace}/{identity.name}" if identity else verdict.where,
        verdict.kind,
        verdict.line,
        tuple(verdict.error_lines()),
        (),
        tuple(verdict.warning_lines()),
    )
    held = pods.get(identity) if identity else None
    if held is None or verdict.errors:
        return found
    waits = unsupported_fields(held.pod, cluster=cluster)
    lines = [f"{verdict.where}: {path}: not supported by this version" for path in waits]
    return replace(found, waits=tuple(lines))


def _lines(judged: Judged) -> Iterator[str]:
    for text in judged.errors:
        yield f"error: {text}"
    for text in judged.waits:
        yield f"error: {text}"
    for text in judged.warnings:
        yield f"warning: {text}"
    if judged.good:
        yield f"ok: {judged.kind or 'file'} {judged.name} ({judged.file})"


def _as_dict(judged: Judged) -> dict[str, Any]:
    return {
        "file": judged.file,
        "line": judged.line,
        "kind": judged.kind,
        "name": judged.name,
        "errors": list(judged.errors),
        "unsupported": list(judged.waits),
        "warnings": list(judged.warnings),
        "ok": judged.good,
    }
