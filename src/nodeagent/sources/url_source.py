"""Pods from a manifest URL: asked once a period; each pod of the answer is judged by itself.

What cannot be fetched or read changes nothing that runs (docs/behaviour/sources.md, "URL").
"""

from __future__ import annotations

import hashlib
from functools import partial
from typing import Final

from anyio import TASK_STATUS_IGNORED, to_thread
from anyio.abc import TaskStatus

from nodeagent.aio import Interval
from nodeagent.api.documents import decode_manifest
from nodeagent.journal import Journal
from nodeagent.log import Log
from nodeagent.model import HTTP_SOURCE
from nodeagent.sources.checkpoint import ManifestCheckpoint
from nodeagent.sources.fetch import Answer, Fetcher, FetchError, Validators
from nodeagent.sources.keeper import Keeper, all_supported
from nodeagent.sources.keeping import FileVerdicts
from nodeagent.sources.origin import UrlOrigin
from nodeagent.sources.selection import Selection, Unsupported
from nodeagent.sources.source import ObjectSink, Publish
from nodeagent.sources.verdict_report import ManifestMetrics

log = Log("source.http")

LOUD_FAILURES: Final = 3
"""Failures in a row that are told at the usual level."""


class UrlSource:
    """Static pods from one URL.

    Args:
        fetcher: fetches the URL.
        origin: the URL.
        node_name: name of the node.
        period: seconds between two requests.
        checkpoint: where the last good documents are kept, or None.
        journal: flight recorder.
        metrics: counts documents and requests, or None.
        unsupported: fields of a pod that this version cannot honour.
        objects: takes the ConfigMaps and Secrets of the answer, too; None for an agent that has
            them from an API server.
    """

    name = HTTP_SOURCE

    def __init__(
        self,
        fetcher: Fetcher,
        origin: UrlOrigin,
        node_name: str,
        *,
        period: float = 20.0,
        checkpoint: ManifestCheckpoint | None = None,
        journal: Journal | None = None,
        metrics: ManifestMetrics | None = None,
        unsupported: Unsupported = all_supported,
        objects: ObjectSink | None = None,
    ) -> None:
        self._fetcher = fetcher
        self._origin = origin
        self._period = Interval(period)
        self._metrics = metrics
        self._keeper = Keeper(
            self.name,
            node_name,
            journal=journal or Journal(),
            metrics=metrics,
            checkpoint=checkpoint,
            unsupported=unsupported,
            tolerate=False,
            objects=objects,
        )
        self._failures = 0
        self._forget()

    def _forget(self) -> None:
        self._validators = Validators()
        self._digest = b""
        self._judged: FileVerdicts | None = None

    @property
    def selection(self) -> Selection:
        """What is in force, and the verdicts of the last answer."""
        return self._keeper.selection

    def problems(self) -> dict[str, str]:
        """The first error of the URL or its documents, if there is one."""
        return self._keeper.problems()

    async def run(
        self, publish: Publish, *, task_status: TaskStatus[None] = TASK_STATUS_IGNORED
    ) -> None:
        """Ask at once and once a period, until cancelled.

        The agent's start does not wait for the first answer. Until there is one, a snapshot is
        published only if pods are known from before.
        """
        await self._keeper.load()
        task_status.started()
        while True:
            await self.look(publish)
            await self._period.sleep()

    def reconfigure(self, period: float) -> None:
        """Ask so often from now on; never blocks."""
        self._period.change(period)

    async def look(self, publish: Publish) -> None:
        """Ask once; publish a snapshot unless it equals the last one."""
        try:
            answer = await self._fetcher.fetch(self._validators)
        except FetchError as error:
            await self._failed(str(error), publish)
            return
        if self._failures > LOUD_FAILURES:
            log.info("manifest_url_answers_again", url=str(self._origin), failures=self._failures)
        self._failures = 0
        file = await self._judge(answer)
        selection = await self._keeper.apply([file], publish)
        if self._judged is not None and not any(v.errors for v in selection.verdicts[0].verdicts):
            lean = tuple(v.without_lines() for v in file.verdicts)
            self._judged = FileVerdicts(self._origin, lean)

    async def _judge(self, answer: Answer) -> FileVerdicts:
        """The verdicts of an answer; the same body is judged once."""
        if answer.body == b"":
            # Not remembered: the next body counts, also if it is the one from before.
            self._forget()
            self._count("changed")
            return FileVerdicts(self._origin, problem="an empty answer: no pods", keeps=False)
        self._validators = answer.validators
        digest = self._digest if answer.body is None else hashlib.sha256(answer.body).digest()
        if self._judged is not None and digest == self._digest:
            self._count("unchanged")
            return self._judged
        self._count("changed")
        read = partial(
            decode_manifest, answer.body or b"", self._origin.name, kinds=self._keeper.kinds
        )
        verdicts = await to_thread.run_sync(read, abandon_on_cancel=True)
        self._digest, self._judged = digest, FileVerdicts(self._origin, tuple(verdicts))
        return self._judged

    async def _failed(self, cause: str, publish: Publish) -> None:
        self._failures += 1
        self._count("failed")
        if self._failures == LOUD_FAILURES + 1:
            log.info("manifest_url_fails_on", url=str(self._origin), further="told at debug level")
        log.debug("manifest_url_failed", url=str(self._origin), cause=cause, times=self._failures)
        file = FileVerdicts(self._origin, problem=cause)
        quiet = self._failures > LOUD_FAILURES
        await self._keeper.apply([file], publish, sure=False, quiet=quiet)

    def _count(self, result: str) -> None:
        if self._metrics is not None:
            self._metrics.fetches.labels(result).inc()
