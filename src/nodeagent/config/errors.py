"""How a setting can be wrong."""

from __future__ import annotations

from collections.abc import Sequence


class ConfigError(ValueError):
    """A setting that cannot be used: names it, its value, and what is allowed."""

    def __init__(self, field: str, value: object, allowed: str) -> None:
        super().__init__(f"{field}={value}: {allowed}")
        self.field = field
        self.value = value
        self.allowed = allowed


class ConfigFilesError(ConfigError):
    """All that is wrong with a configuration of files.

    Attributes:
        problems: each with its field, and the drop-in that it stands in.
    """

    def __init__(self, field: str, value: object, problems: Sequence[str]) -> None:
        super().__init__(field, value, "; ".join(problems))
        self.problems = tuple(problems)
