"""The image service over gRPC."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nodeagent.cri import methods, verify
from nodeagent.cri.interned import InternTable
from nodeagent.proto.runtime import v1

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nodeagent.cri.caller import Caller


class ImageClient:
    """Implements :class:`nodeagent.cri.ImageService`.

    Args:
        caller: makes the calls.
    """

    def __init__(self, caller: Caller) -> None:
        self._images = caller
        self._listed = InternTable(v1.Image)

    async def list_images(self, where: v1.ImageFilter | None = None) -> Sequence[v1.Image]:
        """See :class:`nodeagent.cri.ImageService`; unchanged items are the same objects."""
        request = v1.ListImagesRequest(filter=where)
        table = self._listed
        return await self._images.fetch(
            methods.LIST_IMAGES, request, lambda data: table.decode(data, remember=where is None)
        )

    async def stream_images(self, where: v1.ImageFilter | None = None) -> Sequence[v1.Image]:
        """See :class:`nodeagent.cri.ImageService`; unchanged items are the same objects."""
        request = v1.StreamImagesRequest(filter=where)
        table = self._listed
        return await self._images.collect(
            methods.STREAM_IMAGES, request, lambda data: table.decode(data, remember=where is None)
        )

    async def image_status(
        self, image: v1.ImageSpec, verbose: bool = False
    ) -> v1.ImageStatusResponse:
        """See :class:`nodeagent.cri.ImageService`."""
        request = v1.ImageStatusRequest(image=image, verbose=verbose)
        return await self._images.ask(
            methods.IMAGE_STATUS,
            request,
            v1.ImageStatusResponse,
            lambda reply: verify.image(reply, image.image),
        )

    async def pull_image(
        self,
        image: v1.ImageSpec,
        auth: v1.AuthConfig | None = None,
        sandbox_config: v1.PodSandboxConfig | None = None,
    ) -> str:
        """See :class:`nodeagent.cri.ImageService`."""
        request = v1.PullImageRequest(image=image, auth=auth, sandbox_config=sandbox_config)
        return await self._images.ask(
            methods.PULL_IMAGE,
            request,
            v1.PullImageResponse,
            lambda reply: verify.text(reply.image_ref, "image_ref"),
        )

    async def remove_image(self, image: v1.ImageSpec) -> None:
        """See :class:`nodeagent.cri.ImageService`."""
        request = v1.RemoveImageRequest(image=image)
        await self._images.call(methods.REMOVE_IMAGE, request, v1.RemoveImageResponse)

    async def image_fs_info(self) -> v1.ImageFsInfoResponse:
        """See :class:`nodeagent.cri.ImageService`."""
        return await self._images.call(
            methods.IMAGE_FS_INFO, v1.ImageFsInfoRequest(), v1.ImageFsInfoResponse
        )
