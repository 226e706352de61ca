"""Which images may go (docs/behaviour/garbage.md, "Images"). Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from nodeagent.api.images import parse_image
from nodeagent.duration import format_duration
from nodeagent.runtime.keyring import repository

FULL: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageGCPolicy:
    """When images go.

    Attributes:
        high_percent: usage of the image file system at which images are removed; 100 for never.
        low_percent: usage down to which they are.
        min_age: seconds that an image is left alone after it was first seen.
        max_age: seconds without use after which an image goes whatever the disk; 0 for never.
        period: seconds between two collections.
    """

    high_percent: int = 85
    low_percent: int = 80
    min_age: float = 120.0
    max_age: float = 0.0
    period: float = 300.0

    @property
    def off(self) -> bool:
        """Whether no image would ever go."""
        return self.high_percent >= FULL and self.max_age <= 0


@dataclass(frozen=True, slots=True)
class SeenImage:
    """An image as the runtime lists it.

    Attributes:
        id: its id.
        names: tags and digests that it goes by.
        size: bytes.
        pinned: the runtime says that it must stay.
    """

    id: str
    names: tuple[str, ...] = ()
    size: int = 0
    pinned: bool = False


@dataclass(frozen=True, slots=True)
class ImageRecord:
    """What is known of an image.

    Attributes:
        image: as it was listed last.
        first_seen: loop time at which it was first listed.
        last_used: loop time at which something used it last; None for never.
        in_use: something uses it now.
    """

    image: SeenImage
    first_seen: float
    last_used: float | None = None
    in_use: bool = False


@dataclass(frozen=True, slots=True)
class DoomedImage:
    """An image that goes, and why."""

    image: SeenImage
    why: str
    reason: str
    """``age`` or ``space``, for the metric."""


def full_reference(name: str) -> str:
    """An image's name as runtimes list it: ``busybox`` is ``docker.io/library/busybox:latest``."""
    parsed = parse_image(name)
    if parsed is None:
        return name
    if parsed.digest:
        return f"{repository(name)}@{parsed.digest}"
    return f"{repository(name)}:{parsed.tag or 'latest'}"


def used(image: SeenImage, uses: Collection[str]) -> bool:
    """Whether an image goes by one of these ids or full names."""
    return image.id in uses or any(name in uses for name in image.names)


def detect(
    known: Mapping[str, ImageRecord],
    images: Iterable[SeenImage],
    uses: Collection[str],
    now: float,
) -> dict[str, ImageRecord]:
    """What is known of all images after a look at them.

    Args:
        known: what was known before, by id.
        images: all images there are.
        uses: ids and full names of what is in use.
        now: loop time of the look.
    """
    found: dict[str, ImageRecord] = {}
    for image in images:
        record = known.get(image.id) or ImageRecord(image, now)
        in_use = used(image, uses)
        last = now if in_use else record.last_used
        found[image.id] = replace(record, image=image, last_used=last, in_use=in_use)
    return found


def usage_percent(capacity: int, available: int) -> int:
    """How full a file system is; what an ordinary user cannot have counts as taken."""
    return FULL - available * FULL // capacity


def bytes_to_free(capacity: int, available: int, policy: ImageGCPolicy) -> int:
    """How many bytes of images have to go; 0 when the file system is not full enough."""
    if policy.high_percent >= FULL or usage_percent(capacity, available) < policy.high_percent:
        return 0
    return capacity * (FULL - policy.low_percent) // FULL - available


def too_old(records: Iterable[ImageRecord], policy: ImageGCPolicy, now: float) -> list[DoomedImage]:
    """The images that nothing has used for the longest time that is allowed, oldest first.

    Args:
        records: what is known of the images.
        policy: the longest time.
        now: loop time; one that never was in use is judged by it too.
    """
    if policy.max_age <= 0:
        return []
    return [
        DoomedImage(record.image, _unused(record, now), "age")
        for record in _unused_first(records)
        if record.last_used is None or now - record.last_used > policy.max_age
    ]


def for_space(
    records: Iterable[ImageRecord], policy: ImageGCPolicy, now: float
) -> list[DoomedImage]:
    """The images that may go when space is needed: those unused for longest first."""
    return [
        DoomedImage(record.image, _unused(record, now), "space")
        for record in _unused_first(records)
        if now - record.first_seen >= policy.min_age
        and (record.last_used is None or record.last_used < now)
    ]


def enough(doomed: Sequence[DoomedImage], wanted: int) -> list[DoomedImage]:
    """The first of these images that together free as many bytes; all when they do not."""
    chosen: list[DoomedImage] = []
    freed = 0
    for each in doomed:
        if freed >= wanted:
            break
        chosen.append(each)
        freed += each.image.size
    return chosen


def _unused_first(records: Iterable[ImageRecord]) -> list[ImageRecord]:
    idle = [r for r in records if not r.in_use and not r.image.pinned]
    never = float("-inf")

    def unused_since(record: ImageRecord) -> tuple[float, float, str]:
        last = never if record.last_used is None else record.last_used
        # The id, since runtimes list images in any order: what is foretold is what goes.
        return last, record.first_seen, record.image.id

    return sorted(idle, key=unused_since)


def _unused(record: ImageRecord, now: float) -> str:
    if record.last_used is None:
        return "never in use"
    return f"unused for {format_duration(round(now - record.last_used))}"
