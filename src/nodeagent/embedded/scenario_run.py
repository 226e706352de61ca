"""A runtime that follows a scenario."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import anyio

from nodeagent.aio import background
from nodeagent.api.problems import FieldProblem
from nodeagent.embedded.fault_plan import FaultPlan
from nodeagent.embedded.fault_rules import Delay, Fault
from nodeagent.embedded.faulty import RuntimeServer, find, serve_faulty
from nodeagent.embedded.populate import populate
from nodeagent.embedded.records import RunState
from nodeagent.embedded.scenario import ScenarioError
from nodeagent.embedded.scenario_parts import (
    ACTIONS,
    error_code,
    make_fault,
    make_rule,
    old_pods,
    only_one,
)
from nodeagent.embedded.simulated import SimulatedBackend
from nodeagent.log import Log
from nodeagent.rpc import Code, error_for

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from nodeagent.clock import Clock
    from nodeagent.embedded import scenario as parts
    from nodeagent.embedded.backend import Backend
    from nodeagent.embedded.core import Core

log = Log("embedded.scenario")


@asynccontextmanager
async def serve_scenario(
    socket: Path,
    backend: Backend,
    scenario: parts.Scenario,
    *,
    path: Path | None = None,
    clock: Clock | None = None,
) -> AsyncIterator[RuntimeServer]:
    """Serve an embedded runtime on a unix socket, to which happens what a scenario says.

    The times of the timeline count from when it serves.

    Args:
        socket: path of the socket.
        backend: what runs containers.
        scenario: see :func:`nodeagent.embedded.scenario.load_scenario`.
        path: the scenario's file, for errors.
        clock: wall time for the stamps.

    Raises:
        ScenarioError: the backend cannot do what the scenario asks for.
        ValueError: the socket's path is too long.
        OSError: the socket cannot be made there.
    """
    _prepare(backend, scenario, path)
    plan = make_plan(scenario)
    limit = scenario.max_send.bytes if scenario.max_send else None
    async with (
        serve_faulty(socket, backend, plan=plan, clock=clock, max_send=limit) as server,
        background() as tasks,
    ):
        for image in scenario.images:
            server.core.images.pull(image)
        for dead in scenario.populate:
            _populate(server.core, dead)
        for step in scenario.timeline:
            tasks.start_soon(_step, server, step)
        yield server


def make_plan(scenario: parts.Scenario) -> FaultPlan:
    """The latencies and faults of a scenario."""
    latencies = [
        Fault(method, Delay(duration.seconds), name=f"latency-{method}")
        for method, duration in scenario.latency.items()
    ]
    faults = [make_fault(part) for part in scenario.faults]
    return FaultPlan(*latencies, *faults, seed=scenario.seed)


def _prepare(backend: Backend, scenario: parts.Scenario, path: Path | None) -> None:
    if isinstance(backend, SimulatedBackend):
        backend.rules.extend(make_rule(part) for part in scenario.containers)
        return
    refused = [
        *(f"containers[{number}]" for number in range(len(scenario.containers))),
        *(f"timeline[{number}].end" for number, step in enumerate(scenario.timeline) if step.end),
    ]
    if refused:
        text = f"the {backend.name} backend follows no script: use the simulated backend"
        problems = [FieldProblem(field, text) for field in refused]
        raise ScenarioError(path, problems)


def _populate(core: Core, dead: parts.Dead) -> None:
    populate(
        core,
        dead.containers,
        per_pod=dead.per_pod,
        pods=old_pods(dead),
        container=dead.container,
        exit_code=dead.exit,
        list_bytes=dead.list_size.bytes if dead.list_size else 0,
        age=dead.age.seconds,
    )


async def _step(server: RuntimeServer, step: parts.Step) -> None:
    await anyio.sleep(step.at.seconds)
    await take_step(server, step)


async def take_step(server: RuntimeServer, step: parts.Step) -> None:
    """Do now what a step of a timeline says; returns when it is over, a stall included.

    Args:
        server: the runtime.
        step: of a scenario that was checked; its time does not count.
    """
    log.info("step", at=step.at.seconds, action=only_one(step, ACTIONS))
    _change_plan(server.plan, step)
    _change_containers(server.core, step)
    if step.goaway:
        server.goaway()
    if step.drop_connections:
        server.drop_connections()
    if step.cut_streams:
        code = error_code(step.cut_streams, Code.UNAVAILABLE)
        server.cut_streams(error_for(code, step.cut_streams.message))
    if step.lose:
        lose = step.lose
        await server.lose(
            pod=lose.pod,
            container=lose.container,
            share=lose.share,
            sandboxes=lose.sandboxes,
            seed=lose.seed,
        )
    if step.stall:
        server.stall(new=step.stall.new)
        await anyio.sleep(step.stall.lasts.seconds)
        server.resume()
    if step.down:
        await server.restart(step.down.seconds)


def _change_plan(plan: FaultPlan, step: parts.Step) -> None:
    if step.add:
        plan.add(make_fault(step.add))
    if step.remove is not None:
        plan.remove(step.remove)
    if step.release is not None:
        plan.release(step.release)
    if step.close is not None:
        plan.close(step.close)


def _change_containers(core: Core, step: parts.Step) -> None:
    if step.populate:
        _populate(core, step.populate)
    if step.end and isinstance(core.backend, SimulatedBackend):
        for container in find(core, step.end.pod, step.end.container):
            if container.state is RunState.RUNNING:
                core.backend.end(container, step.end.exit)
