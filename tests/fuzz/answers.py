"""A whole agent on a runtime that answers at random: wrong, damaged, too much, too little.

Nothing may be raised in the agent that is not an answer of the runtime, and when the runtime
answers as it should again, every pod runs, once.
"""

from __future__ import annotations

import logging
import tempfile
import traceback
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from random import Random
from typing import Any, Final, TypeVar

import anyio
from tests.fuzz.wire import odd

from nodeagent.agent import NodeAgent
from nodeagent.config import AgentConfig
from nodeagent.cri.pods import PodLister
from nodeagent.embedded import Embedded, Script, SimulatedBackend, open_embedded
from nodeagent.embedded.records import RunState
from nodeagent.model import SyncError
from nodeagent.pods.housekeeping import Housekeeping
from nodeagent.pods.sync import PodSync
from nodeagent.proto.runtime import v1
from nodeagent.rpc import DeadlineExceeded, Internal, Message, NotFound, RpcError, Unavailable
from nodeagent.runtime.gc import ContainerGC
from nodeagent.testing import MemorySource, make_container, make_pod

M = TypeVar("M", bound=Message)

_LISTS: Final = (
    "list_pod_sandbox", "stream_pod_sandboxes", "list_containers", "stream_containers",
    "list_images", "stream_images",
)  # fmt: skip
_ANSWERS: Final = (
    "status", "pod_sandbox_status", "container_status", "image_status", "image_fs_info",
    "runtime_config", "exec_sync",
)  # fmt: skip
_IDS: Final = ("run_pod_sandbox", "create_container", "pull_image")
_ERRORS: Final[Sequence[Callable[[str, str], RpcError]]] = (
    Internal, NotFound, Unavailable, DeadlineExceeded,
)  # fmt: skip
_CONVERGE: Final = 1500.0
"""Longer than the longest back-off and a pass of garbage collection."""


class Odd:
    """A runtime service that now and then answers oddly.

    Args:
        service: the service behind it.
        rng: what happens.
    """

    def __init__(self, service: Any, rng: Random) -> None:
        self._service = service
        self._rng = rng
        self.share = 0.0
        """How many of the answers are odd."""

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._service, name)
        if name in _LISTS:
            return self._listing(name, real)
        if name in _ANSWERS:
            return self._answering(name, real)
        if name in _IDS:
            return self._naming(name, real)
        return real

    def _now(self) -> bool:
        return self._rng.random() < self.share

    def _fail_sometimes(self, method: str) -> None:
        if self._now() and self._rng.random() < 0.2:
            raise self._rng.choice(_ERRORS)("fuzz", method)

    def _answering(self, name: str, real: Any) -> Any:
        async def call(*args: Any, **kwargs: Any) -> Any:
            self._fail_sometimes(name)
            answer = await real(*args, **kwargs)
            return odd(self._rng, answer, self._rng.randrange(1, 4)) if self._now() else answer

        return call

    def _naming(self, name: str, real: Any) -> Any:
        async def call(*args: Any, **kwargs: Any) -> Any:
            self._fail_sometimes(name)
            answer = await real(*args, **kwargs)
            if self._now():
                if self._rng.random() < 0.5:
                    raise self._rng.choice(_ERRORS)("done, and not told", name)
                return self._rng.choice(["", "x", "\0", answer + answer])
            return answer

        return call

    def _listing(self, name: str, real: Any) -> Any:
        async def call(*args: Any, **kwargs: Any) -> Any:
            self._fail_sometimes(name)
            items = list(await real(*args, **kwargs))
            return self._list(items) if self._now() else items

        return call

    def _list(self, items: list[M]) -> list[M]:
        rng = self._rng
        found: list[M] = []
        for item in items:
            match rng.randrange(6):
                case 0:
                    continue
                case 1:
                    found.append(item)
                    found.append(odd(rng, item))
                case 2:
                    found.append(odd(rng, item, rng.randrange(1, 5)))
                case _:
                    found.append(item)
        rng.shuffle(found)
        return found

    @asynccontextmanager
    async def get_container_events(self) -> AsyncIterator[AsyncIterator[v1.ContainerEventResponse]]:
        """Events of which some are odd, lost or told twice."""
        async with self._service.get_container_events() as events:
            yield self._events(events)

    async def _events(
        self, events: AsyncIterator[v1.ContainerEventResponse]
    ) -> AsyncIterator[v1.ContainerEventResponse]:
        async for event in events:
            if not self._now():
                yield event
                continue
            for _ in range(self._rng.randrange(3)):
                yield odd(self._rng, event, 2)


class Faults:
    """What was raised that should not have been."""

    def __init__(self) -> None:
        self.found: list[str] = []

    def note(self, where: str, error: BaseException) -> None:
        # A name that the runtime tells may be none that a file can have.
        expected = (RpcError, SyncError, OSError)
        if isinstance(error, Exception) and not isinstance(error, (*expected, ExceptionGroup)):
            text = "".join(traceback.format_exception(error))
            self.found.append(f"{where} raised {error!r}\n{text}")


_WATCHED: Final[Sequence[tuple[type[Any], Sequence[str]]]] = (
    (PodSync, ("sync_pod", "sync_terminating_pod", "sync_terminating_runtime_pod",
               "sync_terminated_pod")),
    (PodLister, ("list_pods", "get_pod", "inspect", "has_ended")),
    (Housekeeping, ("sweep", "_clean_up")),
    (ContainerGC, ("collect", "remove_container")),
)  # fmt: skip


