"""Rotating logs (docs/behaviour/garbage.md, "Rotation")."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.journal import Journal
from nodeagent.proto.runtime import v1
from nodeagent.rpc import Internal, RpcError
from nodeagent.runtime.log_rotation import LogRotation, compress
from nodeagent.runtime.log_rotation_plan import (
    RotationPolicy,
    plan_rotation,
    rotated,
    rotated_name,
)

NOON = datetime(2030, 1, 1, 12, 0, 0, tzinfo=UTC)


class Clock:
    """Wall time as the test sets it."""

    def __init__(self) -> None:
        self.moment = NOON

    def now(self) -> datetime:
        return self.moment

    def time_ns(self) -> int:
        return int(self.moment.timestamp() * 10**9)


class Runtime:
    """Containers that write logs, and open them anew when asked."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.containers: dict[str, Path] = {}
        self.listed: list[v1.Container] = []
        self.reopened: list[str] = []
        self.error: RpcError | None = None
        self.list_error: RpcError | None = None
        self.seconds = 0.0
        self.writes = True
        self.now = self.most = 0

    def add(self, name: str, size: int | None) -> Path:
        """A running container whose log has that size; None for no log."""
        path = self.root / "default_web_u1" / name / "0.log"
        path.parent.mkdir(parents=True)
        if size is not None:
            path.write_bytes(b"x" * size)
        cid = f"id-{name}"
        self.containers[cid] = path
        labels = {
            "io.kubernetes.pod.name": "web",
            "io.kubernetes.pod.namespace": "default",
            "io.kubernetes.pod.uid": "u1",
            "io.kubernetes.container.name": name,
        }
        metadata = v1.ContainerMetadata(name=name, attempt=0)
        self.listed.append(v1.Container(id=cid, metadata=metadata, labels=labels))
        return path

    async def list_containers(
        self, where: v1.ContainerFilter | None = None
    ) -> Sequence[v1.Container]:
        if self.list_error is not None:
            raise self.list_error
        assert where is not None
        assert where.state is not None
        assert where.state.state is v1.ContainerState.CONTAINER_RUNNING
        return self.listed

    async def reopen_container_log(self, container_id: str) -> None:
        self.reopened.append(container_id)
        self.now += 1
        self.most = max(self.most, self.now)
        await anyio.sleep(self.seconds)
        self.now -= 1
        if self.error is not None:
            raise self.error
        if self.writes:
            self.containers[container_id].touch()


class Node:
    """A rotation, its runtime and clock."""

    def __init__(self, root: Path, **policy: Any) -> None:
        self.runtime = Runtime(root)
        self.clock = Clock()
        self.journal = Journal()
        self.rotation = LogRotation(
            runtime=self.runtime,
            logs_dir=root,
            policy=RotationPolicy(**{"max_size": 100, "max_files": 3, **policy}),
            clock=self.clock,
            journal=self.journal,
        )

    def what(self) -> list[str]:
        return [r.what for r in self.journal.select("u1")]


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def names(path: Path) -> list[str]:
    return sorted(entry.name for entry in path.parent.iterdir())


@pytest.mark.anyio
async def test_lr4_a_log_that_is_too_large_is_rotated(node: Node) -> None:
    large, small = node.runtime.add("large", 100), node.runtime.add("small", 99)
    await node.rotation.look()
    assert names(large) == ["0.log", "0.log.20300101-120000"]
    assert names(small) == ["0.log"]
    assert node.runtime.reopened == ["id-large"]
    (record,) = node.journal.select("u1")
    assert (record.what, record.why) == ("LogRotated", "100 bytes")
    assert record.fields == {"container": "large", "file": str(large)}


@pytest.mark.anyio
async def test_lr5_older_ones_are_compressed_and_the_oldest_go(node: Node) -> None:
    path = node.runtime.add("web", 0)
    for hour in range(12, 17):
        node.clock.moment = NOON.replace(hour=hour)
        path.write_bytes(str(hour).encode() * 50)
        await node.rotation.look()
    assert names(path) == ["0.log", "0.log.20300101-150000.gz", "0.log.20300101-160000"]
    with gzip.open(path.parent / "0.log.20300101-150000.gz") as file:
        assert file.read() == b"15" * 50
    assert (path.parent / "0.log.20300101-160000").read_bytes() == b"16" * 50
    assert path.read_bytes() == b""


