"""``nodeagent plan``: what manifests would change on a node, before they are put there."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import anyio
import click

if TYPE_CHECKING:
    from nodeagent.cli.plan_state import NodeState
    from nodeagent.planning import Change, ContainerStep, ObjectPlan, PodPlan
    from nodeagent.sources.keeping import FileVerdicts
    from nodeagent.sources.manifest_scan import PathSeen

WRONG: Final = 1
CHANGES: Final = 3
_HIDDEN: Final = "(not shown)"


@dataclass(frozen=True, slots=True)
class Foretold:
    """What the command says.

    Attributes:
        pods: what becomes of each pod.
        objects: what becomes of each ConfigMap and Secret.
        errors: what is wrong with manifests.
        warnings: what of them would be ignored.
        notes: what could not be found out.
    """

    pods: tuple[PodPlan, ...]
    objects: tuple[ObjectPlan, ...]
    errors: tuple[str, ...]
    warnings: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def wrong(self) -> bool:
        """Whether something would not run as it says."""
        return bool(self.errors) or any(plan.waits for plan in self.pods)

    @property
    def changes(self) -> bool:
        """Whether anything would be done."""
        quiet = ("unchanged", "keep")
        return bool(self.objects) or any(plan.outcome.value not in quiet for plan in self.pods)


@click.command()
@click.argument("manifests", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--root-dir",
    default="/var/lib/kubelet",
    show_default=True,
    type=click.Path(path_type=Path),
    help="The agent's state: what is in force.",
)
@click.option(
    "--agent",
    "agent_url",
    default="",
    help="URL of a running agent's read-only port; its pods count, and the runtime is not asked.",
)
@click.option(
    "--container-runtime-endpoint",
    "endpoint",
    default="",
    help="Who runs the pods. Default: the embedded runtime that serves in --root-dir, else "
    "containerd's socket.",
)
@click.option("--cluster", is_flag=True, help="The node belongs to a cluster.")
@click.option("--hostname-override", "node_name", default="", help="Default: what the state says.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--show-values", is_flag=True, help="Show values of environment variables, too.")
@click.option("--exit-code", "tell", is_flag=True, help="End with 3 when something would change.")
def plan(
    manifests: tuple[Path, ...],
    root_dir: Path,
    agent_url: str,
    endpoint: str,
    cluster: bool,
    node_name: str,
    as_json: bool,
    show_values: bool,
    tell: bool,
) -> int:
    """Say what the agent would do if MANIFESTS lay in its manifest directory.

    A directory stands for all manifests of the agent: pods that it does not give would go. A file
    stands for the file of the same name, or is a new one beside the others. Nothing is changed.

    Exit codes: 0 everything would run (with --exit-code: and nothing changes), 1 a manifest is
    refused, or a pod would not run, or what is in force cannot be told, 2 the command was not
    understood, 3 only with --exit-code: something would change.
    """
    from nodeagent.cli.plan_state import StateUnknownError

    try:
        told = foretell(
            manifests,
            root_dir,
            agent_url=agent_url,
            endpoint=endpoint,
            node_name=node_name.lower(),
            cluster=cluster,
        )
    except StateUnknownError as error:
        click.echo(f"nodeagent: {error}", err=True)
        return WRONG
    if as_json:
        click.echo(json.dumps(as_object(told, show_values=show_values), indent=2))
    else:
        for line in lines(told, show_values=show_values):
            click.echo(line)
    if told.wrong:
        return WRONG
    return CHANGES if tell and told.changes else 0


def foretell(
    manifests: Sequence[Path],
    root: Path,
    *,
    agent_url: str = "",
    endpoint: str = "",
    node_name: str = "",
    cluster: bool = False,
) -> Foretold:
    """Find out what would change. Blocks; changes nothing.

    Args:
        manifests: files, and directories that stand for all manifests.
        root: the agent's root directory.
        agent_url: of a running agent's read-only port; "" for none.
        endpoint: of the container runtime; "" for the one that is likely.
        node_name: name of the node; "" for the one that the state tells.
        cluster: whether the agent has an API server.

    Raises:
        StateUnknownError: what is in force cannot be told.
    """
    from nodeagent.api.documents import OBJECTS, PODS
    from nodeagent.api.references import STANDALONE
    from nodeagent.cli.plan_state import (
        endpoint_of,
        read_agent,
        read_root,
        read_runtime,
        with_agent,
    )
    from nodeagent.config import default_node_name
    from nodeagent.planning import plan_objects, plan_pods
    from nodeagent.runtime.unsupported import unsupported_fields
    from nodeagent.sources.file_book import FileBook
    from nodeagent.sources.object_selection import select_objects
    from nodeagent.sources.selection import select

    state = read_root(root, node_name)
    if agent_url:
        state.pods = read_agent(agent_url)
        state.node_name = node_name or _node_of(state) or state.node_name
        state.notes.clear()
    node = state.node_name or default_node_name()
    seen, missing = _files(manifests, state)
    files = FileBook(PODS if cluster else OBJECTS).judge(seen, (), 0.0)
    state = with_agent(state, files, node, cluster=cluster)
    if state.pods is not None and not any(path.is_dir() for path in manifests):
        state.before = _spoken_of(state, files)
    if not agent_url:
        anyio.run(read_runtime, endpoint_of(root, endpoint), state)
    unsupported = partial(unsupported_fields, cluster=cluster)
    allowed = () if cluster else STANDALONE
    pods = select(files, state.before, node, unsupported, allowed=allowed)
    objects = select_objects(pods.verdicts, {} if cluster else state.objects, node)
    known_objects = not cluster and (not agent_url or bool(state.objects))
    verdicts = [v for file in objects.verdicts for v in file.verdicts]
    problems = [f"{file.origin}: {file.problem}" for file in objects.verdicts if file.problem]
    return Foretold(
        plan_pods(state.before, pods, state.statuses, state.ran_before, unsupported),
        plan_objects(state.objects, objects, pods.pods) if known_objects else (),
        (*missing, *problems, *(line for v in verdicts for line in v.error_lines())),
        tuple(line for v in verdicts for line in v.warning_lines()),
        tuple(state.notes),
    )


def _node_of(state: NodeState) -> str:
    return next((pod.spec.node_name for pod in state.pods or () if pod.spec.node_name), "")


def _spoken_of(state: NodeState, files: Sequence[FileVerdicts]) -> dict[Any, Any]:
    """What is in force, of the files alone that are given: nobody knows where the rest lies."""
    named = {v.identity for file in files for v in file.verdicts}
    origins = {file.origin for file in files}
    return {
        identity: document
        for identity, document in state.before.items()
        if identity in named or document.origin in origins
    }


def _files(manifests: Sequence[Path], state: NodeState) -> tuple[list[PathSeen], list[str]]:
    """The files as the agent would see them, under the names that they would have there."""
    from nodeagent.sources.manifest_scan import PathSeen, scan

    origins = {d.origin for d in state.before.values()} | {d.origin for d in state.objects.values()}
    there = {origin for origin in origins if isinstance(origin, Path)}
    places = {path.parent for path in there}
    home = next(iter(places)) if len(places) == 1 else None
    given = scan([path.absolute() for path in manifests], {})
    missing = [
        f"{shown}: {'does not exist' if path.missing else path.problem}"
        for shown, path in zip(manifests, given, strict=True)
        if path.problem
    ]
    files = {}
    for path in given:
        for file in path.files:
            target = file.path
            if target not in there and home is not None:
                target = home / target.name
            files[target] = replace(file, path=target)
    if not any(path.is_dir() for path in manifests):
        for path in scan(sorted(there - files.keys()), {}):
            files.update({file.path: file for file in path.files})
    order = sorted(files, key=lambda path: (str(path.parent), path.name))
    return [PathSeen(Path("/"), tuple(files[path] for path in order))], missing


# -- words ---------------------------------------------------------------------------------------


def lines(told: Foretold, *, show_values: bool = False) -> Iterator[str]:
    """What is foretold, for people."""
    yield from (f"error: {text}" for text in told.errors)
    yield from (f"warning: {text}" for text in told.warnings)
    yield from (f"note: {text}" for text in told.notes)
    for plan in told.pods:
        if plan.outcome.value != "unchanged":
            yield from _of_pod(plan, show_values)
    for change in told.objects:
        yield f"{change.kind} {change.namespace}/{change.name} ({change.origin}): {change.what}"
        if change.used_by:
            yield f"  used by {', '.join(change.used_by)}: {change.effect}"
    counts = Counter(plan.outcome.value for plan in told.pods)
    words = (
        ("create", "created"),
        ("update in place", "updated in place"),
        ("restart containers", "with containers restarted"),
        ("replace", "replaced"),
        ("remove", "removed"),
        ("keep", "kept as they are"),
        ("unchanged", "unchanged"),
    )
    yield "pods: " + ", ".join(f"{counts[outcome]} {word}" for outcome, word in words)


def _of_pod(plan: PodPlan, show_values: bool) -> Iterator[str]:
    where = f" ({plan.origin})" if plan.origin else ""
    why = f": {plan.why}" if plan.why else ""
    yield f"{plan.namespace}/{plan.name}{where}: {plan.outcome.value}{why}"
    for change in plan.changes:
        before, after = _values(change, show_values)
        yield f"  {change.path}: {_text(before)} -> {_text(after)}"
    for step in plan.containers:
        yield f"  container {step.name}: {step.step.value}{f' ({step.why})' if step.why else ''}"
    for path in plan.waits:
        yield f"  {path}: not supported by this version, the pod would stay Pending"


def _text(value: Any) -> str:
    return "unset" if value is None else value if value == _HIDDEN else json.dumps(value)


def _values(change: Change, show: bool) -> tuple[Any, Any]:
    """Both values; those of environment variables may be secret."""
    if show or ".env" not in change.path:
        return change.before, change.after
    return _masked(change.before), _masked(change.after)


def _masked(value: Any) -> Any:
    return None if value is None else _HIDDEN


def as_object(told: Foretold, *, show_values: bool = False) -> dict[str, Any]:
    """What is foretold, for programs."""
    return {
        "pods": [_pod_object(plan, show_values) for plan in told.pods],
        "objects": [
            {
                "kind": change.kind,
                "namespace": change.namespace,
                "name": change.name,
                "file": change.origin,
                "what": change.what,
                "usedBy": list(change.used_by),
            }
            for change in told.objects
        ],
        "errors": list(told.errors),
        "warnings": list(told.warnings),
        "notes": list(told.notes),
        "ok": not told.wrong,
        "changes": told.changes,
    }


def _pod_object(plan: PodPlan, show_values: bool) -> dict[str, Any]:
    changes = []
    for change in plan.changes:
        before, after = _values(change, show_values)
        changes.append({"field": change.path, "before": before, "after": after})
    return {
        "outcome": plan.outcome.name.lower(),
        "namespace": plan.namespace,
        "name": plan.name,
        "uid": plan.uid,
        "file": plan.origin,
        "why": plan.why,
        "changes": changes,
        "containers": [_step_object(step) for step in plan.containers],
        "unsupported": list(plan.waits),
    }


def _step_object(step: ContainerStep) -> Mapping[str, str]:
    return {"name": step.name, "step": step.step.name.lower(), "why": step.why}
