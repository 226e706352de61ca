"""Says what is wrong with manifests: once, and again when it changes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from prometheus_client import CollectorRegistry, Counter, Gauge

from nodeagent.api.documents import Verdict
from nodeagent.journal import Journal
from nodeagent.log import Log
from nodeagent.sources.keeping import FileVerdicts
from nodeagent.sources.manifest_scan import PathSeen
from nodeagent.sources.object_selection import ObjectSelection
from nodeagent.sources.origin import Origin, origin_name, shown_path
from nodeagent.sources.selection import Selection

_MOST_REMARKS: Final = 100
"""Lines that are said of one file: its ten thousand bad documents must not fill the journal."""


NO_OBJECTS: Final = ObjectSelection()


class Remark(NamedTuple):
    """One line about a file: its text, and what it is about as far as that is known."""

    text: str
    document: int = 0
    field: str = ""
    uid: str = ""


class ManifestMetrics:
    """Counts the documents of all sources by verdict."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.documents = Gauge(
            "nodeagent_manifest_documents",
            "Documents in manifests by source and verdict",
            ["source", "verdict"],
            registry=registry,
        )
        self.fetches = Counter(
            "nodeagent_manifest_url_fetches",
            "Requests of the manifest URL by result",
            ["result"],
            registry=registry,
        )


class VerdictReport:
    """Reports verdicts to log, journal and metric.

    Args:
        source: the source's name.
        journal: flight recorder.
        metrics: counts, or None.
    """

    def __init__(
        self, source: str, journal: Journal, metrics: ManifestMetrics | None = None
    ) -> None:
        self._source = source
        self._journal = journal
        self._errors: dict[Origin, tuple[Remark, ...]] = {}
        self._warnings: dict[Origin, tuple[Remark, ...]] = {}
        self._metrics = metrics
        self._log = Log(f"source.{source}")
        self._say = self._log.warning

    def problems(self) -> dict[str, str]:
        """The first error of every file that has one."""
        return {str(origin): remarks[0].text for origin, remarks in self._errors.items() if remarks}

    def report(
        self,
        seen: Sequence[PathSeen],
        selection: Selection,
        objects: ObjectSelection = NO_OBJECTS,
        *,
        quiet: bool = False,
    ) -> None:
        """Say what is new about the files that were just looked at.

        Args:
            seen: the paths; empty for a source that has none.
            selection: what is in force.
            objects: the ConfigMaps and Secrets in force.
            quiet: log it at debug level only.
        """
        self._say = self._log.debug if quiet else self._log.warning
        errors: dict[Origin, tuple[Remark, ...]] = {}
        warnings: dict[Origin, tuple[Remark, ...]] = {}
        for path in seen:
            if path.problem:
                errors[path.path] = (Remark(f"{shown_path(str(path.path))}: {path.problem}"),)
        for file in selection.verdicts:
            if file.unjudged:
                errors.setdefault(file.origin, self._errors.get(file.origin, ()))
                warnings[file.origin] = self._warnings.get(file.origin, ())
                continue
            errors[file.origin] = _bounded(file.origin, _errors_of(file, selection))
            warnings[file.origin] = _bounded(file.origin, _warnings_of(file, selection))
        for origin, remarks in warnings.items():
            self._warn(origin, remarks)
        for origin, remarks in errors.items():
            if remarks != self._errors.get(origin, ()):
                self._tell(origin, remarks, selection, objects)
        self._errors, self._warnings = errors, warnings
        self._count(selection, objects)

    def _tell(
        self,
        origin: Origin,
        remarks: Sequence[Remark],
        selection: Selection,
        objects: ObjectSelection,
    ) -> None:
        for remark in remarks:
            self._say("manifest_refused", verdict=remark.text, file=str(origin))
            self._record("ManifestRefused", origin, remark)
        kept = [identity for identity, file in selection.kept.items() if file == origin]
        for identity in kept:
            name = f"{identity.namespace}/{identity.name}"
            self._say("last_good_kept", pod=name, file=str(origin))
            self._record("LastGoodKept", origin, Remark(name, uid=selection.pods[identity].uid))
        for identity in (found for found, file in objects.kept.items() if file == origin):
            name = f"{identity.kind} {identity.namespace}/{identity.name}"
            self._say("last_good_kept", object=name, file=str(origin))
            self._record("LastGoodKept", origin, Remark(name))
        if not remarks and self._errors.get(origin):
            self._log.info("manifest_good_again", file=str(origin))
            self._record("ManifestGood", origin, Remark(""))

    def _warn(self, origin: Origin, remarks: Sequence[Remark]) -> None:
        if remarks == self._warnings.get(origin, ()):
            return
        for remark in remarks:
            self._log.warning("manifest_warning", verdict=remark.text, file=str(origin))
            self._record("ManifestWarning", origin, remark)

    def _record(self, what: str, origin: Origin, remark: Remark) -> None:
        facts: dict[str, Any] = {"file": str(origin)}
        if remark.document:
            facts["document"] = remark.document
        if remark.field:
            facts["field"] = remark.field
        self._journal.record("source", what, remark.uid, remark.text, **facts)

    def _count(self, selection: Selection, objects: ObjectSelection) -> None:
        if self._metrics is None:
            return
        unjudged = {file.origin for file in selection.verdicts if file.unjudged}
        kept_from = (*selection.kept.values(), *objects.kept.values())
        kept = sum(origin not in unjudged for origin in kept_from)
        bad = sum(
            bool(f.problem) + sum(bool(v.errors) for v in f.verdicts) for f in selection.verdicts
        )
        counts = {
            "bad": bad,
            "good": len(selection.pods) + len(objects.objects) - kept,
            "kept": kept,
        }
        for verdict, count in counts.items():
            self._metrics.documents.labels(self._source, verdict).set(count)


def _bounded(origin: Origin, remarks: Iterable[Remark]) -> tuple[Remark, ...]:
    """The first of them, and how many more there are."""
    told = tuple(remarks)
    more = len(told) - _MOST_REMARKS
    if more <= 0:
        return told
    return (*told[:_MOST_REMARKS], Remark(f"{origin_name(origin)}: and {more} more"))


def _errors_of(file: FileVerdicts, selection: Selection) -> Iterable[Remark]:
    if file.problem:
        yield Remark(f"{origin_name(file.origin)}: {file.problem}")
    for verdict in file.verdicts:
        uid = _uid(verdict, selection)
        for line, problem in zip(verdict.error_lines(), verdict.errors, strict=True):
            yield Remark(line, verdict.document, problem.path, uid)


def _warnings_of(file: FileVerdicts, selection: Selection) -> Iterable[Remark]:
    for verdict in file.verdicts:
        uid = _uid(verdict, selection)
        for line, problem in zip(verdict.warning_lines(), verdict.warnings, strict=True):
            yield Remark(line, verdict.document, problem.path, uid)


def _uid(verdict: Verdict, selection: Selection) -> str:
    """UID of the pod that the document is about, "" when none of that name is in force."""
    found = selection.pods.get(verdict.identity) if verdict.identity is not None else None
    return found.uid if found is not None else ""
