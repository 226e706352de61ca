"""The debugging handlers of the kubelet's API: logs of containers, and streams.

docs/behaviour/server.md, "Container logs", "Streams" and "Commands".
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from nodeagent.api import Pod
from nodeagent.clock import Clock
from nodeagent.cri import RuntimeService
from nodeagent.log import Log
from nodeagent.model import ContainerState, PodRuntimeStatus, PodUID
from nodeagent.proto.runtime import v1
from nodeagent.rpc import NotFound, ResourceExhausted, RpcError
from nodeagent.server.app import Response
from nodeagent.server.kubelet.api import Answer, Route
from nodeagent.server.kubelet.exchange import Exchange
from nodeagent.server.kubelet.log_files import LogFileError
from nodeagent.server.kubelet.log_lines import UnsupportedLogError
from nodeagent.server.kubelet.log_request import (
    InvalidQueryError,
    UndecodableQueryError,
    log_request,
)
from nodeagent.server.kubelet.log_watch import LogWatch
from nodeagent.server.kubelet.send_log import LogSender
from nodeagent.server.kubelet.stream_limits import StreamLimits
from nodeagent.server.kubelet.stream_request import (
    BadStreamRequestError,
    Wish,
    upgrade_headers,
    wanted_ports,
    wanted_streams,
)
from nodeagent.server.kubelet.targets import (
    NoLogError,
    Pods,
    has_container,
    log_container,
    ready_sandbox,
    running_container,
)
from nodeagent.server.kubelet.translate import spdy_headers, to_translate
from nodeagent.server.kubelet.upgrade import Declined, NoStreamError, upgrade

log = Log("server")

_STREAM_METHODS: Final = ("GET", "POST")
_RETRY_AFTER: Final = "1"


@dataclass(frozen=True, slots=True, kw_only=True)
class DebugHandlers:
    """What people do with the containers of a node.

    Attributes:
        pods: of the node.
        runtime: the container runtime.
        watch: tells when logs change.
        clock: wall time, for the age of log lines.
        limits: gives those of streams.
    """

    pods: Pods
    runtime: RuntimeService
    watch: LogWatch
    clock: Clock
    limits: Callable[[], StreamLimits]

    def routes(self) -> list[Route]:
        """What is answered here."""
        return [
            Route("containerLogs", ("GET",), self.container_logs, steps=(3,)),
            Route("exec", _STREAM_METHODS, self.exec, steps=(3, 4), upgrades=True),
            Route("attach", _STREAM_METHODS, self.attach, steps=(3, 4), upgrades=True),
            Route("portForward", _STREAM_METHODS, self.port_forward, steps=(2, 3), upgrades=True),
            Route("run", ("POST",), self.run, steps=(3, 4)),
        ]

    async def container_logs(self, exchange: Exchange, steps: Sequence[str]) -> Answer:
        """The log of a container."""
        namespace, pod_name, container = steps
        for value, missing in (
            (pod_name, "podID"),
            (container, "container name"),
            (namespace, "podNamespace"),
        ):
            if not value:
                return _json_message(400, f"Missing {missing}.")
        try:
            wanted = log_request(exchange.request, self.clock.now())
        except UndecodableQueryError:
            return _json_message(400, "Unable to decode query.")
        except InvalidQueryError as error:
            log.debug("invalid_log_request", cause=str(error))
            return _json_message(422, "Invalid request.")
        pod = self.pods.find(namespace, pod_name)
        if pod is None:
            return _text(404, f'pod "{pod_name}" does not exist\n')
        if not has_container(pod, container):
            return _text(404, f'container "{container}" not found in pod "{pod_name}"\n')
        try:
            container_id = log_container(pod, container, previous=wanted.previous)
            path = await self._log_path(PodUID(pod.metadata.uid), container_id)
            sender = LogSender(
                path,
                wanted,
                watch=self.watch,
                running=lambda: self._runs(PodUID(pod.metadata.uid), container_id),
                send=exchange.write,
            )
            await sender.run()
        except (NoLogError, LogFileError, UnsupportedLogError) as error:
            if exchange.begun:
                log.warning("log_broken_off", pod=pod_name, container=container, cause=str(error))
                return exchange.cut()
            return _text(400, str(error))
        return await exchange.end()

    async def _log_path(self, uid: PodUID, container_id: str) -> Path:
        """Where a container's log lies.

        Raises:
            NoLogError: the runtime does not know the container.
        """
        record = self.pods.at_runtime(uid).by_id(container_id)
        path = record.log_path if record is not None else ""
        if not path:
            try:
                found = (await self.runtime.container_status(container_id)).status
                path = found.log_path if found is not None else ""
            except RpcError as error:
                msg = f"unable to retrieve container logs for {container_id}: {error}"
                raise NoLogError(msg) from error
        if not path:
            msg_0 = f"unable to retrieve container logs for {container_id}: it has none"
            raise NoLogError(msg_0)
        return Path(path)

    def _runs(self, uid: PodUID, container_id: str) -> bool:
        record = self.pods.at_runtime(uid).by_id(container_id)
        return record is not None and record.state is not ContainerState.EXITED

    # -- streams -----------------------------------------------------------------------------

    async def exec(self, exchange: Exchange, steps: Sequence[str]) -> Answer:
        """A command in a container."""

        async def url(pod: Pod, container: str, record: PodRuntimeStatus) -> _Target | Response:
            found = running_container(record, container)
            if found is None:
                return _text(500, f'container not found ("{container}")')
            streams = wanted_streams(exchange.request)
            request = v1.ExecRequest(
                container_id=found.id,
                cmd=exchange.request.values("command"),
                tty=streams.tty,
                stdin=streams.stdin,
                stdout=streams.stdout,
                stderr=streams.stderr,
            )
            log.info("exec", pod=pod.metadata.name, container=container)
            return _Target(await self.runtime.exec(request), streams)

        return await self._container_stream(exchange, steps, url)

    async def attach(self, exchange: Exchange, steps: Sequence[str]) -> Answer:
        """The streams of a container's first process."""

        async def url(pod: Pod, container: str, record: PodRuntimeStatus) -> _Target | Response:
            found = running_container(record, container)
            if found is None:
                return _text(500, f'container not found ("{container}")')
            streams = wanted_streams(exchange.request)
            tty = _has_terminal(pod, container)
            request = v1.AttachRequest(
                container_id=found.id,
                tty=tty,
                stdin=streams.stdin,
                stdout=streams.stdout,
                stderr=streams.stderr and not tty,
            )
            log.info("attach", pod=pod.metadata.name, container=container)
            shown = replace(streams, tty=tty, stderr=streams.stderr and not tty)
            return _Target(await self.runtime.attach(request), shown)

        return await self._container_stream(exchange, steps, url)

    async def _container_stream(
        self,
        exchange: Exchange,
        steps: Sequence[str],
        url: Callable[[Pod, str, PodRuntimeStatus], Awaitable[_Target | Response]],
    ) -> Answer:
        namespace, name, *uid, container = steps

        async def ask() -> _Target | Response:
            wanted_streams(exchange.request)
            pod = self._pod(namespace, name)
            if pod is None:
                return _text(404, "pod does not exist")
            if uid and self.pods.translate(PodUID(uid[0])) != pod.metadata.uid:
                return _text(500, f'container not found ("{container}")')
            return await url(pod, container, self.pods.at_runtime(PodUID(pod.metadata.uid)))

        return await self._stream(exchange, ask)

    async def port_forward(self, exchange: Exchange, steps: Sequence[str]) -> Answer:
        """Connections to ports of a pod."""
        namespace, name, *uid = steps

        async def ask() -> _Target | Response:
            ports = wanted_ports(exchange.request)
            pod = self._pod(namespace, name)
            if pod is None:
                return _text(404, "pod does not exist")
            if uid and self.pods.translate(PodUID(uid[0])) != pod.metadata.uid:
                return _text(404, "pod not found")
            sandbox = ready_sandbox(self.pods.at_runtime(PodUID(pod.metadata.uid)))
            if sandbox is None:
                return _text(500, f'pod not found ("{name}_{namespace}")')
            log.info("port_forward", pod=name)
            request = v1.PortForwardRequest(pod_sandbox_id=sandbox.id, port=list(ports))
            return _Target(await self.runtime.port_forward(request), ports)

        return await self._stream(exchange, ask)

    async def _stream(
        self, exchange: Exchange, ask: Callable[[], Awaitable[_Target | Response]]
    ) -> Answer:
        """Have the runtime's streaming server do what is asked, and join it with the client."""
        exchange.hold()
        try:
            return await self._joined(exchange, ask)
        except BadStreamRequestError as error:
            return _text(400, f"{error}\n")
        except RpcError as error:
            return _failed(error)
        except NoStreamError as error:
            return _text(502, f"{error}\n")
        finally:
            exchange.release()

    async def _joined(
        self, exchange: Exchange, ask: Callable[[], Awaitable[_Target | Response]]
    ) -> Answer:
        request, declined = exchange.request, None
        target = await ask()
        if isinstance(target, Response):
            return target
        headers = upgrade_headers(request)
        agreed = to_translate(request, target.wish)
        if agreed is None:
            async with upgrade(target.url, request.method, headers) as answer:
                if not isinstance(answer, Declined):
                    return await exchange.hand_over(answer, self.limits())
            declined = answer
            agreed = to_translate(request, target.wish, declined.status)
            if agreed is None:
                return _quoted(declined)
            target = await ask()  # an address is good for one request
            if isinstance(target, Response):
                return target
        headers = spdy_headers(agreed, target.wish)
        async with upgrade(target.url, "POST", headers) as answer:
            if isinstance(answer, Declined):
                return _quoted(declined or answer)
            return await exchange.translate(answer, agreed, target.wish, self.limits())

    def _pod(self, namespace: str, name: str) -> Pod | None:
        return self.pods.find(namespace, name)

    # -- commands ----------------------------------------------------------------------------

    async def run(self, exchange: Exchange, steps: Sequence[str]) -> Answer:
        """A command to its end; its output."""
        namespace, name, *uid, container = steps
        pod = self._pod(namespace, name)
        if pod is None:
            return _text(404, "pod does not exist")
        found = running_container(self.pods.at_runtime(PodUID(pod.metadata.uid)), container)
        if found is None or (uid and self.pods.translate(PodUID(uid[0])) != pod.metadata.uid):
            return _text(500, f'container not found ("{container}")')
        command = exchange.request.value("cmd").split(" ")
        try:
            answer = await self.runtime.exec_sync(found.id, command)
        except RpcError as error:
            return _failed(error)
        output = answer.stdout + answer.stderr
        if answer.exit_code:
            said = output.decode("utf-8", "replace")
            words = " ".join(command)
            return _text(500, f"command '{words}' exited with {answer.exit_code}: {said}")
        return Response(200, output)


@dataclass(frozen=True, slots=True)
class _Target:
    """Where the runtime has what was asked for."""

    url: str
    wish: Wish


def _quoted(answer: Declined) -> Response:
    """The runtime's own words."""
    kept = {name: value for name, value in answer.headers.items() if name != "content-type"}
    kind = answer.headers.get("content-type", "text/plain")
    return Response(answer.status, answer.body, kind, kept)


def _failed(error: RpcError) -> Response:
    if isinstance(error, NotFound):
        return _text(404, str(error))
    if isinstance(error, ResourceExhausted):
        body = str(error).encode(errors="replace")
        return Response(429, body, headers={"Retry-After": _RETRY_AFTER})
    return _text(500, str(error))


def _has_terminal(pod: Pod, container: str) -> bool:
    spec = pod.spec
    kinds = (spec.containers, spec.init_containers, spec.ephemeral_containers)
    return any(c.tty for kind in kinds for c in kind if c.name == container)


def _text(status: int, text: str) -> Response:
    return Response(status, text.encode(errors="replace"))


def _json_message(status: int, text: str) -> Response:
    return Response(status, json.dumps({"message": text}).encode(), "application/json")
