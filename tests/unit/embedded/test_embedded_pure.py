"""The small pure parts: scripts from text, signals, wire bytes, capabilities."""

from __future__ import annotations

import signal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent import rpc
from nodeagent.embedded.process.capabilities import DEFAULT, NUMBERS, kept_numbers
from nodeagent.embedded.script_text import script_from_annotation, script_from_command
from nodeagent.embedded.signals import stop_signal
from nodeagent.embedded.wire import WireCache
from nodeagent.proto.runtime import v1


@pytest.mark.parametrize(
    ("text", "exits", "repeat"),
    [
        ("5s:1", ((5.0, 1),), False),
        ("0.5s:0, 10s:137", ((0.5, 0), (10.0, 137)), False),
        ("1s:1,...", ((1.0, 1),), True),
    ],
)
def test_an_annotation_is_a_list_of_ends(
    text: str, exits: tuple[tuple[float, int], ...], repeat: bool
) -> None:
    assert script_from_annotation(text) == (exits, repeat)


@pytest.mark.parametrize("text", ["", "5", "5:1", "s:1", "5s:", "5s:1;6s:1", "..., 5s:1"])
def test_another_annotation_is_refused_with_what_is_wrong(text: str) -> None:
    with pytest.raises(rpc.InvalidArgument, match="is not SECONDSs:EXITCODE"):
        script_from_annotation(text)


@pytest.mark.parametrize(
    ("argv", "end"),
    [
        (["true"], (0.0, 0)),
        (["/bin/false"], (0.0, 1)),
        (["sleep", "5"], (5.0, 0)),
        (["/bin/sleep", "1.5m"], (90.0, 0)),
        (["sleep", "infinity"], None),
        (["sh", "-c", "sleep 2; sleep 3 && exit 4"], (5.0, 4)),
        (["bash", "-c", "exit 256; sleep 5"], (0.0, 0)),
        (["sh", "-c", "false\n"], (0.0, 1)),
        (["sh", "-c", "sleep 1; serve"], None),
        (["sh", "-c", "echo 'unclosed"], None),
        (["sh", "-c", "while true; do sleep 1; done"], None),
        (["nginx", "-g", "daemon off;"], None),
        ([], None),
    ],
)
def test_some_commands_can_be_foretold(argv: list[str], end: tuple[float, int] | None) -> None:
    assert script_from_command(argv) == end


@pytest.mark.parametrize(
    ("asked", "number"),
    [
        (v1.Signal.RUNTIME_DEFAULT, signal.SIGTERM),
        (v1.Signal.SIGTERM, signal.SIGTERM),
        (v1.Signal.SIGQUIT, signal.SIGQUIT),
        (v1.Signal.SIGUSR1, signal.SIGUSR1),
        (v1.Signal.SIGCLD, signal.SIGCHLD),
        (v1.Signal.SIGIOT, signal.SIGABRT),
        (v1.Signal.SIGRTMIN, signal.SIGRTMIN),
        (v1.Signal.SIGRTMINPLUS3, signal.SIGRTMIN + 3),
        (v1.Signal.SIGRTMAXMINUS2, signal.SIGRTMAX - 2),
    ],
)
def test_stop_signals_have_the_numbers_of_this_machine(asked: v1.Signal, number: int) -> None:
    assert stop_signal(asked) == number


@given(st.lists(st.text(max_size=200), max_size=8))
def test_list_answers_are_the_bytes_that_encoding_them_would_give(names: list[str]) -> None:
    cache = WireCache()
    items = [v1.Container(id=name, labels={"name": name}) for name in names]
    for _ in range(2):
        answer = cache.containers(items, whole=True)
        assert bytes(answer) == bytes(v1.ListContainersResponse(containers=items))
    sandboxes = [v1.PodSandbox(id=name) for name in names]
    part = cache.sandboxes(sandboxes[:2], whole=False)
    assert bytes(part) == bytes(v1.ListPodSandboxResponse(items=sandboxes[:2]))


def test_capabilities_are_the_default_ones_less_and_more() -> None:
    default = sorted(NUMBERS[name] for name in DEFAULT)
    assert kept_numbers([], []) == default
    assert kept_numbers(["CAP_SYS_TIME"], []) == sorted([*default, NUMBERS["SYS_TIME"]])
    assert kept_numbers(["net_admin"], ["ALL"]) == [NUMBERS["NET_ADMIN"]]
    assert kept_numbers(["ALL"], ["KILL"]) == list(range(41))
    assert NUMBERS["CHECKPOINT_RESTORE"] == 40


def test_an_unknown_capability_is_refused() -> None:
    with pytest.raises(rpc.InvalidArgument, match="FLY"):
        kept_numbers(["FLY"], [])
