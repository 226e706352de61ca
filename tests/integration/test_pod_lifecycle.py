"""The life of a pod, from its first init container to its last sidecar, in a whole ring.

What is checked is what a user sees: statuses, conditions, restart counts, and the order in
which containers start and stop (docs/pod-lifecycle.md).
"""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest
from ring import Ring, agent_on, phase, ring, simulated

from nodeagent.api import (
    Container,
    ContainerRestartRule,
    ContainerRestartRuleOnExitCodes,
    ContainerState,
    ContainerStatus,
    EphemeralContainer,
    ExecAction,
    Lifecycle,
    LifecycleHandler,
    Pod,
    PodSecurityContext,
    SleepAction,
    Sysctl,
)
from nodeagent.embedded import Script, SimulatedBackend
from nodeagent.embedded.backend import ExecResult
from nodeagent.model import UpdateType
from nodeagent.pods.worker_updates import KillOptions, UpdatePodOptions
from nodeagent.testing import MemorySource, make_container, make_pod

pytestmark = pytest.mark.anyio

ONCE = Script(exits=[(3.0, 0)])


def sidecar(name: str) -> Container:
    return make_container(name, restart_policy="Always")


def steps(node: Ring, what: str) -> list[tuple[str, float]]:
    """Containers to which the agent did it, in order, and when."""
    found = node.agent.journal.select("uid-web")
    mine = (r for r in found if r.component == "runtime" and r.what == what)
    return [(str((r.fields or {})["container"]), r.at) for r in mine]


def order(node: Ring, what: str) -> list[str]:
    """Names of the containers to which the agent did it, in order."""
    return [name for name, _ in steps(node, what)]


def init_status(node: Ring, container: str) -> ContainerStatus:
    pod = node.pod("web")
    found = pod.status.init_container_statuses if pod is not None else ()
    return next((s for s in found if s.name == container), ContainerStatus())


def waiting(status: ContainerStatus) -> str:
    return status.state.waiting.reason if status.state.waiting is not None else ""


def initialized(pod: Pod | None) -> str:
    assert pod is not None
    return next(c.status for c in pod.status.conditions if c.type == "Initialized")


