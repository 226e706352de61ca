"""Removing images that nothing uses (docs/behaviour/garbage.md, "Images")."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

import anyio
from anyio import TASK_STATUS_IGNORED
from anyio.abc import TaskStatus

from nodeagent.api import Pod
from nodeagent.journal import Journal
from nodeagent.log import Log
from nodeagent.proto.runtime import v1
from nodeagent.rpc import RpcError
from nodeagent.runtime.errors import describe
from nodeagent.runtime.events import NodeEvents
from nodeagent.runtime.image_fs import FsUsage, ImageFilesystem
from nodeagent.runtime.image_gc_plan import (
    DoomedImage,
    ImageGCPolicy,
    ImageRecord,
    SeenImage,
    bytes_to_free,
    detect,
    enough,
    for_space,
    full_reference,
    too_old,
    usage_percent,
)
from nodeagent.runtime.metrics import RuntimeMetrics
from nodeagent.runtime.sandbox_image import looks_like_one, sandbox_images

LONGEST_SILENCE: Final = 3600.0
"""Seconds between two warnings that nothing can be freed, once they have backed off."""
_SOON: Final = 1.0


class ImageRemover(Protocol):
    """The part of :class:`nodeagent.cri.ImageService` that collecting images needs."""

    async def list_images(self, where: v1.ImageFilter | None = None) -> Sequence[v1.Image]:
        """List the images that match, all of them by default."""
        ...

    async def remove_image(self, image: v1.ImageSpec) -> None:
        """Remove an image. Idempotent."""
        ...


class Node(Protocol):
    """The part of :class:`nodeagent.cri.RuntimeService` that tells what uses images."""

    async def list_containers(
        self, where: v1.ContainerFilter | None = None
    ) -> Sequence[v1.Container]:
        """List the containers that match, all of them by default."""
        ...

    async def status(self, verbose: bool = False) -> v1.StatusResponse:
        """Say whether the runtime is ready, and how it is configured."""
        ...


class ImageGCError(Exception):
    """Images could not be collected as they should; the text says why.

    Args:
        text: why.
        again: it was said not long ago.
    """

    def __init__(self, text: str, *, again: bool = False) -> None:
        super().__init__(text)
        self.again = again


@dataclass(frozen=True, slots=True)
class ImagePlan:
    """What would be removed now.

    Attributes:
        images: what goes, in this order.
        wanted: bytes that have to be freed; 0 when the file system is not full enough.
        usage: how full it is.
    """

    images: tuple[DoomedImage, ...]
    wanted: int
    usage: FsUsage


async def forget_nothing(_present: Mapping[str, object]) -> None:
    """Nobody keeps records of images."""


@dataclass(slots=True, kw_only=True)
class ImageGC:
    """Looks at all images every period, and removes what is too old or takes needed space.

    Args:
        images: lists and removes images.
        node: tells which containers there are, and what sandboxes are made with.
        disk: tells how full the image file system is.
        policy: when images go.
        spared: names and ids of what else is in use: image volumes, images whose containers
            are just being made.
        sources_ready: whether all sources have spoken; nothing goes before.
        events: told of failures.
        journal: the flight recorder.
        metrics: counters.
        forget: told which images are left, by id, after some were removed.
    """

    images: ImageRemover
    node: Node
    disk: ImageFilesystem
    policy: ImageGCPolicy
    spared: Callable[[], Iterable[str]]
    sources_ready: Callable[[], bool]
    events: NodeEvents
    journal: Journal
    metrics: RuntimeMetrics
    forget: Callable[[Mapping[str, object]], Awaitable[None]] = forget_nothing
    records: dict[str, ImageRecord] = field(default_factory=dict)
    _log: Log = field(default_factory=lambda: Log("runtime.images"))
    _sandbox_images: Collection[str] | None = None
    _began: float | None = None
    _failed: int = 0
    _silence: float = 0.0
    _silent_until: float = 0.0
    _altered: anyio.Event = field(default_factory=anyio.Event)

    async def run(self, *, task_status: TaskStatus[None] = TASK_STATUS_IGNORED) -> None:
        """Look and collect every period until cancelled."""
        self._began = anyio.current_time()
        task_status.started()
        while True:
            self._altered = anyio.Event()
            if not self.policy.off:
                await self._turn()
            await self._pause()

    def reconfigure(self, policy: ImageGCPolicy) -> None:
        """Remove by another policy: at once, and from now on; never blocks."""
        if policy != self.policy:
            self.policy = policy
            self._altered.set()

    async def _pause(self) -> None:
        """Wait for a period; when sources have still to speak, at most until they have.

        Another policy ends the wait, also one that came in the turn before.
        """
        if self.policy.off:
            await self._altered.wait()
            return
        with anyio.move_on_after(self.policy.period):
            if self.sources_ready():
                await self._altered.wait()
            while not (self._altered.is_set() or self.sources_ready()):
                with anyio.move_on_after(_SOON):
                    await self._altered.wait()

    async def _turn(self) -> None:
        try:
            await self.look()
            if self.sources_ready():
                await self.collect()
        except Exception as error:  # noqa: BLE001 - the next turn tries again; the agent goes on
            self._failed += 1
            if isinstance(error, ImageGCError) and error.again:
                return
            cause = describe(error) if isinstance(error, RpcError) else str(error)
            cause = cause or type(error).__name__
            self._log.warning("image_gc_failed", cause=cause, failures=self._failed)
            if self._failed > 1:
                self.events.node_event("Warning", "ImageGCFailed", cause)
        else:
            self._failed = 0

    async def look(self) -> None:
        """Note which images there are, and which are in use.

        Raises:
            RpcError: the runtime does not say.
        """
        listed = await self.images.list_images()
        uses = await self._uses()
        now = anyio.current_time()
        self.records = detect(self.records, map(seen_image, listed), uses, now)

    async def _uses(self) -> frozenset[str]:
        uses = {full_reference(name) for name in self.spared()} | set(self.spared())
        for container in await self.node.list_containers():
            uses |= {container.image_ref, container.image_id}
            if container.image is not None:
                uses |= {container.image.image, container.image.user_specified_image}
        uses |= set(await self._sandboxes())
        return frozenset(name for use in uses if use for name in (use, full_reference(use)))

    async def _sandboxes(self) -> Collection[str]:
        if self._sandbox_images is None:
            try:
                reply = await self.node.status(verbose=True)
            except RpcError:
                return ()
            self._sandbox_images = sandbox_images(reply.info)
        return self._sandbox_images

    async def plan(self) -> ImagePlan:
        """What would go now; :meth:`look` must have been called.

        Raises:
            RpcError, OSError: how full the file system is cannot be told.
            ImageGCError: it has no size.
        """
        usage = await self._usage()
        now = anyio.current_time()
        old = self._too_old(now)
        ids = {each.image.id for each in old}
        wanted = max(bytes_to_free(usage.capacity, usage.available, self.policy), 0)
        wanted = max(wanted - sum(each.image.size for each in old), 0)
        rest = [each for each in self._for_space(now) if each.image.id not in ids]
        return ImagePlan((*old, *enough(rest, wanted)), wanted, usage)

    async def collect(self) -> int:
        """Remove images that are too old, and as many others as needed; returns the bytes.

        Raises:
            RpcError, OSError: how full the file system is cannot be told.
            ImageGCError: not as much could be freed as needed, or some could not be removed.
        """
        usage = await self._usage()
        freed, failures = await self._remove(self._too_old(anyio.current_time()))
        wanted = bytes_to_free(usage.capacity, usage.available, self.policy)
        if wanted > 0:
            percent = usage_percent(usage.capacity, usage.available)
            self._log.info(
                "image_disk_full",
                percent=percent,
                high=self.policy.high_percent,
                wanted=wanted,
                mountpoint=usage.mountpoint,
            )
            more, failed = await self.free(wanted)
            freed, failures = freed + more, failures + failed
            self._judge(wanted, more, failures)
        else:
            self._silence = self._silent_until = 0.0
        if failures:
            msg = (
                f"wanted to free {max(wanted, 0)} bytes, but freed {freed} bytes space "
                f"with errors in image deletion: {_joined(failures)}"
            )
            raise ImageGCError(msg)
        return freed

    async def carry_out(self, doomed: Sequence[DoomedImage]) -> tuple[int, list[str]]:
        """Remove these images, those of :meth:`plan` or :meth:`unused`.

        Returns:
            Bytes that were freed, and what went wrong.
        """
        freed, failures = await self._remove(doomed)
        await self.forget(self.records)
        return freed, failures

    def unused(self) -> list[DoomedImage]:
        """All images that may go when space is needed; :meth:`look` must have been called."""
        return self._for_space(anyio.current_time())

    async def free(self, wanted: int | None = None) -> tuple[int, list[str]]:
        """Remove unused images, least recently used first, whatever the disk.

        Args:
            wanted: stop when so many bytes are freed; None removes all that are unused.

        Returns:
            Bytes that were freed, and what went wrong.
        """
        candidates = self._for_space(anyio.current_time())
        freed, failures = await self._remove(candidates, wanted)
        await self.forget(self.records)
        return freed, failures

    def _judge(self, wanted: int, freed: int, failures: Sequence[str]) -> None:
        """Warn when not enough could be freed; less and less often while it stays so."""
        if freed >= wanted:
            self._silence = self._silent_until = 0.0
            return
        text = (
            f"Failed to garbage collect required amount of images. Attempted to free {wanted} "
            f"bytes, but only found {freed} bytes eligible to free."
        )
        now = anyio.current_time()
        again = now < self._silent_until and not freed
        if not again:
            self._silence = min(max(2 * self._silence, self.policy.period), LONGEST_SILENCE)
            self._silent_until = now + self._silence
            self.events.node_event("Warning", "FreeDiskSpaceFailed", text)
        if not failures:
            raise ImageGCError(text, again=again)

    async def _usage(self) -> FsUsage:
        usage = await self.disk.usage()
        if usage.capacity <= 0:
            text = "invalid capacity 0 on image filesystem"
            self.events.node_event("Warning", "InvalidDiskCapacity", text)
            raise ImageGCError(text)
        return usage

    def _too_old(self, now: float) -> list[DoomedImage]:
        began = self._began
        if began is not None and now - began <= self.policy.max_age:
            return []
        return self._spare(too_old(self.records.values(), self.policy, now))

    def _for_space(self, now: float) -> list[DoomedImage]:
        return self._spare(for_space(self.records.values(), self.policy, now))

    def _spare(self, doomed: Iterable[DoomedImage]) -> list[DoomedImage]:
        """Without what may be the image of sandboxes, when the runtime does not say which it is."""
        if self._sandbox_images:
            return list(doomed)
        return [d for d in doomed if not any(map(looks_like_one, d.image.names))]

    async def _remove(
        self, doomed: Sequence[DoomedImage], wanted: int | None = None
    ) -> tuple[int, list[str]]:
        freed, failures = 0, []
        for each in doomed:
            if wanted is not None and freed >= wanted:
                break
            image = each.image
            name = (*image.names, image.id)[0]
            try:
                await self.images.remove_image(v1.ImageSpec(image=image.id))
            except RpcError as error:
                failures.append(f"{name}: {describe(error)}")
                continue
            freed += image.size
            self.records.pop(image.id, None)
            self.metrics.images_collected.labels(each.reason).inc()
            self.journal.record(
                "runtime", "ImageCollected", "", each.why, image=name, bytes=image.size
            )
            self._log.info("image_removed", image=name, bytes=image.size, cause=each.why)
        return freed, failures


def images_in_use(pods: Iterable[Pod], others: Iterable[str]) -> set[str]:
    """Names and ids of images that are in use although no container says so.

    Args:
        pods: desired pods; their image volumes count.
        others: what else is.
    """
    volumes = (v.image.reference for pod in pods for v in pod.spec.volumes if v.image is not None)
    return {name for name in (*volumes, *others) if name}


def seen_image(image: v1.Image) -> SeenImage:
    """An image from a list."""
    return SeenImage(image.id, (*image.repo_tags, *image.repo_digests), image.size, image.pinned)


def _joined(texts: Sequence[str]) -> str:
    return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
