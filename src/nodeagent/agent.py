"""The composition root: builds the parts from a configuration and runs them as one.

Nesting is the shutdown order: sources end first, then the ring, then what the ring stands on
(docs/architecture.md, "Start and stop").
"""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Self

import anyio
from anyio import to_thread
from msgspec.structs import replace as replace_struct
from prometheus_client import CollectorRegistry

from nodeagent.api import Pod
from nodeagent.clock import Clock, SystemClock
from nodeagent.cluster import open_link
from nodeagent.config import AgentConfig, ConfigError
from nodeagent.config.reload import Changes, LiveSettings, compare, merged
from nodeagent.config.report import ConfigReport
from nodeagent.cri import ImageService, RuntimeService
from nodeagent.errors import StartError
from nodeagent.intake import WatchedSource
from nodeagent.journal import Journal
from nodeagent.kube import KubeClients
from nodeagent.log import Log
from nodeagent.model import PodUID
from nodeagent.node import host_address
from nodeagent.node.capacity import reservation_problem
from nodeagent.node.machine import MachineInfo, read_machine
from nodeagent.objects import StandaloneObjects
from nodeagent.parts import Parts
from nodeagent.runtime.image_wiring import CredentialFiles, read_credential_files
from nodeagent.runtime.settings import detect_host
from nodeagent.runtime_access import open_runtime
from nodeagent.sources import Source
from nodeagent.watch import Watch, watched
from nodeagent.wiring import build_parts
from nodeagent.wiring.sources import SourceMaker, check_paths

log = Log("agent")


