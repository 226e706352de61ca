"""Write ``docs/configuration-reference.md`` from the table of fields.

python scripts/gen_configuration_reference.py           write the page
python scripts/gen_configuration_reference.py --check   exit 1 if it is stale
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from nodeagent.config.agent_file import AGENT_FIELDS, AgentField
from nodeagent.config.kubelet_fields import (
    ACTS,
    FIELDS,
    LATER,
    Field,
    path_of_setting,
    settings_in_file,
)

PAGE = Path(__file__).resolve().parent.parent / "docs" / "configuration-reference.md"
HEAD = """# Configuration reference

Every field of KubeletConfiguration v1beta1, as `nodeagent config explain` lists them. This page is
written by `scripts/gen_configuration_reference.py`. What the settings mean, and how files, drop-ins
and flags go together, is told in [configuration](configuration.md#the-file).

| field | default | flag | library | here |
|---|---|---|---|---|
"""
OWN = """
## NodeAgentConfiguration

The agent's own fields, of `apiVersion: nodeagent.dev/v1alpha1`, `kind: NodeAgentConfiguration`.
Where they may stand is told in [configuration](configuration.md#the-agents-own-fields).

| field | default | flag | library | meaning |
|---|---|---|---|---|
| `kubelet` | | | | the fields of a KubeletConfiguration |
"""


def page() -> str:
    """The whole page."""
    names = {path_of_setting(name): name for name in settings_in_file()}
    rows = "".join(_row(field, names.get(field.path, "")) for field in FIELDS.values())
    return HEAD + rows + OWN + "".join(map(_own_row, AGENT_FIELDS.values()))


def _own_row(field: AgentField) -> str:
    flag = f"`--{field.flag}`" if field.flag else ""
    default = "" if field.default in ("", {}) else f"`{json.dumps(field.default)}`"
    return f"| `{field.name}` | {default} | {flag} | `{field.setting}` | {field.meaning} |\n"


def _row(field: Field, setting: str) -> str:
    default = "" if field.default is None else f"`{json.dumps(field.default)}`"
    flag = f"`--{field.flag}`" if field.flag else ""
    library = f"`{setting}`" if setting else ""
    here = {ACTS: "acted on", LATER: "not acted on in this version"}.get(field.effect, "no meaning")
    if field.note:
        here = f"{here}: {field.note}"
    return f"| `{field.path}` | {default} | {flag} | {library} | {here} |\n"


def main(args: list[str]) -> int:
    """Write or check; the exit code."""
    wanted = page()
    if "--check" in args:
        fresh = PAGE.exists() and PAGE.read_text("utf-8") == wanted
        if not fresh:
            print("docs/configuration-reference.md: stale, run this script without --check")
        return 0 if fresh else 1
    PAGE.write_text(wanted, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
