"""What stands in a kubeconfig, before anybody asks what it means. Blocking: it reads files."""

from __future__ import annotations

import base64
import os
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from nodeagent.kube.access import AccessError

_SIZE_LIMIT: Final = 10 * 1024 * 1024


def read_document(path: Path) -> dict[str, Any]:
    """The file's content.

    Raises:
        AccessError: it cannot be read, or is no mapping.
    """
    import yaml

    try:
        with path.open("rb") as file:
            data = file.read(_SIZE_LIMIT + 1)
    except OSError as error:
        msg = f"cannot be read: {error.strerror}"
        raise AccessError(msg) from error
    if len(data) > _SIZE_LIMIT:
        raise AccessError("10 MiB or more")
    try:
        document = yaml.safe_load(data)
    except (yaml.YAMLError, UnicodeDecodeError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f", line {mark.line + 1}" if mark else ""
        # The text around a fault may be secret.
        problem = getattr(error, "problem", None) or type(error).__name__
        msg = f"no YAML: {problem}{where}"
        raise AccessError(msg) from error
    if not isinstance(document, dict):
        raise AccessError("no kubeconfig: a mapping with clusters, users and contexts is needed")
    return document


def named(document: dict[str, Any], section: str, name: Any, key: str) -> dict[str, Any]:
    """An item of one of the lists, copied."""
    if not name:
        what = "current-context" if key == "context" else f"{key} of the context"
        msg = f"{what} is not given"
        raise AccessError(msg)
    items = document.get(section) or []
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        msg = f"{section} must be a list of named objects"
        raise AccessError(msg)
    found = [item for item in items if item.get("name") == name]
    if not found:
        msg = f"there is no {key} {name!r} in {section}"
        raise AccessError(msg)
    value = found[0].get(key)
    if value is None:
        value = {}
    if not isinstance(value, dict):
        msg = f"{key} {name!r} must be a mapping"
        raise AccessError(msg)
    return dict(value)


def text_of(section: dict[str, Any], key: str) -> str:
    """A value that must be a string."""
    value = section[key]
    if not isinstance(value, str):
        msg = f"{key} must be a string"
        raise AccessError(msg)
    return value


def has_certificate(user: dict[str, Any]) -> bool:
    """Whether a user has a client certificate of its own."""
    return bool(user.get("client-certificate") or user.get("client-certificate-data"))


def told_to_plugins(cluster: dict[str, Any]) -> dict[str, Any]:
    """The cluster as a plugin may want to know it."""
    names = (
        "server",
        "tls-server-name",
        "insecure-skip-tls-verify",
        "certificate-authority-data",
        "proxy-url",
    )
    return {name: cluster[name] for name in names if name in cluster}


def to_files(section: dict[str, Any], keys: tuple[str, ...], until_read: ExitStack) -> None:
    """Put what is given as data into files in memory: the ssl module reads nothing else."""
    for key in keys:
        data = section.pop(f"{key}-data", None)
        if not data:
            continue
        try:
            content = base64.b64decode("".join(data.split()), validate=True)
        except (ValueError, TypeError, AttributeError) as error:
            msg = f"{key}-data is no base64"
            raise AccessError(msg) from error
        file = os.memfd_create(key)
        until_read.callback(os.close, file)
        with os.fdopen(os.dup(file), "wb") as writer:
            writer.write(content)
        section[key] = f"/proc/self/fd/{file}"
