"""Flags that say what the node tells of itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import chain
from typing import Any, Final, TypeVar

import click

from nodeagent.api.node import Taint
from nodeagent.cli.params import boolean_option
from nodeagent.config.node_options import DEFAULT_EVICTION_HARD, parse_pairs, parse_taints

F = TypeVar("F", bound=Callable[..., Any])


class Pairs(click.ParamType[Mapping[str, str]]):
    """``name=value`` or several with commas between; the sign may be another one."""

    name = "pairs"

    def __init__(self, sign: str = "=") -> None:
        self._sign = sign

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Mapping[str, str]:
        """Names and values in ``value``; whether they are allowed is the configuration's to say."""
        if not isinstance(value, str):
            return dict(value)
        try:
            return parse_pairs(value, self._sign)
        except ValueError as error:
            return self.fail(f"{error}", param, ctx)


class Taints(click.ParamType[tuple[Taint, ...]]):
    """``key=value:effect`` or several with commas between."""

    name = "taints"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[Taint, ...]:
        """The taints in ``value``; whether they are allowed is the configuration's to say."""
        if not isinstance(value, str):
            return tuple(value)
        try:
            return parse_taints(value)
        except ValueError as error:
            return self.fail(f"{error}", param, ctx)


def _pairs(default: Mapping[str, str]) -> Callable[..., Mapping[str, str]]:
    """What a flag that may be given several times amounts to."""

    def merged(
        _ctx: click.Context, _param: click.Parameter, value: tuple[Mapping[str, str], ...]
    ) -> Mapping[str, str]:
        given: dict[str, str] = {}
        for part in value:
            given.update(part)
        return given if value else dict(default)

    return merged


def _pairs_option(flag: str, text: str) -> Callable[[F], F]:
    return click.option(flag, multiple=True, type=Pairs(), callback=_pairs({}), help=text)


_OPTIONS: Final[tuple[Callable[[Any], Any], ...]] = (
    click.option(
        "--register-with-taints",
        multiple=True,
        type=Taints(),
        callback=lambda _ctx, _param, value: tuple(chain.from_iterable(value)),
        help="Taints of a new Node, 'key=value:effect,...'.",
    ),
    _pairs_option("--node-labels", "Labels of a new Node, 'key=value,...'."),
    click.option("--provider-id", default="", help="How the cloud names this machine."),
    click.option(
        "--cloud-provider", default="", help="external: a controller tells the addresses."
    ),
    click.option(
        "--node-status-max-images",
        default=50,
        show_default=True,
        help="Images that the node reports; -1: all.",
    ),
    click.option(
        "--node-lease-duration-seconds",
        default=40,
        show_default=True,
        help="After so long without a sign of life the node counts as lost.",
    ),
    click.option("--max-pods", default=110, show_default=True, help="Pods that the node takes."),
    click.option(
        "--pods-per-core", default=0, show_default=True, help="The same per core; 0: no bound."
    ),
    _pairs_option("--kube-reserved", "What Kubernetes' daemons need, 'cpu=200m,memory=1Gi'."),
    _pairs_option("--system-reserved", "What the rest of the system needs, the same way."),
    click.option(
        "--eviction-hard",
        multiple=True,
        type=Pairs("<"),
        callback=_pairs(DEFAULT_EVICTION_HARD),
        help="What must stay free, 'memory.available<100Mi,nodefs.available<10%'.",
    ),
    boolean_option(
        "--local-storage-capacity-isolation", "Report ephemeral storage.", default="true"
    ),
    boolean_option(
        "--enable-controller-attach-detach",
        "Controllers attach volumes to the node.",
        default="true",
    ),
    boolean_option(
        "--make-iptables-util-chains", "Keep the agent's own chains in iptables.", default="true"
    ),
    click.option(
        "--pod-cidr", default="", help="Addresses of pods, for a node without an API server."
    ),
)


def node_options(command: F) -> F:
    """Give a command these flags."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command
