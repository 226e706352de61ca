"""Finding out how isolated containers can be on this machine."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

import anyio
from anyio import to_thread

from nodeagent.embedded.process.isolation import SYSCTLS, Isolation, remedy
from nodeagent.embedded.process.trees import remove_tree

if TYPE_CHECKING:
    from nodeagent.embedded.process.launcher.spec import ProbeSpec
    from nodeagent.embedded.process.zygote import Zygote

_PROBE_SECONDS: Final = 10.0
_IN_ROOT: Final = "/nodeagent-probe"
_IN_OVERLAY: Final = "/etc/nodeagent-probe"


async def find_isolation(zygote: Zygote, root: Path, *, wanted: bool) -> Isolation:
    """Try it out in processes that end at once.

    Args:
        zygote: what forks those processes.
        root: the state directory; the overlays' upper layers are to be below it.
        wanted: False for no isolation whatever is possible.
    """
    if not wanted:
        return Isolation("none", reason="isolation is turned off")
    is_root = os.geteuid() == 0
    why = await _try_root(zygote, root) if is_root else "not root"
    if isinstance(why, Isolation):
        return why
    found = await _try_user(zygote, root, why)
    if isinstance(found, Isolation):
        return found
    advice = remedy(await to_thread.run_sync(_sysctls), is_root=is_root)
    return Isolation("none", reason=f"{why}; user namespaces: {found}", remedy=advice)


async def _try_root(zygote: Zygote, root: Path) -> Isolation | str:
    """By the privileges of root; the error when that does not work."""
    error = await _try(zygote, _spec(root, file=_IN_ROOT))
    if error:
        error = await _try(zygote, _spec(root, file=_IN_ROOT, memory=True))
        return f"root: {error}" if error else Isolation("root", "tmpfs")
    return Isolation("root")


async def _try_user(zygote: Zygote, root: Path, why: str) -> Isolation | str:
    """By a user namespace; the error when that does not work."""
    if not await _try(zygote, _spec(root, user=True, file=_IN_OVERLAY)):
        return Isolation("user", "dir", why)
    if not await _try(zygote, _spec(root, user=True, file=_IN_OVERLAY, memory=True)):
        return Isolation("user", "tmpfs", why)
    # Without overlays the host's directories are there, read-only.
    error = await _try(zygote, _spec(root, user=True, file=_IN_ROOT))
    return error or Isolation("user", "dir", f"{why}; the host's directories are read-only")


def _spec(root: Path, *, file: str, user: bool = False, memory: bool = False) -> ProbeSpec:
    return {
        "dir": str(root / "probe"),
        "user": user,
        "upper": "tmpfs" if memory else "dir",
        "file": file,
    }


async def _try(zygote: Zygote, spec: ProbeSpec) -> str:
    """What goes wrong; empty when nothing does."""
    directory = Path(spec["dir"])
    await to_thread.run_sync(lambda: directory.mkdir(mode=0o700, exist_ok=True))
    control = await zygote.fork("probe", spec)
    try:
        with anyio.move_on_after(_PROBE_SECONDS):
            answer = await control.answer()
            return "" if answer == {} else str(answer.get("error", "no answer"))
        return f"no answer within {_PROBE_SECONDS:g} s"
    finally:
        control.close()
        await to_thread.run_sync(remove_tree, directory)


def _sysctls() -> dict[str, str]:
    found = {}
    for name in SYSCTLS:
        try:
            found[name] = (Path("/proc/sys") / name.replace(".", "/")).read_text().strip()
        except OSError:
            continue  # this kernel does not have it
    return found
