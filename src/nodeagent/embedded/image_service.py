"""The images of the embedded runtime as the agent uses them in-process."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, TypeVar

from nodeagent.embedded import views
from nodeagent.embedded.faults import Call
from nodeagent.proto.runtime import v1
from nodeagent.rpc import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from nodeagent.embedded.core import Core

T = TypeVar("T")


class EmbeddedImages:
    """:class:`nodeagent.cri.ImageService`, in this process.

    Args:
        core: what does the work. Its context must be open.
    """

    def __init__(self, core: Core) -> None:
        self.core = core

    async def list_images(self, where: v1.ImageFilter | None = None) -> Sequence[v1.Image]:
        """List the images that match, all of them by default."""
        return await self._call("ListImages", "", partial(self._list, where))

    async def stream_images(self, where: v1.ImageFilter | None = None) -> Sequence[v1.Image]:
        """The same list."""
        return await self._call("StreamImages", "", partial(self._list, where))

    async def image_status(
        self, image: v1.ImageSpec, verbose: bool = False
    ) -> v1.ImageStatusResponse:
        """Describe one image; ``image`` of the reply is None when it is not present."""
        del verbose
        return await self._call("ImageStatus", image.image, partial(self._status, image))

    async def pull_image(
        self,
        image: v1.ImageSpec,
        auth: v1.AuthConfig | None = None,
        sandbox_config: v1.PodSandboxConfig | None = None,
    ) -> str:
        """Have an image from now on; returns its id. Credentials are not looked at."""
        del auth
        pod = (sandbox_config.metadata if sandbox_config else None) or v1.PodSandboxMetadata()
        call = Call("PullImage", pod.uid, "", image.image, pod.name, pod.namespace)
        return await self.core.through(call, partial(self._pull, image.image))

    async def remove_image(self, image: v1.ImageSpec) -> None:
        """Have an image no longer. Idempotent."""
        await self._call("RemoveImage", image.image, partial(self._remove, image.image))

    async def image_fs_info(self) -> v1.ImageFsInfoResponse:
        """How much space the state takes; images count with the size they claim."""
        return await self._call("ImageFsInfo", "", self._fs_info)

    async def _call(self, method: str, subject: str, work: Callable[[], Awaitable[T]]) -> T:
        return await self.core.through(Call(method, subject=subject), work)

    async def _list(self, where: v1.ImageFilter | None) -> Sequence[v1.Image]:
        name = where.image.image if where is not None and where.image is not None else ""
        if not name:
            return self.core.images.images
        found = self.core.images.find(name)
        return [found] if found else []

    async def _status(self, image: v1.ImageSpec) -> v1.ImageStatusResponse:
        if not image.image:
            raise InvalidArgument("image name must not be empty")
        return v1.ImageStatusResponse(image=self.core.images.find(image.image))

    async def _pull(self, name: str) -> str:
        image_id = self.core.images.pull(name)
        await self._save()
        return image_id

    async def _remove(self, name: str) -> None:
        if self.core.images.remove(name):
            await self._save()

    async def _save(self) -> None:
        await self.core.backend.save_images(self.core.images.references())

    async def _fs_info(self) -> v1.ImageFsInfoResponse:
        usage = await self.core.backend.disk_usage()
        claimed = sum(image.size for image in self.core.images.images)
        now = self.core.clock.time_ns()
        return v1.ImageFsInfoResponse(
            image_filesystems=[views.filesystem_usage(usage, claimed, now)],
            container_filesystems=[views.filesystem_usage(usage, 0, now)],
        )
