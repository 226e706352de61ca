"""Commands in containers, and what their ends mean."""

from __future__ import annotations

from collections.abc import Sequence

import anyio
import pytest
from tests.unit.probes.probe_fakes import container_of, probed

from nodeagent.api import Container, EnvVar, EnvVarSource, ExecAction, ObjectFieldSelector, Probe
from nodeagent.model import ProbeKind, ProbeResult
from nodeagent.probes.exec_probe import ExecProbe, probe_command
from nodeagent.probes.outcome import Outcome, Target
from nodeagent.proto.runtime import v1
from nodeagent.rpc import DeadlineExceeded, RpcError, Unknown

pytestmark = pytest.mark.anyio


class Runtime:
    """Ends commands as the test says."""

    def __init__(
        self, answer: v1.ExecSyncResponse | RpcError | None = None, takes: float = 0.0
    ) -> None:
        self.answer = answer or v1.ExecSyncResponse()
        self.takes = takes
        self.calls: list[tuple[str, tuple[str, ...], int]] = []

    async def exec_sync(
        self, container_id: str, cmd: Sequence[str], timeout: int = 0
    ) -> v1.ExecSyncResponse:
        self.calls.append((container_id, tuple(cmd), timeout))
        await anyio.sleep(self.takes)
        if isinstance(self.answer, RpcError):
            raise self.answer
        return self.answer


async def ask(runtime: Runtime, timeout: int = 3) -> Outcome:
    probe = Probe(exec=ExecAction(command=("check", "a b")), timeout_seconds=timeout)
    pod = probed(liveness_probe=probe)
    target = Target(ProbeKind.LIVENESS, probe, pod, container_of(pod), "c1", "")
    return await ExecProbe(runtime)(target)


async def test_bx1_exit_code_zero_is_success() -> None:
    runtime = Runtime(v1.ExecSyncResponse(stdout=b"out", stderr=b"err"))
    assert await ask(runtime) == Outcome(ProbeResult.SUCCESS, "outerr")
    assert runtime.calls == [("c1", ("check", "a b"), 3)]


async def test_bx2_another_exit_code_is_failure_with_what_was_written() -> None:
    flood = v1.ExecSyncResponse(stdout=b"\xff" + b"o" * 20_000, stderr=b"e", exit_code=7)
    outcome = await ask(Runtime(flood))
    assert outcome == Outcome(ProbeResult.FAILURE, "\ufffd" + "o" * (10 * 1024 - 1))


async def test_bx3_the_runtime_says_that_the_time_is_up() -> None:
    outcome = await ask(Runtime(DeadlineExceeded("timeout 3s exceeded", "ExecSync"), 3.0))
    text = 'command timed out: "check a b" timed out after 3s'
    assert outcome == Outcome(ProbeResult.FAILURE, text)


async def test_bx4_a_runtime_that_does_not_answer_is_given_up() -> None:
    start = anyio.current_time()
    outcome = await ask(Runtime(takes=1000.0))
    assert outcome.result is ProbeResult.FAILURE
    assert anyio.current_time() - start == pytest.approx(5.0)


async def test_bx5_another_error_is_no_answer_of_the_container() -> None:
    outcome = await ask(Runtime(Unknown("no such file", "ExecSync")))
    assert outcome == Outcome(ProbeResult.UNKNOWN, "ExecSync: unknown: no such file")


def test_bx6_the_command_knows_the_values_that_the_spec_itself_gives() -> None:
    field = EnvVarSource(field_ref=ObjectFieldSelector(field_path="metadata.name"))
    container = Container(
        name="web",
        env=(
            EnvVar(name="A", value="1"),
            EnvVar(name="B", value="$(A)"),
            EnvVar(name="FIELD", value_from=field),
        ),
    )
    words = ("check", "$(A) $$(A) $A", "$(B)", "[$(FIELD)]", "$(NOBODY)")
    found = probe_command(ExecAction(command=words), container)
    assert found == ["check", "1 $(A) $A", "$(A)", "[]", "$(NOBODY)"]
