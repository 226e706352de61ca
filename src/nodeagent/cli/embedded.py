"""``nodeagent embedded-runtime``: the embedded CRI runtime alone, for any CRI client."""

from __future__ import annotations

import signal
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import click
from anyio import to_thread

from nodeagent.aio import leaves
from nodeagent.cli.params import Verbosity

if TYPE_CHECKING:
    from nodeagent.embedded.scenario import Scenario


@click.command("embedded-runtime")
@click.option(
    "--socket",
    "socket_path",
    required=True,
    type=click.Path(path_type=Path),
    help="Path of the unix socket to serve CRI v1 on.",
)
@click.option(
    "--state-dir",
    type=click.Path(path_type=Path),
    help="Where sandboxes and containers are recorded.  [default: SOCKET.state]",
)
@click.option(
    "--backend",
    type=click.Choice(["process", "simulated"]),
    default="process",
    show_default=True,
    help="Host processes, or no processes at all.",
)
@click.option(
    "--scenario",
    "scenario_path",
    type=click.Path(path_type=Path),
    help="What is to happen: faults, lives of containers, and a timeline, in YAML.",
)
@click.option("--v", "-v", "verbosity", default=2, show_default=True, type=Verbosity())
def embedded_runtime(
    socket_path: Path,
    state_dir: Path | None,
    backend: str,
    scenario_path: Path | None,
    verbosity: int,
) -> int:
    """Serve CRI v1 without a container runtime. For development: containers are not isolated."""
    from nodeagent.cli.log_setup import set_up_logging

    set_up_logging("text", verbosity)
    state = state_dir or socket_path.with_name(socket_path.name + ".state")
    socket_path = socket_path.absolute()
    failed: list[BaseException] = []
    try:
        scenario = _load(scenario_path)
        return anyio.run(_serve, socket_path, state, backend, scenario, scenario_path)
    except* (OSError, ValueError) as group:
        failed = list(leaves(group))
    for error in failed:
        click.echo(f"nodeagent: the embedded runtime cannot start: {_reason(error)}", err=True)
    return 1


def _load(path: Path | None) -> Scenario | None:
    if path is None:
        return None
    from nodeagent.embedded.scenario import load_scenario

    return load_scenario(path)


def _reason(error: BaseException) -> str:
    text = (isinstance(error, OSError) and error.strerror) or str(error)
    where = getattr(error, "filename", None)
    return f"{text} ({where})" if where else text


async def _serve(
    socket_path: Path,
    state_dir: Path,
    backend: str,
    scenario: Scenario | None,
    scenario_path: Path | None,
) -> int:
    from nodeagent.embedded import make_backend, serve_embedded

    await to_thread.run_sync(lambda: socket_path.parent.mkdir(parents=True, exist_ok=True))
    runs = make_backend(backend, state_dir)
    serving: AbstractAsyncContextManager[object] = serve_embedded(socket_path, runs)
    if scenario is not None:
        from nodeagent.embedded.scenario_run import serve_scenario

        serving = serve_scenario(socket_path, runs, scenario, path=scenario_path)
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async with serving:
            click.echo(f"serving CRI v1 on unix://{socket_path} ({backend}); stop with Ctrl-C")
            async for _ in signals:
                break
    return 0
