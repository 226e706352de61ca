"""How a setting can be wrong."""

from __future__ import annotations


class ConfigError(ValueError):
    """A setting that cannot be used: names it, its value, and what is allowed."""

    def __init__(self, field: str, value: object, allowed: str) -> None:
        super().__init__(f"{field}={value}: {allowed}")
        self.field = field
        self.value = value
        self.allowed = allowed
