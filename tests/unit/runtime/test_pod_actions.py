"""What a pod needs done (docs/behaviour/runtime.md, "Actions")."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.runtime.actions_oracle import Oracle, without_texts
from tests.unit.runtime.fakes import UID, make_container, make_pod

from nodeagent.api import (
    Container,
    ContainerRestartRule,
    ContainerRestartRuleOnExitCodes,
    EphemeralContainer,
    Pod,
    Probe,
)
from nodeagent.model import (
    ContainerID,
    ContainerRuntimeStatus,
    ContainerState,
    PodRuntimeStatus,
    ProbeResult,
    SandboxID,
    SandboxRuntimeStatus,
    SandboxState,
)
from nodeagent.model.actions import KillReason, PodActions
from nodeagent.model.probes import ProbeResults
from nodeagent.runtime.actions import compute_pod_actions, sandbox_change
from nodeagent.runtime.hash import container_hash

CREATED, RUNNING = ContainerState.CREATED, ContainerState.RUNNING
EXITED, UNKNOWN = ContainerState.EXITED, ContainerState.UNKNOWN
READY, NOT_READY = SandboxState.READY, SandboxState.NOT_READY


def sandbox(attempt: int = 0, state: SandboxState = READY, **fields: Any) -> SandboxRuntimeStatus:
    given: dict[str, Any] = {"ips": ("10.0.0.1",), "has_network_status": True, **fields}
    return SandboxRuntimeStatus(SandboxID(f"s{attempt}"), attempt, state, **given)


def record(
    name: str = "web", state: ContainerState = RUNNING, code: int = 0, **fields: Any
) -> ContainerRuntimeStatus:
    hash_ = container_hash(name, make_container().image)
    given: dict[str, Any] = {"id": ContainerID(f"c-{name}"), "hash": hash_}
    given.update(fields)
    return ContainerRuntimeStatus(name=name, state=state, exit_code=code, **given)


def status(*records: ContainerRuntimeStatus, **fields: Any) -> PodRuntimeStatus:
    given: dict[str, Any] = {"sandboxes": (sandbox(),), **fields}
    return PodRuntimeStatus(UID, containers=records, **given)


def deleted(pod: Pod) -> Pod:
    meta = msgspec.structs.replace(pod.metadata, deletion_timestamp=datetime.now(UTC))
    return msgspec.structs.replace(pod, metadata=meta)


class TestSandboxChanged:
    """docs/behaviour/runtime.md, "Sandbox changed"."""

    @pytest.mark.parametrize(
        ("sandboxes", "host_network", "expected"),
        [
            ((), False, (True, 0, "")),
            ((sandbox(3), sandbox(2)), False, (True, 4, "s3")),
            ((sandbox(1, NOT_READY), sandbox(0, NOT_READY)), False, (True, 2, "s1")),
            ((sandbox(1, NOT_READY), sandbox(0)), False, (True, 2, "s1")),
            ((sandbox(0),), True, (True, 1, "")),
            ((sandbox(0, host_network=True),), False, (True, 1, "")),
            ((sandbox(0, ips=()),), False, (True, 1, "s0")),
            ((sandbox(0, ips=(), has_network_status=False),), False, (False, 0, "s0")),
            ((sandbox(0, host_network=True, ips=()),), True, (False, 0, "s0")),
            ((sandbox(2), sandbox(1, NOT_READY)), False, (False, 2, "s2")),
        ],
    )
    def test_the_first_matching_row_decides(
        self,
        sandboxes: tuple[SandboxRuntimeStatus, ...],
        host_network: bool,
        expected: tuple[bool, int, str],
    ) -> None:
        pod = make_pod(host_network=host_network)
        change = sandbox_change(pod, status(sandboxes=sandboxes))
        assert (change.changed, change.attempt, change.sandbox_id) == expected


class TestNewSandbox:
    """docs/behaviour/runtime.md, "New sandbox"."""

    def test_a_new_pod_starts_all_containers(self) -> None:
        pod = make_pod(make_container("a"), make_container("b"))
        actions = compute_pod_actions(pod, PodRuntimeStatus(UID))
        assert actions.kill_pod
        assert actions.create_sandbox
        assert actions.containers_to_start == ("a", "b")

    def test_a_new_pod_with_init_containers_starts_the_first_of_them(self) -> None:
        pod = make_pod(init_containers=(make_container("i1"), make_container("i2")))
        actions = compute_pod_actions(pod, PodRuntimeStatus(UID))
        assert actions.init_containers_to_start == ("i1",)
        assert actions.containers_to_start == ()

    def test_a_pod_that_never_restarts_is_only_stopped(self) -> None:
        pod = make_pod(restart_policy="Never")
        gone = status(record(state=EXITED), sandboxes=(sandbox(0, NOT_READY),))
        actions = compute_pod_actions(pod, gone)
        assert actions == PodActions(
            kill_pod=True,
            attempt=1,
            sandbox_id=SandboxID("s0"),
            sandbox_why="the sandbox is not ready",
        )

    def test_what_succeeded_under_on_failure_does_not_run_again(self) -> None:
        pod = make_pod(make_container("a"), make_container("b"), restart_policy="OnFailure")
        gone = status(
            record("a", EXITED, 0), record("b", EXITED, 1), sandboxes=(sandbox(0, NOT_READY),)
        )
        actions = compute_pod_actions(pod, gone)
        assert actions.create_sandbox
        assert actions.containers_to_start == ("b",)

    def test_no_sandbox_is_made_when_nothing_is_left_to_run(self) -> None:
        pod = make_pod(restart_policy="OnFailure")
        gone = status(record(state=EXITED), sandboxes=(sandbox(0, NOT_READY),))
        actions = compute_pod_actions(pod, gone)
        assert actions.kill_pod
        assert not actions.create_sandbox

    def test_a_container_that_may_run_once_does_not_run_again_when_all_traces_are_gone(
        self,
    ) -> None:
        pod = make_pod(restart_policy="Never")
        actions = compute_pod_actions(pod, PodRuntimeStatus(UID), ran_before={"web": "c-gone"})
        assert actions.containers_to_start == ()
        assert not actions.create_sandbox


class TestRegularContainers:
    """docs/behaviour/runtime.md, "Regular containers"."""

    def test_nothing_is_done_while_all_run(self) -> None:
        assert compute_pod_actions(make_pod(), status(record())).nothing_to_do

    def test_a_missing_container_starts(self) -> None:
        pod = make_pod(make_container("a"), make_container("b"))
        assert compute_pod_actions(pod, status(record("a"))).containers_to_start == ("b",)

    def test_a_missing_container_of_a_deleted_pod_does_not_start(self) -> None:
        pod = deleted(make_pod(make_container("a"), make_container("b")))
        assert compute_pod_actions(pod, status(record("a"))).nothing_to_do

    @pytest.mark.parametrize("state", [CREATED, UNKNOWN, EXITED])
    def test_nothing_of_a_deleted_pod_starts_again(self, state: ContainerState) -> None:
        pod = deleted(make_pod(make_container("a"), make_container("b")))
        actions = compute_pod_actions(pod, status(record("a"), record("b", state)))
        assert actions.nothing_to_do

    def test_a_created_container_starts(self) -> None:
        actions = compute_pod_actions(make_pod(), status(record(state=CREATED)))
        assert actions.containers_to_start == ("web",)
        assert actions.containers_to_kill == ()

    def test_an_unknown_container_is_killed_and_started(self) -> None:
        actions = compute_pod_actions(make_pod(), status(record(state=UNKNOWN)))
        assert actions.containers_to_start == ("web",)
        assert [k.reason for k in actions.containers_to_kill] == [KillReason.UNKNOWN]

    @pytest.mark.parametrize(
        ("policy", "code", "again"),
        [
            ("Always", 0, True),
            ("Always", 1, True),
            ("OnFailure", 0, False),
            ("OnFailure", 1, True),
            ("Never", 0, False),
            ("Never", 1, False),
        ],
    )
    def test_an_exited_container_follows_the_policy(
        self, policy: str, code: int, again: bool
    ) -> None:
        """docs/behaviour/runtime.md, "Restarts"."""
        pod = make_pod(make_container(), make_container("other"), restart_policy=policy)
        actions = compute_pod_actions(pod, status(record("web", EXITED, code), record("other")))
        assert actions.containers_to_start == (("web",) if again else ())
        assert not actions.kill_pod

    def test_a_rule_of_the_container_comes_before_its_policy(self) -> None:
        """docs/behaviour/runtime.md, "Restarts"."""
        rule = ContainerRestartRule(
            action="Restart",
            exit_codes=ContainerRestartRuleOnExitCodes(operator="In", values=(42,)),
        )
        container = make_container(restart_policy="Never", restart_policy_rules=(rule,))
        pod = make_pod(container, make_container("other"))
        for code, again in ((42, True), (1, False)):
            seen = status(record("web", EXITED, code), record("other"))
            assert ("web" in compute_pod_actions(pod, seen).containers_to_start) is again

    def test_a_changed_image_replaces_the_container_even_under_never(self) -> None:
        pod = make_pod(make_container(image="example.test/web:v2"), restart_policy="Never")
        actions = compute_pod_actions(pod, status(record()))
        assert actions.containers_to_start == ("web",)
        (kill,) = actions.containers_to_kill
        assert kill.message == "Container web definition changed, will be restarted"

    def test_a_change_that_is_not_name_or_image_leaves_the_container_alone(self) -> None:
        pod = make_pod(make_container(command=("other",), tty=True))
        assert compute_pod_actions(pod, status(record())).nothing_to_do

    @pytest.mark.parametrize("kind", ["liveness", "startup"])
    @pytest.mark.parametrize("policy", ["Always", "Never"])
    def test_a_failed_probe_kills_and_restarts_if_allowed(self, kind: str, policy: str) -> None:
        pod = make_pod(restart_policy=policy)
        probes = ProbeResults(**{kind: {"c-web": ProbeResult.FAILURE}})
        actions = compute_pod_actions(pod, status(record()), probes=probes)
        if policy == "Never":
            assert actions.kill_pod
            return
        (kill,) = actions.containers_to_kill
        assert kill.message == f"Container web failed {kind} probe, will be restarted"
        assert actions.containers_to_start == ("web",)

    def test_a_pod_with_nothing_left_to_run_is_stopped_with_its_sandbox(self) -> None:
        pod = make_pod(restart_policy="Never")
        actions = compute_pod_actions(pod, status(record(state=EXITED)))
        assert actions.kill_pod
        assert not actions.create_sandbox

    def test_a_container_that_has_left_the_spec_is_stopped(self) -> None:
        actions = compute_pod_actions(make_pod(), status(record(), record("old")))
        assert [k.name for k in actions.containers_to_kill] == ["old"]
        assert not actions.kill_pod

    def test_only_the_newest_running_instance_stays(self) -> None:
        older = record(id=ContainerID("older"))
        actions = compute_pod_actions(make_pod(), status(record(), older))
        assert [k.id for k in actions.containers_to_kill] == ["older"]
        assert actions.containers_to_start == ()

    def test_a_vanished_container_that_may_run_once_does_not_run_again(self) -> None:
        pod = make_pod(make_container(), make_container("other"), restart_policy="Never")
        actions = compute_pod_actions(pod, status(record("other")), ran_before={"web": "c-gone"})
        assert actions.nothing_to_do

    def test_a_late_instance_of_a_container_that_may_run_once_does_not_start(self) -> None:
        pod = make_pod(make_container(), make_container("other"), restart_policy="Never")
        seen = status(record(state=CREATED), record("other"))
        assert compute_pod_actions(pod, seen, ran_before={"web": "c-gone"}).nothing_to_do
        again = compute_pod_actions(pod, seen, ran_before={"web": "c-web"})
        assert again.containers_to_start == ("web",)

    def test_a_vanished_container_that_restarts_always_does(self) -> None:
        actions = compute_pod_actions(make_pod(), status(), ran_before={"web": "c-gone"})
        assert actions.containers_to_start == ("web",)


SIDECAR = make_container("side", restart_policy="Always")
PROBED = make_container("side", restart_policy="Always", startup_probe=Probe())
INITS = (make_container("one"), SIDECAR, make_container("two"))


class TestInitContainers:
    """docs/behaviour/runtime.md, "Init containers"."""

    @pytest.mark.parametrize(
        ("seen", "init", "regular"),
        [
            pytest.param((), ["one"], [], id="no front, init not over"),
            pytest.param((record("one", CREATED),), ["one"], [], id="plain front created"),
            pytest.param((record("one"),), [], [], id="plain front running"),
            pytest.param((record("one", EXITED, 1),), ["one"], [], id="plain front failed"),
            pytest.param((record("one", EXITED),), ["side"], [], id="plain front complete"),
            pytest.param((record("side"),), ["two"], [], id="sidecar front complete"),
            pytest.param((record("two"),), ["side"], [], id="sidecar, no record"),
            pytest.param(
                (record("two"), record("side", EXITED)), ["side"], [], id="sidecar exited"
            ),
            pytest.param((record("two", EXITED), record("side")), [], ["web"], id="all complete"),
            pytest.param((record("web"),), ["side"], [], id="init over"),
            pytest.param(
                (record("web"), record("side"), record("one", EXITED, 1)), [], [], id="not front"
            ),
        ],
    )
    def test_they_start_one_after_the_other_and_sidecars_stay(
        self, seen: tuple[ContainerRuntimeStatus, ...], init: list[str], regular: list[str]
    ) -> None:
        actions = compute_pod_actions(make_pod(init_containers=INITS), status(*seen))
        assert (list(actions.init_containers_to_start), list(actions.containers_to_start)) == (
            init,
            regular,
        )
        assert not actions.kill_pod

    @pytest.mark.parametrize(("state", "code"), [(EXITED, 1), (UNKNOWN, 0)])
    def test_one_that_failed_and_may_not_run_again_ends_the_pod(
        self, state: ContainerState, code: int
    ) -> None:
        pod = make_pod(init_containers=INITS, restart_policy="Never")
        actions = compute_pod_actions(pod, status(record("one", state, code)))
        assert actions.kill_pod
        assert not actions.create_sandbox

    def test_an_oom_kill_with_exit_code_0_is_a_failure(self) -> None:
        pod = make_pod(init_containers=INITS, restart_policy="OnFailure")
        actions = compute_pod_actions(pod, status(record("one", EXITED, 0, reason="OOMKilled")))
        assert actions.init_containers_to_start == ("one",)

    @pytest.mark.parametrize("name", ["one", "side"])
    def test_an_unknown_one_is_killed_and_started(self, name: str) -> None:
        actions = compute_pod_actions(
            make_pod(init_containers=INITS), status(record(name, UNKNOWN))
        )
        assert [(k.name, k.reason) for k in actions.containers_to_kill] == [
            (name, KillReason.UNKNOWN)
        ]
        assert actions.init_containers_to_start == (name,)

    @pytest.mark.parametrize(
        ("startup", "killed", "init"),
        [
            (None, [], ()),
            (ProbeResult.FAILURE, [KillReason.STARTUP_PROBE], ("side",)),
            (ProbeResult.SUCCESS, [], ("two",)),
        ],
    )
    def test_the_next_one_waits_until_the_startup_probe_of_a_sidecar_succeeds(
        self, startup: ProbeResult | None, killed: list[KillReason], init: tuple[str, ...]
    ) -> None:
        pod = make_pod(init_containers=(PROBED, make_container("two")))
        results = {} if startup is None else {"c-side": startup}
        actions = compute_pod_actions(
            pod, status(record("side")), probes=ProbeResults(startup=results)
        )
        assert [k.reason for k in actions.containers_to_kill] == killed
        assert actions.init_containers_to_start == init

    def test_a_sidecar_with_another_image_or_a_failed_liveness_probe_is_replaced(self) -> None:
        live = make_container("side", restart_policy="Always", liveness_probe=Probe())
        pod = make_pod(init_containers=(live,))
        failed = ProbeResults(liveness={"c-side": ProbeResult.FAILURE})
        actions = compute_pod_actions(pod, status(record("web"), record("side")), probes=failed)
        assert [k.reason for k in actions.containers_to_kill] == [KillReason.LIVENESS_PROBE]
        assert actions.init_containers_to_start == ("side",)
        changed = status(record("web"), record("side", hash="other"))
        actions = compute_pod_actions(pod, changed)
        assert [k.reason for k in actions.containers_to_kill] == [KillReason.NONE]
        assert actions.init_containers_to_start == ("side",)

    def test_one_that_ran_once_and_left_no_trace_ends_the_pod(self) -> None:
        pod = make_pod(init_containers=INITS, restart_policy="Never")
        for seen in (status(), PodRuntimeStatus(UID)):
            actions = compute_pod_actions(pod, seen, ran_before={"one": "c-gone"})
            assert actions.kill_pod
            assert not actions.create_sandbox
        later = compute_pod_actions(pod, status(record("two")), ran_before={"one": "c-gone"})
        assert later.init_containers_to_start == ("side",)


class TestEphemeralContainers:
    """docs/behaviour/runtime.md, "Actions"."""

    DEBUG = EphemeralContainer(name="debug", image="busybox")

    def test_they_start_beside_whatever_runs_and_while_init_goes_on(self) -> None:
        pod = make_pod(init_containers=INITS, ephemeral_containers=(self.DEBUG,))
        assert compute_pod_actions(pod, status(record("one"))).ephemeral_containers_to_start == (
            "debug",
        )

    @pytest.mark.parametrize("state", [CREATED, RUNNING, EXITED, UNKNOWN])
    def test_they_never_start_again(self, state: ContainerState) -> None:
        pod = make_pod(ephemeral_containers=(self.DEBUG,))
        actions = compute_pod_actions(pod, status(record(), record("debug", state)))
        assert actions.ephemeral_containers_to_start == ()

    def test_not_even_when_their_record_is_gone(self) -> None:
        pod = make_pod(ephemeral_containers=(self.DEBUG,))
        actions = compute_pod_actions(pod, status(record()), ran_before={"debug": "c-gone"})
        assert actions.ephemeral_containers_to_start == ()

    def test_they_do_not_keep_a_pod_alive(self) -> None:
        pod = make_pod(ephemeral_containers=(self.DEBUG,), restart_policy="Never")
        actions = compute_pod_actions(pod, status(record(state=EXITED), record("debug")))
        assert actions.kill_pod


codes = st.sampled_from([0, 1, 42])
rules = st.builds(
    ContainerRestartRule,
    action=st.sampled_from(["Restart", "RestartAllContainers"]),
    exit_codes=st.builds(
        ContainerRestartRuleOnExitCodes,
        operator=st.sampled_from(["In", "NotIn"]),
        values=st.lists(codes, max_size=2).map(tuple),
    ),
)
probes = st.none() | st.just(Probe())
policies = st.sampled_from(["Always", "OnFailure", "Never"])
rarely = st.sampled_from([False] * 5 + [True])


def containers(prefix: str, kind: type[Container] = Container) -> st.SearchStrategy[Container]:
    return st.builds(
        kind,
        name=st.sampled_from([f"{prefix}{n}" for n in range(3)]),
        image=st.sampled_from(["a:1", "b:1"]),
        restart_policy=st.none() | policies,
        restart_policy_rules=st.lists(rules, max_size=2).map(tuple),
        liveness_probe=probes,
        startup_probe=probes,
    )


def several(prefix: str, smallest: int, kind: type[Container] = Container) -> Any:
    one = containers(prefix, kind)
    return st.lists(one, min_size=smallest, max_size=3, unique_by=lambda c: c.name).map(tuple)


@st.composite
def pods(draw: st.DrawFn) -> Pod:
    pod = make_pod(
        *draw(several("c", 1)),
        restart_policy=draw(policies),
        host_network=draw(rarely),
        init_containers=draw(several("i", 0)),
        ephemeral_containers=draw(several("e", 0, EphemeralContainer)),
    )
    return deleted(pod) if draw(rarely) else pod


@st.composite
def records(draw: st.DrawFn) -> ContainerRuntimeStatus:
    name = draw(st.sampled_from([f"{p}{n}" for p in "cie" for n in range(3)] + ["stranger"]))
    return record(
        name,
        draw(st.sampled_from(ContainerState)),
        draw(codes),
        id=ContainerID(f"id-{draw(st.integers(0, 10**6))}"),
        hash=container_hash(name, draw(st.sampled_from(["a:1", "b:1"]))),
        reason=draw(st.sampled_from(["", "OOMKilled"])),
    )


@st.composite
def sandboxes(draw: st.DrawFn) -> tuple[SandboxRuntimeStatus, ...]:
    """Mostly a sound one, so that most of the tables are reached."""
    if not draw(rarely):
        attempt = draw(st.integers(0, 2))
        older = tuple(sandbox(n, NOT_READY) for n in reversed(range(attempt)))
        return (sandbox(attempt), *older)
    return tuple(
        sandbox(
            attempt,
            draw(st.sampled_from(SandboxState)),
            ips=draw(st.sampled_from([("10.0.0.1",), ()])),
            has_network_status=draw(st.booleans()),
            host_network=draw(st.booleans()),
        )
        for attempt in reversed(range(draw(st.integers(0, 2))))
    )


@st.composite
def statuses(draw: st.DrawFn) -> PodRuntimeStatus:
    found = draw(st.lists(records(), max_size=8, unique_by=lambda c: c.id))
    return status(*found, sandboxes=draw(sandboxes()))


@settings(max_examples=600, deadline=None)
@given(data=st.data(), pod=pods(), seen=statuses(), restart_all=rarely)
def test_the_code_agrees_with_a_second_statement_of_the_tables(
    data: st.DataObject, pod: Pod, seen: PodRuntimeStatus, restart_all: bool
) -> None:
    ids = [c.id for c in seen.containers]
    outcomes = st.lists(st.sampled_from([None, *ProbeResult]), min_size=len(ids), max_size=len(ids))
    liveness, startup = (
        {str(cid): result for cid, result in zip(ids, data.draw(outcomes), strict=True) if result}
        for _ in range(2)
    )
    results = ProbeResults(liveness, startup)
    ran = data.draw(
        st.dictionaries(
            st.sampled_from(["c0", "c1", "c2", "i0", "i1", "i2", "e0"]),
            st.sampled_from(["gone", *ids]),
        )
    )
    actions = compute_pod_actions(
        pod, seen, probes=results, restart_all=restart_all, ran_before=ran
    )
    oracle = Oracle(pod, seen, results, restart_all=restart_all, ran_before=ran)
    assert without_texts(actions) == oracle.expected()
