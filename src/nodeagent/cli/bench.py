"""``nodeagent bench``: measurements, as ratios within one run."""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import click

if TYPE_CHECKING:
    from nodeagent.bench.beds import Place
    from nodeagent.bench.cluster import ClusterPlace

Figures = dict[str, Any]

_pods = click.option("--pods", default=50, show_default=True, type=click.IntRange(1, 5000))
_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")


_endpoint = click.option(
    "--containerd-endpoint",
    "endpoint",
    default="",
    help="unix:///path of a containerd that holds no pods; without: the simulated runtime.",
)
_image = click.option(
    "--image",
    default="localhost/busybox:1",
    show_default=True,
    help="With --containerd-endpoint: an image with a shell that is there.",
)


def _containers(default: int) -> Callable[[Any], Any]:
    kind = click.IntRange(1, 100)
    return click.option("--containers-per-pod", default=default, show_default=True, type=kind)


_admin = click.option(
    "--admin-kubeconfig",
    "admin",
    default="",
    help="An API server of which bench may delete node1 and all pods in the namespace bench.",
)
_node = click.option(
    "--node-kubeconfig",
    "node",
    default="",
    help="With --admin-kubeconfig: the same server, as the node node1.",
)


@click.group()
def bench() -> None:
    """Measure; every figure is a ratio within one run or comes with what it is compared to."""


@bench.command()
@click.option("--pods", default=125, show_default=True, type=click.IntRange(1, 5000))
@_containers(4)
@click.option(
    "--changed",
    default=0,
    type=click.IntRange(0, 5000),
    help="Instead: look at this many changed pods, side by side and one after the other.",
)
@click.option(
    "--inspect-latency-ms",
    default=5.0,
    show_default=True,
    type=click.FloatRange(0, 10_000),
    help="With --changed: what each status call takes in the runtime.",
)
@_json
def relist(
    pods: int, containers_per_pod: int, changed: int, inspect_latency_ms: float, as_json: bool
) -> None:
    """What one relist costs in decoding when nothing changed, or in waiting when pods changed."""
    if changed > pods:
        msg = f"--changed={changed}: must not be more than --pods={pods}"
        raise click.UsageError(msg)
    if changed:
        from nodeagent.bench import inspection

        show(_run(inspection.run, pods, changed, inspect_latency_ms), as_json=as_json)
        return
    from nodeagent.bench import relist as decoding

    show(decoding.run(pods, containers_per_pod), as_json=as_json)


@bench.command()
@click.option("--pods", default=110, show_default=True, type=click.IntRange(0, 5000))
@_containers(2)
@click.option("--seconds", default=30.0, show_default=True, type=click.FloatRange(0.1, 86_400))
@_admin
@_node
@_json
def idle(
    pods: int, containers_per_pod: int, seconds: float, admin: str, node: str, as_json: bool
) -> None:
    """What an agent at rest costs in processor time and memory."""
    from nodeagent.bench import idle as measured

    measure = partial(measured.run, cluster=_cluster(admin, node))
    show(_run(measure, pods, containers_per_pod, seconds), as_json=as_json)


@bench.command()
@click.option("--pods", default=110, show_default=True, type=click.IntRange(1, 5000))
@_containers(2)
@click.option("--requests", default=300, show_default=True, type=click.IntRange(1, 100_000))
@_json
def api(pods: int, containers_per_pod: int, requests: int, as_json: bool) -> None:
    """How fast pods and figures are answered, and how long the loop does nothing else."""
    from nodeagent.bench import api as measured

    show(_run(measured.run, pods, containers_per_pod, requests), as_json=as_json)


@bench.command(name="exec")
@click.option("--megabytes", default=200, show_default=True, type=click.IntRange(1, 100_000))
@click.option("--repeats", default=3, show_default=True, type=click.IntRange(1, 1000))
@_json
def exec_(megabytes: int, repeats: int, as_json: bool) -> None:
    """How fast bytes of exec go through the agent, and through socat where there is one."""
    from nodeagent.bench import splicing

    show(_run(splicing.run, megabytes, repeats), as_json=as_json)


