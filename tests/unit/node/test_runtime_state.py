"""Whether the runtime can be worked with: docs/behaviour/workers.md, "Runtime state"."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest

from nodeagent.journal import Journal
from nodeagent.model import HandlerFeatures, RuntimeFeatures
from nodeagent.node import RuntimeInfo, RuntimeState
from nodeagent.node.runtime_state import NETWORK_UNKNOWN

pytestmark = pytest.mark.anyio

NOT_YET = "container runtime status check may not have completed yet"
DOWN = "container runtime is down"
WELL = RuntimeInfo()


class Runtime:
    """Answers as told: an answer, an error, or None for never."""

    def __init__(self, answer: RuntimeInfo | Exception | None = WELL) -> None:
        self.answer = answer
        self.polls: list[float] = []

    async def __call__(self) -> RuntimeInfo:
        self.polls.append(anyio.current_time())
        if self.answer is None:
            await anyio.sleep_forever()
        if isinstance(self.answer, Exception):
            raise self.answer
        assert self.answer is not None
        return self.answer


class Setup:
    """A runtime state with what it looks at and what it says."""

    def __init__(self, answer: RuntimeInfo | Exception | None = WELL) -> None:
        self.runtime = Runtime(answer)
        self.journal = Journal()
        self.state = RuntimeState(self.runtime, self.journal)
        self.ready_calls: list[float] = []
        self.state.on_ready = lambda: self.ready_calls.append(anyio.current_time())

    def ready(self) -> bool:
        return self.state.ready

    def whats(self) -> list[str]:
        return [r.what for r in self.journal.select()]


@asynccontextmanager
async def running(setup: Setup) -> AsyncIterator[Setup]:
    async with anyio.create_task_group() as tg:
        await tg.start(setup.state.run)
        yield setup
        tg.cancel_scope.cancel()


async def test_before_the_first_poll_nothing_may_be_done() -> None:
    """workers.md, G6, G8."""
    state = Setup().state
    assert not state.ready
    assert state.errors() == [NOT_YET]
    assert state.network_error == NETWORK_UNKNOWN == "network state unknown"


async def test_a_good_answer_makes_it_ready_when_run_has_started() -> None:
    """workers.md, G3, G9, G11."""
    async with running(Setup()) as setup:
        assert setup.ready()
        assert setup.state.errors() == []
        assert setup.state.network_error == ""
        assert len(setup.ready_calls) == 1
        assert setup.whats() == ["NetworkReady", "RuntimeReady"]


async def test_it_polls_every_five_seconds_and_every_second_while_something_is_wrong() -> None:
    """workers.md, G2."""
    async with running(Setup()) as setup:
        start = anyio.current_time()
        await anyio.sleep(11)
        assert [t - start for t in setup.runtime.polls] == [0, 5, 10]
        setup.runtime.answer = ConnectionError("refused")
        await anyio.sleep(7.5)
        assert [t - start for t in setup.runtime.polls[3:]] == [15, 16, 17, 18]


async def test_one_unanswered_poll_holds_work_back_and_says_so() -> None:
    """workers.md, G5, G7, G10."""
    async with running(Setup()) as setup:
        setup.runtime.answer = ConnectionError("refused")
        await anyio.sleep(5.5)
        assert not setup.ready()
        assert setup.state.errors() == ["no answer to Status for 0s: refused"]
        await anyio.sleep(19.5)
        assert setup.state.errors() == ["no answer to Status for 20s: refused"]
        # Thirty seconds after the last good answer it counts as down.
        await anyio.sleep(5)
        assert setup.state.errors() == [DOWN, "no answer to Status for 25s: refused"]
        assert setup.whats()[2:] == ["StatusFailed", "RuntimeNotReady"]
        assert setup.journal.select()[-1].why == "no answer to Status for 0s: refused"


async def test_the_node_is_blamed_for_what_lasts_and_in_words_that_stay() -> None:
    """workers.md, G14."""
    assert Setup().state.lasting_errors() == [NOT_YET]
    async with running(Setup()) as setup:
        setup.runtime.answer = ConnectionError("refused")
        await anyio.sleep(25)
        assert not setup.ready()
        assert setup.state.lasting_errors() == []
        for _ in range(2):
            await anyio.sleep(10)
            assert setup.state.lasting_errors() == [DOWN, "no answer to Status: refused"]


async def test_the_last_network_state_stays_while_the_runtime_does_not_answer() -> None:
    """workers.md, G5."""
    async with running(Setup(RuntimeInfo("", "no CNI"))) as setup:
        setup.runtime.answer = ConnectionError("refused")
        await anyio.sleep(10)
        assert setup.state.network_error == "no CNI"


async def test_a_poll_that_hangs_is_given_up_and_dated_from_its_beginning() -> None:
    """workers.md, G2, G5."""
    async with running(Setup()) as setup:
        setup.runtime.answer = None
        await anyio.sleep(29)
        assert setup.ready()
        assert setup.state.errors() == []
        # It is given up 30 s after the last good answer: what is said and what is done agree.
        await anyio.sleep(2)
        assert not setup.ready()
        assert setup.state.errors() == [DOWN, "no answer to Status for 26s: TimeoutError"]
        setup.runtime.answer = WELL
        await anyio.sleep(30)
        assert setup.ready()
        assert setup.state.errors() == []


async def test_it_is_ready_exactly_when_there_is_nothing_to_say() -> None:
    """workers.md, G5, G7."""
    async with running(Setup()) as setup:
        for seconds, answer in ((12.3, None), (50, WELL), (3, ConnectionError("refused"))):
            setup.runtime.answer = answer
            for _ in range(int(seconds / 0.1)):
                await anyio.sleep(0.1)
                assert setup.ready() is (setup.state.errors() == [])
            setup.runtime.answer = WELL
            await anyio.sleep(0.1)
        setup.runtime.answer = None
        for _ in range(900):
            await anyio.sleep(0.1)
            assert setup.ready() is (setup.state.errors() == [])
            assert (setup.state.failing_since is None) is setup.ready()


async def test_start_waits_for_the_first_answer_good_or_bad() -> None:
    """workers.md, G1."""
    start = anyio.current_time()
    async with running(Setup(None)) as setup:
        assert anyio.current_time() - start == 30
        assert not setup.ready()
        assert NOT_YET in setup.state.errors()
    async with running(Setup(ValueError())) as setup:
        assert setup.state.errors() == [NOT_YET, "no answer to Status for 0s: ValueError"]
        assert setup.ready_calls == []


async def test_a_runtime_that_is_not_ready_says_why() -> None:
    """workers.md, G4, G6, G7."""
    cause = "container runtime not ready: RuntimeReady=false reason:R message:M"
    async with running(Setup(RuntimeInfo(cause, ""))) as setup:
        assert not setup.ready()
        assert setup.state.errors() == [NOT_YET, cause]
        setup.runtime.answer = WELL
        await anyio.sleep(1)
        assert setup.ready()
        setup.runtime.answer = RuntimeInfo(cause, "")
        await anyio.sleep(5)
        assert setup.state.errors() == [cause]
        # An answer that it is not ready is no sign of life.
        await anyio.sleep(30)
        assert setup.state.errors() == [DOWN, cause]


async def test_a_missing_network_holds_only_its_own_back() -> None:
    """workers.md, G8, G11."""
    cause = "container runtime network not ready: NetworkReady=false reason:R message:M"
    async with running(Setup(RuntimeInfo("", cause))) as setup:
        assert setup.ready()
        assert setup.state.errors() == []
        assert setup.state.network_error == cause
        setup.runtime.answer = WELL
        await anyio.sleep(1)
        assert setup.state.network_error == ""
        found = [(r.what, r.why) for r in setup.journal.select()]
        assert found == [("NetworkNotReady", cause), ("RuntimeReady", ""), ("NetworkReady", "")]


async def test_each_return_of_the_runtime_is_announced_once() -> None:
    """workers.md, G9, O11."""
    async with running(Setup()) as setup:
        start = anyio.current_time()
        setup.runtime.answer = ConnectionError("refused")
        await anyio.sleep(7.5)
        setup.runtime.answer = WELL
        await anyio.sleep(60)
        assert [t - start for t in setup.ready_calls] == [0, 8]
        assert setup.whats().count("RuntimeReady") == 2


async def test_workers_wait_until_it_is_ready() -> None:
    """workers.md, C6."""
    async with running(Setup(ConnectionError("refused"))) as setup:
        start, woken = anyio.current_time(), list[float]()

        async def work() -> None:
            await setup.state.wait_ready()
            woken.append(anyio.current_time() - start)

        async with anyio.create_task_group() as tg:
            tg.start_soon(work)
            tg.start_soon(work)
            await anyio.sleep(10.5)
            assert woken == []
            setup.runtime.answer = WELL
        assert woken == [11, 11]
        await setup.state.wait_ready()
        assert anyio.current_time() - start == 11


async def test_waiting_goes_on_over_a_failed_return() -> None:
    async with running(Setup(ConnectionError("refused"))) as setup:
        setup.runtime.answer = RuntimeInfo("not ready", "")
        with anyio.move_on_after(20) as scope:
            await setup.state.wait_ready()
        assert scope.cancelled_caught


async def test_it_says_since_when_the_runtime_is_silent_or_unwell() -> None:
    async with running(Setup()) as setup:

        def since() -> tuple[float | None, float | None]:
            return setup.state.failing_since, setup.state.network_failing_since

        assert since() == (None, None)
        await anyio.sleep(7)
        setup.runtime.answer = None
        began = 10.0
        await anyio.sleep_until(began + 31)
        assert since() == (began, None)
        setup.runtime.answer = RuntimeInfo(runtime_error="not ready", network_error="no CNI")
        await anyio.sleep(35)
        unwell = since()
        assert None not in unwell
        await anyio.sleep(5)
        assert since() == unwell
        setup.runtime.answer = WELL
        await anyio.sleep(5)
        assert since() == (None, None)


async def test_g13_what_the_runtime_can_do_is_kept_and_told_when_it_changes() -> None:
    setup = Setup()
    can = RuntimeFeatures((HandlerFeatures("kata", user_namespaces=True),))
    async with running(setup):
        assert setup.state.features == RuntimeFeatures()
        setup.runtime.answer = RuntimeInfo(features=can)
        await anyio.sleep(6)
        assert setup.state.features == can
        setup.runtime.answer = RuntimeInfo("not ready", features=RuntimeFeatures())
        await anyio.sleep(11)
        assert setup.state.features == can
    told = [r.fields for r in setup.journal.select() if r.what == "RuntimeFeatures"]
    assert told == [{"handlers": ["kata"]}]


async def test_who_waits_for_changes_hears_of_the_network_too() -> None:
    """node.md, NP8."""
    async with running(Setup()) as setup:
        changed = setup.state.changed
        setup.runtime.answer = RuntimeInfo(network_error="no network")
        await anyio.sleep(6)
        assert changed.is_set()
