"""Logs that go on: docs/behaviour/server.md, "Following a log" and "Container logs"."""

from __future__ import annotations

import gzip
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import h11
import pytest
from anyio.abc import ByteStream
from msgspec.structs import replace
from tests.unit.server.api_lab import Lab, api_lab, head, until

from nodeagent.api import Pod, PodStatus
from nodeagent.api.status import ContainerState, ContainerStateRunning, ContainerStatus
from nodeagent.inotify import Inotify
from nodeagent.server.kubelet import log_files, log_watch
from nodeagent.testing import make_container, make_pod

pytestmark = [pytest.mark.anyio, pytest.mark.realtime]

LOGS = "/containerLogs/default/web/main"


def line(text: str) -> bytes:
    return f"2026-05-01T12:00:00.123456789Z stdout F {text}\n".encode()


def add(path: Path, *texts: str) -> None:
    with path.open("ab") as file:
        for text in texts:
            file.write(line(text))


def running_pod() -> Pod:
    status = ContainerStatus(
        name="main",
        state=ContainerState(running=ContainerStateRunning()),
        container_id="x://c1",
    )
    pod = make_pod("web", make_container("main"))
    return replace(pod, status=PodStatus(container_statuses=(status,)))


@asynccontextmanager
async def with_log(tmp_path: Path) -> AsyncIterator[tuple[Lab, Path]]:
    """The API, and the log of a container that runs."""
    directory = tmp_path / "main"
    directory.mkdir()
    log = directory / "0.log"
    add(log, "one", "two")
    async with api_lab(tmp_path) as lab:
        lab.table.pods = [running_pod()]
        lab.table.set_container(lab.table.pods[0], "main", "c1", log)
        yield lab, log


class Reader:
    """Reads an answer as it comes."""

    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream
        self._http = h11.Connection(h11.CLIENT)
        self._http.send(h11.Request(method="GET", target="/", headers=[("host", "x")]))
        self._http.send(h11.EndOfMessage())
        self.got = b""
        self.ended = False

    async def step(self) -> None:
        event = self._http.next_event()
        if event is h11.NEED_DATA:
            self._http.receive_data(await self._stream.receive())
        elif isinstance(event, h11.Data):
            self.got += event.data
        elif isinstance(event, h11.EndOfMessage):
            self.ended = True

    async def until(self, text: str) -> None:
        with anyio.fail_after(30):
            while text.encode() not in self.got:
                await self.step()

    async def end(self) -> str:
        with anyio.fail_after(30):
            while not self.ended:
                await self.step()
        return self.got.decode()


@asynccontextmanager
async def followed(lab: Lab, query: str = "follow=true") -> AsyncIterator[Reader]:
    async with lab.connected() as stream:
        await stream.send(head("GET", f"{LOGS}?{query}", "admin"))
        yield Reader(stream)


def end_container(lab: Lab, log: Path) -> None:
    lab.table.set_container(lab.table.pods[0], "main", "c1", log, runs=False)


async def test_hl1_hl10_hl11_hl13_over_http(tmp_path: Path) -> None:
    async with with_log(tmp_path) as (lab, log):
        got = await lab.ask(LOGS)
        assert (got.status, got.text) == (200, "one\ntwo\n")
        assert got.headers["transfer-encoding"] == "chunked"
        assert (await lab.ask(f"{LOGS}?tailLines=1")).text == "two\n"
        for path, status, body in (
            ("/containerLogs/default//main", 400, '{"message": "Missing podID."}'),
            ("/containerLogs/default/web/", 400, '{"message": "Missing container name."}'),
            ("/containerLogs//web/main", 400, '{"message": "Missing podNamespace."}'),
            (f"{LOGS}?tailLines=x", 400, '{"message": "Unable to decode query."}'),
            (f"{LOGS}?tailLines=-1", 422, '{"message": "Invalid request."}'),
            ("/containerLogs/default/no/main", 404, 'pod "no" does not exist\n'),
            (
                "/containerLogs/default/web/no",
                404,
                'container "no" not found in pod "web"\n',
            ),
        ):
            got = await lab.ask(path)
            assert (got.status, got.text) == (status, body)
        log.write_text("nothing\n")
        got = await lab.ask(LOGS)
        assert (got.status, got.text) == (400, "unsupported log format: 'nothing'")
        log.unlink()
        got = await lab.ask(LOGS)
        assert got.status == 400
        assert "no such file" in got.text


async def test_hf1_what_is_written_later_comes(tmp_path: Path) -> None:
    async with with_log(tmp_path) as (lab, log), followed(lab) as reader:
        await reader.until("two\n")
        for number in range(5):
            add(log, f"more {number}")
            await reader.until(f"more {number}\n")
        with log.open("ab") as file:
            file.write(line("in two")[:50])
            file.flush()
            await until(lambda: len(lab.watch) == 1)
            file.write(line("in two")[50:])
        await reader.until("in two\n")


async def test_hf1_all_share_one_inotify_instance(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Inotify] = []

    class Counted(Inotify):
        def __init__(self) -> None:
            super().__init__()
            made.append(self)

    monkeypatch.setattr(log_watch, "Inotify", Counted)
    async with with_log(tmp_path) as (lab, log), anyio.create_task_group() as tasks:
        texts: list[str] = []

        async def follow() -> None:
            async with followed(lab) as reader:
                texts.append(await reader.end())

        for _ in range(30):
            tasks.start_soon(follow)
        await until(lambda: len(lab.watch) == 30)
        add(log, "last")
        end_container(lab, log)
        await until(lambda: len(texts) == 30)
        assert set(texts) == {"one\ntwo\nlast\n"}
    assert len(made) == 1


