"""Making a pod's sandbox, once (docs/behaviour/runtime.md, "Sandbox", "At most once")."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import anyio
from anyio import to_thread

from nodeagent.aio import linger
from nodeagent.api import Pod
from nodeagent.cri.inspection import sandbox_status
from nodeagent.model import (
    PodUID,
    RuntimeSandbox,
    SandboxID,
    SandboxRuntimeStatus,
    SandboxState,
    SyncError,
)
from nodeagent.proto.runtime import v1
from nodeagent.rpc import RpcError
from nodeagent.runtime.context import LINGER, RuntimeContext
from nodeagent.runtime.dns import (
    DNSWarning,
    ResolverSettings,
    no_resolver,
    parse_resolv_conf,
    pod_dns,
    resolver_trouble,
)
from nodeagent.runtime.errors import SyncReason, describe, name_reserved, outcome_unknown
from nodeagent.runtime.logs import make_log_dir, pod_log_dir
from nodeagent.runtime.names import POD_UID, PodNames
from nodeagent.runtime.sandbox_config import build_sandbox_config

_TRIES: Final = 3
"""Attempts in one sync when the runtime says that the name is reserved."""


@dataclass(frozen=True, slots=True)
class ReadySandbox:
    """A sandbox that containers can be put into.

    Attributes:
        id: what the runtime calls it.
        config: what it was made from.
        ips: its addresses.
        status: what the runtime says of it; None when it was not asked.
        first: it is the first one of its pod and was made just now, so that the runtime can have
            no container of the pod that we have not made since.
    """

    id: SandboxID
    config: v1.PodSandboxConfig
    ips: tuple[str, ...]
    status: SandboxRuntimeStatus | None = None
    first: bool = False

    def seen(self, pod: Pod) -> SandboxRuntimeStatus:
        """The sandbox as a look at the pod would show it."""
        return self.status or SandboxRuntimeStatus(
            self.id,
            self.config.metadata.attempt if self.config.metadata is not None else 0,
            SandboxState.READY,
            ips=self.ips,
            has_network_status=True,
            host_network=pod.spec.host_network,
        )


class SandboxLookError(SyncError):
    """A sandbox was made, and the runtime does not say what came of it; an event has said so."""


def network_ips(network: v1.PodSandboxNetworkStatus | None) -> tuple[str, ...]:
    """The addresses of a sandbox; none when the first one makes no sense."""
    if network is None or not _is_ip(network.ip):
        return ()
    return (network.ip, *(extra.ip for extra in network.additional_ips if _is_ip(extra.ip)))


def _is_ip(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


class SandboxMaker:
    """Creates sandboxes, and adopts those that exist already."""

    def __init__(self, context: RuntimeContext) -> None:
        self._context = context

    async def config(
        self, pod: Pod, attempt: int, groups: Sequence[int] = ()
    ) -> v1.PodSandboxConfig:
        """The configuration of the pod's sandbox.

        Args:
            pod: the desired pod.
            attempt: number of the sandbox.
            groups: those that its volumes ask for.

        Raises:
            SyncError: the pod cannot have a sandbox as it stands.
        """
        return await self._config(pod, attempt, await self._host_dns(), groups)

    async def _config(
        self,
        pod: Pod,
        attempt: int,
        host_dns: ResolverSettings,
        groups: Sequence[int],
        *,
        warn: bool = False,
    ) -> v1.PodSandboxConfig:
        """See :meth:`config`; ``warn`` emits events about the pod's DNS settings.

        Raises:
            SyncError: the pod cannot have a sandbox as it stands.
        """
        context, settings = self._context, self._context.settings
        dns, warnings = pod_dns(pod, host_dns, settings.cluster_dns, settings.cluster_domain)
        if warn:
            for warning in warnings:
                self._warn(pod, warning)
        userns = await context.userns.of(pod)
        return build_sandbox_config(pod, attempt, dns, settings, context.host, userns, groups)

    def _warn(self, pod: Pod, warning: DNSWarning) -> None:
        text = warning.message
        if warning.of_node:
            self._context.events.node_event("Warning", warning.reason, text)
            text = f'pod: "{PodNames.of(pod)}". {text}'
        self._context.say(pod, "Warning", warning.reason, text)

    def _handler(self, pod: Pod) -> str:
        """The runtime handler that the pod's runtime class leads to; "" for the default one."""
        name = pod.spec.runtime_class_name
        if not name:
            return ""
        handler = self._context.lookups.runtime_classes.handler(name)
        if handler is None:
            message = (
                f'runtimeclass.node.k8s.io "{name}" not found: runtime classes come from an API '
                "server; without one leave runtimeClassName out"
            )
            raise SyncError(message, reason=SyncReason.CREATE_SANDBOX)
        return handler

    async def _check_features(self, pod: Pod, handler: str) -> None:
        """Refuse user namespaces where the runtime would silently give the host's."""
        if pod.spec.host_users is not False:
            return
        try:
            reply = await self._context.lookups.describe()
        except RpcError as error:
            raise _failed(error) from error
        found = next((h for h in reply.runtime_handlers if h.name == handler), None)
        if found is None or found.features is None or not found.features.user_namespaces:
            shown = f"handler {handler}" if handler else "its default handler"
            message = (
                f"hostUsers is false, and the runtime ({shown}) does not say that it can do user "
                "namespaces; leave hostUsers out, or use a runtime that has them"
            )
            raise SyncError(message, reason=SyncReason.CREATE_SANDBOX)

    async def check_resolver(self) -> None:
        """Tell about the node if its resolver file does not fit into those of pods."""
        settings = self._context.settings
        if settings.resolv_conf is None:
            return
        try:
            host = await self._host_dns()
        except SyncError as error:
            text = str(error)
        else:
            text = resolver_trouble(str(settings.resolv_conf), host, settings.cluster_domain)
        if text:
            self._context.events.node_event("Warning", "CheckLimitsForResolvConf", text)

    async def _host_dns(self, log_dir: Path | None = None) -> ResolverSettings:
        """What the node's resolver file says; makes ``log_dir`` on the way, if there is one.

        Raises:
            SyncError: the file cannot be read, or the directory cannot be made.
        """
        settings = self._context.settings
        if settings.resolv_conf is None and log_dir is None:
            return no_resolver(settings.node_ips)
        try:
            text = await to_thread.run_sync(_read_resolver, settings.resolv_conf, log_dir)
        except OSError as error:
            raise SyncError(str(error), reason=SyncReason.CREATE_SANDBOX) from error
        return no_resolver(settings.node_ips) if text is None else parse_resolv_conf(text)

    async def create(
        self, pod: Pod, attempt: int, place: int, groups: Sequence[int] = ()
    ) -> ReadySandbox:
        """Make the pod's sandbox, or adopt one that was made without our knowing.

        Args:
            pod: the desired pod.
            attempt: the lowest number the sandbox may have.
            place: the pod's place among those that wait for their turn.
            groups: those that its volumes ask for.

        Raises:
            SyncError: there is none.
        """
        context = self._context
        names = PodNames.of(pod)
        uid = PodUID(names.uid)
        context.metrics.started_pods.inc()
        began = anyio.current_time()
        host_dns = await self._host_dns(pod_log_dir(context.settings.pod_logs_dir, names))
        handler = self._handler(pod)
        await self._check_features(pod, handler)
        for tried in range(_TRIES):
            if context.records.sandbox_open(uid):
                adopted, attempt = await self._adopt(pod, attempt, groups)
                if adopted is not None:
                    return adopted
            config = await self._config(pod, attempt, host_dns, groups, warn=not tried)
            try:
                sandbox = await self._run(uid, config, handler, place)
            except RpcError as error:
                if not name_reserved(error):
                    raise _failed(error) from error
                context.note("SandboxNameReserved", uid, describe(error), attempt=attempt)
                attempt += 1
                continue
            took = anyio.current_time() - began
            context.note("SandboxCreated", uid, "", took, id=sandbox, attempt=attempt)
            # Nobody has to look: whoever wants to know of it is told by our caller.
            return replace(await self._ready(pod, sandbox, config), first=attempt == 0)
        message = f"the runtime holds the names of {_TRIES} sandboxes before attempt {attempt}"
        raise SyncError(message, reason=SyncReason.CREATE_SANDBOX)

    async def _run(
        self, uid: PodUID, config: v1.PodSandboxConfig, handler: str, place: int
    ) -> SandboxID:
        context = self._context
        async with context.limiter.slot(place, "sandbox"):
            context.records.begin_sandbox(uid)
            try:
                sandbox = await linger(
                    lambda: context.runtime.run_pod_sandbox(config, handler), LINGER
                )
            except RpcError as error:
                if not outcome_unknown(error) and not name_reserved(error):
                    context.records.settle_sandbox(uid)
                raise
            context.records.settle_sandbox(uid)
        return SandboxID(sandbox)

    async def _adopt(
        self, pod: Pod, attempt: int, groups: Sequence[int]
    ) -> tuple[ReadySandbox | None, int]:
        """Look for a sandbox that the status does not show.

        Returns:
            The sandbox, or None and the attempt to create.
        """
        context = self._context
        uid = PodUID(pod.metadata.uid)
        where = v1.PodSandboxFilter(label_selector={POD_UID: uid})
        try:
            found = await context.runtime.list_pod_sandbox(where)
            newest = max(found, key=_age, default=None)
            if newest is None or newest.metadata is None or newest.metadata.attempt < attempt:
                return None, attempt
            attempt = newest.metadata.attempt
            if newest.state is v1.PodSandboxState.SANDBOX_READY:
                config = await self.config(pod, attempt, groups)
                ready = await self._ready(pod, SandboxID(newest.id), config)
                context.records.settle_sandbox(uid)
                context.note("SandboxAdopted", uid, "", None, id=newest.id, attempt=attempt)
                return ready, attempt
        except RpcError as error:
            raise _failed(error) from error
        return None, attempt + 1

    async def _ready(
        self, pod: Pod, sandbox: SandboxID, config: v1.PodSandboxConfig
    ) -> ReadySandbox:
        if pod.spec.host_network:
            return ReadySandbox(sandbox, config, ())
        try:
            reply = await self._context.runtime.pod_sandbox_status(sandbox)
        except RpcError as error:
            message = f"Unable to get pod sandbox status: {describe(error)}"
            self._context.say(pod, "Warning", "FailedPodSandBoxStatus", message)
            raise SandboxLookError(message, reason=SyncReason.CREATE_SANDBOX) from error
        if reply.status is None:
            return ReadySandbox(sandbox, config, ())
        attempt = config.metadata.attempt if config.metadata is not None else 0
        listed = RuntimeSandbox(sandbox, attempt, SandboxState.READY)
        ips = network_ips(reply.status.network)
        return ReadySandbox(sandbox, config, ips, sandbox_status(reply.status, listed))


def _failed(error: RpcError) -> SyncError:
    return SyncError(describe(error), reason=SyncReason.CREATE_SANDBOX)


def _read_resolver(path: Path | None, log_dir: Path | None) -> str | None:
    """The text of the resolver file, None without one; the directory is made. Blocking.

    One trip to a thread serves for both.
    """
    if log_dir is not None:
        make_log_dir(log_dir)
    if path is None:
        return None
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return ""


def _age(sandbox: v1.PodSandbox) -> tuple[int, int]:
    return (sandbox.metadata.attempt if sandbox.metadata else 0, sandbox.created_at)
