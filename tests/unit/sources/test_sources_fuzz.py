"""Whatever manifests hold and whatever happens to files, a source raises nothing and sees all.

docs/behaviour/sources.md, L2, L9, F8: two pods never share a UID, a bad file ends no pod, and
what a source has seen in the end is what lies there, without a rescan.
"""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.fuzz.files import fuzz_files
from tests.fuzz.manifests import fuzz_sources
from tests.fuzz.wire import fuzz_wire


@given(st.randoms(use_true_random=False))
def test_any_manifests_are_judged(rng: Random) -> None:
    fuzz_sources(rng)


@given(st.randoms(use_true_random=False))
@settings(max_examples=300)
def test_any_answers_are_read_as_the_generated_code_reads_them(rng: Random) -> None:
    fuzz_wire(rng)


@pytest.mark.anyio
@given(st.randoms(use_true_random=False))
@settings(max_examples=30)
async def test_no_change_of_files_is_missed(rng: Random) -> None:
    await fuzz_files(rng)
