"""Scenario files: what they may say, what is wrong with them, and what they make happen."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio
import pytest

from nodeagent import rpc
from nodeagent.cri import CRIClient
from nodeagent.embedded import SimulatedBackend
from nodeagent.embedded.faulty import RuntimeServer
from nodeagent.embedded.process import ProcessBackend
from nodeagent.embedded.scenario import ScenarioError, load_scenario, parse_scenario
from nodeagent.embedded.scenario_run import make_plan, serve_scenario
from nodeagent.proto.runtime import v1
from nodeagent.testing.cri_configs import IMAGE, container_config, sandbox_config

pytestmark = pytest.mark.anyio

# A filter that lets all pass: one plain call, where a list without a filter is fetched in parts.
EVERYTHING = v1.ContainerFilter()

EXAMPLE = Path(__file__).parents[3] / "examples" / "scenarios" / "bad-day.yaml"


def wrong(text: str) -> list[str]:
    """What is wrong with a scenario."""
    with pytest.raises(ScenarioError) as raised:
        parse_scenario(text.encode())
    return [str(problem) for problem in raised.value.problems]


@pytest.mark.parametrize(
    ("text", "problems"),
    [
        ("", ["must hold one document, has 0"]),
        ("{}\n---\n{}", ["must hold one document, has 2"]),
        ("- 1", ["expected an object, got a list (line 1)"]),
        ("seed: 1\nseed: 2", ["seed: duplicate key, first on line 1 (line 2)"]),
        ("fault: []", ["fault: unknown field, did you mean faults? (line 1)"]),
        ("maxSend: lots", ["maxSend: 'lots' is not a size (write it like 16Mi) (line 1)"]),
        ("latency: {Foo: 1s}", ["latency[Foo]: is not the name of a CRI method"]),
        (
            "latency: {Status: -1s}",
            ["latency[Status]: '-1s' must not be negative (line 1)"],
        ),
        ("timeline: [{at: 1s, remove: x}]", ["timeline[0].remove: no fault has the name 'x'"]),
        (
            "timeline: [{at: 1s, add: {name: f, hang: g}}, {at: 2s, release: x}]",
            ["timeline[1].release: nothing waits at a gate of the name 'x'"],
        ),
        (
            "timeline: [{at: 1s, close: fault-1}]",
            ["timeline[0].close: nothing waits at a gate of the name 'fault-1'"],
        ),
        ("timeline: [{goaway: true}]", ["timeline[0].at: required (line 1)"]),
        (
            "images: ['a b']",
            ['images[0]: failed to parse image reference "a b": invalid reference format'],
        ),
        ("populate: [{containers: 0}]", ["populate[0].containers: must be at least 1, is 0"]),
        (
            "timeline: [{at: 1s, populate: {containers: 1, perPod: 0}}]",
            ["timeline[0].populate.perPod: must be at least 1, is 0"],
        ),
        (
            "timeline: [{at: 1s, lose: {share: 2}}]",
            ["timeline[0].lose.share: must be between 0 and 1, is 2"],
        ),
        (
            "timeline: [{at: 1s, cutStreams: {code: X}}]",
            [(f"timeline[0].cutStreams.code: must be one of {', '.join(rpc.Code.__members__)},"
             " is 'X'")],
        ),
        (
            "timeline: [{at: 1s, goaway: true, release: x}]",
            [
                ("timeline[0]: exactly one is needed of add, remove, release, close, down, lose,"
                " end, populate, stall, goaway, dropConnections, cutStreams;"
                " there is release, goaway")
            ],
        ),
        (
            "containers: [{log: [{text: a}, {text: b, stream: out}]}]",
            ["containers[0].log[1].stream: must be stdout or stderr, is 'out'"],
        ),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_with_its_path(text: str, problems: list[str]) -> None:
    assert wrong(text) == problems


@pytest.mark.parametrize(
    ("fault", "problem"),
    [
        (
            "{}",
            (": exactly one is needed of delay, hang, fail, late, lateUntil, failAfter, show, drop,"
            " duplicate, hold, reorder, cut; there is none"),
        ),
        ("{hold: 5}", ".hold: '5' is not a duration (write it like 20s, 1m30s or 500ms) (line 1)"),
        ("{methods: [X], delay: 1s}", ".methods: 'X' is not the name of a CRI method"),
        ("{methods: [Status], drop: true}", ".methods: drop strikes events"),
        ("{events: [STARTED], delay: 1s}", ".events: delay strikes calls"),
        (
            "{events: [BORN], drop: true}",
            ".events: 'BORN' is not the name of an event (CREATED, DELETED, STARTED, STOPPED)",
        ),
        ("{drop: true, probability: 2}", ".probability: must be between 0 and 1, is 2"),
        ("{reorder: 0s}", ".reorder: must be greater than 0, is 0"),
        ("{duplicate: {times: 0}}", ".duplicate.times: must be at least 1, is 0"),
        ("{drop: true, apart: true}", ".apart: goes with delay or hang only"),
        (
            "{show: {state: GONE}}",
            ".show.state: must be one of CREATED, RUNNING, EXITED, UNKNOWN, is 'GONE'",
        ),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_fault_is_said_with_its_path(fault: str, problem: str) -> None:
    assert wrong(f"faults: [{fault}]") == [f"faults[0]{problem}"]
    if problem.endswith("(line 1)"):
        return
    assert wrong(f"timeline: [{{at: 1s, add: {fault}}}]") == [
        f"timeline[0].add{problem.removeprefix('[0]')}"
    ]


def test_all_problems_are_said_at_once_with_the_name_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text("faults:\n- {count: 0, drop: true}\n- {every: 0, drop: true}\n")
    with pytest.raises(ScenarioError) as raised:
        load_scenario(path)
    assert str(raised.value) == (
        f"scenario {path}: faults[0].count: must be at least 1, is 0;"
        " faults[1].every: must be at least 1, is 0"
    )
    with pytest.raises(ScenarioError, match=r"none\.yaml: cannot be read: No such file"):
        load_scenario(tmp_path / "none.yaml")


def test_every_effect_can_be_written_down() -> None:
    effects = [
        "delay: 1s",
        "{delay: 1s, apart: true}",
        "hang: g",
        "fail: {}",
        "late: 1s",
        "lateUntil: g",
        "failAfter: {code: INTERNAL, message: oops}",
        "show: {createdAt: 0, hidden: true}",
        "drop: true",
        "duplicate: {}",
        "hold: 1s",
        "reorder: 1s",
        "cut: {}",
    ]
    text = "faults:\n" + "".join(f"- {effect}\n" for effect in effects)
    plan = make_plan(parse_scenario(text.encode()))
    assert [repr(one.fault.effect) for one in plan.faults.values()] == [
        "Delay(seconds=1.0, apart=False)",
        "Delay(seconds=1.0, apart=True)",
        "Hang(gate='g', apart=False)",
        "Fail(code=<Code.UNAVAILABLE: 14>, message='injected')",
        "Late(seconds=1.0, gate='')",
        "Late(seconds=None, gate='g')",
        "FailAfter(code=<Code.INTERNAL: 13>, message='oops')",
        (
            "Show(state='', only='', flip=0.0, created_at=0, started_at=None, finished_at=None,"
            " hidden=True)"
        ),
        "Drop()",
        "Duplicate(times=2, gap=0.0)",
        "Hold(seconds=1.0)",
        "Reorder(within=1.0)",
        "Cut(code=<Code.UNAVAILABLE: 14>, message='injected')",
    ]


# -- what happens


@asynccontextmanager
async def playing(text: str) -> AsyncIterator[tuple[RuntimeServer, CRIClient, Path]]:
    with TemporaryDirectory(prefix="cri") as directory:
        path = Path(directory, "s.sock")
        scenario = parse_scenario(text.encode())
        async with (
            serve_scenario(path, SimulatedBackend(), scenario) as server,
            CRIClient(f"unix://{path}", request_timeout=5) as client,
        ):
            server.core.images.pull(IMAGE)
            yield server, client, Path(directory)


async def start(client: CRIClient, pod: str = "web", name: str = "main", **config: object) -> str:
    sandbox = sandbox_config(pod, logs=config.pop("logs", None))  # type: ignore[arg-type]
    sandbox_id = await client.run_pod_sandbox(sandbox)
    container = container_config(name, labels=sandbox.labels)
    container_id = await client.create_container(sandbox_id, container, sandbox)
    await client.start_container(container_id)
    return container_id


async def status(client: CRIClient, container_id: str) -> v1.ContainerStatus:
    found = (await client.container_status(container_id)).status
    assert found is not None
    return found


async def test_calls_take_their_time_and_images_are_there() -> None:
    async with playing("latency: {Version: 2s}\nimages: [nginx]") as (_, client, _):
        began = anyio.current_time()
        await client.version()
        assert anyio.current_time() - began == 2.0
        found = await client.image_status(v1.ImageSpec(image="nginx"))
        assert found.image is not None


async def test_containers_live_as_it_is_written() -> None:
    text = """
