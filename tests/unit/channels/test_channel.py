"""Channels: order, overflow policy, counting, and what cancellation leaves behind."""

from __future__ import annotations

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest

from nodeagent.channels import Channel, ChannelMetrics, ChannelStats, WhenFull

pytestmark = pytest.mark.anyio


async def test_items_come_out_in_their_order_and_are_counted() -> None:
    channel = Channel[int]("c", 3)
    for number in range(3):
        await channel.send(number)
    assert channel.depth == 3
    assert [await channel.receive() for _ in range(3)] == [0, 1, 2]
    assert channel.depth == 0
    assert (channel.stats.sent, channel.stats.received, channel.stats.high_water) == (3, 3, 3)
    channel.dispose()


async def test_a_channel_needs_room_for_at_least_one_item() -> None:
    with pytest.raises(ValueError, match="channel x: capacity must be at least 1, not 0"):
        Channel[int]("x", 0)


async def test_a_full_channel_makes_its_producer_wait() -> None:
    channel, done = Channel[int]("c", 1), list[int]()

    async def produce() -> None:
        for number in range(4):
            await channel.send(number)
            done.append(number)

    async with anyio.create_task_group() as tg:
        tg.start_soon(produce)
        await anyio.wait_all_tasks_blocked()
        assert done == [0]
        assert await channel.receive() == 0
        await anyio.wait_all_tasks_blocked()
        assert done == [0, 1]
        assert [await channel.receive() for _ in range(3)] == [1, 2, 3]
    assert channel.stats.coalesced == 0
    assert channel.stats.high_water == 1
    channel.dispose()


async def test_producers_get_room_in_order_of_arrival() -> None:
    channel = Channel[str]("c", 1)
    await channel.send("first")
    async with anyio.create_task_group() as tg:
        for name in ("a", "b", "c"):
            tg.start_soon(channel.send, name)
        await anyio.wait_all_tasks_blocked()
        assert [await channel.receive() for _ in range(4)] == ["first", "a", "b", "c"]
    channel.dispose()


async def test_sending_lets_others_run_also_when_there_is_room() -> None:
    for policy in WhenFull:
        channel, ran = Channel[int]("c", 10, policy), list[bool]()

        async def other(ran: list[bool] = ran) -> None:
            ran.append(True)

        async with anyio.create_task_group() as tg:
            tg.start_soon(other)
            await channel.send(1)
            assert ran
        channel.dispose()


async def test_a_full_coalescing_channel_drops_and_counts() -> None:
    channel = Channel[int]("c", 2, WhenFull.COALESCE)
    for number in range(5):
        await channel.send(number)
    assert channel.depth == 2
    assert channel.stats == ChannelStats(sent=2, coalesced=3, high_water=2)
    assert [await channel.receive() for _ in range(2)] == [0, 1]
    channel.dispose()


async def test_send_nowait_says_whether_there_was_room() -> None:
    channel = Channel[int]("c", 1)
    assert channel.send_nowait(1)
    assert not channel.send_nowait(2)
    assert channel.stats.coalesced == 1
    assert channel.receive_nowait() == 1
    with pytest.raises(anyio.WouldBlock):
        channel.receive_nowait()
    channel.dispose()


async def test_a_waiting_consumer_gets_the_item_at_once() -> None:
    channel, got = Channel[int]("c", 1), list[int]()

    async def consume() -> None:
        got.append(await channel.receive())

    async with anyio.create_task_group() as tg:
        tg.start_soon(consume)
        await anyio.wait_all_tasks_blocked()
        assert channel.send_nowait(7)
        assert channel.depth == 0
    assert got == [7]
    assert channel.stats.high_water == 0
    channel.dispose()


async def test_time_in_the_channel_is_measured_and_waiting_for_room_is_not() -> None:
    channel, waits = Channel[int]("c", 1), list[float]()
    channel.observe_wait = waits.append
    async with anyio.create_task_group() as tg:
        await channel.send(1)
        tg.start_soon(channel.send, 2)
        await anyio.sleep(5)
        await channel.receive()
        await anyio.sleep(2)
        await channel.receive()
    assert waits == [5, 2]
    assert channel.stats.wait_seconds == 7
    channel.dispose()


async def test_a_closed_channel_gives_what_it_holds_and_then_ends() -> None:
    channel = Channel[int]("c", 3)
    await channel.send(1)
    await channel.send(2)
    channel.close()
    assert [item async for item in channel] == [1, 2]
    with pytest.raises(anyio.EndOfStream):
        await channel.receive()
    with pytest.raises(anyio.ClosedResourceError):
        await channel.send(3)
    with pytest.raises(anyio.ClosedResourceError):
        channel.send_nowait(3)
    channel.dispose()


