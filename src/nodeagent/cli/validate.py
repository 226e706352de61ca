"""``nodeagent validate``: what the agent would say of manifests, before it is given them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from nodeagent.api.documents import OBJECTS, PODS, Identity, Verdict
from nodeagent.api.problems import FieldProblem
from nodeagent.api.references import STANDALONE
from nodeagent.cli.columns import with_column
from nodeagent.config import AgentConfig
from nodeagent.runtime.unsupported import unsupported_fields
from nodeagent.sources.file_book import FileBook
from nodeagent.sources.manifest_scan import scan
from nodeagent.sources.object_selection import select_objects
from nodeagent.sources.selection import InForce, select

if TYPE_CHECKING:
    from nodeagent.pods.rejection import Rejection

REFUSED: Final = 1
_FIELDS: Final[Mapping[str, str]] = {
    "NodeAffinity": "spec.nodeSelector",
    "NodeName": "spec.nodeName",
    "NodePorts": "spec.containers",
    "TaintToleration": "spec.tolerations",
    "SysctlForbidden": "spec.securityContext.sysctls",
    "PodOSNotSupported": "spec.os",
    "PodOSSelectorNodeLabelDoesNotMatch": "spec.nodeSelector",
}
"""Where in the document the cause of a refusal is to be found."""
_OF_THE_NODE: Final = frozenset({"NodeAffinity", "TaintToleration"})
"""Refusals that hang on labels and taints, which in a cluster are the Node object's."""


@dataclass(frozen=True, slots=True)
class Judged:
    """What is said of one document, or of a file that cannot be read.

    Attributes:
        name: the object, ``namespace/name``, or the file.
        kind: its kind; "" for a file that cannot be read.
        errors: why the agent would refuse it.
        waits: fields of the pod that would keep it Pending.
        refused: why the node would refuse it, and what of it would go for its sake.
        warnings: what would be ignored.
    """

    file: str
    name: str
    kind: str = ""
    line: int = 0
    errors: tuple[str, ...] = ()
    waits: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def good(self) -> bool:
        """Whether it would run as it says."""
        return not (self.errors or self.waits or self.refused)


@click.command()
@click.argument("manifests", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--cluster", is_flag=True, help="The node belongs to a cluster.")
@click.option("--hostname-override", "node_name", default="", help="Default: the host's name.")
@click.option("--config", "config_file", default="", help="The agent's configuration file.")
@click.option("--config-dir", default="", help="Its drop-ins (*.conf).")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def validate(
    manifests: tuple[Path, ...],
    cluster: bool,
    node_name: str,
    config_file: str,
    config_dir: str,
    as_json: bool,
) -> int:
    """Judge MANIFESTS, files or directories, as the agent would that is given all of them.

    Every error and warning is told with its line and column, and so is what the node would refuse:
    this machine, with the agent's configuration.

    Exit codes: 0 everything would run, 1 something would not, 2 the command was not understood.
    """
    from nodeagent.cli.run import make_config, read_files

    given = {"node_name": node_name} if node_name else {}
    known = {name.name for name in fields(AgentConfig)}
    settings = {**read_files(config_file, config_dir).settings, **given}
    config = make_config({name: value for name, value in settings.items() if name in known})
    judged = list(judge(manifests, config, cluster=cluster))
    if as_json:
        click.echo(json.dumps([_as_dict(each) for each in judged], indent=2))
    else:
        for line in (line for each in judged for line in _lines(each)):
            click.echo(line)
        if not judged:
            click.echo("no manifests there")
    return 0 if all(each.good for each in judged) else REFUSED


def judge(paths: Sequence[Path], config: AgentConfig, *, cluster: bool) -> Iterator[Judged]:
    """What the file source of an agent, and admission, would say. Blocks.

    Args:
        paths: files and directories, in the order in which they count.
        config: the agent's settings.
        cluster: whether there is an API server.
    """
    node_name = config.effective_node_name
    seen = scan([Path(path).absolute() for path in paths], {})
    book = FileBook(PODS if cluster else OBJECTS)
    for given, path in zip(paths, seen, strict=True):
        if path.problem:
            problem = "does not exist" if path.missing else path.problem
            yield Judged(str(given), str(given), errors=(f"{given}: {problem}",))
    texts = {f.path: _text_lines(f.data) for path in seen for f in path.files if f.data is not None}
    files = book.judge(seen, (), 0.0)
    allowed = () if cluster else STANDALONE
    pods = select(files, {}, node_name, allowed=allowed)
    verdicts = pods.verdicts
    if not cluster:
        verdicts = select_objects(verdicts, {}, node_name).verdicts
    refused = _refused(config, pods.pods)
    for file in verdicts:
        if file.problem:
            if not any(path.problem and path.path == file.origin for path in seen):
                text = f"{file.origin}: {file.problem}"
                yield Judged(str(file.origin), str(file.origin), errors=(text,))
            continue
        lines = texts.get(Path(str(file.origin)), ())
        for verdict in file.verdicts:
            held = pods.pods.get(verdict.identity) if verdict.identity else None
            held = held if held is not None and not verdict.errors else None
            yield _judged(str(file.origin), verdict, held, refused, lines, cluster=cluster)


def _text_lines(data: bytes) -> Sequence[str]:
    return data.decode(errors="replace").removeprefix("\ufeff").split("\n")


def _refused(config: AgentConfig, pods: Mapping[Identity, InForce]) -> Mapping[Identity, Rejection]:
    """What admission says, as if the pods came in this order to a node without others."""
    from nodeagent.wiring.foresight import foresee

    verdicts = foresee(config, [held.pod for held in pods.values()])
    return {
        identity: verdict
        for identity, verdict in zip(pods, verdicts, strict=True)
        if verdict is not None
    }


def _judged(
    file: str,
    verdict: Verdict,
    held: InForce | None,
    refused: Mapping[Identity, Rejection],
    lines: Sequence[str],
    *,
    cluster: bool,
) -> Judged:
    identity = verdict.identity

    def told(problems: Iterable[FieldProblem]) -> tuple[str, ...]:
        return tuple(verdict.describe(with_column(problem, lines)) for problem in problems)

    def at(path: str, text: str) -> FieldProblem:
        return FieldProblem(path, text, verdict.line_of(path))

    warnings = list(verdict.warnings)
    waits: list[FieldProblem] = []
    refusals: list[FieldProblem] = []
    if held is not None:
        found = unsupported_fields(held.pod, cluster=cluster)
        waits += [at(path, "not supported by this version") for path in found]
        if (rejection := refused.get(held.identity)) is not None:
            path = _FIELDS.get(rejection.reason, "spec")
            text = f"this node would refuse it: {rejection.reason}: {rejection.message}"
            if rejection.reason == "Preempting":
                warnings.append(at(path, rejection.message))
            elif cluster and rejection.reason in _OF_THE_NODE:
                warnings.append(at(path, f"{text}; the Node object may say otherwise"))
            else:
                refusals.append(at(path, text))
    return Judged(
        file,
        f"{identity.namespace}/{identity.name}" if identity else verdict.where,
        verdict.kind,
        verdict.line,
        told(verdict.errors),
        told(waits),
        told(refusals),
        told(warnings),
    )


def _lines(judged: Judged) -> Iterator[str]:
    for text in judged.errors:
        yield f"error: {text}"
    for text in (*judged.waits, *judged.refused):
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
        "refused": list(judged.refused),
        "warnings": list(judged.warnings),
        "ok": judged.good,
    }
