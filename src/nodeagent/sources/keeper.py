"""Holds the documents of a source in force: selects, reports, saves and publishes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from operator import is_

import anyio
from anyio import to_thread

from nodeagent.api.documents import OBJECTS, PODS, Identity
from nodeagent.api.references import STANDALONE
from nodeagent.journal import Journal
from nodeagent.log import Log
from nodeagent.model import Snapshot
from nodeagent.sources.checkpoint import ManifestCheckpoint
from nodeagent.sources.keeping import FileVerdicts, Held
from nodeagent.sources.manifest_scan import PathSeen
from nodeagent.sources.object_selection import ObjectInForce, ObjectSelection, select_objects
from nodeagent.sources.origin import Origin
from nodeagent.sources.selection import InForce, Selection, Unsupported, select
from nodeagent.sources.source import ObjectSink, Publish
from nodeagent.sources.verdict_report import ManifestMetrics, VerdictReport


def all_supported(_pod: object) -> Sequence[str]:
    """Nothing of a pod that could not be honoured."""
    return ()


class Keeper:
    """What files and URLs have in common once their documents are judged.

    Args:
        source: the source's name.
        node_name: name of the node.
        journal: flight recorder.
        metrics: counts, or None.
        checkpoint: where the last good documents are kept, or None.
        unsupported: fields of a pod that this version cannot honour.
        tolerate: whether the pods tolerate NoExecute taints (those from files do).
        objects: takes ConfigMaps and Secrets, which pods may then refer to; None when these
            come from an API server.
    """

    def __init__(
        self,
        source: str,
        node_name: str,
        *,
        journal: Journal,
        metrics: ManifestMetrics | None = None,
        checkpoint: ManifestCheckpoint | None = None,
        unsupported: Unsupported = all_supported,
        tolerate: bool = True,
        objects: ObjectSink | None = None,
    ) -> None:
        self._source = source
        self._node_name = node_name
        self._checkpoint = checkpoint
        self._unsupported = unsupported
        self._tolerate = tolerate
        self._sink = objects
        self.kinds = PODS if objects is None else OBJECTS
        """Kinds of documents that are judged."""
        self._log = Log(f"source.{source}")
        self._journal = journal
        self._report = VerdictReport(source, journal, metrics)
        self._sent: Mapping[Identity, InForce] | None = None
        self._saved: tuple[tuple[Origin, bytes], ...] | None = None
        self._refused_save = ""
        self._lock = anyio.Lock()
        self.selection = Selection({}, (), {})
        """What is in force, and the verdict of every file."""
        self.objects: Mapping[Identity, ObjectInForce] = {}
        """ConfigMaps and Secrets in force."""
        self._given: tuple[object, ...] | None = None

    @property
    def origins(self) -> set[Origin]:
        """Where that comes from."""
        held: tuple[Held, ...] = (*self.selection.pods.values(), *self.objects.values())
        return {document.origin for document in held}

    @property
    def spoken(self) -> bool:
        """Whether a snapshot was published."""
        return self._sent is not None

    def problems(self) -> dict[str, str]:
        """The first error of every file or URL that has one."""
        return self._report.problems()

    async def load(self) -> None:
        """Take up what was in force when the last agent ended."""
        if self._checkpoint is not None:
            before = await to_thread.run_sync(self._checkpoint.load)
            self.selection = Selection(before, (), {})
            if self._sink is not None:
                self.objects = self._checkpoint.objects
            self._note("CheckpointDamaged", self._checkpoint.problem)

    def _note(self, what: str, why: str) -> None:
        if why:
            self._journal.record("checkpoint", what, "", why, source=self._source)

    async def apply(
        self,
        files: Sequence[FileVerdicts],
        publish: Publish,
        *,
        seen: Sequence[PathSeen] = (),
        sure: bool = True,
        quiet: bool = False,
    ) -> Selection:
        """Put verdicts in force; publish a snapshot unless it equals the last one.

        Args:
            files: verdicts of all files, in the order in which they count.
            publish: takes the snapshot.
            seen: the paths on which the files lie.
            sure: False when the source itself could not be reached: then it stays silent if it
                knows of no pods, and has not spoken before.
            quiet: say what is wrong at debug level.
        """
        async with self._lock:
            selection, objects = self._select(files)
            self._report.report(seen, selection, objects, quiet=quiet)
            if not (sure or self.spoken or selection.pods or objects.objects):
                return selection
            self.selection, self.objects = selection, objects.objects
            await self._save(tuple(selection.pods.values()), tuple(objects.objects.values()))
            # Before the pods: whatever they refer to is there when they come.
            self._give()
            if not self._is_news(selection):
                return selection
            pods = tuple(document.pod for document in selection.pods.values())
            await publish(Snapshot(self._source, pods))
            self._sent = selection.pods
            return selection

    def _select(self, files: Sequence[FileVerdicts]) -> tuple[Selection, ObjectSelection]:
        selection = select(
            files,
            self.selection.pods,
            self._node_name,
            self._unsupported,
            tolerate=self._tolerate,
            allowed=() if self._sink is None else STANDALONE,
        )
        if self._sink is None:
            return selection, ObjectSelection()
        objects = select_objects(selection.verdicts, self.objects, self._node_name)
        return replace(selection, verdicts=objects.verdicts), objects

    def _give(self) -> None:
        values = tuple(document.value for document in self.objects.values())
        if self._sink is None or (self._given is not None and _same(values, self._given)):
            return
        self._given = values
        self._sink.put(self._source, values)

    def _is_news(self, selection: Selection) -> bool:
        """Whether other pods are in force than those last sent; their order means nothing."""
        if self._sent is None:
            return True
        sent = {identity: document.pod for identity, document in self._sent.items()}
        now = selection.pods
        return sent.keys() != now.keys() or any(
            pod is not now[identity].pod for identity, pod in sent.items()
        )

    async def _save(self, documents: Sequence[InForce], objects: Sequence[ObjectInForce]) -> None:
        held: tuple[Held, ...] = (*documents, *objects)
        state = tuple((d.origin, d.written) for d in held)
        if self._checkpoint is None or state == self._saved:
            return
        try:
            await self._checkpoint.save_in_time(documents, objects)
        except OSError as error:
            cause = error.strerror or str(error)
            if self._refused_save != cause:
                self._log.warning("checkpoint_not_saved", what="last good manifests", cause=cause)
                self._note("CheckpointNotSaved", cause)
            self._refused_save = cause
            return
        if self._refused_save:
            self._log.info("checkpoint_saved_again", what="last good manifests")
            self._note("CheckpointSavedAgain", "after: " + self._refused_save)
        self._saved, self._refused_save = state, ""

    def refused(self) -> dict[str, str]:
        """Why the last good documents cannot be saved, by file name; empty when they can."""
        return self._checkpoint.refused if self._checkpoint is not None else {}


def _same(values: Sequence[object], before: Sequence[object]) -> bool:
    """Whether these are the very same objects."""
    return len(values) == len(before) and all(map(is_, values, before))
