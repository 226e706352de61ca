"""Dashboard and alert rules of examples/monitoring ask for what docs/metrics.md has."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.unit.docs.metric_names import documented, names_in, samples_of, section

EXAMPLES = Path(__file__).parents[3] / "examples" / "monitoring"
#: What Prometheus itself adds.
TARGET = {"job", "instance", "le", "__name__"}
CONTAINER = {"container", "id", "image", "name", "namespace", "pod"}
_SELECTOR = re.compile(r"([a-z_][a-z0-9_]*)\s*(?:\{([^}]*)\})?")
_MATCHER = re.compile(r"(\w+)\s*(?:=~|!~|!=|=)")
_WORDS = {
    *("sum", "rate", "increase", "time", "count", "min", "max", "by", "and", "or", "unless"),
    *("histogram_quantile", "vector", "label_values", "instance"),
}


def known() -> Mapping[str, set[str]]:
    """The labels of each sample there is."""
    found = {
        sample: set(named.labels or ())
        for named in documented().values()
        for sample in samples_of(named)
    }
    for row in section("/metrics/resource"):
        found |= {name: set(names_in(row[2])) for name in names_in(row[0])}
    for row in section("/metrics/cadvisor"):
        own = CONTAINER if row[0].startswith("`container_") else set()
        # Names that both endpoints have: what any of them has may be asked for.
        for name in names_in(row[0]):
            found[name] = found.get(name, set()) | own | set(names_in(row[2]))
    found["up"] = set()
    found["kubernetes_healthcheck"] = {"name", "type"}
    return found


def expressions() -> Iterator[tuple[str, str]]:
    """Where an expression stands, and it."""
    rules = yaml.safe_load((EXAMPLES / "alerts.yaml").read_text())
    for group in rules["groups"]:
        for rule in group["rules"]:
            yield rule["alert"], rule["expr"]
            for text in rule["annotations"].values():
                for inner in re.findall(r'printf "([^"]*)"', text):
                    yield rule["alert"], inner.replace("'%s'", '"x"')
    board: dict[str, Any] = json.loads((EXAMPLES / "dashboard.json").read_text())
    for panel in board["panels"]:
        for target in panel.get("targets", ()):
            yield panel["title"], target["expr"]
    for variable in board["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["name"], variable["query"]["query"]


EXPRESSIONS = list(expressions())


def used(expression: str) -> Iterator[tuple[str, set[str]]]:
    """The metrics of an expression, and the labels that it asks for."""
    grouped = re.sub(r"\bby\s*\([^)]*\)", "", expression)
    bare = re.sub(r"\[[^]]*\]", "", grouped)
    for name, matchers in _SELECTOR.findall(re.sub(r'"[^"]*"', '""', bare)):
        if name not in _WORDS:
            yield name, set(_MATCHER.findall(matchers))


@pytest.mark.parametrize(("where", "expression"), EXPRESSIONS, ids=[w for w, _ in EXPRESSIONS])
def test_every_metric_and_label_that_is_asked_for_exists(where: str, expression: str) -> None:
    metrics = known()
    found = list(used(expression))
    assert found, where
    grouped = {
        label.strip()
        for labels in re.findall(r"\bby\s*\(([^)]*)\)", expression)
        for label in labels.split(",")
    }
    for name, labels in found:
        assert name in metrics, f"{where}: {name}"
        assert labels <= metrics[name] | TARGET, f"{where}: {name}"
        assert grouped <= metrics[name] | TARGET, f"{where}: {name}"
    assert expression.count("(") == expression.count(")")


def test_a_metric_that_does_not_exist_would_be_found() -> None:
    ((name, labels), (other, _)) = used('sum by (x) (rate(no_such{a="b{c}",d!=""}[5m])) / other')
    assert (name, labels, other) == ("no_such", {"a", "d"}, "other")
    assert name not in known()


def test_alerts_say_what_is_wrong() -> None:
    rules = yaml.safe_load((EXAMPLES / "alerts.yaml").read_text())
    names = [rule["alert"] for group in rules["groups"] for rule in group["rules"]]
    assert len(names) == len(set(names))
    for group in rules["groups"]:
        for rule in group["rules"]:
            assert rule["annotations"]["summary"]
            assert rule["labels"]["severity"] in ("critical", "warning", "info")
            opened = sum(text.count("{{") for text in rule["annotations"].values())
            assert opened == sum(text.count("}}") for text in rule["annotations"].values())


def test_panels_lie_beside_each_other() -> None:
    board = json.loads((EXAMPLES / "dashboard.json").read_text())
    taken: set[tuple[int, int]] = set()
    for panel in board["panels"]:
        at = panel["gridPos"]
        cells = {(at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at["h"])}
        assert not cells & taken, panel["title"]
        assert at["x"] + at["w"] <= 24
        taken |= cells
    ids = [panel["id"] for panel in board["panels"]]
    assert len(ids) == len(set(ids))


def test_scrapes_ask_for_paths_that_there_are() -> None:
    config = yaml.safe_load((EXAMPLES / "prometheus.yaml").read_text())
    jobs = {
        job["job_name"]: job.get("metrics_path", "/metrics") for job in config["scrape_configs"]
    }
    assert jobs == {
        "nodeagent": "/metrics",
        "nodeagent-resource": "/metrics/resource",
        "nodeagent-cadvisor": "/metrics/cadvisor",
        "nodeagent-slis": "/metrics/slis",
    }