containers:
- pod: default/web
  container: m*
  lives: [{runs: 5s, exit: 3}]
  reason: OOMKilled
  message: too much
  startDelay: 2s
- {container: stubborn, stop: {ignore: true}}
- {container: slow, stop: {after: 3s, exit: 7}}
- {container: broken, startError: no such file}
"""
    async with playing(text) as (_, client, _):
        began = anyio.current_time()
        web = await start(client, "web")
        assert anyio.current_time() - began == 2.0
        await anyio.sleep(6)
        ended = await status(client, web)
        assert (ended.exit_code, ended.reason, ended.message) == (3, "OOMKilled", "too much")
        for name, wanted in (("stubborn", 137), ("slow", 7)):
            other = await start(client, name, name)
            await client.stop_container(other, 10)
            assert (await status(client, other)).exit_code == wanted
        with pytest.raises(rpc.Unknown, match="no such file"):
            await start(client, "x", "broken")


async def test_a_rule_without_lives_leaves_them_to_the_command() -> None:
    async with playing("containers: [{stop: {exit: 9}}]") as (_, client, _):
        sandbox = await client.run_pod_sandbox(sandbox_config("web"))
        for name, command, code in (("a", ("sh", "-c", "exit 3"), 3), ("b", ("serve",), 9)):
            config = container_config(name, command)
            container = await client.create_container(sandbox, config, sandbox_config("web"))
            await client.start_container(container)
            await anyio.sleep(1)
            await client.stop_container(container, 5)
            assert (await status(client, container)).exit_code == code


async def test_containers_write_logs_and_answer_commands() -> None:
    text = """
