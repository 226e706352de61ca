"""docs/join-a-cluster.md and its files say what the agent understands."""

from __future__ import annotations

import configparser
import re
import shlex
from pathlib import Path

import click
import pytest
import yaml

from nodeagent.cli.app import cli
from nodeagent.config import load_kubelet_file

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "join-a-cluster.md"
EXAMPLES = ROOT / "examples" / "cluster"
MANIFESTS = sorted(EXAMPLES.glob("*.yaml"))


def known_flags() -> set[str]:
    run = cli.get_command(click.Context(cli), "run")
    assert run is not None
    return {name for parameter in run.params for name in parameter.opts}


def start_command() -> list[str]:
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.read(EXAMPLES / "nodeagent.service")
    return shlex.split(unit["Service"]["ExecStart"].replace("\\\n", " "))


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.name)
def test_each_example_is_made_of_objects(path: Path) -> None:
    documents = list(yaml.safe_load_all(path.read_text(encoding="utf-8")))
    objects = [document for document in documents if document is not None]
    assert objects
    assert all({"apiVersion", "kind"} <= set(document) for document in objects)


def test_the_unit_starts_the_agent_with_flags_that_it_knows() -> None:
    program, command, *flags = start_command()
    assert (Path(program).name, command) == ("nodeagent", "run")
    assert {flag.partition("=")[0] for flag in flags} <= known_flags()


def test_the_unit_gives_the_agent_no_mounts_of_its_own() -> None:
    settings = re.findall(
        r"^(\w+)=", (EXAMPLES / "nodeagent.service").read_text(encoding="utf-8"), re.MULTILINE
    )
    private = re.compile(r"Protect|Private|Paths$|^(Temporary|Root|Mount|Bind|StateDirectory)")
    assert [name for name in settings if private.search(name)] == []


def test_the_page_names_flags_that_the_agent_knows() -> None:
    text = PAGE.read_text(encoding="utf-8")
    commands = re.findall(r"nodeagent run ((?:.*\\\n)*.*)", text)
    flags = {flag for command in commands for flag in re.findall(r"--[a-z-]+", command)}
    assert {"--config", "--kubeconfig", "--bootstrap-kubeconfig"} <= flags
    assert flags <= known_flags()


def test_the_page_or_another_example_names_each_example() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert [path.name for path in sorted(EXAMPLES.iterdir()) if path.name not in text] == []


def test_the_configuration_file_is_accepted() -> None:
    loaded = load_kubelet_file(EXAMPLES / "kubelet-config.yaml")
    assert loaded.settings["rotate_certificates"] is True
    assert loaded.warnings == ()


@pytest.mark.parametrize("where", [PAGE, EXAMPLES / "bootstrap-token.yaml"], ids=["page", "file"])
def test_the_token_can_be_exchanged_as_the_page_and_the_file_say(where: Path) -> None:
    commands = re.findall(r'sed "(s/[^"]+)"', where.read_text(encoding="utf-8"))
    assert len(commands) == 1
    changed = (EXAMPLES / "bootstrap-token.yaml").read_text(encoding="utf-8")
    for step in commands[0].split("; "):
        _, old, new, _ = step.split("/")
        changed = changed.replace(old, {"$ID": "I" * 6, "$SECRET": "S" * 16}[new])
    secret = next(item for item in yaml.safe_load_all(changed) if item)
    assert secret["metadata"]["name"] == "bootstrap-token-IIIIII"
    assert secret["stringData"]["token-id"] == "IIIIII"
    assert secret["stringData"]["token-secret"] == "S" * 16
