"""``nodeagent run``: flags with the kubelet's names, and the first lines."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from nodeagent._version import __version__
from nodeagent.cli.cluster_options import cluster_options
from nodeagent.cli.garbage_options import garbage_options
from nodeagent.cli.lock_file import LockFile
from nodeagent.cli.node_options import node_options
from nodeagent.cli.params import Duration, Gates, Headers, Port, Size, Verbosity, boolean_option
from nodeagent.cli.reloading import Flags, configuration, set_logging
from nodeagent.cli.run_command import RunCommand, TakenFlags, taken_flags
from nodeagent.cli.server_options import server_options
from nodeagent.cli.serving import serve
from nodeagent.config import (
    DEFAULT_ENDPOINT,
    AgentConfig,
    ConfigError,
    ConfigFilesError,
    load_configuration,
)
from nodeagent.config.feature_gates import gates_text
from nodeagent.config.flags import flag_of
from nodeagent.config.kubelet_file import LoadedFile
from nodeagent.config.kubelet_flags import remark
from nodeagent.duration import format_duration
from nodeagent.log import Log
from nodeagent.urls import shown_url

log = Log("cli")


@click.command(cls=RunCommand)
@click.option(
    "--config",
    "config_file",
    default="",
    help="KubeletConfiguration file; flags take precedence over it.",
)
@click.option(
    "--config-dir",
    default="",
    help="Directory of drop-ins (*.conf) that go over the file, in the order of their names.",
)
@click.option(
    "--config-trial",
    default="10m",
    show_default=True,
    type=Duration(),
    help="A change of the files that makes the node unwell within this time is taken back.",
)
@click.option(
    "--feature-gates",
    multiple=True,
    type=Gates(),
    help="Features, 'A=true,B=false'; may be given several times. Nothing here hangs on them.",
)
@click.option(
    "--pod-manifest-path",
    "static_pod_path",
    multiple=True,
    help="Directory with static pod manifests, or one manifest; may be given several times.",
)
@click.option(
    "--manifest-url",
    "static_pod_url",
    default="",
    help="URL with static pod manifests.",
)
@click.option(
    "--manifest-url-header",
    "static_pod_url_header",
    multiple=True,
    type=Headers(),
    help="Header for the manifest URL, 'Name: value'; may be given several times. Never shown.",
)
@click.option(
    "--container-runtime-endpoint",
    default=DEFAULT_ENDPOINT,
    show_default=True,
    help="unix:///path/to.sock, or embedded (no container runtime needed; for development).",
)
@click.option(
    "--embedded-scenario",
    default="",
    help="What is to happen to the embedded runtime: a YAML file (for tests).",
)
@click.option("--image-service-endpoint", default="", help="Default: the runtime's endpoint.")
@click.option(
    "--root-dir",
    default="/var/lib/kubelet",
    show_default=True,
    help="Where the agent keeps its state.",
)
@click.option(
    "--pod-logs-dir",
    default="/var/log/pods",
    show_default=True,
    help="Where container logs are written.",
)
@click.option("--hostname-override", "node_name", default="", help="Default: the host's name.")
@click.option("--node-ip", default="", help="Address of this node, or one of each family.")
@click.option("--healthz-port", default=10248, show_default=True, type=Port(), help="0: none.")
@click.option("--healthz-bind-address", default="127.0.0.1", show_default=True)
@click.option("--read-only-port", default=0, show_default=True, type=Port(), help="0: none.")
@click.option("--file-check-frequency", default="20s", show_default=True, type=Duration())
@click.option("--http-check-frequency", default="20s", show_default=True, type=Duration())
@click.option("--sync-frequency", default="1m", show_default=True, type=Duration())
@click.option("--runtime-request-timeout", default="2m", show_default=True, type=Duration())
@boolean_option(
    "--serialize-image-pulls",
    "Pull one image at a time. Default: unless --max-parallel-image-pulls is 2 or more.",
    default=None,
)
@click.option(
    "--max-parallel-image-pulls",
    default=0,
    show_default=True,
    help="Bound on pulls side by side; 0: none.",
)
@click.option(
    "--registry-qps", "registry_pull_qps", default=5, show_default=True, help="0: no limit."
)
@click.option("--registry-burst", default=10, show_default=True)
@click.option(
    "--image-credential-provider-config",
    default="",
    help="CredentialProviderConfig file, or a directory of them.",
)
@click.option(
    "--image-credential-provider-bin-dir",
    default="",
    help="Where the programs of credential providers lie.",
)
@cluster_options
@garbage_options
@node_options
@server_options
@click.option(
    "--container-log-max-size",
    default="10Mi",
    show_default=True,
    type=Size(),
    help="A container's log is rotated at this size; negative: never.",
)
@click.option(
    "--container-log-max-files",
    default=5,
    show_default=True,
    help="Log files kept of one run of a container.",
)
@click.option("--v", "-v", "verbosity", default=2, show_default=True, type=Verbosity())
@click.option(
    "--logging-format",
    default="text",
    show_default=True,
    type=click.Choice(["text", "json"]),
)
@boolean_option(
    "--stop-pods-on-exit", "Stop all pods when the agent ends (for development).", default="false"
)
@click.option("--stop-pods-timeout", default="40s", show_default=True, type=Duration())
@click.option("--lock-file", default="", help="Held while the agent runs; waited for at first.")
@boolean_option(
    "--exit-on-lock-contention",
    "End when another program opens the lock file.",
    default="false",
)
@click.option("--welcome", is_flag=True, hidden=True)
@click.pass_context
def run(
    ctx: click.Context,
    /,
    config_file: str,
    config_dir: str,
    config_trial: float,
    feature_gates: tuple[Mapping[str, bool], ...],
    lock_file: str,
    exit_on_lock_contention: bool,
    welcome: bool,
    **flags: Any,
) -> int:
    """Run the node agent until SIGTERM or SIGINT; pods go on running (as with the kubelet)."""
    flags["static_pod_url_header"] = sum(flags["static_pod_url_header"], ())
    given = {
        name: value
        for name, value in flags.items()
        if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE
    }
    taken = taken_flags(ctx)
    fields = [*taken.fields, *(("feature-gates", gates_text(part)) for part in feature_gates)]
    try:
        loaded, reloading = configuration(
            config_file, config_dir, Flags(flags, given, fields), config_trial
        )
    except ConfigError as error:
        raise click.UsageError(describe(error)) from error
    set_logging(loaded.logging)
    for note in loaded.warnings:
        log.warning("config_file", file=config_file or config_dir, note=note)
    config = loaded.config
    tell_of_flags(taken)
    if exit_on_lock_contention and not lock_file:
        msg = "cannot exit on lock file contention: no lock file specified (--lock-file)"
        raise click.UsageError(msg)
    if welcome:
        click.echo(welcome_text(config))
    lock = LockFile(Path(lock_file), exit_on_lock_contention) if lock_file else None
    return serve(config, lock, reloading)


def tell_of_flags(taken: TakenFlags) -> None:
    """Log which flags do nothing, and which should be fields of a file."""
    for flag in dict.fromkeys(taken.ignored):
        log.warning("flag_ignored", note=remark(flag))
    old = [f"--{flag}" for flag in taken.deprecated if flag not in taken.ignored]
    if old:
        note = "the kubelet has deprecated them: set fields in the file of --config instead"
        log.warning("flags_deprecated", flags=" ".join(old), note=note)


def read_files(config_file: str, config_dir: str) -> LoadedFile:
    """What the configuration file and the drop-ins say; nothing when neither is named.

    Raises:
        ConfigError: they cannot be used.
    """
    file, directory = (Path(text) if text else None for text in (config_file, config_dir))
    if file is None and directory is None:
        return LoadedFile({}, ())
    return load_configuration(file, directory)


def make_config(settings: Mapping[str, Any]) -> AgentConfig:
    """The agent's settings from flag values.

    Raises:
        click.UsageError: a value is not allowed; names the flag.
    """
    try:
        return AgentConfig(**settings)
    except ConfigError as error:
        raise click.UsageError(describe(error)) from error


def describe(error: ConfigError) -> str:
    """The flag, its value and what is allowed, on one line."""
    if isinstance(error, ConfigFilesError) and error.value is None:
        return error.allowed  # flags alone: each problem names its own
    value = format_duration(error.value) if isinstance(error.value, float) else error.value
    return " ".join(f"{flag_of(error.field)}={value}: {error.allowed}".split())


def welcome_text(config: AgentConfig) -> str:
    """The first lines: what runs, where healthz is, and what to try next."""
    runtime = (
        f"the embedded {config.embedded} runtime (for development; containers are host processes)"
        if config.embedded == "process"
        else config.container_runtime_endpoint
    )
    paths = ", ".join(str(p) for p in config.manifest_paths)
    healthz = _host_port(config.healthz_bind_address, config.healthz_port)
    read_only = _host_port(config.effective_read_only_address, config.read_only_port)
    tries = []
    if config.healthz_port:
        tries.append(f"curl '{healthz}/healthz?verbose'")
    if config.read_only_port:
        tries.append(f"curl -s '{read_only}/pods' | python3 -m json.tool")
    if config.healthz_port:
        tries.append(f"curl '{healthz}/debug/journal?since=1m'")
    if paths:
        tries.append(f"edit, break or delete a file in {paths} and watch this log")
    where = " and ".join(p for p in (paths, shown_url(config.static_pod_url)) if p)
    what = f"runs the pods in {where}" if where else "runs, without any manifest directory"
    ending = "are stopped too" if config.stop_pods_on_exit else "run on"
    lines = [
        f"nodeagent {__version__} {what}",
        f"  on {runtime}",
        f"  state in {config.root_dir}, container logs in {config.pod_logs_dir}",
        "",
        *(["Try in another terminal:"] if tries else []),
        *(f"  {line}" for line in tries),
        f"Stop with Ctrl-C; the pods {ending}.",
        "",
    ]
    return "\n".join(lines)


def _host_port(address: str, port: int) -> str:
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