@bench.command()
@click.option("--megabytes", default=1024, show_default=True, type=click.IntRange(1, 100_000))
@click.option("--repeats", default=3, show_default=True, type=click.IntRange(1, 1000))
@click.option("--followers", default=200, show_default=True, type=click.IntRange(1, 4000))
@click.option("--seconds", default=10.0, show_default=True, type=click.FloatRange(0.1, 3600))
@_json
def logs(megabytes: int, repeats: int, followers: int, seconds: float, as_json: bool) -> None:
    """How fast a large log is served, its last lines, and what followers cost."""
    from nodeagent.bench import logs as measured

    show(_run(measured.run, megabytes, repeats, followers, seconds), as_json=as_json)


@bench.command(name="e2e-start")
@click.option("--pods", default=30, show_default=True, type=click.IntRange(1, 1000))
@click.option("--at-once", default=30, show_default=True, type=click.IntRange(1, 1000))
@_endpoint
@_image
@_admin
@_node
@_json
def start_of_pods(
    pods: int, at_once: int, endpoint: str, image: str, admin: str, node: str, as_json: bool
) -> None:
    """How long pods take from the API server to ready, and from DELETE to gone."""
    from nodeagent.bench import e2e_start as measured

    cluster = _cluster(admin, node)
    if cluster is None:
        raise click.UsageError("--admin-kubeconfig and --node-kubeconfig are needed")
    figures = _run(measured.run, pods, at_once, _place(endpoint, image), cluster)
    show(figures, as_json=as_json)


@bench.command()
@_pods
@_endpoint
@_image
@_json
def react(pods: int, endpoint: str, image: str, as_json: bool) -> None:
    """How fast a container that dies is replaced."""
    from nodeagent.bench import react as measured

    show(_run(measured.run, pods, _place(endpoint, image)), as_json=as_json)


@bench.command()
@_pods
@_endpoint
@_image
@_json
def burst(pods: int, endpoint: str, image: str, as_json: bool) -> None:
    """How long many pods take from their manifests to running, against the bare CRI calls."""
    from nodeagent.bench import burst as measured

    show(_run(measured.run, pods, _place(endpoint, image)), as_json=as_json)


@bench.command()
@click.option("--repeats", default=10, show_default=True, type=click.IntRange(1, 1000))
@_json
def startup(repeats: int, as_json: bool) -> None:
    """How long it takes from the start of the process to the first sync."""
    from nodeagent.bench import startup as measured

    show(_run(measured.run, repeats), as_json=as_json)


@bench.command()
@click.option("--pods", default=100, show_default=True, type=click.IntRange(1, 5000))
@click.option("--probes", default=3, show_default=True, type=click.IntRange(1, 100))
@click.option("--period", default=1, show_default=True, type=click.IntRange(1, 3600))
@click.option("--seconds", default=15.0, show_default=True, type=click.FloatRange(1, 86_400))
@_json
def probes(pods: int, probes: int, period: int, seconds: float, as_json: bool) -> None:
    """What probes cost, by kind, and how late they are."""
    from nodeagent.bench import probes as measured

    show(_run(measured.run, pods, probes, period, seconds), as_json=as_json)


@bench.command()
@click.option("--containers", default=5, show_default=True, type=click.IntRange(1, 100))
@click.option("--repeats", default=5000, show_default=True, type=click.IntRange(1, 1_000_000))
@_json
def actions(containers: int, repeats: int, as_json: bool) -> None:
    """What it costs to decide what a pod needs done."""
    from nodeagent.bench import actions as measured

    show(measured.run(containers, repeats), as_json=as_json)


@bench.command()
@click.option("--pods", default=110, show_default=True, type=click.IntRange(1, 5000))
@click.option(
    "--latency-ms",
    default=5.0,
    show_default=True,
    type=click.FloatRange(0, 10_000),
    help="What each request takes.",
)
@click.option(
    "--seconds",
    default=60.0,
    show_default=True,
    type=click.FloatRange(0, 86_400),
    help="How long a whole agent is watched at rest; 0: not at all.",
)
@_json
def status(pods: int, latency_ms: float, seconds: float, as_json: bool) -> None:
    """How many requests tell an API server of pods' statuses, and how many there are at rest."""
    from nodeagent.bench import status as measured

    show(_run(measured.run, pods, latency_ms, seconds), as_json=as_json)


