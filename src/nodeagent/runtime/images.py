"""Making sure that a container's image is there (docs/behaviour/images.md)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import anyio

from nodeagent.api import Container, Pod
from nodeagent.api.images import parse_image
from nodeagent.clock import Clock
from nodeagent.duration import format_duration
from nodeagent.journal import Journal
from nodeagent.log import Log
from nodeagent.model import PodUID
from nodeagent.proto.runtime import v1
from nodeagent.rpc import Code, RpcError
from nodeagent.runtime.backoff import BackOff
from nodeagent.runtime.credentials import Credential, ImageCredentials, Owner
from nodeagent.runtime.errors import ContainerStartError, Waiting, describe
from nodeagent.runtime.events import EventType, PodEvents
from nodeagent.runtime.image_pulls import (
    OnNote,
    PullQueue,
    PullTimes,
    UsedBytes,
    no_note,
    unknown_use,
)
from nodeagent.runtime.keyring import repository
from nodeagent.runtime.metrics import RuntimeMetrics, size_bucket
from nodeagent.runtime.names import field_path
from nodeagent.runtime.pull_records import PullRecords
from nodeagent.runtime.services import ImagePuller
from nodeagent.runtime.settings import ImageSettings

_ALWAYS = "Always"
_NEVER = "Never"
_RECENT = 120.0
"""Seconds for which an image that was asked for counts as in use."""
_SETTLING = 2.0
"""Seconds that a pull which was cut may take to be noted as such."""


_IN_WORDS: Final[Mapping[Waiting, str]] = {
    Waiting.REGISTRY: "the registry is unavailable",
    Waiting.SIGNATURE: "the signature validation failed",
}
"""Failures that a runtime names by the first word of its text."""


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
        image: the image as the spec names it.
        policy: the pull policy.
        container: name of the container; "" for an image that is a volume.
        sandbox: the pod's sandbox, for the runtime.
    """

    pod: Pod
    image: str
    policy: str
    container: str
    sandbox: v1.PodSandboxConfig | None = None

    @classmethod
    def of(
        cls, pod: Pod, container: Container, sandbox: v1.PodSandboxConfig | None = None
    ) -> ImageRequest:
        """What a container of a pod wants."""
        return cls(pod, container.image, container.image_pull_policy, container.name, sandbox)

    @property
    def key(self) -> str:
        """Whose pull back-off it is."""
        return f"{self.pod.metadata.uid}_{self.image}"


