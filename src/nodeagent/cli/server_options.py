"""Flags that say how the agent serves the kubelet's API."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

from nodeagent.cli.params import Duration, Port, boolean_option
from nodeagent.config.server_options import AUTHORIZATION_MODES

F = TypeVar("F", bound=Callable[..., Any])


def _suites(
    _ctx: click.Context, _param: click.Parameter, value: tuple[str, ...] | str
) -> tuple[str, ...]:
    given = (value,) if isinstance(value, str) else value
    return tuple(filter(None, (part.strip() for text in given for part in text.split(","))))


_OPTIONS: Final[tuple[Callable[[Any], Any], ...]] = (
    boolean_option(
        "--enable-server",
        "Serve the API and the read-only port.",
        default="true",
        show_default=True,
    ),
    click.option(
        "--port",
        default=10250,
        show_default=True,
        type=Port(),
        help="Of the API, with --kubeconfig or --client-ca-file; 0: none.",
    ),
    click.option(
        "--address",
        default="",
        help="Address of the API port (default: all) and the read-only port (default: loopback).",
    ),
    click.option("--tls-cert-file", default="", help="Certificate of the API port, with chain."),
    click.option("--tls-private-key-file", default="", help="Its key."),
    boolean_option(
        "--rotate-server-certificates",
        "Ask the cluster for the certificate of the API port, and for the next one in time.",
        default="false",
        name="server_tls_bootstrap",
    ),
    click.option(
        "--tls-cipher-suites",
        multiple=True,
        callback=_suites,
        help="Cipher suites up to TLS 1.2, with commas between.",
    ),
    click.option("--tls-min-version", default="", help="Default: VersionTLS12."),
    click.option("--client-ca-file", default="", help="Who signs the certificates of clients."),
    boolean_option(
        "--anonymous-auth",
        "Take requests that say nothing of who asks.",
        default="false",
        show_default=True,
    ),
    boolean_option(
        "--authentication-token-webhook",
        "Ask the API server about bearer tokens.",
        default="true",
        show_default=True,
    ),
    click.option(
        "--authentication-token-webhook-cache-ttl",
        default="2m",
        show_default=True,
        type=Duration(),
        help="How long its answer is good for.",
    ),
    click.option(
        "--authorization-mode",
        default="Webhook",
        show_default=True,
        type=click.Choice(AUTHORIZATION_MODES),
        help="Who may do what: as the API server says, or everybody everything.",
    ),
    click.option(
        "--authorization-webhook-cache-authorized-ttl",
        default="5m",
        show_default=True,
        type=Duration(),
        help="How long its yes is good for.",
    ),
    click.option(
        "--authorization-webhook-cache-unauthorized-ttl",
        default="30s",
        show_default=True,
        type=Duration(),
        help="How long its no is good for.",
    ),
    click.option(
        "--streaming-connection-idle-timeout",
        default="4h",
        show_default=True,
        type=Duration(),
        help="Close streams of exec, attach, port-forward that are silent so long; 0: never.",
    ),
    boolean_option(
        "--enable-debugging-handlers",
        "Serve logs, exec, attach, port-forward and the like.",
        default="true",
        show_default=True,
    ),
)


def server_options(command: F) -> F:
    """Give a command these flags."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command
