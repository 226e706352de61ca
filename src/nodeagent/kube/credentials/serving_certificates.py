"""Gets the certificate of a node's own port from the cluster, and the next one in time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from ipaddress import ip_address
from pathlib import Path
from typing import Final

import anyio
from anyio import to_thread
from anyio.abc import TaskStatus
from prometheus_client import CollectorRegistry, Histogram

from nodeagent.aio import background, jitter
from nodeagent.api.node import NodeAddress
from nodeagent.clock import Clock
from nodeagent.duration import format_duration
from nodeagent.kube.client import KubeClient
from nodeagent.kube.credentials.key_pair import (
    SERVING,
    SigningRequest,
    SubjectNames,
    belong_together,
    names_of,
)
from nodeagent.kube.credentials.signing import SigningError, kept_request, obtain_certificate
from nodeagent.kube.credentials.steps import new_deadline, retry_delay, rotation_deadline
from nodeagent.kube.credentials.store import SERVING_FILES, CertificateStore
from nodeagent.kube.errors import KubeError
from nodeagent.kube.validity import Validity, validity_of
from nodeagent.log import Log
from nodeagent.plain_counter import PlainCounter

log = Log("kube.credentials")

_NONE: Final = "the API port has no certificate yet"
_LOOK_PERIOD: Final = 10.0
_FIRST_LOOKS: Final = 1.0
_PATIENCE: Final = 900.0
_MINUTE: Final = 60.0
_HOUR: Final = 60 * _MINUTE
_DAY: Final = 24 * _HOUR
_AGES: Final = (
    *(_MINUTE, _HOUR, 4 * _HOUR, _DAY, 7 * _DAY),
    *(30 * _DAY, 90 * _DAY, 180 * _DAY, 360 * _DAY),
)


@dataclass(frozen=True, slots=True)
class Held:
    """The certificate that there is.

    Attributes:
        validity: from when to when it is good.
        names: where it says that the node is reached.
        due: when the next one is asked for.
    """

    validity: Validity
    names: SubjectNames
    due: datetime


class ServingMetrics:
    """Figures under the kubelet's names.

    Args:
        registry: where they are registered.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self.renew_errors = 0
        self._rotation = Histogram(
            "kubelet_certificate_manager_server_rotation_seconds",
            "How old a certificate of the API port was when the next one took its place",
            buckets=_AGES,
            registry=registry,
        )
        registry.register(
            PlainCounter(
                "kubelet_server_expiration_renew_errors",
                "Tries to get a certificate for the API port that failed",
                lambda: self.renew_errors,
            )
        )

    def rotated(self, age: float) -> None:
        """A certificate of so many seconds was replaced."""
        self._rotation.observe(age)


