"""docs/behaviour/sources.md, "Verdicts": what is said about manifests, where, and how often."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from nodeagent.api.documents import Identity, decode_manifest
from nodeagent.journal import Journal
from nodeagent.sources.keeping import FileVerdicts
from nodeagent.sources.manifest_scan import PathSeen
from nodeagent.sources.selection import Selection, select
from nodeagent.sources.verdict_report import ManifestMetrics, VerdictReport

GOOD = """apiVersion: v1
kind: Pod
metadata: {name: one}
spec: {containers: [{name: c, image: busybox}]}
"""
BAD = GOOD.replace("image", "imago")
ODD = GOOD.replace("spec:", "extra: 1\nspec:")
WEB = Path("/m/web.yaml")


class Told:
    """A report, and what it has said since it was last asked."""

    def __init__(self) -> None:
        self.journal = Journal()
        self.registry = CollectorRegistry()
        self.report = VerdictReport("file", self.journal, ManifestMetrics(self.registry))
        self.selection = Selection({}, (), {})
        self._heard = 0

    def look(self, files: Mapping[Path, str], *paths: PathSeen) -> list[tuple[str, str]]:
        """Look at files; what the journal says of them."""
        judged = [
            FileVerdicts(path, tuple(decode_manifest(text.encode(), path.name)))
            for path, text in files.items()
        ]
        self.selection = select(judged, self.selection.pods, "n1")
        self.report.report(paths, self.selection)
        records = self.journal.select()[self._heard :]
        self._heard += len(records)
        return [(record.what, record.why) for record in records]

    def documents(self, verdict: str) -> float | None:
        name = "nodeagent_manifest_documents"
        return self.registry.get_sample_value(name, {"source": "file", "verdict": verdict})


REFUSED = "web.yaml: spec.containers[0].image: required (line 4)"


def test_v1_v3_v4_a_bad_document_is_told_once_what_stays_is_named_and_so_is_its_return(
    caplog: pytest.LogCaptureFixture,
) -> None:
    told = Told()
    assert told.look({WEB: GOOD}) == []
    first = told.look({WEB: BAD})
    assert ("ManifestRefused", REFUSED) in first
    assert ("LastGoodKept", "default/one") in first
    assert told.look({WEB: BAD}) == []
    assert told.look({WEB: GOOD}) == [("ManifestGood", "")]
    messages = [record.getMessage() for record in caplog.records]
    assert messages.count("manifest_refused") == 1
    assert messages.count("last_good_kept") == 1


def test_v1_another_problem_is_told_again_with_document_field_and_pod() -> None:
    told = Told()
    told.look({WEB: GOOD + "---\n" + BAD.replace("one", "two")})
    told.look({WEB: BAD + "---\n" + BAD.replace("one", "two")})
    refused = [r for r in told.journal.select() if r.what == "ManifestRefused"]
    facts = [record.fields or {} for record in refused]
    assert [(fact.get("document"), fact["field"]) for fact in facts] == [
        (2, "spec.containers[0].image"),
        (1, "spec.containers[0].image"),
        (2, "spec.containers[0].image"),
    ]
    uid = told.selection.pods[Identity("default", "one")].uid
    assert [r.pod for r in refused] == ["", uid, ""]
    assert {fact["file"] for fact in facts} == {str(WEB)}


def test_v2_a_warning_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    told = Told()
    (warning,) = told.look({WEB: ODD})
    assert warning[0] == "ManifestWarning"
    assert warning[1].startswith("web.yaml: extra: unknown field")
    assert told.look({WEB: ODD}) == []
    assert [record.getMessage() for record in caplog.records] == ["manifest_warning"]


def test_v5_good_bad_and_kept_documents_are_counted() -> None:
    told = Told()
    told.look({WEB: GOOD + "---\n" + GOOD.replace("one", "two")})
    assert [told.documents(v) for v in ("good", "bad", "kept")] == [2, 0, 0]
    told.look({WEB: GOOD + "---\n" + BAD.replace("one", "two")})
    assert [told.documents(v) for v in ("good", "bad", "kept")] == [1, 1, 1]


def test_v6_the_first_error_of_each_file_and_path_is_there_for_healthz() -> None:
    told = Told()
    nowhere = PathSeen(Path("/nowhere"), problem="path does not exist, ignoring", missing=True)
    told.look({WEB: BAD, Path("/m/b.yaml"): GOOD.replace("one", "two")}, nowhere)
    problems = told.report.problems()
    assert problems["/nowhere"] == "/nowhere: path does not exist, ignoring"
    assert problems.keys() == {"/nowhere", str(WEB)}
    assert told.documents("good") == 1
    told.look({WEB: GOOD})
    assert told.report.problems() == {}


@pytest.mark.parametrize(("text", "what"), [(BAD, "ManifestRefused"), (ODD, "ManifestWarning")])
def test_v1_v2_a_file_with_very_many_faults_does_not_fill_the_journal(text: str, what: str) -> None:
    """sources.md, V1, V2."""
    told = Told()
    many = "---\n".join(text.replace("name: one", f"name: p{n}") for n in range(250))
    said = [record for record in told.look({WEB: many}) if record[0] == what]
    assert len(said) == 101
    assert said[-1] == (what, "web.yaml: and 150 more")
