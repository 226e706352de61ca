"""The faults of a soak: each is a step that a scenario may have."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from nodeagent.bench.chaos import Chaos, Living
from nodeagent.embedded.scenario import parse_scenario
from nodeagent.embedded.scenario_parts import ACTIONS, only_one

LIVING = [Living(f"uid-{number}", "container-0") for number in range(3)]


@given(st.integers(), st.integers(0, 3))
def test_every_fault_is_a_step_of_a_scenario(seed: int, number: int) -> None:
    chaos = Chaos(seed)
    for _ in range(20):
        step = chaos.next(LIVING[:number])
        scenario = json.dumps({"timeline": [{"at": "0s", **step}]})
        (parsed,) = parse_scenario(scenario.encode()).timeline
        assert only_one(parsed, ACTIONS)
        assert 0 < chaos.pause() < 1


def test_a_container_is_killed_once_and_all_kinds_of_faults_come() -> None:
    chaos = Chaos(1)
    steps = [chaos.next(LIVING) for _ in range(500)]
    killed = [step["end"]["pod"] for step in steps if "end" in step]
    assert sorted(killed) == sorted({living.uid for living in LIVING})
    kinds = {next(iter(step)) for step in steps}
    assert kinds == {
        *("end", "lose", "add", "down", "stall", "goaway", "dropConnections", "cutStreams")
    }
    effects = {key for step in steps for key in step.get("add", {})}
    assert effects >= {
        *("delay", "fail", "late", "failAfter", "show"),
        *("drop", "duplicate", "hold", "reorder", "cut"),
    }


def test_the_same_seed_makes_the_same_choices() -> None:
    one, two, other = Chaos(7), Chaos(7), Chaos(8)
    first = [one.next(LIVING) for _ in range(30)]
    assert [two.next(LIVING) for _ in range(30)] == first
    assert [other.next(LIVING) for _ in range(30)] != first
