"""Giving a volume that is mounted to the pod's group, and saying so when it takes long."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Final

import anyio

from nodeagent.volumes.ownership import Progress, set_group
from nodeagent.volumes.plugin import SetUp

FIRST_NOTE: Final = 30.0
NEXT_NOTE: Final = 60.0
_REASON: Final = "VolumePermissionChangeInProgress"


async def hand_over(request: SetUp, path: Path, *, read_only: bool = False) -> None:
    """Give all files of a volume to the pod's group, if it names one.

    For volumes that may have much in them already (those of claims).

    Args:
        request: whose volume.
        path: its top.
        read_only: whether reading is enough.
    """
    group = request.ownership.fs_group
    if group is None:
        return
    progress = Progress()
    work = partial(
        set_group,
        path,
        group,
        read_only=read_only,
        on_root_mismatch=request.ownership.on_root_mismatch,
        progress=progress,
    )
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_tell, request, progress)
        await request.threads.run(work)
        tasks.cancel_scope.cancel()


async def _tell(request: SetUp, progress: Progress) -> None:
    name = request.volume.name
    await anyio.sleep(FIRST_NOTE)
    request.note(
        "Warning",
        _REASON,
        f"Setting volume ownership for {name} is taking longer than expected, consider using "
        "fsGroupChangePolicy OnRootMismatch",
    )
    while True:
        await anyio.sleep(NEXT_NOTE)
        text = f"Setting volume ownership for {name}, processed {progress.seen} files."
        request.note("Warning", _REASON, text)