@pytest.mark.anyio
async def test_lr6_leftovers_go(node: Node) -> None:
    path = node.runtime.add("web", 100)
    for name in ("0.log.20291231-000000.gz.tmp", "0.log.20291230-000000"):
        (path.parent / name).write_bytes(b"left")
    (path.parent / "0.log.20291230-000000.gz").write_bytes(b"whole")
    (path.parent / "10.log").write_bytes(b"of another run")
    await node.rotation.look()
    assert names(path) == [
        "0.log",
        "0.log.20291230-000000.gz",
        "0.log.20300101-120000",
        "10.log",
    ]
    assert (path.parent / "0.log.20291230-000000.gz").read_bytes() == b"whole"


@pytest.mark.anyio
async def test_lr7_names_stay_in_order_whatever_the_clock_says(node: Node) -> None:
    path = node.runtime.add("web", 100)
    await node.rotation.look()
    node.clock.moment = NOON.replace(year=2020)
    path.write_bytes(b"y" * 100)
    await node.rotation.look()
    assert names(path) == ["0.log", "0.log.20300101-120000.gz", "0.log.20300101-120001"]


@pytest.mark.anyio
async def test_lr8_a_log_that_cannot_be_reopened_gets_its_name_back(node: Node) -> None:
    path = node.runtime.add("web", 100)
    node.runtime.error = Internal("no such container")
    await node.rotation.look()
    assert names(path) == ["0.log"]
    assert path.stat().st_size == 100
    assert node.what() == ["LogRotationFailed"]
    node.runtime.error = None
    await node.rotation.look()
    assert len(names(path)) == 2


@pytest.mark.anyio
async def test_lr8_one_that_does_not_answer_is_looked_for_again(node: Node) -> None:
    path = node.runtime.add("web", 100)
    node.runtime.seconds = 60
    await node.rotation.look()
    assert node.what() == ["LogRotationFailed"]
    assert not path.exists()
    node.runtime.seconds = 0
    await node.rotation.look()
    assert path.exists()
    assert node.what() == ["LogRotationFailed", "LogReopened"]


@pytest.mark.anyio
async def test_lr9_a_log_that_was_there_is_written_anew(node: Node) -> None:
    path = node.runtime.add("web", 1)
    await node.rotation.look()
    path.unlink()
    await node.rotation.look()
    assert path.exists()
    assert node.what() == ["LogReopened"]
    await node.rotation.look()
    path.unlink()
    node.runtime.error = Internal("busy")
    for _ in range(2):
        await node.rotation.look()
    assert node.what() == ["LogReopened", "LogRotationFailed", "LogRotationFailed"]
    node.runtime.error = None
    await node.rotation.look()
    assert path.exists()


@pytest.mark.anyio
async def test_lr9_one_that_was_rotated_by_an_agent_that_ended_is_written_anew(
    node: Node,
) -> None:
    path = node.runtime.add("web", None)
    (path.parent / "0.log.20291230-000000").touch()
    await node.rotation.look()
    assert path.exists()


@pytest.mark.anyio
async def test_lr9_one_that_never_comes_is_asked_for_once(node: Node) -> None:
    path = node.runtime.add("web", None)
    node.runtime.writes = False
    for _ in range(3):
        await node.rotation.look()
    assert node.runtime.reopened == ["id-web"]
    assert node.what() == []
    path.touch()
    await node.rotation.look()
    path.unlink()
    await node.rotation.look()
    assert len(node.runtime.reopened) == 2


@pytest.mark.anyio
@pytest.mark.parametrize("workers", [1, 2])
async def test_lr10_so_many_are_rotated_side_by_side(tmp_path: Path, workers: int) -> None:
    node = Node(tmp_path, workers=workers)
    for name in "abcd":
        node.runtime.add(name, 100)
    node.runtime.seconds = 1
    await node.rotation.look()
    assert node.runtime.most == workers
    assert node.what() == ["LogRotated"] * 4


@pytest.mark.anyio
async def test_lr3_it_looks_every_period(node: Node) -> None:
    path = node.runtime.add("web", 100)
    node.runtime.list_error = Internal("down")
    async with anyio.create_task_group() as tasks:
        await tasks.start(node.rotation.run)
        await anyio.sleep(11)
        node.runtime.list_error = None
        assert names(path) == ["0.log"]
        await anyio.sleep(10)
        assert len(names(path)) == 2
        tasks.cancel_scope.cancel()


