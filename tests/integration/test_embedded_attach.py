"""Attaching to containers of the embedded runtime: docs/embedded-runtime.md, "Streams"."""

from __future__ import annotations

import hashlib
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio
import pytest
from embedded_lab import Lab, clean_up, lab, reopened, shell
from stream_client import PATIENCE, SPDY_V4, ask, connected, talk

from nodeagent import rpc
from nodeagent.proto.runtime import v1
from nodeagent.streaming.channels import SpdyChannels
from nodeagent.streaming.protocols import V4, V5, Channel, Wanted
from nodeagent.testing.cri_configs import IMAGE, sandbox_config

pytestmark = [pytest.mark.anyio, pytest.mark.realtime, pytest.mark.timeout(180)]

BOTH = pytest.mark.parametrize("isolate", [True, False], ids=["isolated", "plain"])
ALL = Wanted(stdin=True, stdout=True, stderr=True)
HEARING = Wanted(stdout=True, stderr=True)
TERMINAL = Wanted(stdin=True, stdout=True, tty=True)
ECHO = shell("while read x; do echo got $x; echo oops >&2; done; echo bye")


async def url_of(one: Lab, container_id: str, wanted: Wanted = ALL) -> str:
    return await one.runtime.attach(
        v1.AttachRequest(
            container_id=container_id,
            stdin=wanted.stdin,
            stdout=wanted.stdout,
            stderr=wanted.stderr,
            tty=wanted.tty,
        )
    )


@dataclass
class Attached:
    """Somebody who is attached over SPDY."""

    channels: SpdyChannels

    async def type(self, data: bytes) -> None:
        await self.channels.send(Channel.STDIN, data)

    async def end(self) -> None:
        await self.channels.end(Channel.STDIN)

    async def hear(self, text: bytes, channel: Channel = Channel.STDOUT) -> bytes:
        """Wait until the container says something."""
        got = b""
        while text not in got:
            said = await self.channels.receive()
            assert said is not None, got
            got += said.data if said.channel is channel else b""
        return got

    async def rest(self) -> dict[Channel, bytes]:
        """All that is said to the end."""
        got: dict[Channel, bytes] = {}
        while (said := await self.channels.receive()) is not None:
            got[said.channel] = got.get(said.channel, b"") + said.data
        return got


@asynccontextmanager
async def attached(one: Lab, container_id: str, wanted: Wanted = ALL) -> AsyncIterator[Attached]:
    url = await url_of(one, container_id, wanted)
    async with connected(url) as stream:
        head, rest = await ask(stream, url, SPDY_V4, "POST")
        assert head.startswith("HTTP/1.1 101 ")
        channels = SpdyChannels(stream, V4, client=True, rest=rest)
        await channels.open(wanted.channels(V4))
        yield Attached(channels)


@BOTH
async def test_a_container_is_talked_with(tmp_path: Path, isolate: bool) -> None:
    async with lab(tmp_path, isolate=isolate) as one:
        container_id = await one.start(*ECHO, stdin=True)
        with anyio.fail_after(PATIENCE):
            async with attached(one, container_id) as first:
                await first.type(b"one\n")
                await first.hear(b"got one\n")
                await first.type(b"two\n")
                await first.hear(b"oops\n", Channel.STDERR)
                await first.end()
                assert await first.rest()  # says that all is well, and lets go
            async with attached(one, container_id) as second:
                await second.type(b"three\n")
                await second.hear(b"got three\n")
        await one.logged(container_id, "got three")
        assert one.log(container_id) == ["got one", "got two", "got three"]


@pytest.mark.parametrize("protocol", ["spdy", V5])
async def test_ten_mebibytes_and_the_end_of_input_of_the_first(
    tmp_path: Path, protocol: str
) -> None:
    data = os.urandom(10 * 2**20)
    async with lab(tmp_path) as one:
        command = shell("tee /dev/stderr | sha256sum")
        container_id = await one.start(*command, stdin=True, stdin_once=True)
        url = await url_of(one, container_id)
        heard = await talk(url, ALL.channels(V4), data, protocol=protocol)
        assert heard.said[Channel.STDOUT].split()[0] == hashlib.sha256(data).hexdigest().encode()
        assert heard.said[Channel.STDERR] == data
        assert heard.code == 0
        assert (await one.ended(container_id)).exit_code == 0


