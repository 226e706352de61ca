"""docs/behaviour/sources.md, "URL": the source as a whole, on a server in virtual time."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from anyio.streams.memory import MemoryObjectReceiveStream
from prometheus_client import CollectorRegistry
from tests.unit.sources.damage import DAMAGE
from tests.unit.sources.file_lab import POD
from tests.unit.sources.web_lab import Web, broken_off, endless, serving

from nodeagent.journal import Journal
from nodeagent.model import Snapshot
from nodeagent.sources import UrlSource, fetch
from nodeagent.sources.checkpoint import ManifestCheckpoint
from nodeagent.sources.fetch import Fetcher
from nodeagent.sources.origin import UrlOrigin
from nodeagent.sources.static_pod import document_uid
from nodeagent.sources.verdict_report import ManifestMetrics

pytestmark = pytest.mark.anyio


def pod(name: str, image: str = "busybox", **metadata: str) -> dict[str, object]:
    return {
        "metadata": {"name": name, **metadata},
        "spec": {"containers": [{"name": "c", "image": image}]},
    }


def pod_list(*pods: dict[str, object]) -> str:
    return json.dumps({"apiVersion": "v1", "kind": "PodList", "items": list(pods)})


class Asking:
    """A URL source at work and the snapshots it sends."""

    def __init__(
        self,
        source: UrlSource,
        snapshots: MemoryObjectReceiveStream[Snapshot],
        journal: Journal,
        registry: CollectorRegistry,
    ) -> None:
        self.source = source
        self.snapshots = snapshots
        self.journal = journal
        self.registry = registry

    async def snapshot(self) -> Snapshot:
        with anyio.fail_after(60):
            return await self.snapshots.receive()

    async def next(self) -> dict[str, str]:
        found = await self.snapshot()
        return {p.metadata.name: p.spec.containers[0].image for p in found.pods}

    async def silent(self, seconds: float = 100.0) -> bool:
        with anyio.move_on_after(seconds):
            await self.snapshots.receive()
            return False
        return True

    def told(self, what: str = "ManifestRefused") -> list[str]:
        return [r.why for r in self.journal.select() if r.what == what]

    def counted(self, result: str) -> float | None:
        return self.registry.get_sample_value(
            "nodeagent_manifest_url_fetches_total", {"result": result}
        )


@asynccontextmanager
async def asking(
    site: Web,
    *,
    checkpoint: Path | None = None,
    url: str = "",
    headers: tuple[str, str] = ("A", ""),
) -> AsyncIterator[Asking]:
    send, receive = anyio.create_memory_object_stream[Snapshot](100)
    journal, registry = Journal(), CollectorRegistry()
    url = url or site.url
    source = UrlSource(
        Fetcher(url, [headers]),
        UrlOrigin(url),
        "n1",
        journal=journal,
        metrics=ManifestMetrics(registry),
        checkpoint=ManifestCheckpoint(checkpoint, "n1", tolerate=False) if checkpoint else None,
    )
    with send, receive:
        async with anyio.create_task_group() as tg:
            await tg.start(source.run, send.send)
            yield Asking(source, receive, journal, registry)
            tg.cancel_scope.cancel()


async def test_a_pod_comes_changes_and_goes() -> None:
    """sources.md, UR1, UR2."""
    async with serving() as site:
        site.body = POD % ("web", "one")
        async with asking(site) as run:
            assert await run.next() == {"web-n1": "one"}
            began = anyio.current_time()
            site.body = POD % ("web", "two")
            assert await run.next() == {"web-n1": "two"}
            assert anyio.current_time() - began == pytest.approx(20, abs=0.5)
            site.body = pod_list()
            assert await run.next() == {}


async def test_the_start_does_not_wait_for_an_answer() -> None:
    """sources.md, UR1."""
    async with serving() as site:
        site.handler = site.silent
        began = anyio.current_time()
        async with asking(site) as run:
            assert anyio.current_time() == began
            assert await run.silent(5)


async def test_what_identifies_a_pod_of_a_url() -> None:
    """sources.md, UR12, I1."""
    async with serving() as site:
        site.body = POD % ("web", "one")
        async with asking(site) as run:
            found = await run.snapshot()
            (seen,) = found.pods
            (document,) = run.source.selection.pods.values()
    assert found.source == "http"
    assert seen.metadata.uid == document_uid(document.written, "n1", f"url:{site.url}")
    assert seen.metadata.annotations["kubernetes.io/config.hash"] == seen.metadata.uid
    assert seen.spec.tolerations == ()
    assert (seen.metadata.name, seen.metadata.namespace) == ("web-n1", "default")


@pytest.mark.parametrize("kind", ["PodList", "List", "documents"])
async def test_a_bad_item_keeps_its_last_good_version_and_the_others_change(kind: str) -> None:
    """sources.md, UR2."""

    def write(*pods: dict[str, object]) -> str:
        full = [{"apiVersion": "v1", "kind": "Pod", **pod} for pod in pods]
        if kind == "documents":
            return "---\n".join(json.dumps(p) + "\n" for p in full)
        return json.dumps({"apiVersion": "v1", "kind": kind, "items": full})

    bad = pod("b", "three")
    bad["spec"] = {"containers": [{"name": "c", "imago": "three"}]}
    async with serving() as site:
        site.body = write(pod("a", "one"), pod("b", "one"), pod("b", "other", namespace="ns"))
        async with asking(site) as run:
            before = await run.snapshot()
            site.body = write(pod("a", "two"), bad, pod("b", "more", namespace="ns"))
            after = await run.snapshot()
            assert [
                (p.metadata.namespace, p.metadata.name, p.spec.containers[0].image)
                for p in after.pods
            ] == [("default", "a-n1", "two"), ("ns", "b-n1", "more"), ("default", "b-n1", "one")]
            assert after.pods[2] is before.pods[1]
            where = "items[1].spec" if kind != "documents" else "spec"
            which = ": document 2" if kind == "documents" else ""
            line = 1 if kind != "documents" else 3
            assert run.told() == [
                f"{site.url}{which}: {where}.containers[0].image: required (line {line})"
            ]
            assert run.told("LastGoodKept") == ["default/b"]
            assert list(run.source.problems()) == [site.url]
            # The same once more is no news.
            assert await run.silent()
            assert len(run.told()) == 1
            site.body = write(pod("a", "two"))
            assert await run.next() == {"a-n1": "two"}


NOT_RUN = r"cannot be run from a manifest, expected Pod, List or PodList \(line 1\)"


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("404", "404 Not Found"),
        ("500", "500 Internal Server Error"),
        ("html", "an HTML or XML page instead of manifests"),
        ("stalled", "no complete answer within 10 s"),
        ("broken", "the answer broke off"),
        ("endless", "too large: at least 262144 bytes, the limit is below 10485760"),
        ("blank", "empty: no documents"),
        (
            "yaml",
            r"not valid YAML: mapping values are not allowed in this context \(line 1, column 5\)",
        ),
        ("binary", r"not UTF-8 text: byte 0xfe \(line 1, column 4\)"),
        ("kind", f'kind: a "Status" {NOT_RUN}'),
        ("text", r'expected an object with apiVersion and kind, got the string "ok" \(line 1\)'),
        ("number", r"expected an object with apiVersion and kind, got the number 7 \(line 1\)"),
    ],
)
async def test_a_bad_answer_is_reported_and_the_pods_stay(
    name: str, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """sources.md, UR5, UR6, UR7, L2."""
    # Virtual time passes while a busy machine carries real bytes: few are enough here.
    monkeypatch.setattr(fetch, "SIZE_LIMIT", 1 << 18)
    async with serving() as site:
        site.body = POD % ("web", "one")
        async with asking(site) as run:
            assert await run.next() == {"web-n1": "one"}
            match name:
                case "404" | "500":
                    site.status = int(name)
                case "html":
                    site.body = "<html><body>Please log in</body></html>"
                case "stalled":
                    site.handler = site.stalled
                case "broken":
                    site.handler = broken_off
                case "endless":
                    site.handler = endless
                case _:
                    site.body = {
                        "blank": b" \n",
                        "yaml": b"a: b: c",
                        "binary": b"web\xfe\xfd",
                        "kind": b'{"kind":"Status","apiVersion":"v1","status":"Failure"}',
                        "text": b"ok",
                        "number": b"7",
                    }[name]
            assert await run.silent()
            (line,) = run.told()
            assert re.fullmatch(f"{site.url}: {told}", line), line
            assert run.source.problems() == {site.url: line}
            assert run.told("LastGoodKept") == ["default/web"]
            site.status, site.handler, site.body = 200, None, POD % ("web", "two")
            assert await run.next() == {"web-n1": "two"}
            assert run.source.problems() == {}
            assert run.told("ManifestGood") == [""]


async def test_an_empty_answer_wants_no_pods_and_is_forgotten() -> None:
    """sources.md, UR8."""
    async with serving() as site:
        site.body, site.headers = POD % ("web", "one"), {"ETag": '"1"'}
        async with asking(site) as run:
            assert await run.next() == {"web-n1": "one"}
            site.body = ""
            assert await run.next() == {}
            assert run.told() == [f"{site.url}: an empty answer: no pods"]
            site.body = POD % ("web", "one")
            assert await run.next() == {"web-n1": "one"}
            assert [r.headers.get("If-None-Match") for r in site.requests] == [None, '"1"', None]


async def test_the_same_pods_in_another_form_are_no_update() -> None:
    """sources.md, UR3, UR4."""
    pods = [pod("a"), pod("b"), pod("c", namespace="ns")]
    async with serving() as site:
        site.body = pod_list(*pods)
        async with asking(site) as run:
            first = await run.snapshot()
            for body in (
                pod_list(*pods),
                pod_list(*reversed(pods)),
                json.dumps(json.loads(pod_list(*pods)), indent=3) + "\n\n",
                "# a comment\r\n" + pod_list(*pods),
                "---\n".join(
                    json.dumps({"apiVersion": "v1", "kind": "Pod", **p}) for p in pods
                ).replace("---", "\n---"),
            ):
                site.body = body
                assert await run.silent()
            assert {p.metadata.uid for p in first.pods} == {
                d.uid for d in run.source.selection.pods.values()
            }
            assert run.told() == []


async def test_an_answer_that_has_not_changed_is_not_read_again() -> None:
    """sources.md, UR3."""
    async with serving() as site:
        site.body, site.headers = POD % ("web", "one"), {"ETag": '"1"'}
        async with asking(site) as run:
            assert await run.next() == {"web-n1": "one"}
            assert await run.silent(30)
            site.status, site.body = 304, ""
            assert await run.silent(30)
            counts = [run.counted(result) for result in ("changed", "unchanged", "failed")]
            assert counts[0] == 1
            assert counts[1] is not None
            assert counts[1] >= 2
            assert counts[2] is None
            assert len(site.requests) == 1 + counts[1]


async def test_what_was_wrong_is_still_wrong_when_nothing_has_changed() -> None:
    """sources.md, UR3, V6."""
    async with serving() as site:
        site.body, site.headers = "a: b: c", {"ETag": '"1"'}
        async with asking(site) as run:
            assert await run.next() == {}
            site.status = 304
            assert await run.silent()
            assert "not allowed" in run.source.problems()[site.url]
            assert len(run.told()) == 1


async def test_failures_in_a_row_fall_silent(caplog: pytest.LogCaptureFixture) -> None:
    """sources.md, UR10."""
    caplog.set_level("INFO")
    async with serving() as site:
        site.body = POD % ("web", "one")
        async with asking(site) as run:
            await run.next()
            assert await run.silent(5)
            for status in (500, 501, 502, 503, 504, 505):
                site.status = status
                assert await run.silent(20)
            messages = [r.getMessage() for r in caplog.records]
            assert messages.count("manifest_refused") == 3
            assert messages.count("manifest_url_fails_on") == 1
            assert len(run.told()) == 6
            assert "505" in run.source.problems()[site.url]
            site.status = 200
            assert await run.silent(20)
            assert [r.getMessage() for r in caplog.records][-2:] == [
                "manifest_url_answers_again",
                "manifest_good_again",
            ]


async def test_without_an_answer_the_source_does_not_speak(tmp_path: Path) -> None:
    """sources.md, UR11."""
    async with serving() as site:
        site.status = 404
        async with asking(site, checkpoint=tmp_path / "c.json") as run:
            assert await run.silent()
            assert run.source.problems() == {site.url: f"{site.url}: 404 Not Found"}
            site.status, site.body = 200, POD % ("web", "one")
            assert await run.next() == {"web-n1": "one"}


async def test_the_last_good_pods_survive_a_restart_without_an_answer(tmp_path: Path) -> None:
    """sources.md, UR11, L10."""
    state = tmp_path / "c.json"
    async with serving() as site:
        site.body = pod_list(pod("a"), pod("b"))
        async with asking(site, checkpoint=state) as run:
            before = await run.snapshot()
        site.status = 503
        async with asking(site, checkpoint=state) as run:
            assert (await run.snapshot()).pods == before.pods
            site.status, site.body = 200, pod_list(pod("a"))
            after = await run.snapshot()
            assert after.pods == before.pods[:1]
    assert state.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("damage", DAMAGE)
async def test_damage_to_what_was_kept_is_done_without(tmp_path: Path, damage: str) -> None:
    """sources.md, UR11, L10."""
    state = tmp_path / "c.json"
    async with serving() as site:
        site.body = pod_list(pod("a"), pod("b"))
        async with asking(site, checkpoint=state) as run:
            before = await run.snapshot()
        state.write_bytes(DAMAGE[damage](state.read_bytes()))
        async with asking(site, checkpoint=state) as run:
            assert (await run.snapshot()).pods == before.pods
        assert state.with_name("c.json.damaged").is_file()
        site.status = 503
        async with asking(site, checkpoint=state) as run:
            assert (await run.snapshot()).pods == before.pods


async def test_another_url_with_the_same_pods_keeps_them_after_a_restart(tmp_path: Path) -> None:
    """sources.md, UR11, L8: also when it does not answer at first."""
    state = tmp_path / "c.json"
    async with serving() as site, serving() as other:
        site.body = other.body = POD % ("web", "one")
        async with asking(site, checkpoint=state) as run:
            before = await run.snapshot()
        other.status = 500
        async with asking(other, checkpoint=state) as run:
            assert await run.silent(30)
            other.status = 200
            assert (await run.snapshot()).pods == before.pods


async def test_nothing_secret_is_told(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    """sources.md, UR13."""
    caplog.set_level("DEBUG")
    async with serving() as site:
        url = site.url.replace("//", "//me:SECRET@") + "?token=SECRET#SECRET"
        site.body = "a: b: c"
        async with asking(site, url=url, headers=("X", "SECRET")) as run:
            assert await run.next() == {}
            site.status = 500
            assert await run.silent()
            told = [str(record) for record in run.journal.select()]
            told += [f"{k} {v}" for k, v in run.source.problems().items()]
        assert site.requests[0].headers["X"] == "SECRET"
        assert site.requests[0].query_string == "token=SECRET"
    assert told
    told += [str(vars(record)) for record in caplog.records]
    told.append(repr(UrlOrigin(url)))
    assert [line for line in told if "SECRET" in line] == []
    assert any(f"{site.url}?..." in line for line in told)


async def test_a_cancelled_source_leaves_nothing_behind() -> None:
    async with serving() as site:
        site.handler = site.stalled
        async with asking(site) as run:
            assert await run.silent(3)
