"""The environment, command and arguments of a container."""

from __future__ import annotations

from collections.abc import Mapping

from nodeagent.api import Container
from nodeagent.runtime.errors import ContainerStartError, Waiting
from nodeagent.runtime.expansion import expand


def build_environment(container: Container) -> dict[str, str]:
    """The container's variables by name (docs/behaviour/runtime.md, "Environment").

    A value may refer to variables that stand before it in the list. A name that is given
    twice has its last value.

    Raises:
        ContainerStartError: a value comes from somewhere that is not supported.
    """
    result: dict[str, str] = {}
    if container.env_from:
        raise ContainerStartError(Waiting.CONFIG, "envFrom is not supported")
    for variable in container.env:
        if variable.value_from is not None:
            message = f"env {variable.name}: valueFrom is not supported"
            raise ContainerStartError(Waiting.CONFIG, message)
        result[variable.name] = expand(variable.value, result.get)
    return result


def expand_all(words: tuple[str, ...], environment: Mapping[str, str]) -> list[str]:
    """Command or arguments with their references to variables replaced."""
    return [expand(word, environment.get) for word in words]
