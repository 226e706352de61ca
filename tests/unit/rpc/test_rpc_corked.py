"""What is written in one turn of the loop leaves as one write."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from nodeagent.rpc.corked import Corked

pytestmark = pytest.mark.anyio


class Recorder(asyncio.Transport):
    """Notes what it is asked to do."""

    def __init__(self) -> None:
        super().__init__()
        self.done: list[Any] = []
        self.closing = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.done.append(bytes(data))

    def close(self) -> None:
        self.closing = True
        self.done.append("close")

    def abort(self) -> None:
        self.closing = True
        self.done.append("abort")

    def is_closing(self) -> bool:
        return self.closing

    def pause_reading(self) -> None:
        self.done.append("pause")

    def resume_reading(self) -> None:
        self.done.append("resume")

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return {"socket": "a socket"}.get(name, default)


def corked() -> tuple[Corked, Recorder]:
    recorder = Recorder()
    return Corked(recorder, asyncio.get_running_loop()), recorder


async def test_writes_of_one_turn_are_one_write_in_order() -> None:
    transport, recorder = corked()
    transport.write(b"a")
    transport.write(b"")
    transport.write(bytearray(b"b"))
    assert recorder.done == []
    await asyncio.sleep(0)
    assert recorder.done == [b"ab"]
    transport.write(b"c")
    await asyncio.sleep(0)
    assert recorder.done == [b"ab", b"c"]


async def test_much_is_sent_at_once() -> None:
    transport, recorder = corked()
    transport.write(b"a")
    transport.write(b"x" * 300_000)
    assert recorder.done == [b"a" + b"x" * 300_000]
    await asyncio.sleep(0)
    assert len(recorder.done) == 1


async def test_closing_sends_what_is_held_first_and_aborting_drops_it() -> None:
    transport, recorder = corked()
    transport.write(b"goodbye")
    transport.close()
    assert recorder.done == [b"goodbye", "close"]
    other, recorder = corked()
    other.write(b"lost")
    other.abort()
    await asyncio.sleep(0)
    assert recorder.done == ["abort"]


async def test_what_is_written_to_a_closed_transport_goes_nowhere() -> None:
    transport, recorder = corked()
    transport.close()
    transport.write(b"late")
    await asyncio.sleep(0)
    assert recorder.done == ["close"]
    assert transport.is_closing()


async def test_a_transport_that_was_closed_without_a_word_is_told_by_a_write() -> None:
    transport, recorder = corked()

    def refuse(_data: bytes) -> None:
        raise RuntimeError("the handler is closed")

    recorder.write = refuse  # type: ignore[assignment,method-assign]
    transport.write(b"late")
    transport.flush()
    assert transport.is_closing()
    transport.write(b"later")
    await asyncio.sleep(0)
    assert recorder.done == []


async def test_all_else_is_passed_on() -> None:
    transport, recorder = corked()
    transport.pause_reading()
    transport.resume_reading()
    assert recorder.done == ["pause", "resume"]
    assert transport.get_extra_info("socket") == "a socket"
    assert transport.get_extra_info("peername", "nobody") == "nobody"
