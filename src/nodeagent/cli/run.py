"""``nodeagent run``: flags with the kubelet's names, signals, and the first lines."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import anyio
import click
from click.core import ParameterSource

from nodeagent._version import __version__
from nodeagent.cli.params import Boolean, Duration
from nodeagent.config import DEFAULT_ENDPOINT, AgentConfig, ConfigError, load_kubelet_file
from nodeagent.log import Log

log = Log("cli")

_FLAG_OF: Final[Mapping[str, str]] = {
    "static_pod_path": "pod-manifest-path",
    "node_name": "hostname-override",
    "read_only_address": "address",
}
"""Flags whose name is not that of the setting."""


def flag_of(field: str) -> str:
    """The flag that sets a field of :class:`AgentConfig`."""
    return "--" + _FLAG_OF.get(field, field.replace("_", "-"))


@click.command()
@click.option(
    "--config",
    "config_file",
    type=click.Path(path_type=Path),
    help="KubeletConfiguration file; flags take precedence over it.",
)
@click.option(
    "--pod-manifest-path",
    "static_pod_path",
    multiple=True,
    type=click.Path(path_type=Path),
    help="Directory with static pod manifests, or one manifest; may be given several times.",
)
@click.option(
    "--container-runtime-endpoint",
    default=DEFAULT_ENDPOINT,
    show_default=True,
    help="unix:///path/to.sock, or embedded (no container runtime needed; for development).",
)
@click.option("--image-service-endpoint", default="", help="Default: the runtime's endpoint.")
@click.option(
    "--root-dir",
    default="/var/lib/kubelet",
    show_default=True,
    type=click.Path(path_type=Path),
    help="Where the agent keeps its state.",
)
@click.option(
    "--pod-logs-dir",
    default="/var/log/pods",
    show_default=True,
    type=click.Path(path_type=Path),
    help="Where container logs are written.",
)
@click.option("--hostname-override", "node_name", default="", help="Default: the host's name.")
@click.option("--node-ip", default="", help="Address of this node, for pods on its network.")
@click.option("--healthz-port", default=10248, show_default=True, type=int, help="0: none.")
@click.option("--healthz-bind-address", default="127.0.0.1", show_default=True)
@click.option("--read-only-port", default=0, show_default=True, type=int, help="0: none.")
@click.option(
    "--address",
    "read_only_address",
    default="127.0.0.1",
    show_default=True,
    help="Address of the read-only port.",
)
@click.option("--file-check-frequency", default="20s", show_default=True, type=Duration())
@click.option("--sync-frequency", default="1m", show_default=True, type=Duration())
@click.option("--runtime-request-timeout", default="2m", show_default=True, type=Duration())
@click.option("--v", "-v", "verbosity", default=2, show_default=True, type=click.IntRange(0, 10))
@click.option(
    "--logging-format",
    default="text",
    show_default=True,
    type=click.Choice(["text", "json"]),
)
@click.option(
    "--stop-pods-on-exit",
    is_flag=False,
    flag_value="true",
    default="false",
    type=Boolean(),
    help="Stop all pods when the agent ends (for development).",
)
@click.option("--stop-pods-timeout", default="40s", show_default=True, type=Duration())
@click.option("--welcome", is_flag=True, hidden=True)
@click.pass_context
def run(ctx: click.Context, /, config_file: Path | None, welcome: bool, **flags: Any) -> int:
    """Run the node agent until SIGTERM or SIGINT; pods go on running (as with the kubelet)."""
    from nodeagent.cli.log_setup import set_up_logging

    given = {
        name: value
        for name, value in flags.items()
        if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE
    }
    from_file: dict[str, Any] = {}
    notes: tuple[str, ...] = ()
    if config_file is not None:
        loaded = load_kubelet_file(config_file)
        from_file, notes = loaded.settings, loaded.warnings
    settings = {**flags, **from_file, **given}
    style = str(settings.pop("logging_format"))
    set_up_logging(style, int(settings.pop("verbosity")))
    for note in notes:
        log.warning("config_file", file=str(config_file), note=note)
    config = make_config(settings)
    if welcome:
        click.echo(welcome_text(config))
    return serve(config)


def make_config(settings: Mapping[str, Any]) -> AgentConfig:
    """The agent's settings from flag values.

    Raises:
        click.UsageError: a value is not allowed; names the flag.
    """
    if not settings.get("static_pod_path"):
        settings = {**settings, "static_pod_path": ()}
    try:
        return AgentConfig(**settings)
    except ConfigError as error:
        text = f"{flag_of(error.field)}={error.value}: {error.allowed}"
        raise click.UsageError(text) from error


def serve(config: AgentConfig) -> int:
    """Run an agent in an event loop of its own; the exit code."""
    from nodeagent.errors import StartError

    options: dict[str, Any] = {}
    try:
        import uvloop

        options["loop_factory"] = uvloop.new_event_loop
    except ImportError:  # pragma: no cover - uvloop is optional off CPython
        pass
    failed: list[BaseException] = []
    try:
        return anyio.run(_serve, config, backend_options=options)
    except* StartError as group:
        failed = _leaves(group)
    for error in failed:
        click.echo(f"nodeagent: {error}", err=True)
    return 1


def _leaves(group: BaseExceptionGroup[BaseException]) -> list[BaseException]:
    found: list[BaseException] = []
    for error in group.exceptions:
        found += _leaves(error) if isinstance(error, BaseExceptionGroup) else [error]
    return found


async def _serve(config: AgentConfig) -> int:
    """The first signal ends the agent in order, a second one at once."""
    from nodeagent.agent import NodeAgent

    agent = NodeAgent(config)
    async with anyio.create_task_group() as tg:
        stop = anyio.Event()
        tg.start_soon(_watch_signals, stop)
        await agent.run(stop)
        tg.cancel_scope.cancel()
    return 0


async def _watch_signals(stop: anyio.Event) -> None:
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async for number in signals:
            name = signal.Signals(number).name
            if stop.is_set():
                log.warning("second_signal", signal=name, action="ending at once")
                # Nothing may hold the process up now; the kernel releases what it holds.
                signal.signal(number, signal.SIG_DFL)
                signal.raise_signal(number)
            log.info("stopping", signal=name)
            stop.set()


def welcome_text(config: AgentConfig) -> str:
    """The first lines: what runs, where healthz is, and what to try next."""
    runtime = (
        f"the embedded {config.embedded} runtime (for development; containers are host processes)"
        if config.embedded == "process"
        else config.container_runtime_endpoint
    )
    paths = ", ".join(str(p) for p in config.manifest_paths)
    lines = [
        f"nodeagent {__version__} runs the pods in {paths}",
        f"  on {runtime}",
        f"  state in {config.root_dir}, container logs in {config.pod_logs_dir}",
        "",
        "Try in another terminal:",
        f"  curl '{config.healthz_bind_address}:{config.healthz_port}/healthz?verbose'",
        f"  curl -s {config.read_only_address}:{config.read_only_port}/pods | python3 -m json.tool",
        f"  curl '{config.healthz_bind_address}:{config.healthz_port}/debug/journal?since=1m'",
        f"  edit, break or delete a file in {paths} and watch this log",
        "Stop with Ctrl-C; the pods are stopped too.",
        "",
    ]
    return "\n".join(lines)
