"""What drivers are asked that changes nothing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

from nodeagent.csi.client import Abilities, DriverClient
from nodeagent.rpc import RpcError
from nodeagent.volumes.csi_errors import describe
from nodeagent.volumes.plugin import Stage, VolumeError
from nodeagent.volumes.usage import VolumeUsage


async def asked(ask: Callable[[], Awaitable[Abilities]], stage: Stage) -> Abilities:
    """What a driver can do.

    Raises:
        VolumeError: of the stage; it does not say.
    """
    try:
        return await ask()
    except RpcError as error:
        raise VolumeError(describe(error), stage=stage) from error


async def driver_usage(client: DriverClient, handle: str, target: Path) -> VolumeUsage | None:
    """Ask a driver; None when it does not know.

    Args:
        client: the driver.
        handle: its name of the volume.
        target: where it is published.

    Raises:
        RpcError: it does not answer.
    """
    abilities = await client.abilities()
    if not abilities.stats:
        return None
    told = await client.usage(handle, str(target))
    capacity, available, used = told.bytes or (None, None, None)
    inodes, inodes_free, inodes_used = told.inodes or (None, None, None)
    return VolumeUsage(
        used=used,
        inodes_used=inodes_used,
        capacity=capacity,
        available=available,
        inodes=inodes,
        inodes_free=inodes_free,
        abnormal=told.abnormal if abilities.condition else None,
    )
