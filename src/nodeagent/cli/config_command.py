"""``nodeagent config``: what the configuration files say, and whether they may."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

import click
import yaml

from nodeagent.config import ConfigError, ConfigFilesError, load_configuration
from nodeagent.config.agent_file import AGENT_FIELDS, AGENT_KIND, AGENT_VERSION, AgentField
from nodeagent.config.effective import as_object
from nodeagent.config.kubelet_fields import ACTS, FIELDS, NOTHING, Field
from nodeagent.config.kubelet_file import LoadedFile
from nodeagent.config.kubelet_flags import OTHERS, field_of_flag, is_deprecated
from nodeagent.reload.last_good import LastGood
from nodeagent.reload.loading import restored
from nodeagent.urls import shown_url

F = TypeVar("F", bound=Callable[..., Any])

INVALID: Final = 1
_MASKED: Final = "<masked>"


def _files(command: F) -> F:
    for option in (
        click.option("--config-dir", default="", help="Directory of drop-ins (*.conf)."),
        click.option("--config", "config_file", default="", help="KubeletConfiguration file."),
    ):
        command = option(command)
    return command


@click.group()
def config() -> None:
    """Judge, explain and compare configuration files.

    Exit codes: 0 all is well (diff: nothing differs), 1 a file cannot be used (diff: something
    differs), 2 the command was not understood.
    """


@config.command()
@_files
def validate(config_file: str, config_dir: str) -> int:
    """Say all that is wrong with a file and its drop-ins, and what is not acted on."""
    loaded, problems = _read(config_file, config_dir)
    for problem in problems:
        click.echo(f"error: {problem}")
    if loaded is None:
        return INVALID
    for warning in loaded.warnings:
        click.echo(f"warning: {warning}")
    given = len(loaded.origins) + len(loaded.own_origins)
    click.echo(f"{config_file or config_dir}: valid, {given} fields given")
    return 0


@config.command()
@_files
@click.option("--flags", is_flag=True, help="List the kubelet's flags instead.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.argument("fields", nargs=-1)
def explain(
    config_file: str, config_dir: str, flags: bool, as_json: bool, fields: tuple[str, ...]
) -> int:
    """List fields: default, flag, and whether the agent acts on them.

    FIELDS are names such as evictionHard or authentication.webhook; without any, all are listed.
    With files, what they say is shown too, and which file says it.
    """
    if flags:
        return _explain_flags(as_json=as_json)
    chosen = [f for f in FIELDS.values() if not fields or any(map(_within(f.path), fields))]
    own = [f for f in AGENT_FIELDS.values() if not fields or f.name in fields]
    known = {f.name for f in own}
    if missing := [
        name
        for name in fields
        if name not in known and not any(_within(f.path)(name) for f in chosen)
    ]:
        msg = f"there is no field {', '.join(missing)} (nodeagent config explain lists all)"
        raise click.UsageError(msg)
    loaded = _loaded(config_file, config_dir) if config_file or config_dir else None
    rows = [_row(field, loaded) for field in chosen] + [_own_row(f, loaded) for f in own]
    if as_json:
        click.echo(json.dumps(rows, indent=2))
        return 0
    for row in rows:
        click.echo(_described(row))
    return 0


def _explain_flags(*, as_json: bool) -> int:
    rows = list(_flag_rows())
    if as_json:
        click.echo(json.dumps(rows, indent=2))
        return 0
    for row in rows:
        parts = [f"field {row['field']}"] if row["field"] else []
        parts += [row["effect"]] if row["effect"] != ACTS else []
        told = "; ".join(parts)
        note = f": {row['note']}" if row["note"] else ""
        click.echo(f"--{row['flag']}{': ' if told else ''}{told}{note}")
    return 0


def _flag_rows() -> Iterator[dict[str, str]]:
    """Every flag of the kubelet, and what it does here."""
    from nodeagent.cli.run import run

    own = {opt[2:] for param in run.params for opt in param.opts if opt.startswith("--")}
    hidden = {"welcome", "help"}
    for flag in sorted({*own, *field_of_flag(), *OTHERS} - hidden):
        path, other = field_of_flag().get(flag, ""), OTHERS.get(flag)
        field = FIELDS.get(path)
        effect, note = (ACTS, "") if field is None else (field.effect, field.note)
        if other is not None:
            effect = f"removed in Kubernetes {other.gone}" if other.gone else NOTHING
            note = other.note
        deprecated = str(is_deprecated(flag)).lower()
        yield {
            "flag": flag,
            "field": path,
            "effect": effect,
            "note": note,
            "deprecated": deprecated,
        }


@config.command()
@_files
@click.option("--defaults", is_flag=True, help="The defaults alone, without any file.")
@click.option(
    "--last-known-good",
    is_flag=True,
    help="What the agent of --root-dir has found good last, whatever its files say now.",
)
@click.option("--root-dir", default="/var/lib/kubelet", show_default=True)
def show(
    config_file: str, config_dir: str, defaults: bool, last_known_good: bool, root_dir: str
) -> int:
    """Print the whole configuration as YAML: the files, with the defaults of all other fields."""
    if (defaults or last_known_good) and (config_file or config_dir):
        name = "--defaults" if defaults else "--last-known-good"
        msg = f"{name} goes without --config and --config-dir"
        raise click.UsageError(msg)
    loaded: LoadedFile | None = None
    if last_known_good:
        loaded = _last_known_good(Path(root_dir))
    elif not defaults:
        loaded = _loaded(config_file, config_dir)
    values = _defaults() if loaded is None else loaded.effective
    click.echo(yaml.safe_dump(as_object(_shown(values)), sort_keys=False), nl=False)
    own = _own_defaults() if loaded is None else loaded.own
    head = {"apiVersion": AGENT_VERSION, "kind": AGENT_KIND}
    click.echo("---\n" + yaml.safe_dump({**head, **own}, sort_keys=False), nl=False)
    return 0


@config.command()
@_files
@click.argument("other", required=False, default="")
def diff(config_file: str, config_dir: str, other: str) -> int:
    """List the fields in which the files differ from OTHER, or from the defaults."""
    mine, theirs = _loaded(config_file, config_dir), _loaded(other, "") if other else None
    before = _defaults() if theirs is None else theirs.effective
    own = _own_defaults() if theirs is None else theirs.own
    lines = [
        *_differences(_shown(before), _shown(mine.effective)),
        *_differences(own, mine.own),
    ]
    for line in lines:
        click.echo(line)
    return INVALID if lines else 0


def _differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    for path, value in after.items():
        if before[path] != value:
            yield f"{path}: {_text(before[path])} -> {_text(value)}"


def _read(config_file: str, config_dir: str) -> tuple[LoadedFile | None, tuple[str, ...]]:
    if not config_file and not config_dir:
        msg = "name a file with --config, or drop-ins with --config-dir"
        raise click.UsageError(msg)
    file, directory = (Path(text) if text else None for text in (config_file, config_dir))
    try:
        return load_configuration(file, directory), ()
    except ConfigFilesError as error:
        return None, tuple(f"{error.value}: {problem}" for problem in error.problems)
    except ConfigError as error:
        return None, (f"{error.value}: {error.allowed}",)


def _last_known_good(root: Path) -> LoadedFile:
    """What the agent of a directory has found good last; ends the command without it."""
    last_good = LastGood(root)
    saved = last_good.load()
    if not saved.digest:
        why = last_good.problem or "there is none"
        msg = f"{last_good.path}: no last known good configuration: {why}"
        raise click.ClickException(msg)
    try:
        return restored(saved.files)
    except ConfigError as error:
        msg = f"{last_good.path}: {error.allowed}"
        raise click.ClickException(msg) from error


def _loaded(config_file: str, config_dir: str) -> LoadedFile:
    """What the files say; ends the command when they cannot be used."""
    loaded, problems = _read(config_file, config_dir)
    if loaded is None:
        raise click.ClickException("; ".join(problems))
    return loaded


def _defaults() -> dict[str, Any]:
    return {path: field.default for path, field in FIELDS.items()}


def _own_defaults() -> dict[str, Any]:
    return {name: field.default for name, field in AGENT_FIELDS.items()}


def _own_row(field: AgentField, loaded: LoadedFile | None) -> dict[str, Any]:
    row: dict[str, Any] = {
        "field": field.name,
        "kind": AGENT_KIND,
        "default": field.default,
        "flag": f"--{field.flag}" if field.flag else "",
        "effect": ACTS,
        "note": field.meaning,
    }
    if loaded is not None:
        row["value"] = loaded.own[field.name]
        inside = (field.name, f"{field.name}.")
        row["files"] = sorted(
            {
                str(file)
                for at, file in loaded.own_origins.items()
                if at == inside[0] or at.startswith(inside[1])
            }
        )
    return row


def _shown(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values without what is secret."""
    shown = dict(values)
    if shown["staticPodURL"]:
        shown["staticPodURL"] = shown_url(shown["staticPodURL"])
    if shown["staticPodURLHeader"]:
        shown["staticPodURLHeader"] = {name: [_MASKED] for name in shown["staticPodURLHeader"]}
    return shown


