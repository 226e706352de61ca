"""``nodeagent completion``: what a shell needs to complete commands, flags and files."""

from __future__ import annotations

import click

_HOW = {
    "bash": "source <(nodeagent completion bash)",
    "zsh": "source <(nodeagent completion zsh)",
    "fish": "nodeagent completion fish | source",
}


@click.command()
@click.argument("shell", type=click.Choice(tuple(_HOW)))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> int:
    """Print the script with which SHELL completes commands and flags.

    Put it into the shell's start-up file, for example: source <(nodeagent completion bash).
    """
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None
    source = kind(ctx.find_root().command, {}, "nodeagent", "_NODEAGENT_COMPLETE").source()
    click.echo(f"# {_HOW[shell]}\n{source}")
    return 0