class NodeAgent:
    """The node agent.

    An async context manager: inside the block it runs, in the caller's event loop, without
    global state and without signal handlers. Several may run in one process.

    Args:
        config: settings.
        runtime: a container runtime of the caller's own; None for the configured endpoint.
        images: its images; required with ``runtime``.
        cluster: a connection to an API server of the caller's own; None for the kubeconfig of
            the settings, if there is one.
        sources: further pod sources, next to those of the configuration.
        clock: wall clock, for what is shown.
        registry: where metrics are registered; None for a registry of its own.

    Raises:
        StartError: from entering: the agent cannot start; says why and what to do.

    Attributes:
        config: the settings in force; see Args and :meth:`reconfigure`.
        registry: the metrics.
        journal: the flight recorder; also of an agent that has ended.
        config_report: what is shown of its configuration.
        left_running: UIDs of pods that ``stop_pods_on_exit`` could not stop in time.
    """

    def __init__(
        self,
        config: AgentConfig,
        *,
        runtime: RuntimeService | None = None,
        images: ImageService | None = None,
        cluster: KubeClients | None = None,
        sources: Sequence[Source] = (),
        clock: Clock | None = None,
        registry: CollectorRegistry | None = None,
    ) -> None:
        if (runtime is None) != (images is None):
            raise ValueError("runtime and images must be given together")
        self.config = config
        self.registry = registry or CollectorRegistry()
        self._clock = clock or SystemClock()
        self.journal = Journal(config.journal_size, clock=self._clock)
        watch = Watch(self.journal)
        self._own_runtime = (
            (watched(runtime, watch), watched(images, watch))
            if runtime is not None and images is not None
            else None
        )
        self._own_cluster = cluster
        self._extra_sources = tuple(WatchedSource(source, watch) for source in sources)
        self.left_running: tuple[PodUID, ...] = ()
        self.config_report = ConfigReport()
        self._parts: Parts | None = None
        self._makers: SourceMaker | None = None
        self._machine = MachineInfo()
        self._reconfiguring = anyio.Lock()
        self._stack: AsyncExitStack | None = None

    async def __aenter__(self) -> Self:
        """Start everything; the sources have taken their first look when this returns."""
        if self._stack is not None:
            raise RuntimeError("this NodeAgent runs already")
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._running())
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        tb: TracebackType | None,
    ) -> bool | None:
        """Stop everything; pods go on running unless ``stop_pods_on_exit`` is set."""
        assert self._stack is not None
        stack, self._stack = self._stack, None
        if isinstance(exc, Exception):
            # An error of the caller's block is the caller's: it comes out as it was raised,
            # not inside the exception group of our tasks.
            await stack.__aexit__(None, None, None)
            return False
        return await stack.__aexit__(exc_type, exc, tb)

    async def run(self, stop: anyio.Event | None = None) -> None:
        """Run until cancelled, or until ``stop`` is set."""
        async with self:
            await (stop.wait() if stop is not None else anyio.sleep_forever())

    # -- what embedders ask ------------------------------------------------------------------

    def pods(self) -> list[Pod]:
        """The pods that sources want, with their present status."""
        parts = self._running_parts()
        shown = []
        for pod in parts.manager.get_pods():
            status = parts.statuses.get(PodUID(pod.metadata.uid))
            shown.append(pod if status is None else replace_struct(pod, status=status))
        return shown

    async def reconfigure(self, new: AgentConfig) -> Changes:
        """Take another configuration over, as far as that needs no restart.

        All or nothing of it comes into force; :attr:`config` is what is in force afterwards.

        Returns:
            What was applied, and what waits for a restart.

        Raises:
            ConfigError: the new settings do not go together with those that stay; nothing has
                changed.
        """
        parts = self._running_parts()
        async with self._reconfiguring:
            return await self._reconfigure(parts, new)

    async def _reconfigure(self, parts: Parts, new: AgentConfig) -> Changes:
        changes, config = compare(self.config, new), merged(self.config, new)
        changed = {change.setting for change in changes.applied}
        if trouble := reservation_problem(config, self._machine):
            raise ConfigError("system_reserved", "too much", trouble)
        await to_thread.run_sync(check_paths, config, changed)
        credentials = await self._credential_files(config)
        for change in changes.applied:
            self.journal.record("config", "Applied", "", str(change), setting=change.setting)
        for change in changes.needs_restart:
            self.journal.record("config", "NeedsRestart", "", str(change), setting=change.setting)
        self.config = config
        self.config_report.needs_restart = changes.needs_restart
        parts.settings.change(config)
        parts.set_providers(credentials.providers)
        assert self._makers is not None
        await self._makers.replace(parts, config, changed)
        return changes

    async def _credential_files(self, config: AgentConfig) -> CredentialFiles:
        try:
            return await to_thread.run_sync(read_credential_files, config)
        except StartError as error:
            name = "image_credential_provider_config"
            raise ConfigError(name, getattr(config, name), str(error)) from error

    async def ready(self) -> None:
        """Return when every source has spoken and PLEG has looked at the runtime once."""
        parts = self._running_parts()
        with self.journal.follower(name="") as records:
            while not (parts.sources_ready.all_ready() and parts.pleg.last_relist is not None):
                with anyio.move_on_after(0.5):
                    await records.receive()

    def wall_time(self) -> datetime:
        """The time of day as the agent has it."""
        return self._clock.now()

    @property
    def ports(self) -> dict[str, int]:
        """The ports that are open, by listener: ``healthz``, ``read-only``, ``api``."""
        return dict(self._running_parts().ports)

    @property
    def parts(self) -> Parts:
        """The parts of the running agent, for tools and tests."""
        return self._running_parts()

    def _running_parts(self) -> Parts:
        if self._parts is None:
            raise RuntimeError("this NodeAgent does not run: enter it with 'async with' first")
        return self._parts

    # -- starting and stopping ---------------------------------------------------------------

    @asynccontextmanager
    async def _running(self) -> AsyncIterator[None]:
        """The whole start, in its order; what has started ends in the opposite one.

        The command has read flags and files, set up logging, asked the service manager for its
        watchdog and locked ``--lock-file`` before. Here follow: directories and the lock of the
        root directory, the container runtime, the clients of the API server, what the machine is
        and whether its reservations fit, sources, all parts, the listeners, the work
        (``Parts.at_work``). Whatever cannot start raises a StartError: one line, exit code 1.
        """
        config = self.config
        # The loop's own function: a record costs half of what anyio.current_time would make it.
        self.journal.use_time(asyncio.get_running_loop().time)
        await to_thread.run_sync(make_directories, config)
        async with AsyncExitStack() as plumbing:
            plumbing.enter_context(root_lock(Path(config.root_dir)))
            runtime, images, name = await plumbing.enter_async_context(
                open_runtime(config, self._own_runtime, self.registry, self._clock)
            )
            link = await plumbing.enter_async_context(
                open_link(config, self._own_cluster, self.registry, self._clock)
            )
            machine = await to_thread.run_sync(read_machine, Path(config.root_dir))
            if trouble := reservation_problem(config, machine):
                raise StartError(trouble)
            standalone = StandaloneObjects() if link is None else None
            makers = SourceMaker(
                link,
                standalone,
                journal=self.journal,
                registry=self.registry,
                clock=self._clock,
            )
            sources = (*makers.all(config), *self._extra_sources)
            address = await to_thread.run_sync(host_address, config.node_ips)
            parts = build_parts(
                config,
                host=await to_thread.run_sync(detect_host, Path("/"), Path(config.root_dir)),
                credentials=await to_thread.run_sync(read_credential_files, config),
                runtime=runtime,
                images=images,
                runtime_name=name,
                node_address=address,
                sources=sources,
                link=link,
                machine=machine,
                standalone=standalone,
                report=self.config_report,
                live=LiveSettings(config),
                journal=self.journal,
                registry=self.registry,
                clock=self._clock,
            )
            try:
                self._parts, self._makers, self._machine = parts, makers, machine
                await parts.open_listeners(plumbing, self.pods)
                async with parts.at_work():
                    self.journal.record("agent", "Started", node=config.effective_node_name)
                    yield
                self.journal.record("agent", "Stopped")
            finally:
                self._parts = None
                self.left_running = parts.left_running
                parts.dispose()


@contextmanager
def root_lock(root: Path) -> Iterator[None]:
    """Keep a second agent out of the same root directory; the kernel frees it with the process.

    Raises:
        StartError: another agent uses the directory, or it cannot be written to.
    """
    lock = root / "agent.lock"
    try:
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        msg = f"cannot open {lock}: {error.strerror}; mend it, or choose another --root-dir"
        raise StartError(msg) from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            msg = f"another nodeagent uses {root}; stop it, or choose another with --root-dir"
            raise StartError(msg) from error
        yield
    finally:
        os.close(descriptor)


def make_directories(config: AgentConfig) -> None:
    """Make the agent's directories; blocking.

    Raises:
        StartError: one cannot be made or written to.
    """
    root = Path(config.root_dir)
    wanted = ((root, 0o750), (root / "pods", 0o750), (root / "checkpoints", 0o700))
    for path, mode in wanted:
        _make(path, mode, "--root-dir")
    _make(Path(config.pod_logs_dir), 0o755, "--pod-logs-dir")


def _make(path: Path, mode: int, flag: str) -> None:
    try:
        path.mkdir(mode=mode, parents=True, exist_ok=True)
    except OSError as error:
        msg = f"cannot make the directory {path}: {error.strerror}; choose another with {flag}"
        raise StartError(msg) from error
    if not os.access(path, os.W_OK | os.X_OK):
        msg = f"cannot write to the directory {path}; choose another with {flag}, or run as root"
        raise StartError(msg)