class TestInitContainers:
    """docs/behaviour/runtime.md, "Init containers"."""

    async def test_they_run_one_after_the_other_before_the_others(self, tmp_path: Path) -> None:
        pod = make_pod("web", init_containers=(make_container("one"), make_container("two")))
        backend = SimulatedBackend({"one": ONCE, "two": ONCE})
        async with ring(tmp_path, pod, backend=backend) as node:
            await node.until(lambda: order(node, "ContainerStarted") == ["one"])
            await node.until(lambda: init_status(node, "one").state.running is not None)
            assert phase(node.pod("web")) == "Pending"
            assert waiting(node.status("web")) == "PodInitializing"
            assert initialized(node.pod("web")) == "False"
            await node.running("web")
            assert order(node, "ContainerStarted") == ["one", "two", "main"]
            started = dict(steps(node, "ContainerStarted"))
            assert started["two"] - started["one"] >= 3
            assert started["main"] - started["two"] >= 3
            await node.until(lambda: initialized(node.pod("web")) == "True")
            for name in ("one", "two"):
                end = init_status(node, name).state.terminated
                assert end is not None
                assert (end.exit_code, end.reason) == (0, "Completed")
                assert init_status(node, name).ready

    async def test_one_that_fails_is_tried_again_with_a_back_off(self, tmp_path: Path) -> None:
        pod = make_pod("web", init_containers=(make_container("one"),))
        tries = Script(exits=[(1.0, 1), (1.0, 1), (1.0, 0)])
        async with ring(tmp_path, pod, backend=SimulatedBackend({"one": tries})) as node:
            await node.until(lambda: waiting(init_status(node, "one")) == "CrashLoopBackOff")
            assert phase(node.pod("web")) == "Pending"
            last = init_status(node, "one").last_state.terminated
            assert last is not None
            assert last.exit_code == 1
            await node.running("web")
            assert init_status(node, "one").restart_count == 2
            assert order(node, "ContainerStarted") == ["one", "one", "one", "main"]

    async def test_one_that_fails_for_good_fails_the_pod(self, tmp_path: Path) -> None:
        pod = make_pod(
            "web",
            restart="Never",
            init_containers=(make_container("one"), sidecar("side"), make_container("two")),
        )
        scripts = {"one": ONCE, "two": Script(exits=[(1.0, 7)])}
        async with ring(tmp_path, pod, backend=SimulatedBackend(scripts)) as node:
            await node.until(lambda: phase(node.pod("web")) == "Failed")
            end = init_status(node, "two").state.terminated
            assert end is not None
            assert end.exit_code == 7
            await node.until(lambda: not node.ids("web"))
            await anyio.sleep(300)
            assert phase(node.pod("web")) == "Failed"
            assert order(node, "ContainerStarted") == ["one", "side", "two"]
            assert waiting(node.status("web")) == "PodInitializing"

    async def test_they_run_again_in_a_new_sandbox(self, tmp_path: Path) -> None:
        pod = make_pod("web", init_containers=(make_container("one"),))
        async with ring(
            tmp_path, pod, backend=SimulatedBackend({"one": Script([(1.0, 0)], repeat=True)})
        ) as node:
            await node.running("web")
            (sandbox,) = node.runtime.core.state.sandboxes.values()
            await node.runtime.core.stop_sandbox(sandbox.id)
            await node.until(lambda: order(node, "ContainerStarted")[2:] == ["one", "main"])
            await node.running("web")
            assert len(node.ids("web")) == 1

    @pytest.mark.parametrize("restart", ["Always", "OnFailure"])
    async def test_they_run_and_show_again_whatever_their_own_policy(
        self, tmp_path: Path, restart: str
    ) -> None:
        pod = make_pod(
            "web", restart=restart, init_containers=(make_container("one", restart_policy="Never"),)
        )
        scripts = {"one": Script([(15.0, 0)], repeat=True)}
        async with ring(tmp_path, pod, backend=SimulatedBackend(scripts)) as node:
            await node.running("web")
            (sandbox,) = node.runtime.core.state.sandboxes.values()
            await node.runtime.core.stop_sandbox(sandbox.id)
            await node.until(lambda: init_status(node, "one").state.running is not None)
            shown = node.pod("web")
            assert shown is not None
            assert shown.status.container_statuses[0].state.running is None
            await node.until(lambda: order(node, "ContainerStarted")[2:] == ["one", "main"])
            await node.until(lambda: node.status("web").state.running is not None)

    @pytest.mark.parametrize("restart", ["Always", "Never"])
    async def test_an_agent_that_comes_back_goes_on_where_it_was(
        self, tmp_path: Path, restart: str
    ) -> None:
        inits = (make_container("one"), sidecar("side"), make_container("two"))
        source = MemorySource(make_pod("web", restart=restart, init_containers=inits))
        backend = SimulatedBackend({"one": ONCE, "two": Script(exits=[(40.0, 0)])})
        async with simulated(tmp_path, backend) as (runtime, endpoint):
            async with agent_on(runtime, endpoint, tmp_path, source) as node:
                await node.until(lambda: order(node, "ContainerStarted") == ["one", "side", "two"])
            async with agent_on(runtime, endpoint, tmp_path, source) as node:
                await node.running("web")
                assert order(node, "ContainerStarted") == ["main"]
                assert init_status(node, "one").restart_count == 0
                assert len(node.ids("web")) == 2


class TestContainersOfTwoMinds:
    """docs/behaviour/runtime.md, "New sandbox": containers with another policy than their pod."""

    async def lose_sandbox(self, node: Ring) -> None:
        (sandbox,) = node.runtime.core.state.sandboxes.values()
        await node.runtime.core.stop_sandbox(sandbox.id)

    def state(self, node: Ring, name: str) -> ContainerState:
        pod = node.pod("web")
        found = pod.status.container_statuses if pod is not None else ()
        return next((s.state for s in found if s.name == name), ContainerState())

    @pytest.mark.parametrize("ended", [True, False])
    async def test_one_that_runs_once_does_not_run_again_in_a_new_sandbox(
        self, tmp_path: Path, ended: bool
    ) -> None:
        pod = make_pod("web", make_container("main"), make_container("nv", restart_policy="Never"))
        scripts = {"nv": ONCE} if ended else {}
        async with ring(tmp_path, pod, backend=SimulatedBackend(scripts)) as node:
            await node.running("web")
            if ended:
                await node.until(lambda: self.state(node, "nv").terminated is not None)
            before = node.status("web").container_id
            await self.lose_sandbox(node)
            await node.until(lambda: order(node, "ContainerStarted")[2:] == ["main"])
            await anyio.sleep(60)
            assert order(node, "ContainerStarted")[2:] == ["main"]
            assert self.state(node, "nv").terminated is not None
            assert self.state(node, "main").running is not None
            assert node.status("web").container_id != before
            assert phase(node.pod("web")) == "Running"

    async def test_one_that_runs_for_ever_has_its_pod_go_on(self, tmp_path: Path) -> None:
        pod = make_pod(
            "web",
            make_container("main", restart_policy="Always"),
            make_container("nv"),
            restart="Never",
        )
        async with ring(tmp_path, pod, backend=SimulatedBackend({"nv": ONCE})) as node:
            await node.until(lambda: self.state(node, "nv").terminated is not None)
            await self.lose_sandbox(node)
            await node.until(lambda: order(node, "ContainerStarted")[2:] == ["main"])
            await node.until(lambda: self.state(node, "main").running is not None)
            assert self.state(node, "nv").terminated is not None


