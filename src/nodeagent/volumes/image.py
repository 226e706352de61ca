"""Image volumes: the runtime mounts them (docs/behaviour/volumes.md, "Image")."""

from __future__ import annotations

from nodeagent.api import ImageVolumeSource, Volume
from nodeagent.model.volumes import MountedVolume
from nodeagent.volumes.plugin import SetUp, TearDown


class ImagePlugin:
    """The content of images. Nothing is made on the host."""

    name = "kubernetes.io/image"
    refreshes = False

    def handles(self, volume: Volume) -> bool:
        """Whether it is an image."""
        return volume.image is not None

    async def set_up(self, request: SetUp) -> MountedVolume:
        """Say what the runtime shall mount."""
        source = request.volume.image or ImageVolumeSource()
        return MountedVolume(request.volume.name, "", read_only=True, image=source.reference)

    async def refresh(self, request: SetUp) -> bool:
        """Nothing follows anything."""
        del request
        return False

    async def tear_down(self, request: TearDown) -> None:
        """Nothing was made."""