@contextmanager
def watched() -> Iterator[Faults]:
    """Take note of what these methods raise, which the ring would only log."""
    faults = Faults()
    listener = _Listener(faults)
    logger = logging.getLogger("nodeagent")
    logger.addHandler(listener)
    kept = []
    for owner, names in _WATCHED:
        for name in names:
            if not hasattr(owner, name):
                continue
            kept.append((owner, name, getattr(owner, name)))
            setattr(owner, name, _noting(faults, f"{owner.__name__}.{name}", getattr(owner, name)))
    try:
        yield faults
    finally:
        logger.removeHandler(listener)
        for owner, name, real in kept:
            setattr(owner, name, real)


class _Listener(logging.Handler):
    """Hears of the faults that the agent has caught and logged with a traceback."""

    def __init__(self, faults: Faults) -> None:
        super().__init__()
        self._faults = faults

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info is not None and record.exc_info[1] is not None:
            self._faults.note(record.getMessage(), record.exc_info[1])


def _noting(faults: Faults, where: str, real: Any) -> Any:
    async def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return await real(*args, **kwargs)
        except Exception as error:
            faults.note(where, error)
            raise

    return call


class _Ring:
    """An agent, its runtime, and what happens to them."""

    def __init__(self, rng: Random, agent: NodeAgent, runtime: Embedded, source: MemorySource):
        self._rng = rng
        self._agent = agent
        self._runtime = runtime
        self._source = source
        backend = runtime.core.backend
        assert isinstance(backend, SimulatedBackend)
        self._backend = backend
        self._wanted = {f"p{n}": make_pod(f"p{n}") for n in range(rng.randrange(1, 4))}
        source.set(*self._wanted.values())

    def step(self) -> None:
        """Let something happen."""
        name = f"p{self._rng.randrange(4)}"
        match self._rng.randrange(4):
            case 0:
                self._wanted.pop(name, None)
            case 1:
                self._wanted[name] = make_pod(name)
            case 2:
                image = self._rng.choice(["busybox:1", "busybox:2"])
                sidecar = make_container("side", image="busybox")
                self._wanted[name] = make_pod(name, make_container("main", image=image), sidecar)
            case _:
                running = [
                    c
                    for c in self._runtime.core.state.containers.values()
                    if c.state is RunState.RUNNING
                ]
                if running:
                    self._backend.end(self._rng.choice(running), 1)
        self._source.set(*self._wanted.values())

    def astray(self) -> str:
        """What is not as it is wanted, "" when all is."""
        running = Counter(
            (c.config.labels["io.kubernetes.pod.name"], c.config.labels[_NAME])
            for c in self._runtime.core.state.containers.values()
            if c.state is RunState.RUNNING
        )
        wanted = {(n, c.name): 1 for n, pod in self._wanted.items() for c in pod.spec.containers}
        if running != wanted:
            return f"running {dict(running)}, wanted {wanted}"
        phases = {pod.metadata.name: pod.status.phase for pod in self._agent.pods()}
        if set(phases) != set(self._wanted) or any(p != "Running" for p in phases.values()):
            return f"phases {phases}"
        return ""

    def story(self) -> str:
        """What happened last to each pod."""
        lines = []
        for name in sorted(self._wanted):
            for record in self._agent.journal.select(f"default/{name}")[-_STORY:]:
                what = f"{record.at:.2f} {name} {record.component} {record.what} {record.why}"
                lines.append(f"{what} {record.fields or ''}")
        return "\n".join(lines)


_STORY: Final = 25
"""Records of each pod that are told when it has not recovered."""
_NAME: Final = "io.kubernetes.container.name"


async def fuzz_answers(rng: Random) -> None:
    """Let a runtime answer at random for a while, then as it should.

    Raises:
        AssertionError: something was raised in the agent, or it has not recovered.
    """
    with watched() as faults, tempfile.TemporaryDirectory(prefix="nodeagent-fuzz-") as root:
        async with open_embedded(SimulatedBackend(default=Script())) as runtime:
            services = [Odd(runtime.runtime, rng), Odd(runtime.images, rng)]
            await _run(rng, runtime, services, Path(root))
        assert not faults.found, "\n".join(faults.found[:3])


async def _run(rng: Random, runtime: Embedded, services: list[Odd], root: Path) -> None:
    config = AgentConfig(
        root_dir=root / "root", pod_logs_dir=root / "logs", node_name="n1", node_ip="10.0.0.1"
    )
    source = MemorySource()
    calls: Any = services[0]
    images: Any = services[1]
    async with NodeAgent(config, runtime=calls, images=images, sources=[source]) as agent:
        ring = _Ring(rng, agent, runtime, source)
        await anyio.sleep(rng.choice([0.0, 5.0]))
        for service in services:
            service.share = rng.choice([0.02, 0.1, 0.5, 0.9])
        for _ in range(rng.randrange(2, 8)):
            ring.step()
            await anyio.sleep(rng.choice([0.1, 1.0, 5.0, 20.0]))
        for service in services:
            service.share = 0.0
        with anyio.move_on_after(_CONVERGE):
            while ring.astray():
                await anyio.sleep(1.0)
        assert not ring.astray(), f"after {_CONVERGE:g} s: {ring.astray()}\n{ring.story()}"
