"""API pods while the server is away (docs/behaviour/api-source.md, "Without a server")."""

from __future__ import annotations

import stat
from collections.abc import Iterable
from pathlib import Path

import anyio
import pytest
from tests.unit.sources.api_lab import NODE, ApiLab
from tests.unit.sources.damage import DAMAGE

from nodeagent.api import Pod
from nodeagent.sources.api_checkpoint import GAP, ApiCheckpoint
from nodeagent.sources.api_source import PATIENCE
from nodeagent.testing import ApiStore, make_pod

pytestmark = pytest.mark.anyio


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "checkpoints" / "api-pods.json"


def saved(file: Path) -> list[str]:
    return sorted(pod.metadata.name for pod in ApiCheckpoint(file, NODE).load().pods)


async def lived(file: Path, *names: str) -> ApiLab:
    """An agent has run, with these pods, and has ended."""
    lab = ApiLab(checkpoint=file)
    for name in names:
        lab.add(name, annotations={"note": name})
    async with lab.running():
        await lab.names(*names)
    return lab


async def test_of1_the_pods_are_saved_readable_by_the_owner_only(file: Path) -> None:
    await lived(file, "a", "b")
    assert saved(file) == ["a", "b"]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700


async def test_of1_what_is_saved_is_the_whole_pod(file: Path) -> None:
    lab = await lived(file, "a")
    loaded = ApiCheckpoint(file, NODE).load()
    assert loaded.pods == lab.snapshots[-1].pods
    assert loaded.version == "1001"