async def test_closing_ends_a_waiting_consumer() -> None:
    channel, ended = Channel[int]("c", 3), list[bool]()

    async def consume() -> None:
        async for _ in channel:
            pass
        ended.append(True)

    async with anyio.create_task_group() as tg:
        tg.start_soon(consume)
        await anyio.wait_all_tasks_blocked()
        channel.close()
    assert ended
    channel.dispose()


@pytest.mark.parametrize("how", ["close", "dispose"])
async def test_closing_ends_waiting_producers(how: str) -> None:
    channel, refused = Channel[int]("c", 1), list[int]()
    await channel.send(0)

    async def produce(number: int) -> None:
        try:
            await channel.send(number)
        except anyio.ClosedResourceError:
            refused.append(number)

    async with anyio.create_task_group() as tg:
        tg.start_soon(produce, 1)
        tg.start_soon(produce, 2)
        await anyio.wait_all_tasks_blocked()
        getattr(channel, how)()
    assert refused == [1, 2]
    channel.dispose()


async def test_a_cancelled_producer_has_sent_nothing_even_when_room_comes_at_that_moment() -> None:
    channel, scope, sent = Channel[int]("c", 1), anyio.CancelScope(), list[int]()
    await channel.send(1)

    async def produce() -> None:
        with scope:
            await channel.send(2)
            sent.append(2)

    async with anyio.create_task_group() as tg:
        tg.start_soon(produce)
        await anyio.wait_all_tasks_blocked()
        scope.cancel()
        assert channel.receive_nowait() == 1
    assert sent == []
    assert channel.depth == 0
    assert channel.stats.sent == 1
    channel.dispose()


async def test_a_cancelled_consumer_takes_nothing() -> None:
    channel, got = Channel[int]("c", 1), list[int]()

    async def consume(scope: anyio.CancelScope) -> None:
        with scope:
            got.append(await channel.receive())

    scope = anyio.CancelScope()
    async with anyio.create_task_group() as tg:
        tg.start_soon(consume, scope)
        await anyio.wait_all_tasks_blocked()
        scope.cancel()
        await channel.send(1)
    assert got == []
    assert channel.receive_nowait() == 1
    channel.dispose()


@given(
    st.integers(1, 4),
    st.sampled_from(WhenFull),
    st.lists(st.sampled_from(["send", "receive"]), max_size=40),
)
def test_counts_add_up_whatever_happens(capacity: int, policy: WhenFull, steps: list[str]) -> None:
    async def play() -> None:
        channel, model = Channel[int]("c", capacity, policy), list[int]()
        coalesced = highest = 0
        for number, step in enumerate(steps):
            if step == "send":
                fits = len(model) < capacity
                assert channel.send_nowait(number) is fits
                model += [number] if fits else []
                coalesced += not fits
            elif model:
                assert channel.receive_nowait() == model.pop(0)
            highest = max(highest, len(model))
            assert channel.depth == len(model)
        stats = channel.stats
        assert stats.sent - stats.received == len(model)
        assert (stats.coalesced, stats.high_water) == (coalesced, highest)
        channel.dispose()

    anyio.run(play)


async def test_metrics_show_every_channel_at_the_time_of_scraping() -> None:
    registry = CollectorRegistry()
    config, pleg = Channel[int]("config", 5), Channel[int]("pleg", 1, WhenFull.COALESCE)
    ChannelMetrics((config, pleg), registry)
    await config.send(1)
    await config.send(2)
    await pleg.send(1)
    await pleg.send(2)
    await anyio.sleep(3)
    await config.receive()
    text = generate_latest(registry).decode()
    for line in (
        'nodeagent_channel_depth{channel="config"} 1.0',
        'nodeagent_channel_high_water{channel="config"} 2.0',
        'nodeagent_channel_sent_total{channel="config"} 2.0',
        'nodeagent_channel_wait_seconds_total{channel="config"} 3.0',
        'nodeagent_channel_coalesced_total{channel="config"} 0.0',
        'nodeagent_channel_depth{channel="pleg"} 1.0',
        'nodeagent_channel_coalesced_total{channel="pleg"} 1.0',
    ):
        assert line in text.splitlines()
    config.dispose()
    pleg.dispose()