class ServingCertificates:
    """Looks after the certificate of a node's own port.

    Args:
        node_name: whom it is for.
        directory: where it is kept.
        client: asks for it.
        addresses: of the Node, as the API server has them; () while it has none.
        clock: wall time, in which certificates begin and end.
        registry: for metrics.

    Attributes:
        changed: called after another certificate is in :attr:`file`.
        problem: why there is none, or none newer though one is due; "" for nothing.
        file: with the certificate and its key; there may be none yet.
    """

    def __init__(
        self,
        node_name: str,
        directory: Path,
        *,
        client: KubeClient,
        addresses: Callable[[], Iterable[NodeAddress]],
        clock: Clock,
        registry: CollectorRegistry,
    ) -> None:
        self.problem = ""
        self.changed: Callable[[], None] = lambda: None
        self._node_name = node_name
        self._store = CertificateStore(directory, SERVING_FILES)
        self._client = client
        self._addresses = addresses
        self._clock = clock
        self._metrics = ServingMetrics(registry)
        self._held: Held | None = None
        self._failures = 0

    @property
    def file(self) -> Path:
        """See Attributes."""
        return self._store.current

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Look after the certificate, until cancelled."""
        self._held = await to_thread.run_sync(self._found)
        if self._held is None:
            self.problem = _NONE
        task_status.started()
        while True:
            names = subject_names(self._addresses())
            why = why_due(self._held, names, self._clock.now())
            if why:
                await self._try(names, why)
            else:
                if self._held is None:
                    self.problem = f"{_NONE}: the Node has no address"
                await anyio.sleep(self._pause())

    def _found(self) -> Held | None:
        """The certificate of an earlier run, if it is of use."""
        pem = self._store.load()
        validity = validity_of(pem)
        if validity is None or not belong_together(pem, pem):
            if pem:
                log.warning("serving_certificate_unusable", file=str(self.file))
            # What others find there must be of use.
            self._store.drop()
            return None
        return Held(validity, names_of(pem), rotation_deadline(validity))

    def _pause(self) -> float:
        if self._held is None:
            return _FIRST_LOOKS
        left = (self._held.due - self._clock.now()).total_seconds()
        return min(max(left, 0.1), _LOOK_PERIOD)

    async def _try(self, names: SubjectNames, why: str) -> None:
        log.info("serving_certificate_due", why=why)
        try:
            obtained = await self._obtain(names)
        except (SigningError, KubeError, OSError, ValueError) as error:
            refused = isinstance(error, SigningError) and error.final
            await self._failed(str(error), names, refused=refused)
        except Exception as error:  # noqa: BLE001 - the port goes on with what it has
            log.fault("certificate_fault", error)
            await self._failed(type(error).__name__, names, refused=False)
        else:
            # None: the names are others by now, and another request is due.
            if obtained:
                self._failures, self.problem = 0, ""

    async def _failed(self, cause: str, names: SubjectNames, *, refused: bool) -> None:
        self._failures += 1
        self._metrics.renew_errors += 1
        delay = jitter(retry_delay(self._failures, refused=refused), 0.2)
        problem = cause if self._held else f"{_NONE}: {cause}"
        # The same again and again is no news.
        say = log.debug if problem == self.problem else log.warning
        again = format_duration(round(delay))
        say("serving_certificate_not_obtained", cause=cause, again_in=again)
        self.problem = problem
        with anyio.move_on_after(delay):
            await self._other_names(names)

    async def _obtain(self, names: SubjectNames) -> bool:
        """Get a certificate for these names; False when the node has got others meanwhile."""
        request = await to_thread.run_sync(
            kept_request, self._store, self._node_name, SERVING, names
        )
        certificate = b""
        async with background() as tasks:
            with anyio.CancelScope() as patience:

                async def give_up() -> None:
                    await self._other_names(names)
                    patience.cancel()

                tasks.start_soon(give_up)
                certificate = await self._ask(request)
        if not certificate:
            await to_thread.run_sync(self._store.forget_key)
            return False
        await self._use(certificate, request, names)
        return True

    async def _ask(self, request: SigningRequest) -> bytes:
        try:
            return await obtain_certificate(
                self._client, request, timeout=_PATIENCE, waiting=self._tell
            )
        except SigningError as error:
            if error.final:
                await to_thread.run_sync(self._store.forget_key)
            raise

    async def _use(self, certificate: bytes, request: SigningRequest, names: SubjectNames) -> None:
        now, validity = self._clock.now(), validity_of(certificate)
        covered = await to_thread.run_sync(names_of, certificate)
        fault = ""
        if validity is None or validity.ends <= now:
            fault = "has ended already"
        elif not covered.covers(names):
            fault = "does not name all of the node's addresses"
        if fault:
            await to_thread.run_sync(self._store.forget_key)
            msg = f"the certificate that {request.name} got {fault}"
            raise SigningError(msg, final=True)
        assert validity is not None
        await to_thread.run_sync(self._store.save, certificate, request.key, now)
        await to_thread.run_sync(self._store.forget_key)
        if self._held is not None:
            self._metrics.rotated((now - self._held.validity.begins).total_seconds())
        self._held = Held(validity, covered, new_deadline(validity, now))
        log.info("serving_certificate_obtained", ends=f"{validity.ends:%Y-%m-%dT%H:%M:%SZ}")
        self.changed()

    async def _other_names(self, names: SubjectNames) -> None:
        """Return when the node is reached under a name that is not among these."""
        while names.covers(subject_names(self._addresses())):  # noqa: ASYNC110 - nobody tells
            await anyio.sleep(_LOOK_PERIOD)

    def _tell(self, waiting_for: str) -> None:
        self.problem = waiting_for if self._held else f"{_NONE}: {waiting_for}"


def why_due(held: Held | None, names: SubjectNames, now: datetime) -> str:
    """Why a certificate has to be asked for; "" when none has to be."""
    if not names:
        return ""
    if held is None:
        return "there is none"
    if not held.names.covers(names):
        return "the node has other addresses"
    return "it ends soon" if now >= held.due else ""


def subject_names(addresses: Iterable[NodeAddress]) -> SubjectNames:
    """What the addresses of a Node mean for a certificate; those that are none are left out."""
    dns: set[str] = set()
    ips: set[str] = set()
    for one in addresses:
        if one.type.endswith("IP"):
            try:
                ips.add(str(ip_address(one.address)))
            except ValueError:
                continue
        elif one.address.isascii() and one.address:
            # A node may be named by an address.
            _add(one.address, dns, ips)
    return SubjectNames(frozenset(dns), frozenset(ips))


def _add(name: str, dns: set[str], ips: set[str]) -> None:
    try:
        ips.add(str(ip_address(name)))
    except ValueError:
        dns.add(name)
