"""Certificates that signers of the cluster issue to pods: asked for, waited for, renewed."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final, TypeAlias

import anyio
from anyio import to_thread

from nodeagent.api import ObjectMeta, OwnerReference, Pod, PodCertificateProjection
from nodeagent.api.node import Node
from nodeagent.api.objects import ServiceAccount
from nodeagent.api.pod_certificates import (
    PodCertificateRequest,
    PodCertificateRequestSpec,
    PodCertificateRequestStatus,
)
from nodeagent.clock import Clock
from nodeagent.kube import ApiError, KubeClient, KubeError, paths
from nodeagent.log import Log
from nodeagent.model import PodUID, SyncError
from nodeagent.model.volumes import PodCredentials
from nodeagent.objects.pod_keys import PodKey, new_pod_key
from nodeagent.objects.tokens import account_name

log = Log("objects.certificates")

NOT_ISSUED: Final = "credential bundle is not issued yet"
_MOST_JITTER: Final = 300.0
_REFUSALS: Final = ("Denied", "Failed")

Place: TypeAlias = tuple[PodUID, str, int]
"""Pod, volume, and which source of it."""


class _State:
    """What is known of one certificate.

    Attributes:
        credentials: what was issued last.
        status: what came with it.
        renew_at: when another one is due.
        pending: name of the request that is under way, and its key.
        refusal: why there will be none.
    """

    __slots__ = ("credentials", "lock", "pending", "refusal", "renew_at", "status")

    def __init__(self) -> None:
        self.credentials: PodCredentials | None = None
        self.status = PodCertificateRequestStatus()
        self.renew_at: datetime | None = None
        self.pending: tuple[str, PodKey] | None = None
        self.refusal = ""
        self.lock = anyio.Lock()

    def good(self, now: datetime) -> PodCredentials | None:
        """The credentials, while they are."""
        end = self.status.not_after
        return None if end is not None and now >= end else self.credentials


class PodCertificates:
    """Keys and certificates of the pods of this node.

    Args:
        client: asks the API server.
        node: this node as the API shows it.
        clock: wall clock: certificates end by it.
        jitter: seconds, at random, by which a renewal is later than the signer asks.
    """

    def __init__(
        self,
        client: KubeClient,
        node: Callable[[], Node | None],
        clock: Clock,
        *,
        jitter: Callable[[], float] = lambda: random.uniform(0, _MOST_JITTER),
    ) -> None:
        self._client = client
        self._node = node
        self._clock = clock
        self._jitter = jitter
        self._states: dict[Place, _State] = {}

    def forget_pod(self, uid: PodUID) -> None:
        """Drop the keys of a pod."""
        self._states = {place: s for place, s in self._states.items() if place[0] != uid}

    def pods(self) -> frozenset[PodUID]:
        """The pods that have keys."""
        return frozenset(place[0] for place in self._states)

    async def get(
        self, pod: Pod, volume: str, index: int, projection: PodCertificateProjection
    ) -> PodCredentials:
        """The key and certificates of one source of a projected volume.

        Raises:
            SyncError: there are none, or none yet.
        """
        place = (PodUID(pod.metadata.uid), volume, index)
        state = self._states.setdefault(place, _State())
        async with state.lock:
            try:
                await self._advance(state, pod, projection)
            except KubeError as error:
                if state.good(self._clock.now()) is None:
                    raise SyncError(str(error)) from error
                log.warning(
                    "certificate_not_renewed",
                    pod=pod.metadata.name,
                    volume=volume,
                    cause=str(error),
                )
        found = state.good(self._clock.now())
        if found is None:
            raise SyncError(state.refusal or NOT_ISSUED)
        return found

    async def _advance(self, state: _State, pod: Pod, projection: PodCertificateProjection) -> None:
        """Look at the request that is under way, or make one that is due."""
        if state.refusal:
            return
        if state.pending is not None:
            await self._look(state, pod.metadata.namespace, *state.pending)
            return
        due = state.renew_at
        if state.credentials is not None and (due is None or self._clock.now() < due):
            return
        try:
            key = await to_thread.run_sync(new_pod_key, projection.key_type)
        except ValueError as error:
            raise SyncError(str(error)) from error
        request = await self._request(pod, projection, key)
        path = paths.pod_certificate(pod.metadata.namespace)
        made = await self._client.post(path, request, PodCertificateRequest)
        state.pending = made.metadata.name, key
        self._take(state, made, key)

    async def _look(self, state: _State, namespace: str, name: str, key: PodKey) -> None:
        path = paths.pod_certificate(namespace, name)
        try:
            found = await self._client.get(path, PodCertificateRequest)
        except ApiError as error:
            if not error.not_found:
                raise
            # Somebody has removed it; the next look makes another.
            state.pending = None
            return
        self._take(state, found, key)

    def _take(self, state: _State, found: PodCertificateRequest, key: PodKey) -> None:
        status = found.status
        for condition in status.conditions:
            if condition.type in _REFUSALS and condition.status != "False":
                state.pending = None
                why = f"{condition.reason}: {condition.message}".strip(": ")
                state.refusal = f"pod certificate request {found.metadata.name} is "
                state.refusal += f"{condition.type.lower()}: {why}"
                return
        if not status.certificate_chain:
            return
        state.pending, state.status = None, status
        state.credentials = PodCredentials(key.key, status.certificate_chain.encode())
        begin = status.begin_refresh_at
        state.renew_at = None if begin is None else begin + timedelta(seconds=self._jitter())

    async def _request(
        self, pod: Pod, projection: PodCertificateProjection, key: PodKey
    ) -> PodCertificateRequest:
        meta, account = pod.metadata, account_name(pod)
        node = self._node()
        if node is None:
            raise SyncError("the node is not registered yet")
        path = paths.namespaced(meta.namespace, "serviceaccounts", account)
        found = await self._client.get(path, ServiceAccount)
        owner = OwnerReference(api_version="v1", kind="Pod", name=meta.name, uid=meta.uid)
        return PodCertificateRequest(
            metadata=ObjectMeta(
                generate_name="req-", namespace=meta.namespace, owner_references=(owner,)
            ),
            spec=PodCertificateRequestSpec(
                signer_name=projection.signer_name,
                pod_name=meta.name,
                pod_uid=meta.uid,
                service_account_name=account,
                service_account_uid=found.metadata.uid,
                node_name=node.metadata.name,
                node_uid=node.metadata.uid,
                max_expiration_seconds=projection.max_expiration_seconds,
                stub_request=key.request,
                unverified_user_annotations=projection.user_annotations,
            ),
        )
