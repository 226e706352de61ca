"""Finding out how isolated containers can be on this machine."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING, Final

import anyio
from anyio import to_thread

from nodeagent.embedded.process.specs import Isolation, Upper

if TYPE_CHECKING:
    from pathlib import Path

    from nodeagent.embedded.process.zygote import Zygote

_PROBE_SECONDS: Final = 10.0
_UPPERS: Final[tuple[Upper, ...]] = ("dir", "tmpfs")


async def find_isolation(zygote: Zygote, root: Path, *, wanted: bool) -> Isolation:
    """Try it out in a process that ends at once.

    Args:
        zygote: what forks that process.
        root: the state directory; the overlay's upper layers are to be below it.
        wanted: False for no isolation whatever is possible.
    """
    if not wanted:
        return Isolation(None, "isolation is turned off")
    if os.geteuid() != 0:
        return Isolation(None, "not root")
    errors = []
    for upper in _UPPERS:
        error = await _try(zygote, root / "probe", upper)
        if not error:
            return Isolation(upper)
        errors.append(error)
    return Isolation(None, errors[-1])


async def _try(zygote: Zygote, directory: Path, upper: Upper) -> str:
    await to_thread.run_sync(lambda: directory.mkdir(mode=0o700, exist_ok=True))
    control = await zygote.fork("probe", {"dir": str(directory), "upper": upper})
    try:
        with anyio.move_on_after(_PROBE_SECONDS):
            answer = await control.answer()
            return "" if answer == {} else str(answer.get("error", "no answer"))
        return f"no answer within {_PROBE_SECONDS:g} s"
    finally:
        control.close()
        await to_thread.run_sync(lambda: shutil.rmtree(directory, ignore_errors=True))
