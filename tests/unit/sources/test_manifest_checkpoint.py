"""The last good manifests on disk, over restarts and damage."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from nodeagent.api.codec import decode_pod
from nodeagent.api.documents import OBJECTS, Identity, decode_manifest
from nodeagent.journal import Journal
from nodeagent.model import Snapshot
from nodeagent.sources import FileSource
from nodeagent.sources.checkpoint import ManifestCheckpoint
from nodeagent.sources.keeping import FileVerdicts
from nodeagent.sources.object_selection import select_objects
from nodeagent.sources.selection import InForce, select
from nodeagent.sources.static_pod import document_uid, make_static_pod
from nodeagent.state_file import StateFile

MANIFEST = """apiVersion: v1
kind: Pod
metadata: {name: %s, namespace: %s, annotations: {note: "café"}}
spec: {containers: [{name: c, image: busybox}]}
"""


def in_force(path: Path, *pods: tuple[str, str]) -> dict[Identity, InForce]:
    text = "---\n".join(MANIFEST % pod for pod in pods)
    verdicts = tuple(decode_manifest(text.encode(), path.name))
    return dict(select([FileVerdicts(path, verdicts)], {}, "node1").pods)


def checkpoint(directory: Path, node: str = "node1") -> ManifestCheckpoint:
    return ManifestCheckpoint(directory / "manifests.json", node)


def test_what_was_in_force_is_in_force_again(tmp_path: Path) -> None:
    """sources.md, L10."""
    before = in_force(Path("/m/web.yaml"), ("web", "default"), ("web", "other"))
    assert len(before) == 2
    checkpoint(tmp_path).save(before.values())
    assert checkpoint(tmp_path).load() == before


@pytest.mark.parametrize(
    "name", ["a b.yaml", "50%25.yaml", "naïve.yaml", os.fsdecode(b"\xff.yaml")]
)
def test_any_file_name_is_kept(tmp_path: Path, name: str) -> None:
    pod = decode_pod(b'{"metadata":{"name":"web"},"spec":{"containers":[]}}')
    written = b'{"metadata":{"name":"web"},"spec":{"containers":[]}}'
    path = Path("/m") / name
    uid = document_uid(written, "node1", f"file:{path}")
    kept = InForce(
        Identity("default", "web"), path, written, uid, make_static_pod(pod, uid, "node1")
    )
    checkpoint(tmp_path).save([kept])
    assert checkpoint(tmp_path).load() == {kept.identity: kept}


def test_a_first_start_has_nothing(tmp_path: Path) -> None:
    assert checkpoint(tmp_path).load() == {}
    assert list(tmp_path.iterdir()) == []


def test_nothing_in_force_is_kept_as_nothing(tmp_path: Path) -> None:
    checkpoint(tmp_path).save([])
    assert checkpoint(tmp_path).load() == {}


def test_documents_of_another_node_are_not_taken(tmp_path: Path) -> None:
    """sources.md, L10."""
    checkpoint(tmp_path).save(in_force(Path("/m/web.yaml"), ("web", "default")).values())
    assert checkpoint(tmp_path, "other").load() == {}


def test_a_damaged_file_is_as_good_as_none(tmp_path: Path) -> None:
    """sources.md, L10."""
    (tmp_path / "manifests.json").write_bytes(b"{{{")
    assert checkpoint(tmp_path).load() == {}
    checkpoint(tmp_path).save([])
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "manifests.json",
        "manifests.json.damaged",
    ]


@pytest.mark.parametrize(
    "content",
    [
        None,
        [],
        "text",
        7,
        {},
        {"node": "node1"},
        {"node": "node1", "documents": None},
        {"node": "node1", "documents": 7},
        {"node": "node1", "documents": {"a": 1}},
        {"node": "node1", "documents": [None, 1, "x", [], {}, {"namespace": "d"}]},
    ],
)
def test_content_of_an_odd_shape_is_nothing(tmp_path: Path, content: Any) -> None:
    StateFile(tmp_path / "manifests.json").save(content)
    assert checkpoint(tmp_path).load() == {}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("written", "{"),
        ("written", '{"spec": 7}'),
        ("written", None),
        ("path", 7),
        ("uid", None),
        ("name", None),
    ],
)
def test_one_bad_entry_costs_only_itself(tmp_path: Path, field: str, value: Any) -> None:
    before = in_force(Path("/m/web.yaml"), ("web", "default"), ("db", "default"))
    checkpoint(tmp_path).save(before.values())
    file = StateFile(tmp_path / "manifests.json")
    content = file.load()
    if value is None:
        del content["documents"][0][field]
    else:
        content["documents"][0][field] = value
    file.save(content)
    assert list(checkpoint(tmp_path).load()) == [Identity("default", "db")]


@pytest.mark.anyio
@pytest.mark.realtime
async def test_a_file_name_of_arbitrary_bytes_costs_no_pod_and_no_source(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    odd = os.path.join(os.fsencode(tmp_path / "in"), b"we\xffb.yaml")  # noqa: PTH118 - bytes
    with open(odd, "wb") as file:  # noqa: PTH123 - bytes
        file.write((MANIFEST % ("web", "default")).encode())
    send, receive = anyio.create_memory_object_stream[Snapshot](100)
    source = FileSource(
        [tmp_path / "in"], "node1", period=0.2, checkpoint=checkpoint(tmp_path), journal=Journal()
    )
    with send, receive, anyio.fail_after(30):
        async with anyio.create_task_group() as tg:
            await tg.start(source.run, send.send)
            first = await receive.receive()
            (tmp_path / "in" / "db.yaml").write_bytes((MANIFEST % ("db", "default")).encode())
            second = await receive.receive()
            tg.cancel_scope.cancel()
    assert [p.metadata.name for p in first.pods] == ["web-node1"]
    assert {p.metadata.name for p in second.pods} == {"web-node1", "db-node1"}
    assert {d.origin.name for d in checkpoint(tmp_path).load().values()} == {
        "db.yaml",
        os.fsdecode(b"we\xffb.yaml"),
    }


def test_config_maps_are_kept_and_secrets_are_not(tmp_path: Path) -> None:
    """objects.md, OS8."""
    text = (
        "{apiVersion: v1, kind: ConfigMap, metadata: {name: settings}, data: {a: b}}\n"
        "---\n{apiVersion: v1, kind: Secret, metadata: {name: login}, stringData: {a: xyzzy}}\n"
    )
    verdicts = tuple(decode_manifest(text.encode(), "a.yaml", kinds=OBJECTS))
    files = (FileVerdicts(Path("/m/a.yaml"), verdicts),)
    found = select_objects(files, {}, "node1").objects
    assert len(found) == 2
    checkpoint(tmp_path).save([], found.values())
    again = checkpoint(tmp_path)
    assert again.load() == {}
    (kept,) = again.objects.values()
    assert kept == found[Identity("default", "settings", "ConfigMap")]
    assert "xyzzy" not in "".join(p.read_text() for p in tmp_path.iterdir())


def test_a_damaged_config_map_costs_only_itself(tmp_path: Path) -> None:
    text = "{apiVersion: v1, kind: ConfigMap, metadata: {name: settings}, data: {a: b}}\n"
    verdicts = tuple(decode_manifest(text.encode(), "a.yaml", kinds=OBJECTS))
    found = select_objects((FileVerdicts(Path("/m/a.yaml"), verdicts),), {}, "node1").objects
    (good,) = found.values()
    checkpoint(tmp_path).save([], [replace(good, written=b"[]"), good])
    again = checkpoint(tmp_path)
    again.load()
    assert list(again.objects.values()) == [good]
