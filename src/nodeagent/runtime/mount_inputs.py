"""Reading and preparing what the mounts of a container are made from."""

from __future__ import annotations

from nodeagent.api import Pod
from nodeagent.proto.runtime import v1
from nodeagent.rpc import RpcError
from nodeagent.runtime.context import RuntimeContext
from nodeagent.runtime.environment import EnvironmentSources, build_environment
from nodeagent.runtime.errors import ContainerStartError, Waiting, describe
from nodeagent.runtime.images import ImageManager, ImageRequest
from nodeagent.runtime.mounts import MountInputs, prepare_sub_paths
from nodeagent.runtime.start_request import StartRequest


class MountGatherer:
    """Prepares the mounts of containers.

    Args:
        context: what the runtime side shares.
        images: makes sure that images are there.
    """

    def __init__(self, context: RuntimeContext, images: ImageManager) -> None:
        self._context = context
        self._images = images

    async def gather(self, request: StartRequest, sources: EnvironmentSources) -> MountInputs:
        """Have images pulled and parts of volumes mounted, as the container needs it.

        Raises:
            ContainerStartError: something cannot be had.
        """
        mounts = request.container.volume_mounts
        sub_paths = {}
        if any(mount.sub_path or mount.sub_path_expr for mount in mounts):
            sub_paths = await prepare_sub_paths(
                request.uid,
                request.container,
                request.volumes,
                build_environment(request.pod, request.container, sources),
                self._context.lookups.sub_paths,
            )
        recursive = any(m.recursive_read_only in ("Enabled", "IfPossible") for m in mounts)
        return MountInputs(
            volumes=request.volumes,
            sub_paths=sub_paths,
            images=await self._image_volumes(request),
            recursive_read_only=recursive and await self._can_recurse(request.pod),
        )

    async def _image_volumes(self, request: StartRequest) -> dict[str, v1.ImageSpec]:
        used = {mount.name for mount in request.container.volume_mounts}
        found = {}
        for volume in request.pod.spec.volumes:
            source = volume.image
            if source is None or volume.name not in used:
                continue
            wanted = ImageRequest(
                request.pod, source.reference, source.pull_policy, "", request.sandbox.config
            )
            image = await self._images.ensure(wanted)
            found[volume.name] = v1.ImageSpec(
                image=image.ref, user_specified_image=source.reference
            )
        return found

    async def _can_recurse(self, pod: Pod) -> bool:
        """Whether the pod's handler can make what is mounted below a mount read-only, too."""
        name = pod.spec.runtime_class_name
        lookups = self._context.lookups
        handler = lookups.runtime_classes.handler(name) if name else ""
        try:
            reply = await lookups.describe()
        except RpcError as error:
            raise ContainerStartError(Waiting.CONFIG, describe(error)) from error
        return any(
            known.name == handler
            and known.features is not None
            and known.features.recursive_read_only_mounts
            for known in reply.runtime_handlers
        )