class TestSidecars:
    """docs/behaviour/runtime.md, "Init containers", "Stop order"."""

    POD = make_pod(
        "web",
        make_container("main"),
        make_container("other"),
        init_containers=(sidecar("s1"), make_container("init"), sidecar("s2")),
        grace=20,
    )

    async def test_they_start_before_and_stop_after_in_reverse_order(self, tmp_path: Path) -> None:
        backend = SimulatedBackend({"init": ONCE, "main": Script(stop_after=4.0)})
        async with ring(tmp_path, self.POD, backend=backend) as node:
            await node.running("web")
            assert order(node, "ContainerStarted") == ["s1", "init", "s2", "main", "other"]
            assert len(node.ids("web")) == 4
            node.source.set()
            await node.until(lambda: not node.ids("web"))
            assert order(node, "ContainerKilled") == ["other", "main", "s2", "s1"]

    async def test_one_that_ends_is_started_again_and_the_others_stay(self, tmp_path: Path) -> None:
        backend = SimulatedBackend({"init": ONCE, "s1": Script(exits=[(10.0, 0)])})
        async with ring(tmp_path, self.POD, backend=backend) as node:
            await node.running("web")
            before = set(node.ids("web"))
            await node.until(lambda: init_status(node, "s1").restart_count == 1)
            await node.until(lambda: init_status(node, "s1").ready)
            assert len(before & set(node.ids("web"))) == 3
            assert phase(node.pod("web")) == "Running"
            assert order(node, "ContainerStarted").count("init") == 1

    @pytest.mark.parametrize(("code", "wanted"), [(0, "Succeeded"), (2, "Failed")])
    async def test_a_job_ends_with_its_regular_containers_and_takes_them_along(
        self, tmp_path: Path, code: int, wanted: str
    ) -> None:
        pod = make_pod("web", restart="Never", init_containers=(sidecar("side"),))
        backend = SimulatedBackend({"main": Script(exits=[(2.0, code)])})
        async with ring(tmp_path, pod, backend=backend) as node:
            await node.until(lambda: phase(node.pod("web")) == wanted)
            await node.until(lambda: not node.ids("web"))
            await anyio.sleep(120)
            assert order(node, "ContainerStarted") == ["side", "main"]
            assert phase(node.pod("web")) == wanted

    async def test_one_that_ignores_its_end_gets_what_is_left_of_the_grace(
        self, tmp_path: Path
    ) -> None:
        backend = SimulatedBackend(
            {"init": ONCE, "main": Script(stop_after=8.0), "s2": Script(stop_after=300.0)}
        )
        async with ring(tmp_path, self.POD, backend=backend) as node:
            await node.running("web")
            began = anyio.current_time()
            node.source.set()
            await node.until(lambda: not node.ids("web"))
            assert 19 < anyio.current_time() - began < 25