@dataclass(frozen=True, slots=True)
class ImageAccess:
    """What decides who may have which image.

    Attributes:
        credentials: finds what images are pulled with; None pulls anonymously.
        records: who has shown a right to which image; None lets every pod use what is there.
        used_bytes: tells how full the image file system is.
    """

    credentials: ImageCredentials | None = None
    records: PullRecords | None = None
    used_bytes: UsedBytes = unknown_use


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
        access: who may have which image.
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
        access: ImageAccess | None = None,
    ) -> None:
        access = access or ImageAccess()
        self._images = images
        self._events = events
        self._journal = journal
        self._metrics = metrics
        self._log = Log("runtime.images")
        self._credentials = access.credentials or ImageCredentials(events)
        self._records = access.records
        self.back_off = BackOff(settings.back_off_initial, settings.back_off_cap)
        self._last_errors: dict[str, ContainerStartError] = {}
        self._recent: dict[str, float] = {}
        self.pulls = PullQueue(
            settings=settings,
            journal=journal,
            clock=clock,
            on_note=on_note,
            used_bytes=access.used_bytes,
        )

    async def ensure(self, request: ImageRequest) -> EnsuredImage:
        """Return once the image is present; pulls it if its policy says so.

        Raises:
            ContainerStartError: it is not, and why; ``until`` is set in back-off.
        """
        ensured = await self._ensure(request)
        self._recent[ensured.ref] = anyio.current_time()
        return ensured

    async def _ensure(self, request: ImageRequest) -> EnsuredImage:
        present, required = "unknown", "unknown"
        try:
            name = self._full_name(request)
            found = None if request.policy == _ALWAYS else await self._inspect(request, name)
            if request.policy != _ALWAYS:
                present = "true" if found is not None else "false"
            if found is not None and await self._may_use(request, name, found.id):
                required = "false"
                self._say(
                    request,
                    "Normal",
                    "Pulled",
                    f'Container image "{request.image}" already present on machine '
                    "and can be accessed by the pod",
                )
                return EnsuredImage(found.id, found)
            required = "true"
            if request.policy == _NEVER:
                raise self._never(request, found is not None)
        finally:
            self._metrics.ensure_image_requests.labels(
                request.policy.lower(), present, required
            ).inc()
        self._check_back_off(request)
        return await self._pull(request, name)

    def recent(self) -> frozenset[str]:
        """Ids of images that were asked for a moment ago: containers are being made of them."""
        since = anyio.current_time() - _RECENT
        self._recent = {ref: at for ref, at in self._recent.items() if at >= since}
        return frozenset(self._recent)

    async def _may_use(self, request: ImageRequest, name: str, ref: str) -> bool:
        if self._records is None:
            return True

        async def rights() -> tuple[Sequence[Credential], Sequence[Owner]]:
            logins = await self._credentials.of_pod(request.pod)
            place = repository(name)
            accounts = await self._credentials.accounts(request.pod, place)
            return self._credentials.from_secrets(logins, place), accounts

        return await self._records.may_use(name, ref, rights)

    def _never(self, request: ImageRequest, present: bool) -> ContainerStartError:
        message = f'Container image "{request.image}" is not present with pull policy of Never'
        if present:
            message = (
                f'Container image "{request.image}" is present, but the pod has not shown a '
                "right to it, and with pull policy of Never it cannot"
            )
        self._say(request, "Warning", "ErrImageNeverPull", message)
        return ContainerStartError(Waiting.IMAGE_NEVER, message)

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
            message = f'Failed to inspect image "{request.image}": {with_code(error)}'
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
        pulled: list[str] = []

        async def pull() -> None:
            pulled.append(await self._pull_recorded(request, name))

        try:
            times = await self.pulls.run(request.pod, request.container, request.image, pull)
        except ContainerStartError as error:
            raise self._failed(request, error, anyio.current_time() - asked) from error.__cause__
        image = await self._inspect(request, pulled[0])
        self._succeeded(request, image, times)
        return EnsuredImage(pulled[0], image)

    async def _pull_recorded(self, request: ImageRequest, name: str) -> str:
        """Pull, and leave on disk that it is tried, and who has shown a right to it."""
        records = self._records
        if records is None:
            return (await self._pull_by_credentials(request, name))[0]
        try:
            await records.intend(name)
        except OSError as error:
            message = f"the pull cannot be noted in {records.directory}: {error.strerror}"
            raise ContainerStartError(Waiting.IMAGE_PULL, message) from error
        try:
            ref, credential = await self._pull_by_credentials(request, name)
        except BaseException:
            with anyio.move_on_after(_SETTLING, shield=True):
                await records.failed(name)
            raise
        try:
            await records.pulled(name, ref, credential)
        except OSError as error:
            # The intent stays: without a record the next pod has to show its right.
            self._log.warning("pull_not_recorded", image=name, cause=error.strerror)
        return ref

    async def _pull_by_credentials(
        self, request: ImageRequest, name: str
    ) -> tuple[str, Credential]:
        logins = await self._credentials.of_pod(request.pod)
        failures: list[str] = []
        for credential in await self._credentials.candidates(request.pod, logins, repository(name)):
            try:
                ref = await self._images.pull_image(
                    self._spec(request, name), credential.auth, request.sandbox
                )
            except RpcError as error:
                failures.append(pull_text(error))
            else:
                return ref, credential
        texts = list(dict.fromkeys((*failures, *logins.malformed)))
        message = texts[0] if len(texts) == 1 else "[" + ", ".join(texts) + "]"
        raise ContainerStartError(_pull_reason(message), message)

    def _failed(
        self, request: ImageRequest, error: ContainerStartError, waited: float
    ) -> ContainerStartError:
        """Tell of a pull that failed; returns the error as the container shows it."""
        now = anyio.current_time()
        self.back_off.advance(request.key, now)
        message = f'Failed to pull image "{request.image}": {error.message}'
        self._say(request, "Warning", "Failed", message)
        self._record(request, "ImagePullFailed", message, waited)
        shown = self._last_errors[request.key] = _in_words(request, error)
        return shown

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
        self.pulls.forget_pod(PodUID(uid))

    def _say(self, request: ImageRequest, kind: EventType, reason: str, message: str) -> None:
        path = field_path(request.pod, request.container)
        self._events.event(request.pod, kind, reason, message, path)

    def _record(self, request: ImageRequest, what: str, why: str, duration: float) -> None:
        self._journal.record(
            "runtime",
            what,
            request.pod.metadata.uid,
            why,
            duration,
            container=request.container,
            image=request.image,
        )


def _milliseconds(seconds: float) -> str:
    return format_duration(round(seconds * 1e6) // 1000 / 1000)


def pull_text(error: RpcError) -> str:
    """A failed pull in the words that the kubelet has for it: with the code, if it is known."""
    return describe(error) if error.code is Code.UNKNOWN else with_code(error)


def with_code(error: RpcError) -> str:
    """The runtime's words after the code that it gave."""
    code = "Canceled" if error.code is Code.CANCELLED else type(error).__name__
    return f"rpc error: code = {code} desc = {describe(error)}"


def _in_words(request: ImageRequest, error: ContainerStartError) -> ContainerStartError:
    """The error as the container shows it: what the runtime named by a word stands in words."""
    words = _IN_WORDS.get(error.reason, "")
    if not words:
        return error
    rest = error.message.removeprefix(error.reason.value)
    message = f"image pull failed for {request.image} because {words}{rest}"
    return ContainerStartError(error.reason, message, error.until)


def _pull_reason(text: str) -> Waiting:
    for reason in _IN_WORDS:
        if text.startswith(reason.value):
            return reason
    return Waiting.IMAGE_PULL
