"""Gets a node its first client certificate, and a new one before the present one ends."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final, TypeAlias

import anyio
from anyio import to_thread
from anyio.abc import TaskStatus
from prometheus_client import CollectorRegistry, Gauge

from nodeagent.aio import jitter
from nodeagent.clock import Clock
from nodeagent.duration import format_duration
from nodeagent.kube.access import AccessError, AccessSource
from nodeagent.kube.client import KubeClient
from nodeagent.kube.config import KubeConfig
from nodeagent.kube.credentials.keeper import AccessKeeper
from nodeagent.kube.credentials.key_pair import SigningRequest, new_key, signing_request
from nodeagent.kube.credentials.node_kubeconfig import write_node_kubeconfig
from nodeagent.kube.credentials.signing import SigningError, kept_request, obtain_certificate
from nodeagent.kube.credentials.steps import (
    Situation,
    Step,
    new_deadline,
    next_step,
    retry_delay,
    rotation_deadline,
)
from nodeagent.kube.credentials.store import CertificateStore
from nodeagent.kube.errors import KubeError
from nodeagent.kube.validity import Validity, validity_of
from nodeagent.log import Log
from nodeagent.plain_counter import PlainCounter

log = Log("kube.credentials")

_LONGEST_SLEEP: Final = 30.0
_WAIT_FOR_FIRST: Final = 3600.0
_WAIT_FOR_NEXT: Final = 900.0

OpenClient: TypeAlias = Callable[[AccessSource], AbstractAsyncContextManager[KubeClient]]
"""Opens a client that uses other credentials."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateSettings:
    """How a node comes by its client certificate.

    Attributes:
        node_name: whom the certificate is for.
        kubeconfig: is written after the bootstrap.
        cert_dir: where certificates are kept.
        bootstrap_kubeconfig: credentials that may ask for a certificate; None for none.
        rotate: ask for a new certificate before the present one ends.
    """

    node_name: str
    kubeconfig: Path
    cert_dir: Path
    bootstrap_kubeconfig: Path | None = None
    rotate: bool = False

    @property
    def needed(self) -> bool:
        """Whether there is anything to look after."""
        return self.rotate or self.bootstrap_kubeconfig is not None


class CertificateMetrics:
    """Figures under the kubelet's names.

    Args:
        registry: where they are registered.
        seconds_left: until the certificate ends.
    """

    def __init__(self, registry: CollectorRegistry, seconds_left: Callable[[], float]) -> None:
        self.renew_errors = 0
        Gauge(
            "kubelet_certificate_manager_client_ttl_seconds",
            "Seconds until the client certificate ends; negative when it has, +Inf without one",
            registry=registry,
        ).set_function(seconds_left)
        registry.register(
            PlainCounter(
                "kubelet_certificate_manager_client_expiration_renew_errors",
                "Tries to get a new client certificate that failed",
                lambda: self.renew_errors,
            )
        )


