"""The documentation and the code do not lose sight of each other."""

from __future__ import annotations

import dataclasses
import importlib.util
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from nodeagent.cli.app import cli
from nodeagent.config import AgentConfig
from nodeagent.config.kubelet_fields import ACTS, FIELDS
from nodeagent.config.kubelet_flags import OTHERS, field_of_flag
from nodeagent.kube.reach import Reach
from nodeagent.pleg import PlegHealth
from nodeagent.server import checks

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")])
CODE = sorted(
    path
    for directory in ("src", "tests", "scripts", "examples")
    for path in (ROOT / directory).rglob("*.py")
    if "proto" not in path.parts and path != Path(__file__)
)
_REFERENCE = re.compile(r"docs/([\w/-]+\.md)((?:,\s+(?:and\s+)?\"[^\"]+\")*)")
_LINK = re.compile(r"\]\(([^)\s]+)\)")


def headings(page: Path) -> list[str]:
    text = re.sub(
        r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL
    )
    return re.findall(r"^#+ (.+)$", text, re.MULTILINE)


def anchor(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def references() -> Iterator[tuple[Path, str, str]]:
    for path in CODE:
        text = re.sub(r"\n[ \t]*#? ?", " ", path.read_text(encoding="utf-8"))
        for page, sections in _REFERENCE.findall(text):
            for section in re.findall(r'"([^"]+)"', sections) or [""]:
                yield path, page, section


def test_what_the_code_refers_to_exists() -> None:
    found = list(references())
    missing = {
        f"{path.relative_to(ROOT)}: docs/{page} {section!r}"
        for path, page, section in found
        if not (DOCS / page).is_file() or (section and section not in headings(DOCS / page))
    }
    assert len(found) > 100
    assert missing == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for link in _LINK.findall(page.read_text(encoding="utf-8")):
        target, _, section = link.partition("#")
        if "://" in target:
            continue
        path = (page.parent / target).resolve() if target else page
        assert path.exists(), f"{link} leads nowhere"
        if section:
            assert section in map(anchor, headings(path)), f"{link}: no such section"


def test_every_page_is_in_the_index() -> None:
    index = (DOCS / "index.md").read_text(encoding="utf-8")
    pages = {str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md")} - {"index.md"}
    assert {page for page in pages if f"({page})" not in index} == set()


def test_every_setting_is_described() -> None:
    page = (DOCS / "configuration.md").read_text(encoding="utf-8")
    assert isinstance(cli, click.Group)
    flags = {
        flag
        for option in cli.commands["run"].params
        if isinstance(option, click.Option) and not option.hidden
        for flag in option.opts
    }
    settings = {field.name for field in dataclasses.fields(AgentConfig)}
    assert {name for name in flags | settings if f"`{name}`" not in page} == set()
    fields = [field.path for field in FIELDS.values() if field.effect == ACTS]
    known = [path for path in fields if path not in ("apiVersion", "kind", "runOnce")]
    assert {path for path in known if path not in page} == set()


@pytest.mark.parametrize("name", ["gen_configuration_reference", "gen_man_page"])
def test_generated_pages_are_current(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    script = ROOT / "scripts" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, script)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.main(["--check"]) == 0, capsys.readouterr().out


def test_the_man_page_has_every_command_and_flag() -> None:
    page = (DOCS / "man" / "nodeagent.1").read_text(encoding="utf-8").replace(r"\-", "-")
    assert isinstance(cli, click.Group)
    names = cli.list_commands(click.Context(cli))
    assert {name for name in names if f".SS {name}\n" not in page} == set()
    flags = {*field_of_flag(), *OTHERS, "kubeconfig"}
    assert {flag for flag in flags if f"--{flag}" not in page} == set()
    codes = page.split(".SH EXIT STATUS")[1].split(".SH")[0]
    assert re.findall(r"^\.B (\d+)$", codes, re.MULTILINE) == ["0", "1", "2", "3", "130"]


def test_defaults_are_the_ones_described() -> None:
    page = (DOCS / "configuration.md").read_text(encoding="utf-8")
    run = cli.commands["run"]
    for option in run.params:
        row = re.search(rf"^\| `{re.escape(option.opts[0])}` \| (.*?) \|", page, re.MULTILINE)
        if row is not None and isinstance(option.default, str | int) and option.default != "":
            assert row[1].strip("`") == str(option.default), option.opts[0]


def test_every_health_check_is_described() -> None:
    page = (DOCS / "configuration.md").read_text(encoding="utf-8")
    names = {
        checks.ping().name,
        checks.sync_loop(lambda _now: None, float).name,
        checks.pleg(lambda: PlegHealth(ok=True)).name,
        checks.runtime(list, float).name,
        checks.network(str, float).name,
        checks.sources(frozenset, bool).name,
        checks.manifests(dict).name,
        checks.storage(dict).name,
        checks.configuration(str, str).name,
        checks.api_server(Reach()).name,
        checks.credentials(str).name,
        "node",
    }
    assert {name for name in names if f"\n| `{name}` |" not in page} == set()


def test_the_layers_are_those_of_the_contract() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contract = settings["tool"]["importlinter"]["contracts"][0]
    page = (DOCS / "architecture.md").read_text(encoding="utf-8")
    page = page.split("## Packages")[1].split("\n## ")[0]
    rows = re.findall(r"^\| \d+ \| (.+?) \|", page, re.MULTILINE)
    described = [set(re.findall(r"`(\w+)`", row)) for row in rows]
    top, *rest = [set(re.findall(r"\w+", layer)) for layer in contract["layers"]]
    assert described == [top | rest[0], *rest[1:]]


def ours() -> Iterator[tuple[str, str]]:
    """What the behaviour pages mark as different from the kubelet's: rows, or else sections."""
    for path in sorted((DOCS / "behaviour").glob("*.md")):
        section = ""
        for line in path.read_text(encoding="utf-8").splitlines():
            if line.startswith("##"):
                section = line.lstrip("# ")
            if "**ours**" in line and section:
                number = re.match(r"\| ([A-Z]{1,2}\d+) \|", line)
                yield f"behaviour/{path.name}#{anchor(section)}", number[1] if number else ""


def test_every_difference_from_the_kubelet_is_listed_with_its_reason() -> None:
    page = (DOCS / "architecture.md").read_text(encoding="utf-8")
    listed = page.split("## Differences")[1].split("\n### Planned")[0]
    marked = list(ours())
    assert len(marked) > 40
    missing = {
        (section, number)
        for section, number in marked
        if f"({section})" not in listed or not re.search(rf"\b{number}\b", listed)
    }
    assert missing == set()
    assert "(behaviour/pleg.md#differences)" in listed
