"""Whatever a runtime answers, the agent raises nothing, and recovers when the answers are good."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.fuzz.answers import fuzz_answers

pytestmark = pytest.mark.anyio


@given(st.integers(0, 2**32))
@settings(max_examples=5)
async def test_odd_answers_harm_neither_the_loop_nor_a_worker(seed: int) -> None:
    await fuzz_answers(Random(seed))
