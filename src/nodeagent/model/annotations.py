"""Annotations that the agent itself puts on pods."""

from __future__ import annotations

from typing import Final

CONFIG_SOURCE: Final = "kubernetes.io/config.source"
"""The name of the source that the pod comes from."""

CONFIG_HASH: Final = "kubernetes.io/config.hash"
"""On a static pod: tells versions of it apart."""

CONFIG_MIRROR: Final = "kubernetes.io/config.mirror"
"""On a mirror pod: the hash of the static pod that it shows."""

CONFIG_SEEN: Final = "kubernetes.io/config.seen"
"""When the agent first saw the pod."""
