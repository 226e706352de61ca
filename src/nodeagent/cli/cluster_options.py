"""Flags that make the agent a node of a cluster."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from typing import Any, Final, TypeVar

import click

from nodeagent.cli.params import Duration, Listed, boolean_option

F = TypeVar("F", bound=Callable[..., Any])

_OPTIONS: Final = (
    click.option(
        "--kubeconfig",
        default="",
        help="How to reach the API server, and as whom. Without: standalone, static pods only.",
    ),
    click.option(
        "--bootstrap-kubeconfig",
        default="",
        help="The same for the first client certificate, when --kubeconfig does not exist yet.",
    ),
    click.option(
        "--cert-dir", default="", help="Where certificates are kept. Default: pki in --root-dir."
    ),
    boolean_option(
        "--rotate-certificates",
        "Ask for a new client certificate before the present one ends.",
        default="false",
    ),
    boolean_option("--register-node", "Make the Node object of this machine.", default="true"),
    click.option(
        "--kube-api-qps", default=50, show_default=True, help="Requests per second; 0: 50."
    ),
    click.option(
        "--kube-api-burst", default=100, show_default=True, help="Requests at once; 0: 100."
    ),
    click.option(
        "--event-qps",
        "event_record_qps",
        default=50,
        show_default=True,
        help="Events per second; 0: no limit.",
    ),
    click.option("--event-burst", default=100, show_default=True, help="Events at once; 0: 100."),
    click.option(
        "--node-status-update-frequency",
        default="10s",
        show_default=True,
        type=Duration(),
        help="How often the agent looks at the node's own state.",
    ),
    click.option("--cluster-domain", default="", help="The cluster's domain."),
    click.option(
        "--cluster-dns",
        multiple=True,
        type=Listed(),
        callback=lambda _ctx, _param, value: tuple(chain.from_iterable(value)),
        help="Name servers for pods with DNS policy ClusterFirst, with commas between.",
    ),
    click.option(
        "--checkpoint-patience",
        default="20s",
        show_default=True,
        type=Duration(),
        help="How long the API server has for its first answer before remembered pods start.",
    ),
)


def cluster_options(command: F) -> F:
    """Give a command these flags."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command