@bench.command()
@click.option("--volumes", default=20, show_default=True, type=click.IntRange(1, 1000))
@click.option("--keys", default=10, show_default=True, type=click.IntRange(1, 1000))
@click.option("--pods", default=100, show_default=True, type=click.IntRange(1, 5000))
@click.option("--idle", default=500, show_default=True, type=click.IntRange(1, 10_000))
@_json
def volumes(volumes: int, keys: int, pods: int, idle: int, as_json: bool) -> None:
    """What volumes cost: a pod with many, a change that many pods follow, and many at rest."""
    from nodeagent.bench import volumes as measured

    show(_run(measured.run, volumes, keys, pods, idle), as_json=as_json)


@bench.command()
@click.option("--pods", default=500, show_default=True, type=click.IntRange(1, 5000))
@click.option("--events", default=500, show_default=True, type=click.IntRange(1, 100_000))
@_json
def watch(pods: int, events: int, as_json: bool) -> None:
    """What it costs to keep up with an API server: the first list, and one event."""
    from nodeagent.bench import watch as measured

    show(_run(measured.run, pods, events), as_json=as_json)


@bench.command()
@click.option("--minutes", default=10.0, show_default=True, type=click.FloatRange(0.1, 10_000))
@_pods
@click.option("--chaos/--no-chaos", default=True, show_default=True, help="Random faults.")
@click.option("--seed", default=0, show_default=True, help="Of the faults.")
@_json
def soak(minutes: float, pods: int, chaos: bool, seed: int, as_json: bool) -> None:
    """Whether an agent under random faults converges, and whether it grows."""
    from nodeagent.bench import soak as measured

    show(_run(partial(measured.run, chaos=chaos, seed=seed), minutes, pods), as_json=as_json)


@bench.command(name="all")
@click.option("--soak-minutes", default=2.0, show_default=True, type=click.FloatRange(0.1, 10_000))
@_endpoint
@_image
@_admin
@_node
@_json
def run_all(
    soak_minutes: float, endpoint: str, image: str, admin: str, node: str, as_json: bool
) -> None:
    """Every measurement there is, with its default settings."""
    from nodeagent.bench import suite

    real = suite.Containerd(_place(endpoint, image), cluster=_cluster(admin, node))
    sizes = suite.Sizes(soak_minutes=soak_minutes)
    show(_run(suite.run, sizes, real), as_json=as_json)


def _place(endpoint: str, image: str) -> Place | None:
    from nodeagent.bench.beds import Place

    return Place(endpoint, image) if endpoint else None


def _cluster(admin: str, node: str) -> ClusterPlace | None:
    from nodeagent.bench.cluster import ClusterPlace

    if bool(admin) != bool(node):
        raise click.UsageError("--admin-kubeconfig and --node-kubeconfig go together")
    return ClusterPlace(Path(admin), Path(node)) if admin else None


def _run(measure: Callable[..., Coroutine[Any, Any, Figures]], *arguments: Any) -> Figures:
    """Run a measurement in an event loop like the agent's.

    Raises:
        click.ClickException: what it needs does not run.
    """
    from nodeagent.bench.figures import BenchError
    from nodeagent.rpc import RpcError

    options: dict[str, Any] = {}
    try:
        import uvloop

        options["loop_factory"] = uvloop.new_event_loop
    except ImportError:  # pragma: no cover - uvloop is optional off CPython
        pass
    try:
        return anyio.run(measure, *arguments, backend_options=options)
    except (BenchError, RpcError, ValueError, OSError) as error:
        raise click.ClickException(str(error)) from error


def show(figures: Figures, *, as_json: bool) -> None:
    """Print figures as JSON or as lines for people."""
    from nodeagent.bench.figures import flat

    if as_json:
        click.echo(json.dumps(figures))
        return
    for name, value in flat(figures):
        click.echo(f"{name:<40} {value:.3f}" if isinstance(value, float) else f"{name:<40} {value}")
