"""The ``nodeagent`` command and how it ends: exit codes and one-line errors."""

from __future__ import annotations

import sys
from typing import Any

import click

from nodeagent._version import __version__
from nodeagent.cli.bench import bench
from nodeagent.cli.completion import completion
from nodeagent.cli.config_command import config
from nodeagent.cli.embedded import embedded_runtime
from nodeagent.cli.gc import gc
from nodeagent.cli.plan import plan
from nodeagent.cli.run import describe, run
from nodeagent.cli.validate import validate
from nodeagent.config import ConfigError

USAGE_ERROR = 2


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="nodeagent", message="%(prog)s %(version)s")
def cli() -> None:
    """The Kubernetes node agent, as an event-driven Python system."""


cli.add_command(run)
cli.add_command(embedded_runtime)
cli.add_command(bench)
cli.add_command(gc)
cli.add_command(config)
cli.add_command(validate)
cli.add_command(plan)
cli.add_command(completion)


def main(args: list[str] | None = None) -> None:
    """Run the command line and exit. Bad flags: one line, exit code 2."""
    sys.exit(invoke(sys.argv[1:] if args is None else args))


def invoke(args: list[str]) -> int:
    """Run the command line; the exit code."""
    try:
        result: Any = cli.main(args, prog_name="nodeagent", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.ctx.get_help(), err=True)
        return USAGE_ERROR
    except click.ClickException as error:
        click.echo(f"nodeagent: {_one_line(error)}", err=True)
        return USAGE_ERROR if isinstance(error, click.UsageError) else error.exit_code
    except ConfigError as error:
        click.echo(f"nodeagent: {describe(error)}", err=True)
        return USAGE_ERROR
    except (click.Abort, KeyboardInterrupt):
        return 130
    return result if isinstance(result, int) else 0


def _one_line(error: click.ClickException) -> str:
    return " ".join(error.format_message().split())