class TestRestartOfAll:
    """docs/behaviour/runtime.md, "Actions", "Crash back-off"."""

    async def test_one_exit_starts_the_whole_pod_again_in_its_sandbox(self, tmp_path: Path) -> None:
        rule = ContainerRestartRule(
            action="RestartAllContainers",
            exit_codes=ContainerRestartRuleOnExitCodes(operator="In", values=(42,)),
        )
        watcher = make_container("zz", restart_policy="Never", restart_policy_rules=(rule,))
        pod = make_pod(
            "web",
            make_container("main"),
            watcher,
            restart="Never",
            init_containers=(make_container("init"), sidecar("side")),
        )
        scripts = {
            "init": Script(exits=[(1.0, 0)], repeat=True),
            "zz": Script(exits=[(5.0, 42), (5.0, 42)]),
        }
        async with ring(tmp_path, pod, backend=SimulatedBackend(scripts)) as node:
            await node.running("web")
            ip = (node.pod("web") or pod).status.pod_ip
            once = ["init", "side", "main", "zz"]
            await node.until(lambda: order(node, "ContainerStarted")[4:] == once)
            assert set(order(node, "ContainerKilled")) == {"main", "side"}
            reasons = [r.why for r in node.agent.journal.select("web") if "Killed" in r.what]
            assert set(reasons) == {"RestartAllContainers"}
            await node.until(lambda: node.status("web", "zz").restart_count == 1)
            # Whoever asks for it again and again waits longer and longer, and only it.
            await node.until(lambda: waiting(node.status("web", "zz")) == "CrashLoopBackOff")
            assert order(node, "ContainerStarted")[8:] == ["init", "side", "main"]
            await node.until(lambda: node.status("web", "zz").restart_count == 2)
            await node.until(lambda: node.status("web", "zz").ready)
            assert node.status("web").restart_count == 2
            assert init_status(node, "init").restart_count == 2
            await anyio.sleep(120)
            assert order(node, "ContainerStarted") == once * 3
            assert (node.pod("web") or pod).status.pod_ip == ip
            assert phase(node.pod("web")) == "Running"
            assert node.agent.parts.statuses.refused == 0


class TestEphemeralContainers:
    """docs/behaviour/runtime.md, "Actions"."""

    async def test_one_that_is_added_runs_once_and_shows_its_end(self, tmp_path: Path) -> None:
        backend = SimulatedBackend({"debug": Script(exits=[(2.0, 3)], repeat=True)})
        debug = EphemeralContainer(
            name="debug", image="busybox", image_pull_policy="IfNotPresent",
            target_container_name="main",
        )  # fmt: skip
        async with ring(tmp_path, make_pod("web"), backend=backend) as node:
            await node.running("web")
            before = node.ids("web")
            node.source.set(make_pod("web", ephemeral_containers=(debug,)))

            def ended() -> ContainerStatus | None:
                pod = node.pod("web")
                found = pod.status.ephemeral_container_statuses if pod is not None else ()
                return next((s for s in found if s.state.terminated is not None), None)

            await node.until(ended)
            await anyio.sleep(300)
            status = ended()
            assert status is not None
            assert status.state.terminated is not None
            assert status.state.terminated.exit_code == 3
            assert status.restart_count == 0
            assert not status.ready
            assert node.ids("web") == before
            assert order(node, "ContainerStarted") == ["main", "debug"]
            assert phase(node.pod("web")) == "Running"


async def test_one_that_runs_is_not_taken_for_lost_while_another_cannot_start(
    tmp_path: Path,
) -> None:
    """docs/behaviour/phase.md, "Container statuses"."""
    bad = make_container("zz", image="busybox:gone", image_pull_policy="Never")
    pod = make_pod("web", make_container("main"), bad, restart="Never")
    async with ring(tmp_path, pod) as node:
        await node.until(lambda: order(node, "ContainerStarted") == ["main"])
        await node.until(lambda: waiting(node.status("web", "zz")) == "ErrImageNeverPull")
        await anyio.sleep(60)
        assert node.status("web").state.running is not None
        assert node.status("web").ready


def hooked(
    post_start: LifecycleHandler | None = None, pre_stop: LifecycleHandler | None = None
) -> Container:
    return make_container(lifecycle=Lifecycle(post_start=post_start, pre_stop=pre_stop))


EXEC = LifecycleHandler(exec=ExecAction(command=("true",)))


