"""The command line of ``nodeagent run``: every flag of the kubelet, and a page of help in groups.

Most flags set a field of KubeletConfiguration and need nothing but the table of fields, so they are
taken here and made into a layer over the configuration files. The words of help and completion are
put together only when someone asks for them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import click
from click.shell_completion import CompletionItem

from nodeagent._version import __version__
from nodeagent.config.flag_layer import is_boolean
from nodeagent.config.kubelet_flags import OTHERS, field_of_flag, is_deprecated

FLAGS: Final = "nodeagent.flags"
"""Where the context keeps :class:`TakenFlags`."""
_VERSION: Final = ("--version", "--version=true", "--version=raw")


@dataclass(slots=True)
class TakenFlags:
    """Flags of the kubelet that no option of the command stands for.

    Attributes:
        fields: those that set a field, with their values, in order.
        ignored: those that do nothing.
        deprecated: all flags that the kubelet wants to be rid of, options of the command too.
    """

    fields: list[tuple[str, str]] = field(default_factory=list)
    ignored: list[str] = field(default_factory=list)
    deprecated: list[str] = field(default_factory=list)


class RunCommand(click.Command):
    """A command that takes every flag of the kubelet."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Take the kubelet's flags out; the rest is click's."""
        if any(arg in _VERSION for arg in args):
            click.echo(f"nodeagent {__version__}")
            ctx.exit()
        taken = TakenFlags()
        rest = list(self._without(args, taken))
        ctx.meta[FLAGS] = taken
        try:
            return super().parse_args(ctx, rest)
        except click.UsageError as error:
            if "unexpected extra argument" in error.message:
                word = error.message.partition("(")[2].partition(")")[0].split()[0]
                msg = f'unknown command "{word}" (flags begin with --)'
                raise click.UsageError(msg, ctx) from error
            raise

    def _without(self, args: list[str], taken: TakenFlags) -> Iterator[str]:
        mine = self._own()
        words = iter(args)
        for word in words:
            if not word.startswith("--") or word == "--":
                yield word
                continue
            name, equals, value = word[2:].partition("=")
            name = name.replace("_", "-")
            if is_deprecated(name) and name not in taken.deprecated:
                taken.deprecated.append(name)
            if name in mine:
                yield f"--{name}{equals}{value}"
                if mine[name] and not equals and (following := next(words, None)) is not None:
                    yield following
            elif name in OTHERS:
                if not equals and not OTHERS[name].boolean:
                    _value(name, words)
                taken.ignored.append(name)
            elif name in field_of_flag():
                if not equals:
                    value = "true" if is_boolean(name) else _value(name, words)
                taken.fields.append((name, value))
            else:
                yield word

    def _own(self) -> dict[str, bool]:
        """The command's own flags, and whether a value must follow."""
        found = {"help": False}
        for param in self.params:
            if isinstance(param, click.Option):
                needs = not param.is_flag and not isinstance(param.flag_value, str)
                found |= {opt[2:]: needs for opt in param.opts if opt.startswith("--")}
        return found

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write all flags, in groups."""
        from nodeagent.cli.run_help import write_flags

        write_flags(self, ctx, formatter)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Every flag that begins so."""
        from nodeagent.cli.run_help import told_of_flag

        found = super().shell_complete(ctx, incomplete)
        if incomplete.startswith("--") or not incomplete:
            mine = self._own()
            found += [
                CompletionItem(f"--{flag}", help=told_of_flag(flag))
                for flag in field_of_flag()
                if flag not in mine and f"--{flag}".startswith(incomplete)
            ]
        return found


def _value(name: str, words: Iterator[str]) -> str:
    following = next(words, None)
    if following is None:
        msg = f"--{name}: needs a value"
        raise click.UsageError(msg)
    return following


def taken_flags(ctx: click.Context) -> TakenFlags:
    """What the command line holds beside the options of the command."""
    taken: Any = ctx.meta.get(FLAGS)
    return taken if isinstance(taken, TakenFlags) else TakenFlags()