containers:
- log:
  - {text: one, after: 1s}
  - {text: again, after: 2s, every: 3s, stream: stderr}
  exec:
  - {command: "check --now*", since: 10s, takes: 1s, stdout: ok}
  - {command: "check*", exit: 1, stderr: not yet}
"""
    async with playing(text) as (_, client, directory):
        web = await start(client, logs=directory)
        first = await client.exec_sync(web, ["check", "--now"])
        assert (first.exit_code, first.stdout, first.stderr) == (1, b"", b"not yet")
        await client.reopen_container_log(web)
        await anyio.sleep(10.5)
        second = await client.exec_sync(web, ["check", "--now"])
        assert (second.exit_code, second.stdout) == (0, b"ok")
        assert (await client.exec_sync(web, ["true"])).exit_code == 0
        await client.stop_container(web, 0)
        log = Path(directory, "main", "0.log")
        lines = [line.split(" ", 2)[1:] for line in log.read_text().splitlines()]
    assert lines == [["stdout", "F one"], *[["stderr", "F again"]] * 4]


async def test_faults_strike_and_steps_are_taken_at_their_time() -> None:
    text = """
faults:
- {name: f, methods: [Version], after: 5s, lasts: 5s, fail: {code: INTERNAL}}
timeline:
- {at: 20s, add: {name: g, methods: [Status], hang: gate}}
- {at: 22s, release: gate}
- {at: 30s, close: gate}
- {at: 40s, remove: g}
- {at: 50s, down: 10s}
- {at: 52s, lose: {pod: web}}
- {at: 70s, populate: {containers: 3}}
- {at: 80s, end: {pod: db, exit: 9}}
- {at: 90s, stall: {lasts: 3s, new: true}}
- {at: 100s, goaway: true}
- {at: 101s, dropConnections: true}
"""
    async with playing(text) as (server, client, _):
        web, db = await start(client, "web"), await start(client, "db")

        async def at(second: float) -> float:
            await anyio.sleep_until(second)
            return anyio.current_time()

        began = anyio.current_time()
        await client.version()
        await at(began + 6)
        with pytest.raises(rpc.Internal):
            await client.version()
        await at(began + 21)
        await client.status()
        assert round(anyio.current_time() - began) == 22
        await at(began + 31)
        with pytest.raises(rpc.DeadlineExceeded):
            await client.status()
        await at(began + 41)
        await client.status()
        await at(began + 55)
        with pytest.raises(rpc.Unavailable):
            await client.version()
        await at(began + 61)
        assert [one.id for one in await client.list_containers()] == [db]
        assert web not in server.core.state.containers
        await at(began + 71)
        assert len(await client.list_containers()) == 4
        await at(began + 81)
        assert (await status(client, db)).exit_code == 9
        await at(began + 90.5)
        await client.version()
        assert round(anyio.current_time() - began) == 93
        await at(began + 105)
        await client.version()


async def test_streams_are_cut_and_large_answers_refused() -> None:
    text = """
maxSend: 1Ki
populate: [{containers: 10, listSize: 4Ki}]
timeline: [{at: 5s, cutStreams: {code: ABORTED, message: enough}}]
"""
    async with playing(text) as (_, client, _), client.get_container_events() as events:
        with pytest.raises(rpc.ResourceExhausted, match=r"vs\. 1024"):
            await client.list_containers(EVERYTHING)
        with pytest.raises(rpc.Aborted, match="enough"):
            await anext(events)


async def test_processes_follow_no_script(tmp_path: Path) -> None:
    text = "containers: [{}]\ntimeline: [{at: 1s, end: {}}]"
    backend = ProcessBackend(tmp_path / "state", isolate=False)
    with pytest.raises(ScenarioError) as raised:
        async with serve_scenario(tmp_path / "s", backend, parse_scenario(text.encode())):
            pass
    told = "the process backend follows no script: use the simulated backend"
    assert str(raised.value) == f"scenario: containers[0]: {told}; timeline[0].end: {told}"


async def test_the_example_can_be_played() -> None:
    async with playing(EXAMPLE.read_text()) as (server, client, _):
        began = anyio.current_time()
        await start(client)
        assert anyio.current_time() - began >= 0.35
        await anyio.sleep(200)
        await client.version()
        assert len(server.core.state.containers) < 201
