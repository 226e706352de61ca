"""``nodeagent embedded-runtime``: the embedded CRI runtime alone, for any CRI client."""

from __future__ import annotations

import signal
from pathlib import Path

import anyio
import click


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
@click.option("--v", "-v", "verbosity", default=2, show_default=True, type=click.IntRange(0, 10))
def embedded_runtime(
    socket_path: Path, state_dir: Path | None, backend: str, verbosity: int
) -> int:
    """Serve CRI v1 without a container runtime. For development: containers are not isolated."""
    from nodeagent.cli.log_setup import set_up_logging

    set_up_logging("text", verbosity)
    state = state_dir or socket_path.with_name(socket_path.name + ".state")
    click.echo(f"serving CRI v1 on unix://{socket_path.absolute()} ({backend}); stop with Ctrl-C")
    return anyio.run(_serve, socket_path, state, backend)


async def _serve(socket_path: Path, state_dir: Path, backend: str) -> int:
    from nodeagent.embedded import run_embedded

    async with anyio.create_task_group() as tg:
        with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
            tg.start_soon(_run, run_embedded, socket_path, state_dir, backend)
            async for _ in signals:
                break
        tg.cancel_scope.cancel()
    return 0


async def _run(run_embedded: object, socket_path: Path, state_dir: Path, backend: str) -> None:
    from nodeagent.embedded import run_embedded as serve

    await serve(socket_path, state_dir=state_dir, backend=backend)
