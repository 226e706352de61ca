"""``nodeagent gc``: remove what dead containers leave behind, and images that nothing uses."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import anyio
import click
from anyio import to_thread
from click.core import ParameterSource

from nodeagent.cli.garbage_options import garbage_options
from nodeagent.cli.run import make_config, read_files
from nodeagent.clock import SystemClock
from nodeagent.config import DEFAULT_ENDPOINT, AgentConfig
from nodeagent.errors import StartError

if TYPE_CHECKING:
    from nodeagent.cri import CRIClient
    from nodeagent.model import PodUID, RuntimePod
    from nodeagent.runtime.garbage_wiring import Node
    from nodeagent.runtime.gc import ContainerGC, GarbagePlan, ListPods
    from nodeagent.runtime.image_gc import ImagePlan
    from nodeagent.runtime.image_gc_plan import DoomedImage, ImageRecord

_OLD: Final = 10 * 365 * 86400.0
"""Age of an image of which nobody knows when it came, in seconds."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What the command was asked for.

    Attributes:
        dry_run: only say what would go.
        everything: no agent comes back: all that does not run goes.
        all_images: all unused images go, however full the disk is.
    """

    dry_run: bool
    everything: bool
    all_images: bool


@dataclass(slots=True)
class Report:
    """What goes, and what came of it."""

    containers: list[dict[str, Any]] = field(default_factory=list)
    sandboxes: list[dict[str, Any]] = field(default_factory=list)
    log_directories: list[dict[str, Any]] = field(default_factory=list)
    images: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def node_event(self, kind: str, reason: str, message: str) -> None:
        """Take a warning of the collectors for a failure."""
        del kind
        text = f"{reason}: {message}"
        if text not in self.failures:
            self.failures.append(text)


@click.command("gc")
@click.option("--dry-run", is_flag=True, help="Only say what would go, and why.")
@click.option("--all-images", is_flag=True, help="Remove all unused images, however full the disk.")
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help="No agent will come back: remove all that does not run, logs and unused images too.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--config", "config_file", default="", help="KubeletConfiguration file.")
@click.option("--config-dir", default="", help="Directory of drop-ins (*.conf) that go over it.")
@click.option("--container-runtime-endpoint", default=DEFAULT_ENDPOINT, show_default=True)
@click.option("--image-service-endpoint", default="", help="Default: the runtime's endpoint.")
@click.option("--root-dir", default="/var/lib/kubelet", show_default=True)
@click.option("--pod-logs-dir", default="/var/log/pods", show_default=True)
@garbage_options
@click.pass_context
def gc(
    ctx: click.Context,
    /,
    dry_run: bool,
    all_images: bool,
    everything: bool,
    as_json: bool,
    config_file: str,
    config_dir: str,
    **flags: Any,
) -> int:
    """Remove garbage from the container runtime, next to an agent or without one.

    Of each container in each pod the newest dead one stays, and of each pod the newest
    sandbox: only the agent knows which pods are wanted.
    """
    given = {
        name: value
        for name, value in flags.items()
        if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE
    }
    from_file = read_files(config_file, config_dir).settings
    known = {name: value for name, value in from_file.items() if name in _SETTINGS}
    config = make_config({**flags, **known, **given})
    if config.embedded:
        msg = (
            f"--container-runtime-endpoint={config.container_runtime_endpoint}: the embedded "
            "runtime lives in its agent; give the path of its socket"
        )
        raise click.UsageError(msg)
    wish = Wish(dry_run, everything, all_images or everything)
    try:
        report = anyio.run(collect, config, wish)
    except StartError as error:
        click.echo(f"nodeagent: {error}", err=True)
        return 1
    click.echo(_as_json(report, wish) if as_json else "\n".join(lines(report, wish)))
    return 1 if report.failures else 0


_SETTINGS: Final = frozenset(
    {
        "container_runtime_endpoint",
        "image_service_endpoint",
        "pod_logs_dir",
        "image_gc_high_threshold_percent",
        "image_gc_low_threshold_percent",
        "image_minimum_gc_age",
        "image_maximum_gc_age",
    }
)
"""What of a configuration file concerns this command."""


async def collect(config: AgentConfig, wish: Wish) -> Report:
    """Do it, or only find out what would be done.

    Raises:
        StartError: it cannot; says why and what to do.
    """
    from nodeagent.cri import CRIClient
    from nodeagent.rpc import RpcError

    report = Report()
    with ExitStack() as stack:
        agent_runs = await to_thread.run_sync(_lock, Path(config.root_dir), stack)
        if wish.everything and agent_runs and not wish.dry_run:
            msg = f"an agent uses {config.root_dir} and decides what goes; stop it before --all"
            raise StartError(msg)
        async with CRIClient(
            config.container_runtime_endpoint, config.image_service_endpoint or None
        ) as client:
            try:
                await client.check()
                await _containers(config, client, wish, report)
                await _images(config, client, wish, report)
            except RpcError as error:
                raise StartError(error.message or str(error)) from error
    return report


def _lock(root: Path, stack: ExitStack) -> bool:
    """Keep agents out as long as the stack is open; whether one is there already. Blocking."""
    from nodeagent.agent import root_lock

    if not root.is_dir():
        return False
    try:
        stack.enter_context(root_lock(root))
    except StartError:
        return True
    except OSError:
        return False  # not ours to write to: no agent of ours either
    return False


async def _containers(config: AgentConfig, client: CRIClient, wish: Wish, report: Report) -> None:
    gc = await _container_gc(config, client, wish, report)
    plan = await gc.plan()
    _tell_garbage(plan, report)
    if wish.dry_run:
        return
    done = await gc.collect()
    if done.failures:
        report.failures[:] = [f for f in report.failures if "ContainerGCFailed" not in f]
        report.failures += done.failures


async def _container_gc(
    config: AgentConfig, client: CRIClient, wish: Wish, report: Report
) -> ContainerGC:
    from nodeagent.cri.pods import PodLister
    from nodeagent.model import ContainerState, SandboxState
    from nodeagent.runtime.garbage_wiring import make_container_gc

    lister = PodLister(client)
    pods = tuple((await lister.list_pods()).values())
    alive = {
        pod.uid
        for pod in pods
        if any(c.state is ContainerState.RUNNING for c in pod.containers)
        or any(s.state is SandboxState.READY for s in pod.sandboxes)
    }

    def removable(uid: PodUID) -> bool:
        return wish.everything and uid not in alive

    node = _node(client, lister.list_pods, removable, (), report)
    gc = make_container_gc(config, node)
    wall = SystemClock().time_ns() / 1e9
    gc.assume_ages({c.id: wall - c.created_at / 1e9 for pod in pods for c in pod.containers})
    return gc


def _node(
    client: CRIClient,
    list_pods: ListPods,
    removable: Callable[[PodUID], bool],
    spared: Iterable[str],
    report: Report,
) -> Node:
    from nodeagent.journal import Journal
    from nodeagent.runtime.garbage_wiring import Node
    from nodeagent.runtime.metrics import RuntimeMetrics

    return Node(
        runtime=client,
        images=client,
        list_pods=list_pods,
        removable=removable,
        spared=lambda: spared,
        sources_ready=lambda: True,
        events=report,
        journal=Journal(),
        metrics=RuntimeMetrics(),
    )


def _tell_garbage(plan: GarbagePlan, report: Report) -> None:
    report.containers += [
        {
            "id": each.container.id,
            "pod": f"{each.pod.namespace}/{each.pod.name}",
            "name": each.container.name,
            "attempt": each.container.attempt,
            "why": each.why,
        }
        for each in plan.containers
    ]
    report.sandboxes += [
        {
            "id": each.sandbox.id,
            "pod": f"{each.pod.namespace}/{each.pod.name}",
            "attempt": each.sandbox.attempt,
            "why": each.why,
        }
        for each in plan.sandboxes
    ]
    report.log_directories += [{"path": str(path), "uid": uid} for uid, path in plan.log_dirs]


async def _images(config: AgentConfig, client: CRIClient, wish: Wish, report: Report) -> None:
    from nodeagent.runtime.garbage_wiring import make_image_gc
    from nodeagent.runtime.image_gc import ImageGCError
    from nodeagent.runtime.pull_records import read_records

    async def no_pods() -> Mapping[PodUID, RuntimePod]:
        return {}

    records = await to_thread.run_sync(read_records, Path(config.root_dir) / "image_manager")
    node = _node(client, no_pods, lambda _uid: False, records.intents, report)
    gc = make_image_gc(config, node)
    await gc.look()
    now, wall = anyio.current_time(), SystemClock().time_ns() / 1e9
    written = dict(records.times())
    ages = {ref: max(wall - moment, 0.0) for ref, moment in written.items()}
    gc.records = {ref: _aged(record, now, ages.get(ref)) for ref, record in gc.records.items()}
    try:
        plan = await gc.plan()
    except (ImageGCError, OSError) as error:
        report.failures.append(f"images: {error}")
        return
    doomed = gc.unused() if wish.all_images else plan.images
    report.images += [_told_image(each) for each in doomed]
    if not wish.all_images:
        report.notes.append(_disk(plan, config))
    if wish.dry_run or not doomed:
        return
    _freed, failures = await gc.carry_out(doomed)
    report.failures += failures


def _aged(record: ImageRecord, now: float, pulled: float | None) -> ImageRecord:
    """What is known of an image without an agent: how many seconds ago one pulled it, at best."""
    if pulled is None:
        return replace(record, first_seen=now - _OLD)
    last_used = now if record.in_use else now - pulled
    return replace(record, first_seen=now - pulled, last_used=last_used)


def _told_image(doomed: DoomedImage) -> dict[str, Any]:
    image = doomed.image
    return {
        "id": image.id,
        "name": (*image.names, image.id)[0],
        "bytes": image.size,
        "why": doomed.why,
    }


def _disk(plan: ImagePlan, config: AgentConfig) -> str:
    from nodeagent.runtime.image_gc_plan import usage_percent

    usage = plan.usage
    percent = usage_percent(usage.capacity, usage.available)
    high = config.image_gc_high_threshold_percent
    text = f"the file system of images ({usage.mountpoint}) is used by {percent} %"
    if percent < high:
        return f"{text}, less than {high} %: no image has to go (--all-images removes unused ones)"
    return f"{text}, {high} % or more: {plan.wanted} bytes of images have to go"


def lines(report: Report, wish: Wish) -> Iterator[str]:
    """The report for people, line by line."""
    for each in report.containers:
        what = f"{each['pod']} {each['name']} attempt {each['attempt']}"
        yield f"container  {each['id'][:13]}  {what}: {each['why']}"
    for each in report.sandboxes:
        what = f"{each['pod']} attempt {each['attempt']}"
        yield f"sandbox    {each['id'][:13]}  {what}: {each['why']}"
    for each in report.log_directories:
        yield f"logs       {each['path']}: the pod is gone"
    for each in report.images:
        yield f"image      {each['name']}  {each['bytes']} bytes: {each['why']}"
    yield from report.notes
    yield from (f"failed     {failure}" for failure in report.failures)
    counts = (
        (len(report.containers), "container"),
        (len(report.sandboxes), "sandbox"),
        (len(report.log_directories), "log directory"),
        (len(report.images), "image"),
    )
    told = ", ".join(_counted(count, word) for count, word in counts)
    verb = "would go; nothing was removed" if wish.dry_run else "were to go"
    yield f"{told} {verb}"


def _counted(count: int, word: str) -> str:
    if count == 1:
        return f"1 {word}"
    plural = {"sandbox": "sandboxes", "log directory": "log directories"}.get(word, f"{word}s")
    return f"{count} {plural}"


def _as_json(report: Report, wish: Wish) -> str:
    return json.dumps(
        {
            "dryRun": wish.dry_run,
            "containers": report.containers,
            "sandboxes": report.sandboxes,
            "logDirectories": report.log_directories,
            "images": report.images,
            "notes": report.notes,
            "failures": report.failures,
        },
        indent=2,
    )