async def test_the_first_that_goes_ends_input_that_is_there_once(tmp_path: Path) -> None:
    async with lab(tmp_path) as one:
        container_id = await one.start(*ECHO, stdin=True, stdin_once=True)
        with anyio.fail_after(PATIENCE):
            async with attached(one, container_id) as only:
                await only.type(b"one\n")
                await only.hear(b"got one\n")
        assert (await one.ended(container_id)).exit_code == 0
        assert one.log(container_id) == ["got one", "bye"]


@BOTH
async def test_a_terminal_has_the_size_of_the_clients(tmp_path: Path, isolate: bool) -> None:
    async with lab(tmp_path, isolate=isolate) as one:
        container_id = await one.start(*shell("exec sh"), stdin=True, tty=True)
        with anyio.fail_after(PATIENCE):
            async with attached(one, container_id, TERMINAL) as person:
                size = b'{"Width":123,"Height":45}'
                await person.channels.send(Channel.RESIZE, size)
                # The size may come after what is typed.
                loop = b"until stty size | grep -q '45 123'; do sleep 0.01; done; echo si''zed\r"
                await person.type(loop)
                await person.hear(b"sized\r\n")
                await person.type(b"exit 3\r")
                assert Channel.ERROR in await person.rest()
        assert (await one.ended(container_id)).exit_code == 3


def until_opened(gate: Path) -> list[str]:
    """A command that says something until there is that file. No namespace may hide it."""
    return list(shell(f"until [ -e {gate} ]; do echo tick; sleep 0.05; done; echo done"))


async def test_everybody_hears_and_nobody_has_to_write(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    async with lab(tmp_path, isolate=False) as one:
        container_id = await one.start(*until_opened(gate))
        with anyio.fail_after(PATIENCE):
            async with (
                attached(one, container_id, HEARING) as someone,
                attached(one, container_id, HEARING) as other,
            ):
                for each in (someone, other):
                    await each.hear(b"tick\n")
                gate.touch()
                for each in (someone, other):
                    assert (await each.rest())[Channel.STDOUT].endswith(b"done\n")


@pytest.mark.parametrize("stdin", [True, False])
async def test_what_a_container_does_not_read_holds_up_nothing_else(
    tmp_path: Path, stdin: bool
) -> None:
    gate = tmp_path / "gate"
    async with lab(tmp_path, isolate=False) as one:
        container_id = await one.start(*until_opened(gate), stdin=stdin)
        with anyio.fail_after(PATIENCE):
            async with (
                attached(one, container_id) as person,
                attached(one, container_id, HEARING) as other,
                anyio.create_task_group() as tasks,
            ):
                tasks.start_soon(person.type, b"x" * 2_000_000)
                for each in (person, other):
                    await each.hear(b"tick\n")
                gate.touch()
                for each in (person, other):
                    assert (await each.rest())[Channel.STDOUT].endswith(b"done\n")
                tasks.cancel_scope.cancel()
        assert (await one.ended(container_id)).exit_code == 0


async def test_containers_of_an_earlier_server(tmp_path: Path) -> None:
    async with reopened(tmp_path) as before:
        await before.embedded.images.pull_image(v1.ImageSpec(image=IMAGE))
        before.sandbox = await before.runtime.run_pod_sandbox(
            sandbox_config(logs=tmp_path / "logs", hostname="h")
        )
        container_id = await before.start(*ECHO, stdin=True)
    async with reopened(tmp_path) as after:
        try:
            with anyio.fail_after(PATIENCE):
                async with attached(after, container_id) as person:
                    await person.type(b"again\n")
                    await person.hear(b"got again\n")
        finally:
            with anyio.move_on_after(PATIENCE, shield=True):
                await clean_up(after)


async def test_a_container_that_has_ended(tmp_path: Path) -> None:
    async with lab(tmp_path) as one:
        container_id = await one.start(*ECHO, stdin=True, stdin_once=True)
        url = await url_of(one, container_id)
        await one.runtime.stop_container(container_id, 0)
        await one.ended(container_id)
        heard = await talk(url, ALL.channels(V4))
        assert "EXITED" in heard.status["message"]
        with pytest.raises(rpc.RpcError, match="EXITED"):
            await url_of(one, container_id)


async def test_a_container_whose_monitor_cannot_do_it(tmp_path: Path) -> None:
    async with lab(tmp_path) as one:
        container_id = await one.start(*ECHO, stdin=True)
        (one.backend.store.container_dir(container_id) / "attach.sock").unlink()
        url = await url_of(one, container_id)
        heard = await talk(url, ALL.channels(V4))
        assert "read its log" in heard.status["message"]
