"""Variables in commands, arguments and values (docs/behaviour/runtime.md, "Expansion")."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.runtime.fakes import make_container, make_pod

from nodeagent.api import EnvVar
from nodeagent.model.expansion import expand
from nodeagent.runtime.environment import build_environment, expand_all

VARIABLES = {"A": "1", "B": "two words", "EMPTY": "", "NESTED": "$(A)", "A$(B": "odd"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ""),
        ("plain", "plain"),
        ("$(A)", "1"),
        ("x$(A)y$(B)z", "x1ytwo wordsz"),
        ("$(EMPTY)", ""),
        ("$(UNKNOWN)", "$(UNKNOWN)"),
        ("$$(A)", "$(A)"),
        ("$$$(A)", "$1"),
        ("$$$$$$$(A)", "$$$1"),
        ("$$$$(A)", "$$(A)"),
        ("$", "$"),
        ("cost: 5$", "cost: 5$"),
        ("${A}", "${A}"),
        ("$A", "$A"),
        ("$(A", "$(A"),
        ("$(A $$", "$(A $"),
        ("$(UNKNOWN$(A))", "$(UNKNOWN$(A))"),
        ("$()", "$()"),
        ("$(NESTED)", "$(A)"),
        ("é$(A)\n\t'\"=🦊", "é1\n\t'\"=🦊"),
    ],
)
def test_references_are_replaced_once(text: str, expected: str) -> None:
    assert expand(text, VARIABLES.get) == expected


@given(st.text())
def test_text_without_a_dollar_stays_as_it_is(text: str) -> None:
    text = text.replace("$", "")
    assert expand(text, VARIABLES.get) == text


@given(st.text(alphabet="$()AB x"))
def test_doubling_every_dollar_gives_the_text_back(text: str) -> None:
    assert expand(text.replace("$", "$$"), VARIABLES.get) == text


def test_a_value_may_refer_to_what_stands_before_it() -> None:
    container = make_container(
        env=(
            EnvVar(name="LATE", value="$(EARLY)"),
            EnvVar(name="EARLY", value="a b"),
            EnvVar(name="BOTH", value="$(EARLY)/$(LATE)"),
        )
    )
    assert build_environment(make_pod(container), container) == {
        "LATE": "$(EARLY)",
        "EARLY": "a b",
        "BOTH": "a b/$(EARLY)",
    }


def test_the_last_of_two_values_counts() -> None:
    """docs/behaviour/runtime.md, "Environment"."""
    container = make_container(env=(EnvVar(name="A", value="1"), EnvVar(name="A", value="$(A)2")))
    assert build_environment(make_pod(container), container) == {"A": "12"}


def test_command_and_arguments_are_expanded_with_the_whole_environment() -> None:
    assert expand_all(("echo", "$(A)", "$$(A)"), VARIABLES) == ["echo", "1", "$(A)"]