class TestHooks:
    """docs/behaviour/runtime.md, "Hooks"."""

    async def test_one_that_fails_after_the_start_is_shown_and_tried_again(
        self, tmp_path: Path
    ) -> None:
        failing = Script(exec_result=ExecResult(stderr=b"not yet", exit_code=1))
        backend = SimulatedBackend({"main": failing})
        pod = make_pod("web", hooked(post_start=EXEC))
        async with ring(tmp_path, pod, backend=backend) as node:
            await node.until(lambda: phase(node.pod("web")))
            await node.until(lambda: waiting(node.status("web")) == "PostStartHookError")
            state = node.status("web").state.waiting
            assert state is not None
            assert "exited with 1: not yet" in state.message
            await node.until(lambda: node.status("web").last_state.terminated)
            backend.scripts["main"] = Script()
            await node.until(lambda: node.status("web").ready, 300)
            assert node.status("web").restart_count >= 1

    async def test_the_hook_comes_before_the_signal_and_takes_of_the_grace(
        self, tmp_path: Path
    ) -> None:
        backend = SimulatedBackend({"main": Script(exec_after=6.0, stop_after=300.0)})
        pod = make_pod("web", hooked(pre_stop=EXEC), grace=20)
        async with ring(tmp_path, pod, backend=backend) as node:
            await node.running("web")
            began = anyio.current_time()
            node.source.set()
            await node.until(lambda: not node.ids("web"))
            assert 19 < anyio.current_time() - began < 23
            assert node.runtime.core.calls["ExecSync"] == 1

    async def test_a_second_deletion_shortens_and_does_not_lengthen(self, tmp_path: Path) -> None:
        backend = SimulatedBackend({"main": Script(exec_after=500.0)})
        pod = make_pod("web", hooked(pre_stop=EXEC), grace=300)
        async with ring(tmp_path, pod, backend=backend) as node:
            await node.running("web")
            began = anyio.current_time()
            for grace, at in ((200, 0), (10, 30), (100, 32)):
                await anyio.sleep(began + at - anyio.current_time())
                kill = KillOptions(grace=grace)
                node.agent.parts.workers.update_pod(
                    UpdatePodOptions(UpdateType.KILL, pod=pod, kill=kill)
                )
            await node.until(lambda: not node.ids("web"))
            assert 38 < anyio.current_time() - began < 48
            assert node.runtime.core.calls["ExecSync"] == 1
            (cut,) = [r for r in node.agent.journal.select("web") if r.what == "PreStopHookCut"]
            assert "grace period of 10s" in cut.why

    async def test_the_next_agent_performs_a_hook_anew_that_was_cut_with_the_last_one(
        self, tmp_path: Path
    ) -> None:
        """What an agent had done of a hook nobody knows: it is done at least once."""
        backend = SimulatedBackend({"main": Script(exec_after=30.0)})
        pod = make_pod("web", hooked(pre_stop=EXEC), grace=60)
        source = MemorySource(pod)
        async with simulated(tmp_path, backend) as (runtime, endpoint):
            async with agent_on(runtime, endpoint, tmp_path, source) as node:
                await node.running("web")
                source.set()
                await node.until(lambda: runtime.core.calls.get("ExecSync") == 1)
            async with agent_on(runtime, endpoint, tmp_path, source) as node:
                await node.until(lambda: not node.ids("web"))
                assert runtime.core.calls["ExecSync"] == 2

    async def test_a_container_that_ends_during_its_hook_does_not_stall_the_stop(
        self, tmp_path: Path
    ) -> None:
        pause = LifecycleHandler(sleep=SleepAction(seconds=500))
        backend = SimulatedBackend({"main": Script(exits=[(60.0, 0)])})
        pod = make_pod("web", hooked(pre_stop=pause), grace=1000)
        async with ring(tmp_path, pod, backend=backend) as node:
            await node.running("web")
            node.source.set()
            await node.until(lambda: not node.containers("web"), 200)


async def test_a_pod_with_a_parameter_that_is_not_its_own_is_rejected(tmp_path: Path) -> None:
    """runtime.md, "Sysctls"."""
    asked = PodSecurityContext(sysctls=(Sysctl(name="kernel.msgmax", value="1"),))
    async with ring(tmp_path, make_pod("web", security_context=asked)) as node:
        await node.until(lambda: phase(node.pod("web")))
        await anyio.sleep(120)
        web = node.pod("web")
        assert web is not None
        assert (web.status.phase, web.status.reason) == ("Failed", "SysctlForbidden")
        why = 'forbidden sysctl: "kernel.msgmax" not allowlisted'
        assert web.status.message == f"Pod was rejected: {why}"
        assert "RunPodSandbox" not in node.runtime.core.calls
        assert any(r.what == "SysctlForbidden" for r in node.agent.journal.select("web"))
