"""A listener that writes down what a feed tells."""

from __future__ import annotations

import anyio

from nodeagent.cri import ContainerEventFeed, RuntimeHint

OPENED = "opened"


class Recorder:
    """``told`` holds hints, ``OPENED``, and the cause of each interruption, in order."""

    def __init__(self) -> None:
        self.told: list[RuntimeHint | str] = []

    @property
    def hints(self) -> list[RuntimeHint]:
        return [entry for entry in self.told if isinstance(entry, RuntimeHint)]

    def feed_opened(self) -> None:
        self.told.append(OPENED)

    def feed_interrupted(self, cause: str) -> None:
        self.told.append(cause)

    def feed_hint(self, hint: RuntimeHint) -> None:
        self.told.append(hint)


async def listen(feed: ContainerEventFeed, seconds: float) -> Recorder:
    """What the feed tells in that time."""
    recorder = Recorder()
    with anyio.move_on_after(seconds):
        await feed.run(recorder)
    return recorder
