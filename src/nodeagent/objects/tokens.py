"""Tokens of service accounts: asked for once, and again before they end."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final, NamedTuple

import anyio
from anyio import TASK_STATUS_IGNORED
from anyio.abc import TaskStatus

from nodeagent.api import Pod
from nodeagent.api.tokens import BoundObjectReference, TokenRequest, TokenRequestSpec
from nodeagent.clock import Clock
from nodeagent.kube import KubeClient, paths
from nodeagent.kube.errors import KubeError
from nodeagent.log import Log
from nodeagent.model import PodUID, SyncError
from nodeagent.model.volumes import ServiceAccountToken

log = Log("objects.tokens")

DEFAULT_SECONDS: Final = 3600
SWEEP_PERIOD: Final = 60.0
_LONGEST: Final = timedelta(hours=24)
_SHARE_LEFT: Final = 5
"""A token is renewed in the last fifth of its life."""
_MOST_JITTER: Final = 10


class TokenKey(NamedTuple):
    """What makes one token another one than the next.

    Attributes:
        account_uid: of the service account, where it is known.
    """

    namespace: str
    account: str
    audiences: tuple[str, ...]
    expiration: int | None
    pod: str
    uid: PodUID
    account_uid: str = ""

    @property
    def shown(self) -> str:
        """How errors call it."""
        return f'"{self.namespace}"/"{self.account}"/{list(self.audiences)}'


class _Kept:
    """A token, and who renews it."""

    __slots__ = ("answer", "lock")

    def __init__(self) -> None:
        self.answer: TokenRequest | None = None
        self.lock = anyio.Lock()


def account_name(pod: Pod) -> str:
    """The service account that the pod acts as."""
    return pod.spec.service_account_name or pod.spec.service_account or "default"


def token_key(
    pod: Pod, audience: str, expiration: int | None, *, account_uid: str = ""
) -> TokenKey:
    """The token of a pod's service account, bound to the pod."""
    return TokenKey(
        pod.metadata.namespace,
        account_name(pod),
        (audience,) if audience else (),
        expiration,
        pod.metadata.name,
        PodUID(pod.metadata.uid),
        account_uid,
    )


def needs_renewal(answer: TokenRequest, now: datetime, jitter: timedelta) -> bool:
    """Whether a token is in its last fifth, or a day old. Pure.

    Args:
        answer: the token as the API server gave it.
        now: wall time.
        jitter: how much earlier than necessary.
    """
    seconds, expires = answer.spec.expiration_seconds, answer.status.expiration_timestamp
    if seconds is None or expires is None:
        return False
    life = timedelta(seconds=seconds)
    issued = expires - life
    due = min(expires - life / _SHARE_LEFT, issued + _LONGEST)
    return now > due - jitter


def _expired(answer: TokenRequest, now: datetime) -> bool:
    expires = answer.status.expiration_timestamp
    return expires is not None and now > expires


class Tokens:
    """Asks for tokens and keeps them.

    Args:
        client: asks the API server.
        clock: wall clock: tokens end by it.
        jitter: whole seconds, at random, by which a token is renewed earlier.
    """

    def __init__(
        self,
        client: KubeClient,
        clock: Clock,
        *,
        jitter: Callable[[], int] = lambda: random.randrange(_MOST_JITTER),
    ) -> None:
        self._client = client
        self._clock = clock
        self._jitter = jitter
        self._kept: dict[TokenKey, _Kept] = {}

    async def get(self, key: TokenKey) -> ServiceAccountToken:
        """A token that is good for some time yet.

        Raises:
            SyncError: there is none.
        """
        kept = self._kept.setdefault(key, _Kept())
        async with kept.lock:
            answer = kept.answer
            jitter = timedelta(seconds=self._jitter())
            if answer is None or needs_renewal(answer, self._clock.now(), jitter):
                answer = await self._renew(key, kept)
        expires = answer.status.expiration_timestamp or self._clock.now()
        return ServiceAccountToken(answer.status.token, expires)

    async def _renew(self, key: TokenKey, kept: _Kept) -> TokenRequest:
        path = paths.token(key.namespace, key.account)
        try:
            answer = await self._client.post(path, _request(key), TokenRequest)
        except KubeError as error:
            if kept.answer is None:
                self._kept.pop(key, None)
                msg = f"failed to fetch token: {error}"
                raise SyncError(msg) from error
            if _expired(kept.answer, self._clock.now()):
                msg = f"token {key.shown} expired and refresh failed: {error}"
                raise SyncError(msg) from error
            log.warning(
                "token_not_renewed",
                pod=f"{key.namespace}/{key.pod}",
                cause=str(error),
                effect="the present one is good for some time yet",
            )
            return kept.answer
        kept.answer = answer
        return answer

    def forget_pod(self, uid: PodUID) -> None:
        """Drop the tokens that are bound to a pod."""
        self._kept = {key: kept for key, kept in self._kept.items() if key.uid != uid}

    def pods(self) -> frozenset[PodUID]:
        """The pods that tokens are bound to."""
        return frozenset(key.uid for key in self._kept)

    def sweep(self) -> None:
        """Drop the tokens that have ended: nobody has asked for them for long."""
        now = self._clock.now()
        self._kept = {
            key: kept
            for key, kept in self._kept.items()
            if kept.answer is None or not _expired(kept.answer, now)
        }

    def __len__(self) -> int:
        return len(self._kept)

    async def run(self, *, task_status: TaskStatus[None] = TASK_STATUS_IGNORED) -> None:
        """Sweep once a minute, until cancelled."""
        task_status.started()
        while True:
            await anyio.sleep(SWEEP_PERIOD)
            self.sweep()


def _request(key: TokenKey) -> TokenRequest:
    bound = BoundObjectReference(kind="Pod", api_version="v1", name=key.pod, uid=key.uid)
    seconds = DEFAULT_SECONDS if key.expiration is None else key.expiration
    spec = TokenRequestSpec(
        audiences=key.audiences, expiration_seconds=seconds, bound_object_ref=bound
    )
    return TokenRequest(spec=spec)
