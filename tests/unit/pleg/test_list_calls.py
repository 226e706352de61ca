"""Which of the two list calls of a relist is named (docs/behaviour/pleg.md, "Health", failing)."""

from __future__ import annotations

import anyio
import pytest

from nodeagent.aio import side_by_side
from nodeagent.pleg.calls import ListCalls
from nodeagent.rpc import Unavailable

pytestmark = pytest.mark.anyio


async def test_the_call_without_an_answer_is_named_once_the_other_has_one() -> None:
    """docs/behaviour/pleg.md, "Health", failing."""
    calls = ListCalls(anyio.current_time())
    begun = anyio.current_time()
    with calls.watch("ListContainers"):
        with calls.watch("ListPodSandbox"):
            await anyio.sleep(7.0)
        assert (calls.trouble.rpc, calls.trouble.since) == ("ListContainers", begun)


async def test_the_call_that_failed_is_named_and_not_the_one_it_took_along() -> None:
    """docs/behaviour/pleg.md, "Relist", listing fails."""
    calls = ListCalls(anyio.current_time())

    async def hang() -> None:
        with calls.watch("ListPodSandbox"):
            await anyio.sleep_forever()

    async def fail() -> None:
        with calls.watch("ListContainers"):
            raise Unavailable("connection refused", "ListContainers")

    with pytest.raises(Unavailable):
        await side_by_side([hang, fail])
    assert calls.trouble.rpc == "ListContainers"


async def test_what_has_no_answer_at_the_deadline_is_named() -> None:
    """docs/behaviour/pleg.md, "Relist", listing fails."""
    calls = ListCalls(anyio.current_time())
    with pytest.raises(TimeoutError), anyio.fail_after(5.0), calls.watch("ListContainers"):
        await anyio.sleep_forever()
    assert calls.trouble.rpc == "ListContainers"
