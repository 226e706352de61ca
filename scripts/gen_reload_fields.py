"""Writes the list of fields that are applied at once into docs/reload-and-rollback.md.

python scripts/gen_reload_fields.py
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from nodeagent.config.kubelet_fields import path_of_setting
from nodeagent.config.reload import LIVE

PAGE: Final = Path(__file__).parent.parent / "docs" / "reload-and-rollback.md"
BEGIN: Final = "<!-- begin: made by scripts/gen_reload_fields.py -->\n"
END: Final = "<!-- end -->\n"


def table() -> Iterator[str]:
    """The rows, each with its line end."""
    yield "| field | setting | in force |\n"
    yield "|---|---|---|\n"
    for setting, how in sorted(LIVE.items(), key=lambda item: _field(item[0]).lower()):
        yield f"| {_field(setting)} | `{setting}` | {how} |\n"


def _field(setting: str) -> str:
    path = path_of_setting(setting)
    return f"`{path}`" if path else ""


def with_table(text: str) -> str:
    """The page with the list as it should be."""
    head, _, rest = text.partition(BEGIN)
    tail = rest.partition(END)[2]
    return f"{head}{BEGIN}\n{''.join(table())}\n{END}{tail}"


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text()))
