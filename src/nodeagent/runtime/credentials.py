"""What an image may be pulled with (docs/behaviour/images.md, "Credentials")."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec
from anyio import to_thread

from nodeagent.api import Pod
from nodeagent.log import Log
from nodeagent.proto.runtime import v1
from nodeagent.runtime.credential_provider import CredentialProviders
from nodeagent.runtime.events import PodEvents
from nodeagent.runtime.keyring import Keyring, Login, MalformedLoginError, parse_docker_config
from nodeagent.runtime.pull_secrets import NoSecrets, PodLogins, SecretReader, read_pull_secrets

log = Log("runtime.credentials")


@dataclass(frozen=True, slots=True)
class Owner:
    """A Secret or a ServiceAccount that stands for the right to an image."""

    uid: str
    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class Credential:
    """One way to pull: with a login, or anonymously.

    Attributes:
        login: None for none.
        secret: the pull secret that it is from.
        account: the service account that it was given for. Without both, all pods of the
            node may use it.
    """

    login: Login | None = None
    secret: Owner | None = None
    account: Owner | None = None

    @property
    def auth(self) -> v1.AuthConfig | None:
        """The login as the runtime takes it."""
        if self.login is None:
            return None
        return v1.AuthConfig(username=self.login.username, password=self.login.password)

    @property
    def hash(self) -> str:
        """A hash of the login, "" without one."""
        if self.login is None:
            return ""
        pair = {"username": self.login.username, "password": self.login.password}
        return hashlib.sha256(msgspec.json.encode(pair)).hexdigest()

    def __str__(self) -> str:
        if self.secret is not None:
            return f"secret {self.secret.namespace}/{self.secret.name}"
        if self.account is not None:
            return f"service account {self.account.namespace}/{self.account.name}"
        return "node" if self.login is not None else "anonymous"


ANONYMOUS: Final = Credential()


class ImageCredentials:
    """Finds what the image of a pod may be pulled with.

    Args:
        events: told of secrets that cannot be had.
        secrets: gives pull secrets.
        config_dirs: directories in which the node's docker configuration may lie.
        providers: the credential provider plugins; None for none.
    """

    def __init__(
        self,
        events: PodEvents,
        *,
        secrets: SecretReader | None = None,
        config_dirs: Sequence[Path] = (),
        providers: CredentialProviders | None = None,
    ) -> None:
        self._events = events
        self._secrets = secrets or NoSecrets()
        self._config_dirs = tuple(config_dirs)
        self.providers = providers

    async def of_pod(self, pod: Pod) -> PodLogins:
        """The pod's pull secrets; those that cannot be had or read are told in an event."""
        if not pod.spec.image_pull_secrets:
            return PodLogins()
        logins = await read_pull_secrets(pod, self._secrets)
        if logins.missing:
            self._events.event(
                pod,
                "Warning",
                "FailedToRetrieveImagePullSecret",
                f"Unable to retrieve some image pull secrets ({', '.join(logins.missing)}); "
                "attempting to pull the image may not succeed.",
            )
        return logins

    def from_secrets(self, logins: PodLogins, image: str) -> list[Credential]:
        """What the pod's secrets have for an image.

        Args:
            logins: from :meth:`of_pod`.
            image: the full name of its repository.
        """
        return Keyring(
            (key, Credential(login, secret=Owner(s.secret.uid, s.secret.namespace, s.secret.name)))
            for s in logins.found
            for key, login in s.logins
        ).lookup(image)

    async def accounts(self, pod: Pod, image: str) -> list[Owner]:
        """The service accounts for which plugins would give logins for an image."""
        if self.providers is None:
            return []
        found = await self.providers.accounts(pod, image)
        return [Owner(account.uid, account.namespace, account.name) for account in found]

    async def candidates(self, pod: Pod, logins: PodLogins, image: str) -> list[Credential]:
        """All that may be tried, in order; an anonymous pull when there is nothing else."""
        found = self.from_secrets(logins, image)
        ring = await to_thread.run_sync(node_keyring, self._config_dirs)
        found += [Credential(login) for login in ring.lookup(image)]
        if self.providers is not None:
            for given in await self.providers.lookup(pod, image):
                account = given.account
                owner = Owner(account.uid, account.namespace, account.name) if account else None
                found.append(Credential(given.login, account=owner))
        return found or [ANONYMOUS]


def node_config_dirs(root: Path) -> tuple[Path, ...]:
    """Where a node's docker configuration may lie, first come first. Blocking."""
    home = os.environ.get("HOME", "")
    docker = (Path(home, ".docker"),) if home else ()
    return (root, Path.cwd(), *docker, Path("/.docker"))


def node_keyring(directories: Sequence[Path]) -> Keyring[Login]:
    """The logins of the first docker configuration that can be read. Blocking."""
    plain = [d.parent if d.name == ".docker" else d for d in directories]
    for path, legacy in (
        *((d / "config.json", False) for d in directories),
        *((d / ".dockercfg", True) for d in plain),
    ):
        try:
            return Keyring(parse_docker_config(path.read_bytes(), legacy=legacy))
        except OSError:
            continue
        except MalformedLoginError as error:
            log.debug("no_docker_config", file=str(path), cause=str(error))
    return Keyring[Login](())
