"""Flags that say what is kept of the dead, and when images go."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

from nodeagent.cli.params import Duration

F = TypeVar("F", bound=Callable[..., Any])

_OPTIONS: Final = (
    click.option(
        "--image-gc-high-threshold",
        "image_gc_high_threshold_percent",
        default=85,
        show_default=True,
        help="Usage of the image file system, percent, at which images go; 100: never.",
    ),
    click.option(
        "--image-gc-low-threshold",
        "image_gc_low_threshold_percent",
        default=80,
        show_default=True,
        help="Usage down to which they go.",
    ),
    click.option(
        "--minimum-image-ttl-duration",
        "image_minimum_gc_age",
        default="2m",
        show_default=True,
        type=Duration(),
        help="An image stays so long after it was first seen.",
    ),
    click.option(
        "--minimum-container-ttl-duration",
        default="0s",
        show_default=True,
        type=Duration(),
        help="A dead container stays so long.",
    ),
    click.option(
        "--maximum-dead-containers-per-container",
        default=1,
        show_default=True,
        help="Dead containers kept of each name in a pod.",
    ),
    click.option(
        "--maximum-dead-containers",
        default=-1,
        show_default=True,
        help="Dead containers kept over all; negative: no bound.",
    ),
)


def garbage_options(command: F) -> F:
    """Give a command these flags."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command
