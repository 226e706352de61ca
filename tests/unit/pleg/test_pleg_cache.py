"""docs/behaviour/pleg.md, "Cache": one test per row."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio
import pytest

from nodeagent.model import PodRuntimeStatus, PodUID
from nodeagent.pleg import InspectionError, PodCache

pytestmark = pytest.mark.anyio

UID = PodUID("u")
OTHER = PodUID("v")


def status(name: str, uid: PodUID = UID) -> PodRuntimeStatus:
    return PodRuntimeStatus(uid, name)


class Asker:
    """One task that waits for the cache, and what it got."""

    def __init__(self) -> None:
        self.got: PodRuntimeStatus | None = None
        self.error: InspectionError | None = None

    @property
    def waits(self) -> bool:
        return self.got is None and self.error is None

    async def ask(self, cache: PodCache, time: float, uid: PodUID = UID) -> None:
        try:
            self.got = await cache.get_newer_than(uid, time)
        except InspectionError as error:
            self.error = error


async def settle() -> None:
    await anyio.wait_all_tasks_blocked()


Script = Callable[[PodCache, Asker], Awaitable[None]]


async def with_asker(cache: PodCache, time: float, script: Script) -> None:
    async with anyio.create_task_group() as tg:
        asker = Asker()
        tg.start_soon(asker.ask, cache, time)
        await settle()
        await script(cache, asker)
        tg.cancel_scope.cancel()


async def test_get_never_blocks_and_an_unknown_pod_is_empty() -> None:
    """docs/behaviour/pleg.md, "Cache", get."""
    cache = PodCache()
    assert cache.get(UID) == PodRuntimeStatus(UID)
    cache.set(UID, status("a"), 1.0)
    assert cache.get(UID) == status("a")
    assert cache.error(UID) is None


async def test_get_shows_the_last_good_status_beside_an_error() -> None:
    """docs/behaviour/pleg.md, "Cache", errors; "Differences", last good status."""
    cache = PodCache()
    cache.set(UID, status("a"), 1.0)
    cache.set_error(UID, InspectionError(UID, "ContainerStatus", "broken"), 2.0)
    assert cache.get(UID) == status("a")
    error = cache.error(UID)
    assert error is not None
    assert error.rpc == "ContainerStatus"


@pytest.mark.parametrize(("asked", "waits"), [(2.4, False), (2.5, True), (2.6, True)])
async def test_a_status_is_newer_only_if_its_look_began_later(asked: float, waits: bool) -> None:
    """docs/behaviour/pleg.md, "Cache", newer; "Differences", strictly newer: equal is not newer."""
    cache = PodCache()
    cache.set(UID, status("a"), 2.5)

    async def script(_: PodCache, asker: Asker) -> None:
        assert asker.waits is waits

    await with_asker(cache, asked, script)


async def test_the_global_time_makes_every_pod_fresh_an_absent_one_too() -> None:
    """docs/behaviour/pleg.md, "Cache", global time."""
    cache = PodCache()
    cache.set(OTHER, status("a", OTHER), 1.0)
    cache.update_time(5.0)
    assert await cache.get_newer_than(OTHER, 4.0) == status("a", OTHER)
    assert await cache.get_newer_than(UID, 4.0) == PodRuntimeStatus(UID)


async def test_the_global_time_never_goes_back() -> None:
    """docs/behaviour/pleg.md, "Cache", global time."""
    cache = PodCache()
    cache.update_time(5.0)
    cache.update_time(3.0)
    assert cache.time == 5.0


async def test_a_waiter_gets_the_status_that_is_set() -> None:
    """docs/behaviour/pleg.md, "Cache", set."""

    async def script(cache: PodCache, asker: Asker) -> None:
        cache.set(UID, status("old"), 1.0)
        await settle()
        assert asker.waits
        cache.set(UID, status("new"), 3.0)
        await settle()
        assert asker.got == status("new")

    await with_asker(PodCache(), 2.0, script)


async def test_a_waiter_gets_an_unchanged_status_once_it_is_confirmed() -> None:
    """docs/behaviour/pleg.md, "Cache", observed."""

    async def script(cache: PodCache, asker: Asker) -> None:
        cache.set(UID, status("a"), 1.0)
        cache.set_observed(UID, 3.0)
        await settle()
        assert asker.got == status("a")

    await with_asker(PodCache(), 2.0, script)


async def test_a_waiter_is_woken_by_the_global_time() -> None:
    """docs/behaviour/pleg.md, "Cache", global time."""

    async def script(cache: PodCache, asker: Asker) -> None:
        cache.update_time(2.0)
        await settle()
        assert asker.waits
        cache.update_time(2.5)
        await settle()
        assert asker.got == PodRuntimeStatus(UID)

    await with_asker(PodCache(), 2.0, script)


async def test_a_held_pod_is_exempt_from_the_global_time() -> None:
    """docs/behaviour/pleg.md, "Cache", held pods."""
    cache = PodCache()
    cache.set(UID, status("old"), 1.0)
    cache.hold(UID)

    async def script(cache: PodCache, asker: Asker) -> None:
        cache.update_time(10.0)
        await settle()
        assert asker.waits
        cache.set(UID, status("new"), 5.0)
        await settle()
        assert asker.got == status("new")

    await with_asker(cache, 2.0, script)


async def test_neither_record_nor_error_of_a_pod_that_was_put_off_is_an_answer() -> None:
    """docs/behaviour/pleg.md, "Cache", held pods."""
    cache = PodCache()
    cache.set(UID, status("old"), 1.0)
    cache.set_error(UID, InspectionError(UID, "ContainerStatus", "broken"), 2.0)
    cache.put_off(UID)
    assert cache.get(UID) == status("old")

    async def script(cache: PodCache, asker: Asker) -> None:
        cache.update_time(10.0)
        await settle()
        assert asker.waits
        cache.set(UID, status("new"), 11.0)
        await settle()
        assert asker.got == status("new")

    await with_asker(cache, -1.0, script)


async def test_a_waiter_gets_the_error_of_an_inspection_that_failed_since() -> None:
    """docs/behaviour/pleg.md, "Cache", errors."""
    cache = PodCache()
    cache.set(UID, status("old"), 1.0)

    async def script(cache: PodCache, asker: Asker) -> None:
        cache.hold(UID)
        cache.set_error(UID, InspectionError(UID, "ContainerStatus", "broken"), 3.0)
        await settle()
        assert str(asker.error) == "ContainerStatus: broken"

    await with_asker(cache, 2.0, script)


async def test_an_older_error_is_not_the_answer_and_time_does_not_freshen_it() -> None:
    """docs/behaviour/pleg.md, "Cache", errors."""
    cache = PodCache()
    cache.set_error(UID, InspectionError(UID, "ContainerStatus", "broken"), 3.0)
    cache.update_time(9.0)

    async def script(cache: PodCache, asker: Asker) -> None:
        assert asker.waits
        cache.set(UID, status("whole again"), 10.0)
        await settle()
        assert asker.got == status("whole again")

    await with_asker(cache, 8.0, script)


async def test_two_waiters_get_errors_of_their_own() -> None:
    """docs/behaviour/pleg.md, "Cache", errors: an exception is raised once."""
    cache = PodCache()
    first, second = Asker(), Asker()
    async with anyio.create_task_group() as tg:
        tg.start_soon(first.ask, cache, 1.0)
        tg.start_soon(second.ask, cache, 1.0)
        await settle()
        cache.set_error(UID, InspectionError(UID, "ContainerStatus", "broken"), 2.0)
    assert first.error is not None
    assert second.error is not None
    assert first.error is not second.error


async def test_deleting_a_pod_answers_those_that_waited_for_it() -> None:
    """docs/behaviour/pleg.md, "Cache", delete."""
    cache = PodCache()
    cache.set(UID, status("old"), 1.0)

    async def script(cache: PodCache, asker: Asker) -> None:
        cache.delete(UID, 3.0)
        await settle()
        assert asker.got == PodRuntimeStatus(UID)

    await with_asker(cache, 2.0, script)


async def test_deleting_a_pod_before_the_time_asked_for_answers_nobody() -> None:
    """docs/behaviour/pleg.md, "Cache", delete: the next global time does."""
    cache = PodCache()
    cache.set(UID, status("old"), 1.0)

    async def script(cache: PodCache, asker: Asker) -> None:
        cache.delete(UID, 1.5)
        await settle()
        assert asker.waits
        cache.update_time(3.0)
        await settle()
        assert asker.got == PodRuntimeStatus(UID)

    await with_asker(cache, 2.0, script)


async def test_a_deleted_pod_leaves_nothing_behind_after_the_next_global_time() -> None:
    """docs/behaviour/pleg.md, "Cache", delete."""
    cache = PodCache()
    cache.set(UID, status("old"), 1.0)
    cache.hold(UID)
    cache.delete(UID, 3.0)
    assert len(cache) == 1
    cache.update_time(2.0)
    assert len(cache) == 1
    cache.update_time(3.0)
    assert len(cache) == 0
    assert await cache.get_newer_than(UID, 2.0) == PodRuntimeStatus(UID)


async def test_a_pod_that_comes_back_is_not_taken_for_deleted() -> None:
    """docs/behaviour/pleg.md, "Cache", delete."""
    cache = PodCache()
    cache.delete(UID, 3.0)
    cache.set(UID, status("back"), 4.0)
    cache.update_time(5.0)
    assert cache.get(UID) == status("back")


async def test_what_is_older_than_the_record_is_not_stored() -> None:
    """docs/behaviour/pleg.md, "Cache", set."""
    cache = PodCache()
    cache.set(UID, status("new"), 5.0)
    cache.set(UID, status("late"), 4.0)
    assert cache.get(UID) == status("new")


async def test_a_cancelled_waiter_is_forgotten() -> None:
    """docs/behaviour/pleg.md, "Cache", waiting."""
    cache = PodCache()
    with anyio.move_on_after(1.0):
        await cache.get_newer_than(UID, 2.0)
    assert cache.waiting == 0
    cache.update_time(9.0)


async def test_a_pod_held_again_before_its_waiter_runs_keeps_it_waiting() -> None:
    """docs/behaviour/pleg.md, "Cache", waiting: the answer is judged when it is taken."""

    async def script(cache: PodCache, asker: Asker) -> None:
        cache.update_time(3.0)
        cache.hold(UID)
        await settle()
        assert asker.waits
        cache.set(UID, status("a"), 4.0)
        await settle()
        assert asker.got == status("a")

    await with_asker(PodCache(), 2.0, script)


async def test_whoever_has_to_wait_has_the_pod_looked_at() -> None:
    """docs/behaviour/pleg.md, "Cache", waiting."""
    cache = PodCache()
    asked: list[PodUID] = []
    cache.on_wait = asked.append
    cache.update_time(3.0)
    await cache.get_newer_than(UID, 2.0)
    assert asked == []

    async def script(_: PodCache, asker: Asker) -> None:
        assert asker.waits
        assert asked == [UID]

    await with_asker(cache, 3.0, script)


async def test_only_those_who_can_be_answered_are_woken() -> None:
    """docs/behaviour/pleg.md, "Cache", waiting: a thousand waiters cost no polling."""
    cache = PodCache()
    wakes: list[PodUID] = []
    cache.on_wait = wakes.append
    async with anyio.create_task_group() as tg:
        askers = [Asker() for _ in range(1000)]
        for number, asker in enumerate(askers):
            tg.start_soon(asker.ask, cache, 2.0, PodUID(f"u{number}"))
        await settle()
        cache.set(PodUID("u7"), status("a", PodUID("u7")), 3.0)
        await settle()
        assert [n for n, asker in enumerate(askers) if not asker.waits] == [7]
        assert len(wakes) == 1000
        tg.cancel_scope.cancel()