@pytest.mark.anyio
async def test_lr11_it_may_be_off(tmp_path: Path) -> None:
    node = Node(tmp_path, max_size=-1)
    path = node.runtime.add("web", 10**6)
    async with anyio.create_task_group() as tasks:
        await tasks.start(node.rotation.run)
        await anyio.sleep(60)
        tasks.cancel_scope.cancel()
    assert names(path) == ["0.log"]


@pytest.mark.anyio
async def test_lr12_a_log_without_a_name_gets_its_new_file_also_when_the_agent_ends(
    node: Node,
) -> None:
    path = node.runtime.add("web", 100)
    node.runtime.seconds = 5
    with anyio.move_on_after(1):
        await node.rotation.look()
    assert names(path) == ["0.log", "0.log.20300101-120000"]


def test_lr12_compressing_stops_when_it_is_told_to(tmp_path: Path) -> None:
    path, stop = tmp_path / "0.log.1", threading.Event()
    path.write_bytes(b"x" * 10**6)
    stop.set()
    compress(path, stop)
    assert [p.name for p in tmp_path.iterdir()] == ["0.log.1"]
    assert path.stat().st_size == 10**6


def test_lr5_a_file_that_cannot_be_compressed_stays(tmp_path: Path) -> None:
    path = tmp_path / "0.log.1"
    path.write_bytes(b"x")
    (tmp_path / "0.log.1.tmp").mkdir()
    with pytest.raises(OSError, match="directory"):
        compress(path, threading.Event())
    assert path.read_bytes() == b"x"


def test_lr5_a_compressed_file_may_be_read_by_the_same_people(tmp_path: Path) -> None:
    path = tmp_path / "0.log.1"
    path.write_bytes(b"x")
    path.chmod(0o640)
    compress(path, threading.Event())
    assert (tmp_path / "0.log.1.gz").stat().st_mode & 0o777 == 0o640


@pytest.mark.anyio
async def test_lr3_what_nobody_foresaw_ends_nothing(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = node.runtime.add("web", 100)
    async with anyio.create_task_group() as tasks:
        await tasks.start(node.rotation.run)
        with monkeypatch.context() as patch:
            patch.setattr(node.runtime, "list_containers", None)
            await anyio.sleep(11)
        await anyio.sleep(10)
        assert len(names(path)) == 2
        tasks.cancel_scope.cancel()


@pytest.mark.anyio
async def test_containers_of_others_are_left_alone(node: Node) -> None:
    node.runtime.listed.append(v1.Container(id="foreign"))
    outside = node.runtime.root.parent / "outside"
    outside.mkdir()
    (outside / "0.log").write_bytes(b"x" * 200)
    node.runtime.add("web", 0)
    node.runtime.listed[-1].labels["io.kubernetes.container.name"] = "../../../outside"
    await node.rotation.look()
    assert node.runtime.reopened == []
    assert [entry.name for entry in outside.iterdir()] == ["0.log"]


# -- the plan ---------------------------------------------------------------------------------

stamps = st.builds(
    lambda day, suffix: f"0.log.203001{day:02}-000000{suffix}",
    st.integers(1, 28),
    st.sampled_from(["", ".gz", ".tmp", ".gz.tmp"]),
)


@given(st.sets(stamps, max_size=12), st.integers(2, 6))
def test_lr5_lr6_what_stays_is_the_newest_and_compressed(found: set[str], max_files: int) -> None:
    others = {"0.log", "1.log.20300101-000000", "10.log"}
    plan = plan_rotation("0.log", found | others, max_files)
    removed = set(plan.remove)
    assert len(removed) == len(plan.remove)
    assert removed <= found
    assert not removed & set(plan.compress)
    left = found - removed
    assert len(left) <= max_files - 2
    assert not any(name.endswith(".tmp") for name in left)
    assert set(plan.compress) == {name for name in left if not name.endswith(".gz")}
    # Of each pair the compressed file stays, and what is older goes first.
    whole = {n for n in found if not n.endswith(".tmp") and f"{n}.gz" not in found}
    assert sorted(whole)[max(len(whole) - (max_files - 2), 0) :] == sorted(left)


@given(
    st.sets(stamps, max_size=6),
    st.datetimes(datetime(1990, 1, 1), datetime(2040, 1, 1)),  # noqa: DTZ001 - zone added below
)
def test_lr7_a_new_name_comes_after_all_others(found: set[str], moment: datetime) -> None:
    whole = {name for name in found if not name.endswith(".tmp")}
    name = rotated_name("0.log", whole, moment.replace(tzinfo=UTC))
    assert rotated("0.log", whole | {name})[-1] == name
    assert name not in whole
