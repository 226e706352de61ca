"""Code of an embedder's own that holds up the event loop is named, and nothing else is."""

from __future__ import annotations

import anyio
import pytest

from nodeagent import watch as module
from nodeagent.journal import Journal
from nodeagent.rpc import Unavailable
from nodeagent.watch import Watch, watched

pytestmark = pytest.mark.anyio


class Stopwatch:
    """Time passes when somebody says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def real(monkeypatch: pytest.MonkeyPatch) -> Stopwatch:
    clock = Stopwatch()
    monkeypatch.setattr(module, "stopwatch", clock)
    return clock


class Loop:
    """Loop time, set by hand."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def slow(journal: Journal) -> list[tuple[str, float]]:
    found = [r for r in journal.select() if r.what == "SlowCallback"]
    return [(r.why, round(r.duration or 0.0, 6)) for r in found]


async def test_each_step_counts_for_itself(real: Stopwatch) -> None:
    journal = Journal()

    async def work() -> str:
        for seconds in (0.2, 0.2, 0.3):
            real.now += seconds
            await anyio.sleep(100)
        return "done"

    assert await Watch(journal).steps("work", work()) == "done"
    assert slow(journal) == [("work", 0.3)]


async def test_what_it_waits_for_inside_is_not_its_own(real: Stopwatch) -> None:
    journal = Journal()

    async def ours() -> None:
        real.now += 5.0
        await anyio.sleep(1)
        real.now += 5.0

    async def work() -> None:
        real.now += 0.2
        await steps.of_others(ours())
        real.now += 0.4

    steps = Watch(journal).steps("work", work())
    await steps
    assert slow(journal) == [("work", 0.4)]


async def test_errors_and_cancellation_pass_through(real: Stopwatch) -> None:
    watch = Watch(Journal())

    async def fails() -> None:
        await anyio.sleep(1)
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        await watch.steps("fails", fails())
    cleaned = False

    async def waits() -> None:
        nonlocal cleaned
        try:
            await anyio.sleep_forever()
        finally:
            real.now += 1.0
            cleaned = True

    with anyio.move_on_after(1) as scope:
        await watch.steps("waits", waits())
    assert scope.cancelled_caught
    assert cleaned


def test_a_warning_comes_once_a_minute(real: Stopwatch, caplog: pytest.LogCaptureFixture) -> None:
    loop = Loop()
    journal = Journal(monotonic=loop)
    watch = Watch(journal)
    for at in (0.0, 1.0, 59.0, 61.0):
        loop.now = at
        with watch.call("a"):
            real.now += 1.0
    with watch.call("b"):
        real.now += 1.0
    with watch.call("quick"):
        real.now += 0.25
    assert len(slow(journal)) == 5
    assert [r.fields["callback"] for r in caplog.records] == ["a", "a", "b"]  # type: ignore[attr-defined]


async def test_the_calls_of_a_service_are_watched_by_name(real: Stopwatch) -> None:
    class Mine:
        version_text = "1"

        async def version(self, text: str) -> str:
            real.now += 2.0
            return text

        async def stop(self) -> None:
            raise Unavailable("not now", "Stop")

        def events(self) -> str:
            return "stream"

    journal = Journal()
    service = watched(Mine(), Watch(journal))
    assert await service.version("x") == "x"
    assert (service.version_text, service.events()) == ("1", "stream")
    with pytest.raises(Unavailable, match="not now"):
        await service.stop()
    with pytest.raises(AttributeError):
        service.nothing  # type: ignore[attr-defined]  # noqa: B018
    ((name, seconds),) = slow(journal)
    assert name.endswith("Mine.version")
    assert seconds == 2.0