async def test_hf1_without_inotify_they_look_every_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none() -> Inotify:
        raise OSError(24, "too many")

    monkeypatch.setattr(log_watch, "Inotify", none)
    async with with_log(tmp_path) as (lab, log), followed(lab) as reader:
        await reader.until("two\n")
        add(log, "three")
        await reader.until("three\n")


async def test_hf2_a_rotated_log_goes_on_in_the_new_file(tmp_path: Path) -> None:
    async with with_log(tmp_path) as (lab, log), followed(lab) as reader:
        await reader.until("two\n")
        for number in range(4):
            add(log, f"old {number}")
            log.rename(log.with_name(f"0.log.2026050{number}-120000"))
            add(log, f"new {number}")
            await reader.until(f"new {number}\n")
        end_container(lab, log)
        numbers = "".join(f"old {n}\nnew {n}\n" for n in range(4))
        assert await reader.end() == f"one\ntwo\n{numbers}"


async def test_hf2_nothing_of_files_between_is_lost(tmp_path: Path) -> None:
    async with with_log(tmp_path) as (lab, log), followed(lab) as reader:
        await reader.until("two\n")
        await until(lambda: len(lab.watch) == 1)
        # All of it before the agent looks: nothing here waits.
        for number in range(3):
            rotated = log.with_name(f"0.log.2026050{number}-120000")
            log.rename(rotated)
            add(log, f"in {number}")
            if number < 2:
                packed = rotated.with_name(f"{rotated.name}.gz")
                packed.write_bytes(gzip.compress(rotated.read_bytes()))
                rotated.unlink()
        end_container(lab, log)
        assert await reader.end() == "one\ntwo\nin 0\nin 1\nin 2\n"


@pytest.mark.parametrize("rotations", [1, 3])
def test_hf2_a_rotation_between_two_looks_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rotations: int
) -> None:
    log = tmp_path / "0.log"
    add(log, "first")
    file = log_files.open_log(log)
    due = list(range(1, rotations + 1))

    def rotate(number: int) -> None:
        log.rename(log.with_name(f"0.log.2026050{number}-120000"))
        add(log, f"after {number}")

    def names(directory: Path) -> list[str]:
        found = [entry.name for entry in directory.iterdir()]
        if due:
            rotate(due.pop(0))
        return found

    rotate(0)
    monkeypatch.setattr(log_files, "_names_in", names)
    got = []
    while newer := file.successor():
        file.close()
        file = newer
        got.append(file.take(100).split()[-1])
    file.close()
    assert got == [str(number).encode() for number in range(rotations + 1)]


def test_hf2_a_log_that_is_about_to_be_made_anew_is_waited_for(tmp_path: Path) -> None:
    log = tmp_path / "0.log"
    add(log, "first")
    file = log_files.open_log(log)
    for number in range(2):
        log.rename(log.with_name(f"0.log.2026050{number}-120000"))
        add(log, "next")
    rotated = file.successor()
    assert rotated is not None
    log.rename(log.with_name("0.log.20260502-120000"))
    last = rotated.successor()
    assert last is not None
    assert last.successor() is None
    for opened in (file, rotated, last):
        opened.close()


async def test_hf3_the_answer_ends_with_the_container(tmp_path: Path) -> None:
    async with with_log(tmp_path) as (lab, log), followed(lab) as reader:
        await reader.until("two\n")
        add(log, "last words")
        with log.open("ab") as file:
            file.write(line("no end")[:-1])
        end_container(lab, log)
        assert await reader.end() == "one\ntwo\nlast words\nno end"


async def test_hf3_a_limit_ends_it_too(tmp_path: Path) -> None:
    async with with_log(tmp_path) as (lab, log), followed(lab, "follow&limitBytes=10") as reader:
        await reader.until("two\n")
        add(log, "three")
        assert await reader.end() == "one\ntwo\nth"


async def test_hf4_nothing_is_left_when_the_client_goes(tmp_path: Path) -> None:
    async with with_log(tmp_path) as (lab, _log):
        async with followed(lab) as reader:
            await reader.until("two\n")
            assert len(lab.watch) == 1
        await until(lambda: len(lab.watch) == 0)


async def test_hf5_those_who_follow_quiet_logs_are_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    woken: list[log_watch.Follower] = []
    wake = log_watch.Follower.wake

    def counted(follower: log_watch.Follower) -> None:
        woken.append(follower)
        wake(follower)

    monkeypatch.setattr(log_watch.Follower, "wake", counted)
    async with with_log(tmp_path) as (lab, _log), followed(lab) as reader:
        await reader.until("two\n")
        await anyio.sleep(2.5)
        assert woken == []


async def test_an_emptied_log_is_read_from_its_beginning(tmp_path: Path) -> None:
    async with with_log(tmp_path) as (lab, log), followed(lab) as reader:
        await reader.until("two\n")
        log.write_bytes(b"")
        add(log, "x")
        await reader.until("x\n")