class ClientCertificates:
    """Looks after the client certificate of a node.

    Args:
        settings: see there.
        keeper: the access in force; reads what is written here.
        client: with that access.
        open_client: opens one with the bootstrap credentials.
        clock: wall time, in which certificates begin and end.
        registry: for metrics.

    Attributes:
        problem: why there is no newer certificate though one is due; "" for nothing.
    """

    def __init__(
        self,
        settings: CertificateSettings,
        *,
        keeper: AccessKeeper,
        client: KubeClient,
        open_client: OpenClient,
        clock: Clock,
        registry: CollectorRegistry,
    ) -> None:
        self.problem = ""
        self._settings = settings
        self._keeper = keeper
        self._client = client
        self._open_client = open_client
        self._clock = clock
        # The kubeconfig will name a file in it, and counts relative paths from its own directory.
        self._store = CertificateStore(settings.cert_dir.absolute())
        self._metrics = CertificateMetrics(registry, self._seconds_left)
        self._planned: tuple[Validity, datetime] | None = None
        self._failures = 0

    @property
    def ends(self) -> datetime | None:
        """When the client certificate in force ends; None without one."""
        access = self._keeper.access
        return access.validity.ends if access is not None and access.validity else None

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Look after the certificate, until cancelled."""
        task_status.started()
        while True:
            step = next_step(self._situation())
            if step is Step.WAIT:
                await anyio.sleep(self._pause())
            elif step is Step.BOOTSTRAP:
                await self._try(self._bootstrap)
            else:
                await self._try(self._rotate)

    def _situation(self) -> Situation:
        access = self._keeper.access
        validity = access.validity if access is not None and access.rotatable else None
        if validity is not None and (self._planned is None or self._planned[0] != validity):
            self._planned = validity, rotation_deadline(validity)
        planned = self._planned if self._settings.rotate and validity is not None else None
        return Situation(
            now=self._clock.now(),
            access=access is not None,
            passing=self._keeper.passing,
            validity=validity,
            deadline=planned[1] if planned else None,
            can_bootstrap=self._settings.bootstrap_kubeconfig is not None,
        )

    def _pause(self) -> float:
        """Not longer than a jump of the wall clock may go unnoticed."""
        deadline = self._situation().deadline
        if deadline is None:
            return _LONGEST_SLEEP
        left = (deadline - self._clock.now()).total_seconds()
        return min(max(left, 0.1), _LONGEST_SLEEP)

    async def _try(self, attempt: Callable[[], Awaitable[None]]) -> None:
        try:
            await attempt()
        except (SigningError, AccessError, KubeError, OSError) as error:
            await self._failed(str(error), refused=isinstance(error, SigningError) and error.final)
        except Exception as error:  # noqa: BLE001 - the node goes on with what it has
            log.fault("certificate_fault", error)
            await self._failed(type(error).__name__, refused=False)
        else:
            self._failures, self.problem, self._keeper.waiting_for = 0, "", ""

    async def _failed(self, problem: str, *, refused: bool) -> None:
        self._failures += 1
        self._metrics.renew_errors += 1
        delay = jitter(retry_delay(self._failures, refused=refused), 0.2)
        # The same again and again is no news.
        say = log.debug if problem == self.problem else log.warning
        say("certificate_not_obtained", cause=problem, again_in=format_duration(round(delay)))
        self.problem = problem
        if self._keeper.access is None:
            self._keeper.waiting_for = f"there is no client certificate yet: {problem}"
        await anyio.sleep(delay)

    async def _bootstrap(self) -> None:
        """Get the first certificate with the bootstrap credentials, and write the kubeconfig."""
        assert self._settings.bootstrap_kubeconfig is not None
        source = KubeConfig(self._settings.bootstrap_kubeconfig)
        self._tell(f"a client certificate is being asked for with {source.source}")
        cluster = await source.cluster()
        request = await to_thread.run_sync(kept_request, self._store, self._settings.node_name)
        try:
            async with self._open_client(source) as client:
                certificate = await self._obtain(client, request, _WAIT_FOR_FIRST)
        except SigningError as error:
            if error.final:
                await to_thread.run_sync(self._store.forget_key)
            raise
        if next_step(self._situation()) is Step.BOOTSTRAP:
            pair = certificate, request.key
            now = self._clock.now()
            await to_thread.run_sync(self._take_first, *pair, cluster, now)
            await self._use(certificate)
        await to_thread.run_sync(self._store.forget_key)

    async def _rotate(self) -> None:
        """Get the next certificate with the present one; each has a key of its own."""
        request = await to_thread.run_sync(self._next_request)
        certificate = await self._obtain(self._client, request, self._patience())
        now = self._clock.now()
        await to_thread.run_sync(self._store.save, certificate, request.key, now)
        await self._use(certificate)

    def _patience(self) -> float:
        """Seconds to wait for the next certificate.

        Once the present one has ended, nobody could even look at the request any more; a new
        bootstrap is the way out.
        """
        if self._settings.bootstrap_kubeconfig is None or self.ends is None:
            return _WAIT_FOR_NEXT
        left = (self.ends - self._clock.now()).total_seconds()
        return min(_WAIT_FOR_NEXT, max(left, 0.0))

    async def _obtain(self, client: KubeClient, request: SigningRequest, timeout: float) -> bytes:
        certificate = await obtain_certificate(client, request, timeout=timeout, waiting=self._tell)
        validity = validity_of(certificate)
        if validity is None or validity.ends <= self._clock.now():
            ended = f"ended {validity.ends:%Y-%m-%d %H:%M:%S} UTC" if validity else "is none"
            msg = f"the certificate that {request.name} got {ended}"
            raise SigningError(msg, final=True)
        self._planned = validity, new_deadline(validity, self._clock.now())
        return certificate

    async def _use(self, certificate: bytes) -> None:
        await self._keeper.load()
        validity, access = validity_of(certificate), self._keeper.access
        if access is None or access.validity != validity:
            why = self._keeper.problem or f"{self._keeper.source} names another one"
            msg = f"the new client certificate is not in force: {why}"
            raise AccessError(msg)
        assert validity is not None
        log.info("certificate_obtained", ends=f"{validity.ends:%Y-%m-%dT%H:%M:%SZ}")

    def _tell(self, waiting_for: str) -> None:
        self.problem = waiting_for
        if self._keeper.access is None:
            self._keeper.waiting_for = waiting_for

    def _next_request(self) -> SigningRequest:
        return signing_request(new_key(), self._settings.node_name)

    def _take_first(
        self, certificate: bytes, key: bytes, cluster: Mapping[str, Any], now: datetime
    ) -> None:
        self._store.save(certificate, key, now)
        write_node_kubeconfig(self._settings.kubeconfig, cluster, self._store.current)

    def _seconds_left(self) -> float:
        ends = self.ends
        return float("inf") if ends is None else (ends - self._clock.now()).total_seconds()
