"""Says what is wrong with manifests: once, and again when it changes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from prometheus_client import CollectorRegistry, Gauge

from nodeagent.api.documents import Verdict
from nodeagent.journal import Journal
from nodeagent.log import Log
from nodeagent.sources.manifest_scan import PathSeen
from nodeagent.sources.selection import FileVerdicts, Selection

log = Log("source.file")


class Remark(NamedTuple):
    """One line about a file: its text, and what it is about as far as that is known."""

    text: str
    document: int = 0
    field: str = ""
    uid: str = ""


class VerdictReport:
    """Reports verdicts to log, journal and metric.

    Args:
        journal: flight recorder.
        registry: for the metric, or None.
    """

    def __init__(self, journal: Journal, registry: CollectorRegistry | None = None) -> None:
        self._journal = journal
        self._errors: dict[Path, tuple[Remark, ...]] = {}
        self._warnings: dict[Path, tuple[Remark, ...]] = {}
        self._gauge: Gauge | None = None
        if registry is not None:
            self._gauge = Gauge(
                "nodeagent_manifest_documents",
                "Documents in manifest files by verdict",
                ["verdict"],
                registry=registry,
            )

    def problems(self) -> dict[str, str]:
        """The first error of every file that has one."""
        return {str(path): remarks[0].text for path, remarks in self._errors.items() if remarks}

    def report(self, seen: Sequence[PathSeen], selection: Selection) -> None:
        """Say what is new about the files that were just looked at."""
        errors: dict[Path, tuple[Remark, ...]] = {}
        for path in seen:
            if path.problem:
                errors[path.path] = (Remark(f"{path.path}: {path.problem}"),)
        for file in selection.verdicts:
            errors[file.path] = tuple(_errors_of(file, selection))
            self._warn(file, selection)
        for file_path, remarks in errors.items():
            if remarks != self._errors.get(file_path, ()):
                self._tell(file_path, remarks, selection)
        self._errors = errors
        self._count(selection)

    def _tell(self, path: Path, remarks: Sequence[Remark], selection: Selection) -> None:
        for remark in remarks:
            log.warning("manifest_refused", verdict=remark.text, file=str(path))
            self._record("ManifestRefused", path, remark)
        kept = [identity for identity, file in selection.kept.items() if file == path]
        for identity in kept:
            name = f"{identity.namespace}/{identity.name}"
            log.warning("last_good_kept", pod=name, file=str(path))
            self._record("LastGoodKept", path, Remark(name, uid=selection.pods[identity].uid))
        if not remarks and self._errors.get(path):
            log.info("manifest_good_again", file=str(path))
            self._record("ManifestGood", path, Remark(""))

    def _warn(self, file: FileVerdicts, selection: Selection) -> None:
        remarks = tuple(
            Remark(line, v.document, problem.path, _uid(v, selection))
            for v in file.verdicts
            for line, problem in zip(v.warning_lines(), v.warnings, strict=True)
        )
        if remarks == self._warnings.get(file.path, ()):
            return
        self._warnings[file.path] = remarks
        for remark in remarks:
            log.warning("manifest_warning", verdict=remark.text, file=str(file.path))
            self._record("ManifestWarning", file.path, remark)

    def _record(self, what: str, path: Path, remark: Remark) -> None:
        facts: dict[str, Any] = {"file": str(path)}
        if remark.document:
            facts["document"] = remark.document
        if remark.field:
            facts["field"] = remark.field
        self._journal.record("source", what, remark.uid, remark.text, **facts)

    def _count(self, selection: Selection) -> None:
        if self._gauge is None:
            return
        bad = sum(
            bool(f.problem) + sum(bool(v.errors) for v in f.verdicts) for f in selection.verdicts
        )
        self._gauge.labels("bad").set(bad)
        self._gauge.labels("good").set(len(selection.pods) - len(selection.kept))
        self._gauge.labels("kept").set(len(selection.kept))


def _errors_of(file: FileVerdicts, selection: Selection) -> Iterable[Remark]:
    if file.problem:
        yield Remark(f"{file.path.name}: {file.problem}")
    for verdict in file.verdicts:
        uid = _uid(verdict, selection)
        for line, problem in zip(verdict.error_lines(), verdict.errors, strict=True):
            yield Remark(line, verdict.document, problem.path, uid)


def _uid(verdict: Verdict, selection: Selection) -> str:
    """UID of the pod that the document is about, "" when none of that name is in force."""
    found = selection.pods.get(verdict.identity) if verdict.identity is not None else None
    return found.uid if found is not None else ""
