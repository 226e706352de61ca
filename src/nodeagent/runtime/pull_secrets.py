"""Pull secrets of pods: who gives them, and what they hold.

docs/behaviour/images.md, "Credentials".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from nodeagent.api import Pod
from nodeagent.runtime.keyring import Login, MalformedLoginError, parse_docker_config

_KEYS: Final[Mapping[str, tuple[str, bool]]] = {
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson", False),
    "kubernetes.io/dockercfg": (".dockercfg", True),
}


@dataclass(frozen=True, slots=True)
class PullSecret:
    """A Secret as far as pulls need it.

    Attributes:
        data: its decoded values; never shown.
    """

    uid: str
    namespace: str
    name: str
    type: str
    data: Mapping[str, bytes] = field(repr=False)


class SecretReader(Protocol):
    """Gives Secrets by name."""

    async def read_secret(self, namespace: str, name: str) -> PullSecret | None:
        """One Secret; None when there is none or it cannot be read now."""
        ...


class NoSecrets:
    """A node without an API server: there is no Secret."""

    async def read_secret(self, namespace: str, name: str) -> PullSecret | None:
        """Give None."""
        return None


@dataclass(frozen=True, slots=True)
class SecretLogins:
    """The logins that a Secret holds."""

    secret: PullSecret
    logins: Sequence[tuple[str, Login]]


@dataclass(frozen=True, slots=True)
class PodLogins:
    """What the pull secrets of a pod come to.

    Attributes:
        found: logins, in the order in which the pod names its secrets.
        missing: names of secrets that nobody has.
        malformed: what is wrong with secrets that cannot be used.
    """

    found: tuple[SecretLogins, ...] = ()
    missing: tuple[str, ...] = ()
    malformed: tuple[str, ...] = ()


async def read_pull_secrets(pod: Pod, reader: SecretReader) -> PodLogins:
    """Read all pull secrets that a pod names."""
    found: list[SecretLogins] = []
    missing: list[str] = []
    malformed: list[str] = []
    names = dict.fromkeys(ref.name for ref in pod.spec.image_pull_secrets if ref.name)
    for name in names:
        secret = await reader.read_secret(pod.metadata.namespace, name)
        if secret is None:
            missing.append(name)
            continue
        try:
            found.append(SecretLogins(secret, secret_logins(secret)))
        except MalformedLoginError as error:
            malformed.append(f"secret {secret.namespace}/{secret.name}: {error}")
    return PodLogins(tuple(found), tuple(missing), tuple(malformed))


def secret_logins(secret: PullSecret) -> list[tuple[str, Login]]:
    """The logins of a Secret; none when it is of another type or lacks its key.

    Raises:
        MalformedLoginError: its content is no docker configuration.
    """
    key, legacy = _KEYS.get(secret.type, ("", False))
    data = secret.data.get(key)
    if not data:
        return []
    try:
        return parse_docker_config(data, legacy=legacy)
    except MalformedLoginError as error:
        msg = f"{key}: {error}"
        raise MalformedLoginError(msg) from error
