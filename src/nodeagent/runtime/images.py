"""Making sure that a container's image is there (docs/behaviour/images.md)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import anyio

from nodeagent.api import Container, Pod
from nodeagent.api.images import parse_image
from nodeagent.clock import Clock
from nodeagent.duration import format_duration
from nodeagent.journal import Journal
from nodeagent.proto.runtime import v1
from nodeagent.rpc import RpcError
from nodeagent.runtime.backoff import BackOff
from nodeagent.runtime.errors import ContainerStartError, Waiting, describe
from nodeagent.runtime.events import EventType, PodEvents
from nodeagent.runtime.image_pulls import OnNote, PullQueue, PullTimes, no_note
from nodeagent.runtime.metrics import RuntimeMetrics, size_bucket
from nodeagent.runtime.names import field_path
from nodeagent.runtime.services import ImagePuller
from nodeagent.runtime.settings import ImageSettings

_ALWAYS = "Always"
_NEVER = "Never"


@dataclass(frozen=True, slots=True)
class EnsuredImage:
    """An image that is present.

    Attributes:
        ref: how the runtime identifies it.
        image: what the runtime says about it, None when it says nothing.
    """

    ref: str
    image: v1.Image | None


@dataclass(frozen=True, slots=True)
class ImageRequest:
    """Whose image is wanted.

    Attributes:
        pod: the pod; events are about it.
        container: gives image and pull policy.
        sandbox: the pod's sandbox, for the runtime.
        credentials: tried in order; none means one anonymous pull.
    """

    pod: Pod
    container: Container
    sandbox: v1.PodSandboxConfig
    credentials: Sequence[v1.AuthConfig] = ()

    @property
    def image(self) -> str:
        """The image as the spec names it."""
        return self.container.image

    @property
    def key(self) -> str:
        """Whose pull back-off it is."""
        return f"{self.pod.metadata.uid}_{self.image}"


class ImageManager:
    """Pulls images by policy, with back-off after failures.

    Args:
        images: the image service.
        settings: how images are pulled.
        events: where events go.
        journal: the flight recorder.
        metrics: counters.
        clock: wall time, for what is shown.
        on_note: told when what a container waits for has changed.
    """

    def __init__(
        self,
        images: ImagePuller,
        settings: ImageSettings,
        *,
        events: PodEvents,
        journal: Journal,
        metrics: RuntimeMetrics,
        clock: Clock,
        on_note: OnNote = no_note,
    ) -> None:
        self._images = images
        self._events = events
        self._journal = journal
        self._metrics = metrics
        self.back_off = BackOff(settings.back_off_initial, settings.back_off_cap)
        self._last_errors: dict[str, ContainerStartError] = {}
        self.pulls = PullQueue(settings=settings, journal=journal, clock=clock, on_note=on_note)

    async def ensure(self, request: ImageRequest) -> EnsuredImage:
        """Return once the image is present; pulls it if its policy says so.

        Raises:
            ContainerStartError: it is not, and why; ``until`` is set in back-off.
        """
        name = self._full_name(request)
        policy = request.container.image_pull_policy
        if policy != _ALWAYS:
            present = await self._inspect(request, name)
            if present is not None:
                self._say(
                    request,
                    "Normal",
                    "Pulled",
                    f'Container image "{request.image}" already present on machine '
                    "and can be accessed by the pod",
                )
                return EnsuredImage(present.id, present)
            if policy == _NEVER:
                message = (
                    f'Container image "{request.image}" is not present with pull policy of Never'
                )
                self._say(request, "Warning", "ErrImageNeverPull", message)
                raise ContainerStartError(Waiting.IMAGE_NEVER, message)
        self._check_back_off(request)
        return await self._pull(request, name)

    def _full_name(self, request: ImageRequest) -> str:
        parsed = parse_image(request.image)
        if parsed is None:
            message = (
                f'Failed to apply default image tag "{request.image}": '
                f'couldn\'t parse image name "{request.image}": invalid reference format'
            )
            self._say(request, "Warning", "InspectFailed", message)
            raise ContainerStartError(Waiting.IMAGE_NAME, message)
        return request.image if parsed.tag or parsed.digest else f"{request.image}:latest"

    def _spec(self, request: ImageRequest, name: str) -> v1.ImageSpec:
        annotations = dict(request.pod.metadata.annotations)
        return v1.ImageSpec(image=name, annotations=annotations)

    async def _inspect(self, request: ImageRequest, name: str) -> v1.Image | None:
        try:
            reply = await self._images.image_status(self._spec(request, name))
        except RpcError as error:
            message = f'Failed to inspect image "{request.image}": {describe(error)}'
            self._say(request, "Warning", "InspectFailed", message)
            raise ContainerStartError(Waiting.IMAGE_INSPECT, message) from error
        return reply.image

    def _check_back_off(self, request: ImageRequest) -> None:
        until = self.back_off.until(request.key)
        if until is None or anyio.current_time() >= until:
            return
        message = f'Back-off pulling image "{request.image}"'
        self._say(request, "Normal", "BackOff", message)
        last = self._last_errors.get(request.key)
        if last is not None:
            message += f": {last.reason}: {last.message}"
        raise ContainerStartError(Waiting.IMAGE_BACK_OFF, message, until)

    async def _pull(self, request: ImageRequest, name: str) -> EnsuredImage:
        asked = anyio.current_time()
        self._say(request, "Normal", "Pulling", f'Pulling image "{request.image}"')
        ref = ""

        async def pull() -> None:
            nonlocal ref
            ref = await self._pull_by_credentials(request, name)

        try:
            times = await self.pulls.run(request.pod, request.container.name, request.image, pull)
        except ContainerStartError as error:
            self._failed(request, error, anyio.current_time() - asked)
            raise
        image = await self._inspect(request, ref)
        self._succeeded(request, image, times)
        return EnsuredImage(ref, image)

    async def _pull_by_credentials(self, request: ImageRequest, name: str) -> str:
        failures: list[str] = []
        for credential in request.credentials or (None,):
            try:
                return await self._images.pull_image(
                    self._spec(request, name), credential, request.sandbox
                )
            except RpcError as error:
                failures.append(describe(error))
        text = failures[0] if len(failures) == 1 else "[" + ", ".join(failures) + "]"
        raise ContainerStartError(_pull_reason(failures[0]), text)

    def _failed(self, request: ImageRequest, error: ContainerStartError, waited: float) -> None:
        now = anyio.current_time()
        self.back_off.advance(request.key, now)
        self._last_errors[request.key] = error
        message = f'Failed to pull image "{request.image}": {error.message}'
        self._say(request, "Warning", "Failed", message)
        self._record(request, "ImagePullFailed", message, waited)

    def _succeeded(self, request: ImageRequest, image: v1.Image | None, times: PullTimes) -> None:
        self.forget((request.key,))
        size = image.size if image is not None else 0
        self._metrics.image_pull_duration.labels(size_bucket(size)).observe(times.took)
        self._say(
            request,
            "Normal",
            "Pulled",
            f'Successfully pulled image "{request.image}" in {_milliseconds(times.took)} '
            f"({_milliseconds(times.waited)} including waiting). Image size: {size} bytes.",
        )
        self._record(request, "ImagePulled", request.image, times.waited)

    def forget(self, keys: Sequence[str]) -> None:
        """Drop pull back-offs and their errors."""
        self.back_off.forget(keys)
        for key in keys:
            self._last_errors.pop(key, None)

    def forget_pod(self, uid: str) -> None:
        """Drop all that concerns one pod."""
        self.forget([key for key in self._last_errors if key.startswith(f"{uid}_")])

    def _say(self, request: ImageRequest, kind: EventType, reason: str, message: str) -> None:
        path = field_path(request.pod, request.container.name)
        self._events.event(request.pod, kind, reason, message, path)

    def _record(self, request: ImageRequest, what: str, why: str, duration: float) -> None:
        self._journal.record(
            "runtime",
            what,
            request.pod.metadata.uid,
            why,
            duration,
            container=request.container.name,
            image=request.image,
        )


def _milliseconds(seconds: float) -> str:
    return format_duration(int(seconds * 1000) / 1000)


def _pull_reason(text: str) -> Waiting:
    for reason in (Waiting.REGISTRY, Waiting.SIGNATURE):
        if text.startswith(reason.value):
            return reason
    return Waiting.IMAGE_PULL
