"""Programs that a kubeconfig names to get credentials from (client.authentication.k8s.io)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final, TypeAlias

import msgspec

from nodeagent.kube.access import AccessError
from nodeagent.program import ProgramError, run_program

PLUGIN_TIMEOUT: Final = 60.0
"""Seconds that a plugin may take."""

RunProgram: TypeAlias = Callable[[Sequence[str], bytes, Mapping[str, str], float], Awaitable[bytes]]
"""Runs a program with an input; see :func:`nodeagent.program.run_program`."""

_VERSIONS: Final = (
    "client.authentication.k8s.io/v1",
    "client.authentication.k8s.io/v1beta1",
    "client.authentication.k8s.io/v1alpha1",
)


@dataclass(frozen=True, slots=True)
class PluginCredentials:
    """What a plugin has given: a token, or a certificate with its key, or both."""

    token: str = field(repr=False)
    certificate: str
    key: str = field(repr=False)
    expires: datetime | None


class _Status(msgspec.Struct, rename="camel"):
    token: str = ""
    client_certificate_data: str = ""
    client_key_data: str = ""
    expiration_timestamp: datetime | None = None


class _Credential(msgspec.Struct, rename="camel"):
    api_version: str
    kind: str
    status: _Status = msgspec.field(default_factory=_Status)


async def ask_plugin(
    command: Sequence[str],
    env: Mapping[str, str],
    *,
    api_version: str,
    cluster: Mapping[str, Any] | None = None,
    install_hint: str = "",
    run: RunProgram = run_program,
) -> PluginCredentials:
    """Run a plugin.

    Args:
        command: the program and its arguments.
        env: its environment, without KUBERNETES_EXEC_INFO.
        api_version: of the credentials it is asked for.
        cluster: what it is told of the cluster, None when it did not ask for that.
        install_hint: what the kubeconfig says to do when the program is missing.
        run: runs programs.

    Raises:
        AccessError: it failed, or gave no credentials.
    """
    name = f"exec plugin {command[0]}"
    if api_version not in _VERSIONS:
        msg = f"{name}: apiVersion must be one of {', '.join(_VERSIONS)}, not {api_version!r}"
        raise AccessError(msg)
    spec: dict[str, Any] = {"interactive": False}
    if cluster is not None:
        spec["cluster"] = cluster
    info = {"apiVersion": api_version, "kind": "ExecCredential", "spec": spec}
    environment = {**env, "KUBERNETES_EXEC_INFO": msgspec.json.encode(info).decode()}
    try:
        answer = await run(command, b"", environment, PLUGIN_TIMEOUT)
    except ProgramError as error:
        hint = f"; {' '.join(install_hint.split())}" if install_hint else ""
        msg = f"{name} {' '.join(str(error).split())}{hint}"
        raise AccessError(msg, passing=True) from error
    return _read(name, answer, api_version)


def _read(name: str, answer: bytes, api_version: str) -> PluginCredentials:
    try:
        credential = msgspec.json.decode(answer, type=_Credential)
    except msgspec.DecodeError as error:
        # The answer itself is secret.
        msg = f"{name} printed no ExecCredential: {error}"
        raise AccessError(msg, passing=True) from error
    if credential.kind != "ExecCredential" or credential.api_version != api_version:
        got = f"{credential.api_version} {credential.kind}"
        msg = f"{name} printed {got[:100]!r} instead of {api_version} ExecCredential"
        raise AccessError(msg, passing=True)
    status = credential.status
    if bool(status.client_certificate_data) != bool(status.client_key_data):
        msg = f"{name} gave only one of clientCertificateData and clientKeyData"
        raise AccessError(msg, passing=True)
    if not status.token and not status.client_certificate_data:
        msg = f"{name} gave neither a token nor a client certificate"
        raise AccessError(msg, passing=True)
    expires = status.expiration_timestamp
    if expires is not None and expires.tzinfo is None:
        msg = f"{name} gave an expirationTimestamp without a zone"
        raise AccessError(msg, passing=True)
    return PluginCredentials(
        status.token, status.client_certificate_data, status.client_key_data, expires
    )


def program_path(command: str, base: Path) -> str:
    """The program: a relative path counts from the kubeconfig, a bare name is searched for."""
    if "/" in command and not Path(command).is_absolute():
        return str(base / command)
    return command