def _within(path: str) -> Callable[[str], bool]:
    return lambda name: path == name or path.startswith(f"{name}.")


def _row(field: Field, loaded: LoadedFile | None) -> dict[str, Any]:
    row: dict[str, Any] = {
        "field": field.path,
        "default": field.default,
        "flag": f"--{field.flag}" if field.flag else "",
        "effect": field.effect,
        "note": field.note,
    }
    if loaded is not None:
        row["value"] = _shown(loaded.effective)[field.path]
        inside = (field.path, f"{field.path}.")
        files = {f for at, f in loaded.origins.items() if at == inside[0] or at.startswith(inside)}
        row["files"] = sorted(map(str, files))
    return row


def _described(row: Mapping[str, Any]) -> str:
    parts = [f"{row['field']}: default {_text(row['default'])}"]
    if "kind" in row:
        parts.append(f"of {row['kind']}")
    if row["flag"]:
        parts.append(f"flag {row['flag']}")
    if row["effect"] != "acts":
        parts.append(f"{row['effect']}: {row['note']}" if row["note"] else str(row["effect"]))
    if files := row.get("files"):
        parts.append(f"set to {_text(row['value'])} by {', '.join(files)}")
    return "; ".join(parts)


def _text(value: Any) -> str:
    return "unset" if value is None else json.dumps(value)