async def test_of1_saves_are_few(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saves = 0
    save = ApiCheckpoint.save

    def counted(self: ApiCheckpoint, pods: Iterable[Pod], version: str) -> None:
        nonlocal saves
        saves += 1
        save(self, pods, version)

    monkeypatch.setattr(ApiCheckpoint, "save", counted)
    lab = ApiLab(checkpoint=file)
    lab.add("a")
    async with lab.running():
        await lab.names("a")
        for number in range(100):
            lab.mark("a", number=str(number))
            await anyio.sleep(0.1)
        assert saves <= 10 / GAP + 2
        await anyio.sleep(2 * GAP)
        before = saves
        lab.store.bookmark()
        await anyio.sleep(100)
        assert saves == before, "nothing has changed"
        lab.mark("a", number="last")
        await anyio.sleep(0.01)
    assert ApiCheckpoint(file, NODE).load().pods[0].metadata.labels == {"number": "last"}


async def test_of2_a_server_that_answers_in_time_is_all_that_counts(file: Path) -> None:
    before = await lived(file, "a", "removed")
    before.store.delete("pods", "removed", grace=0)
    lab = ApiLab(before.store, checkpoint=file)
    lab.client.cut()
    async with lab.running():
        await anyio.sleep(PATIENCE - 3)
        lab.client.heal()
        lab.source.retry_now()
        await lab.names("a")
        await anyio.sleep(60)
        assert [snapshot.remembered for snapshot in lab.snapshots] == [False]


async def test_of3_of4_without_an_answer_the_pods_are_remembered(file: Path) -> None:
    before = await lived(file, "a", "b")
    before.store.delete("pods", "b", grace=0)
    lab = ApiLab(before.store, checkpoint=file)
    lab.client.cut()
    async with lab.running():
        began = anyio.current_time()
        await anyio.sleep(PATIENCE - 1)
        assert lab.snapshots == []
        await lab.names("a", "b")
        assert anyio.current_time() - began == pytest.approx(PATIENCE, abs=1)
        assert lab.snapshots[-1].remembered
        assert not lab.source.synced
        assert lab.told("CheckpointUsed") == ["cannot watch pods: connection refused"]
        await anyio.sleep(300)
        assert len(lab.snapshots) == 1
        lab.client.heal()
        await lab.names("a")
        assert [snapshot.remembered for snapshot in lab.snapshots] == [True, False]
    assert saved(file) == ["a"]


async def test_of3_it_is_not_overwritten_before_the_server_has_spoken(file: Path) -> None:
    await lived(file, "a")
    lab = ApiLab(checkpoint=file)
    lab.client.cut()
    async with lab.running():
        await anyio.sleep(120)
    assert saved(file) == ["a"]


async def test_of3_without_a_checkpoint_nothing_is_said(file: Path) -> None:
    lab = ApiLab(checkpoint=file)
    lab.client.cut()
    async with lab.running():
        await anyio.sleep(120)
        assert lab.snapshots == []


async def test_of5_nothing_older_than_the_checkpoint_is_asked_for(file: Path) -> None:
    before = await lived(file, "a")
    for watch_list in (True, False):
        lab = ApiLab(before.store, checkpoint=file, watch_list=watch_list)
        asked = len(before.store.requests)
        async with lab.running():
            await lab.names("a")
        assert before.store.requests[asked].query["resourceVersion"] == "1001"


@pytest.mark.parametrize(
    ("node", "known", "now", "used"),
    [
        ("n2", "", "", False),
        (NODE, "https://one:6443", "https://two:6443", False),
        (NODE, "https://one:6443", "https://one:6443", True),
        (NODE, "https://one:6443", "", True),
        (NODE, "", "https://one:6443", True),
    ],
)
def test_of6_a_checkpoint_is_used_on_its_node_and_in_its_cluster(
    file: Path, node: str, known: str, now: str, *, used: bool
) -> None:
    ApiCheckpoint(file, node, lambda: known).save([make_pod("a", node_name=NODE)], "5")
    assert bool(ApiCheckpoint(file, NODE, lambda: now).load().pods) == used


async def test_of6_a_checkpoint_of_another_node_starts_nothing(file: Path) -> None:
    ApiCheckpoint(file, "n2").save([make_pod("a", node_name=NODE)], "5")
    lab = ApiLab(checkpoint=file)
    lab.client.cut()
    async with lab.running():
        await anyio.sleep(120)
        assert lab.snapshots == []


HARM = DAMAGE | {"odd": lambda good: good.replace(b'"a"', b'"b"')}


@pytest.mark.parametrize("damage", HARM)
async def test_of6_damage_is_reported_and_done_without(file: Path, damage: str) -> None:
    await lived(file, "a")
    data = file.read_bytes()
    file.write_bytes(HARM[damage](data))
    assert file.read_bytes() != data
    lab = ApiLab(checkpoint=file)
    lab.add("c")
    async with lab.running():
        await lab.names("c")
        assert lab.told("CheckpointDamaged")
        assert file.with_name(f"{file.name}.damaged").read_bytes() == HARM[damage](data)
        await anyio.sleep(2 * GAP)
        assert saved(file) == ["c"]


def test_of6_an_entry_whose_name_leads_elsewhere_is_left_out(file: Path) -> None:
    checkpoint = ApiCheckpoint(file, NODE)
    checkpoint.save([make_pod("good"), make_pod("bad", uid="../../etc")], "7")
    assert [pod.metadata.name for pod in checkpoint.load().pods] == ["good"]


async def test_of6_one_damaged_entry_costs_only_itself(file: Path) -> None:
    checkpoint = ApiCheckpoint(file, NODE)
    checkpoint.save([make_pod("a", node_name=NODE)], "5")
    content = checkpoint._file.load()
    content["pods"] += [{"metadata": {"name": 7}}, "odd", {"metadata": {"name": "no-uid"}}]
    checkpoint._file.save(content)
    assert saved(file) == ["a"]


async def test_of7_a_disk_that_refuses_is_told_once(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_args: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("nodeagent.state_file.write_atomically", refuse)
        lab = ApiLab(checkpoint=file)
        lab.add("a")
        async with lab.running():
            await lab.names("a")
            await anyio.sleep(10 * GAP)
            assert lab.told("CheckpointNotSaved") == ["No space left on device"]
            assert lab.source.refused() == {"api-pods.json": "No space left on device"}
            patched.undo()
            await anyio.sleep(2 * GAP)
            assert saved(file) == ["a"]
            assert len(lab.told("CheckpointSavedAgain")) == 1


async def test_of8_a_pod_that_cannot_be_read_runs_by_its_checkpoint(file: Path) -> None:
    before = await lived(file, "a", "b")
    pod = before.store.get("pods", "b")
    spec = {**pod["spec"], "containers": 7}
    before.store.put("pods", ("default", "b"), {**pod, "spec": spec})
    lab = ApiLab(before.store, checkpoint=file)
    async with lab.running():
        await lab.names("a", "b")
        assert list(lab.source.problems()) == ["default/b"]


async def test_a_store_that_starts_anew_makes_the_checkpoint_history(file: Path) -> None:
    """OF4: the version of the checkpoint means nothing to it."""
    await lived(file, "a")
    lab = ApiLab(ApiStore(start=7), checkpoint=file)
    lab.add("z")
    async with lab.running():
        await lab.names("z")
