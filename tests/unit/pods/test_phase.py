"""docs/behaviour/phase.md, "Phase" and "Restartable"."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.api import (
    Container,
    ContainerRestartRule,
    ContainerRestartRuleOnExitCodes,
    ContainerState,
    ContainerStateRunning,
    ContainerStateTerminated,
    ContainerStateWaiting,
    ContainerStatus,
    Pod,
    PodSpec,
)
from nodeagent.model.restart import RestartDecision, restart_decision
from nodeagent.pods.phase import compute_phase

RUNNING = ContainerState(running=ContainerStateRunning())
WAITING = ContainerState(waiting=ContainerStateWaiting())
EMPTY = ContainerState()


def ended(code: int) -> ContainerState:
    return ContainerState(terminated=ContainerStateTerminated(exit_code=code))


def status(
    name: str, state: ContainerState, last: ContainerState = EMPTY, *, started: bool = True
) -> ContainerStatus:
    return ContainerStatus(name=name, state=state, last_state=last, started=started)


def pod(*names: str, policy: str = "Always", init: tuple[Container, ...] = ()) -> Pod:
    containers = tuple(Container(name=n, image="x") for n in names or ("a",))
    return Pod(spec=PodSpec(containers=containers, restart_policy=policy, init_containers=init))


INIT = Container(name="i", image="x")
SIDECAR = Container(name="s", image="x", restart_policy="Always")


@pytest.mark.parametrize(
    ("policy", "statuses", "phase"),
    [
        ("Always", [status("a", RUNNING)], "Running"),
        ("Always", [], "Pending"),
        ("Always", [status("a", EMPTY)], "Pending"),
        ("Always", [status("a", WAITING)], "Pending"),
        ("Always", [status("a", WAITING, ended(1))], "Running"),
        ("Always", [status("a", ended(0))], "Running"),
        ("OnFailure", [status("a", ended(0))], "Succeeded"),
        ("OnFailure", [status("a", ended(1))], "Running"),
        ("OnFailure", [status("a", WAITING, ended(1))], "Running"),
        ("Never", [status("a", ended(0))], "Succeeded"),
        ("Never", [status("a", ended(1))], "Failed"),
    ],
)
def test_one_regular_container(policy: str, statuses: list[ContainerStatus], phase: str) -> None:
    """phase.md, PH2, PH3, PH5, PH6; PK6, PK7, PK8, PK9, PK10."""
    assert compute_phase(pod(policy=policy), statuses) == phase


@pytest.mark.parametrize(
    ("states", "phase"),
    [
        ((RUNNING, RUNNING), "Running"),
        ((RUNNING, WAITING), "Pending"),
        ((RUNNING, ended(1)), "Running"),
        ((RUNNING, EMPTY), "Pending"),
        ((ended(0), ended(0)), "Succeeded"),
        ((ended(0), ended(1)), "Failed"),
    ],
)
def test_two_regular_containers(states: tuple[ContainerState, ...], phase: str) -> None:
    """phase.md, PH2, PH3, PH5, PH6."""
    statuses = [status(n, s) for n, s in zip("ab", states, strict=True)]
    assert compute_phase(pod("a", "b", policy="Never"), statuses) == phase


def test_a_pod_stopped_for_good_ends_unless_it_is_static() -> None:
    """phase.md, PH4."""
    statuses = [status("a", ended(137))]
    assert compute_phase(pod(), statuses, final=True) == "Failed"
    assert compute_phase(pod(), [status("a", ended(0))], final=True) == "Succeeded"
    assert compute_phase(pod(), statuses, final=True, static=True) == "Running"


@pytest.mark.parametrize(
    ("policy", "init", "phase"),
    [
        ("Always", None, "Pending"),
        ("Always", RUNNING, "Pending"),
        ("Always", WAITING, "Pending"),
        ("Always", ended(0), "Running"),
        ("Always", ended(1), "Running"),
        ("Never", ended(1), "Failed"),
    ],
)
def test_init_containers_hold_the_pod_or_fail_it(
    policy: str, init: ContainerState | None, phase: str
) -> None:
    """phase.md, PH1, PH2; PK1, PK2."""
    statuses = [status("a", RUNNING)]
    if init is not None:
        statuses.append(status("i", init))
    assert compute_phase(pod(policy=policy, init=(INIT,)), statuses) == phase


def test_an_init_container_that_waits_to_run_again_is_judged_by_its_last_run() -> None:
    """phase.md, PH1, PK2."""
    statuses = [status("i", WAITING, ended(1))]
    assert compute_phase(pod(policy="Never", init=(INIT,)), statuses) == "Failed"


def test_a_sidecar_holds_the_pod_until_a_regular_container_is_there() -> None:
    """phase.md, PH2, PK4."""
    p = pod(init=(SIDECAR,))
    statuses = [status("s", RUNNING, started=False), status("a", RUNNING)]
    assert compute_phase(p, statuses, regular_in_sandbox=False) == "Pending"
    assert compute_phase(p, statuses) == "Running"


def test_a_sidecar_that_waits_for_its_first_run_makes_the_pod_pending() -> None:
    """phase.md, PH2, PK5."""
    p = pod(init=(SIDECAR,))
    waits = [status("s", WAITING), status("a", RUNNING)]
    assert compute_phase(p, waits) == "Pending"
    assert compute_phase(p, [status("s", WAITING, ended(1)), status("a", RUNNING)]) == "Running"


def test_a_missing_sidecar_makes_the_pod_pending() -> None:
    """phase.md, PH6, PK3."""
    assert compute_phase(pod(init=(SIDECAR,)), [status("a", RUNNING)]) == "Pending"


@pytest.mark.parametrize(
    ("container", "policy", "code", "decision"),
    [
        (Container(name="a"), "Always", 0, RestartDecision.RESTART),
        (Container(name="a"), "OnFailure", 0, RestartDecision.STAY),
        (Container(name="a"), "OnFailure", 3, RestartDecision.RESTART),
        (Container(name="a"), "Never", 3, RestartDecision.STAY),
        (Container(name="a", restart_policy="Never"), "Always", 3, RestartDecision.STAY),
        (Container(name="a", restart_policy="Always"), "Never", 0, RestartDecision.RESTART),
    ],
)
def test_policies(container: Container, policy: str, code: int, decision: RestartDecision) -> None:
    """phase.md, PR2, PR3."""
    assert restart_decision(pod(policy=policy), container, code) is decision


def rule(action: str, operator: str, *values: int) -> ContainerRestartRule:
    codes = ContainerRestartRuleOnExitCodes(operator=operator, values=values)
    return ContainerRestartRule(action=action, exit_codes=codes)


def test_the_first_matching_rule_decides() -> None:
    """phase.md, PR1, PR2."""
    container = Container(
        name="a",
        restart_policy="Never",
        restart_policy_rules=(
            rule("Restart", "In", 42),
            rule("RestartAllContainers", "NotIn", 1, 2, 42),
        ),
    )
    assert restart_decision(pod(), container, 42) is RestartDecision.RESTART
    assert restart_decision(pod(), container, 7) is RestartDecision.RESTART_ALL
    assert restart_decision(pod(), container, 1) is RestartDecision.STAY


states = st.sampled_from([RUNNING, WAITING, EMPTY, ended(0), ended(1)])


@given(
    st.lists(states, min_size=1, max_size=4),
    st.sampled_from(["Always", "OnFailure", "Never"]),
    st.booleans(),
)
def test_terminal_means_that_nothing_lives_or_may_live_again(
    found: list[ContainerState], policy: str, final: bool
) -> None:
    """phase.md, PH3, PH4, PH5: an independent statement of the terminal rows."""
    names = [f"c{i}" for i in range(len(found))]
    p = pod(*names, policy=policy)
    statuses = [status(n, s) for n, s in zip(names, found, strict=True)]
    phase = compute_phase(p, statuses, final=final)
    codes = [s.terminated.exit_code for s in found if s.terminated is not None]
    all_ended = len(codes) == len(found)
    again = any(policy == "Always" or (policy == "OnFailure" and c != 0) for c in codes)
    if all_ended and (final or not again):
        assert phase == ("Succeeded" if not any(codes) else "Failed")
    else:
        assert phase in ("Pending", "Running")
    if any(s.running for s in found) and all(s.running or s.terminated for s in found):
        assert phase == "Running"


@pytest.mark.parametrize("init", [False, True])
def test_what_is_removed_for_a_restart_of_all_will_run_again(init: bool) -> None:
    """phase.md, PR4."""
    web = pod("a", policy="Never", init=(Container(name="i"),) if init else ())
    end = ContainerStateTerminated(exit_code=137, reason="RestartingAllContainers")
    statuses = [
        ContainerStatus(
            name=name,
            state=ContainerState(waiting=ContainerStateWaiting(reason=end.reason)),
            last_state=ContainerState(terminated=end),
        )
        for name in ("a", "i")
    ]
    assert compute_phase(web, statuses) == "Running"
