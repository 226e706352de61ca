"""Asks the cluster to sign a certificate, and waits until somebody has decided."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import anyio
import msgspec
from anyio import to_thread

from nodeagent.aio import jitter
from nodeagent.api.certificates import (
    CertificateSigningRequest,
    CertificateSigningRequestSpec,
)
from nodeagent.api.codec import decode
from nodeagent.api.meta import ObjectMeta
from nodeagent.kube import paths
from nodeagent.kube.client import KubeClient
from nodeagent.kube.credentials.key_pair import (
    CLIENT,
    NAMELESS,
    Purpose,
    SigningRequest,
    SubjectNames,
    belong_together,
    new_key,
    signing_request,
)
from nodeagent.kube.credentials.store import CertificateStore
from nodeagent.kube.errors import ApiError, KubeError
from nodeagent.log import Log

log = Log("kube.credentials")

_POLL_PERIOD: Final = 5.0
_WATCH_SECONDS: Final = 60.0


class SigningError(Exception):
    """There is no certificate, and for this request there will be none.

    Attributes:
        final: the request was refused; another one needs another key.
    """

    def __init__(self, message: str, *, final: bool) -> None:
        super().__init__(message)
        self.final = final


def kept_request(
    store: CertificateStore,
    node_name: str,
    purpose: Purpose = CLIENT,
    names: SubjectNames = NAMELESS,
) -> SigningRequest:
    """A request that is the same after a restart, as its key is kept. Blocking.

    Args:
        store: has the key of one from before, or gets that of this one.
        node_name: whom the certificate is for.
        purpose: what it is for.
        names: where the node is reached.

    Raises:
        OSError: the key could not be kept.
        ValueError: a name cannot stand in a certificate.
    """
    if key := store.pending_key():
        try:
            return signing_request(key, node_name, purpose, names)
        except ValueError as error:
            log.warning("pending_key_unusable", cause=str(error))
    request = signing_request(new_key(), node_name, purpose, names)
    store.keep_key(request.key)
    return request


async def obtain_certificate(
    client: KubeClient,
    request: SigningRequest,
    *,
    timeout: float,
    waiting: Callable[[str], None] = lambda _text: None,
) -> bytes:
    """Ask for a certificate and wait for it.

    A request of the same name that is there already, from before a restart, is taken up.

    Args:
        client: may create and read requests.
        request: what is asked for.
        timeout: seconds until it is given up.
        waiting: is told what is waited for.

    Returns:
        The certificate with those above it, PEM.

    Raises:
        SigningError: it was denied, it failed, or nobody decided in time.
        KubeError: the request could not be made.
    """
    found = await _create(client, request)
    name = found.metadata.name
    waiting(f"the certificate signing request {name} is not approved yet")
    log.info("certificate_requested", request=name)
    with anyio.move_on_after(timeout):
        while True:
            certificate = _decision(found)
            if certificate:
                await _check(certificate, request)
                return certificate
            found = await _next(client, found)
    msg = f"nobody has approved {name} (kubectl certificate approve {name})"
    raise SigningError(msg, final=False)


async def _create(client: KubeClient, request: SigningRequest) -> CertificateSigningRequest:
    wanted = CertificateSigningRequest(
        metadata=ObjectMeta(name=request.name),
        spec=CertificateSigningRequestSpec(
            request=request.request,
            signer_name=request.purpose.signer,
            usages=request.purpose.usages,
        ),
    )
    try:
        return await client.post(paths.CSRS, wanted, CertificateSigningRequest)
    except ApiError as error:
        if not error.already_exists:
            raise
    return await client.get(paths.csr(request.name), CertificateSigningRequest)


def _decision(found: CertificateSigningRequest) -> bytes:
    """The certificate, b"" while there is none."""
    for condition in found.status.conditions:
        if condition.type in ("Denied", "Failed") and condition.status != "False":
            why = ": ".join(text for text in (condition.reason, condition.message) if text)
            verb = "was denied" if condition.type == "Denied" else "could not be signed"
            msg = f"the certificate signing request {found.metadata.name} {verb}"
            raise SigningError(f"{msg}: {why}" if why else msg, final=True)
    return found.status.certificate


async def _check(certificate: bytes, request: SigningRequest) -> None:
    if not await to_thread.run_sync(belong_together, certificate, request.key):
        msg = f"the certificate of {request.name} is not for the key that it was asked for"
        raise SigningError(msg, final=True)


async def _next(client: KubeClient, found: CertificateSigningRequest) -> CertificateSigningRequest:
    """The request after something has happened to it, or after a while."""
    name = found.metadata.name
    try:
        with anyio.move_on_after(_WATCH_SECONDS):
            changed = await _watched(client, found)
            if changed is not None:
                return changed
        return await client.get(paths.csr(name), CertificateSigningRequest)
    except ApiError as error:
        if error.not_found:
            msg = f"the certificate signing request {name} was removed before it was signed"
            raise SigningError(msg, final=False) from error
        log.debug("certificate_request_not_read", request=name, cause=str(error))
    except KubeError as error:
        log.debug("certificate_request_not_read", request=name, cause=str(error))
    await anyio.sleep(jitter(_POLL_PERIOD))
    return found


async def _watched(
    client: KubeClient, found: CertificateSigningRequest
) -> CertificateSigningRequest | None:
    """What the next event says; None when it has to be asked for."""
    query = {
        "fieldSelector": f"metadata.name={found.metadata.name}",
        "resourceVersion": found.metadata.resource_version,
        "timeoutSeconds": str(int(_WATCH_SECONDS)),
    }
    try:
        async with client.watch(paths.CSRS, query) as lines:
            async for line in lines:
                event = msgspec.json.decode(line, type=_Event)
                if event.type not in ("ADDED", "MODIFIED"):
                    break
                return decode(CertificateSigningRequest, bytes(event.object))
    except (KubeError, msgspec.DecodeError) as error:
        log.debug("certificate_request_not_watched", cause=str(error))
    await anyio.sleep(jitter(_POLL_PERIOD))
    return None


class _Event(msgspec.Struct):
    type: str
    object: msgspec.Raw
