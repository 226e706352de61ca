"""Rights to images: who has shown one, and which images need none.

docs/behaviour/images.md, "Verification". Pure.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from nodeagent.runtime.credentials import Credential, Owner
from nodeagent.runtime.keyring import repository

Rights = Callable[[], Awaitable[tuple[Sequence[Credential], Sequence[Owner]]]]
"""Gives the credentials of a pod's secrets for an image, and its service accounts."""

_MOST: Final = 99
"""Owners of a right that are kept beside the newest one."""


class _Secret(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    uid: str = ""
    namespace: str = ""
    name: str = ""
    credential_hash: str = ""

    @property
    def owner(self) -> Owner:
        return Owner(self.uid, self.namespace, self.name)


class _Account(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    uid: str = ""
    namespace: str = ""
    name: str = ""


class Access(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Who has pulled an image from a repository, and so may use it."""

    node_pods_accessible: bool = False
    kubernetes_secrets: tuple[_Secret, ...] = ()
    kubernetes_service_accounts: tuple[_Account, ...] = ()

    def with_credential(self, credential: Credential) -> Access:
        """The same, and those who have this credential."""
        if self.node_pods_accessible:
            return self
        if credential.secret is not None:
            owner = credential.secret
            mine = _Secret(
                uid=owner.uid,
                namespace=owner.namespace,
                name=owner.name,
                credential_hash=credential.hash,
            )
            others = tuple(s for s in self.kubernetes_secrets if s.owner != owner)[-_MOST:]
            return msgspec.structs.replace(self, kubernetes_secrets=(*others, mine))
        if credential.account is not None:
            owner = credential.account
            account = _Account(uid=owner.uid, namespace=owner.namespace, name=owner.name)
            known = tuple(a for a in self.kubernetes_service_accounts if a != account)[-_MOST:]
            return msgspec.structs.replace(self, kubernetes_service_accounts=(*known, account))
        return Access(node_pods_accessible=True)

    def admits(self, credentials: Sequence[Credential], accounts: Sequence[Owner]) -> bool:
        """Whether one of these credentials or service accounts has access."""
        if self.node_pods_accessible:
            return True
        hashes = {s.credential_hash for s in self.kubernetes_secrets if s.credential_hash}
        owners = {s.owner for s in self.kubernetes_secrets}
        known = {Owner(a.uid, a.namespace, a.name) for a in self.kubernetes_service_accounts}
        return any(c.hash in hashes or c.secret in owners for c in credentials) or any(
            account in known for account in accounts
        )


@dataclass(frozen=True, slots=True)
class VerificationPolicy:
    """Which images are free for all pods although nobody has shown a right to them.

    Attributes:
        name: as ``imagePullCredentialsVerificationPolicy`` has it.
        allowlist: for ``NeverVerifyAllowlistedImages``: repositories, or all below a prefix
            (``registry.test/team/*``).
    """

    name: str = "NeverVerifyPreloadedImages"
    allowlist: tuple[str, ...] = ()

    def exempts(self, image: str, *, pulled_by_us: bool) -> bool:
        """Whether an image needs no right.

        Args:
            image: the full name of its repository.
            pulled_by_us: there is a record or an intent.
        """
        match self.name:
            case "NeverVerify":
                return True
            case "NeverVerifyPreloadedImages":
                return not pulled_by_us
            case "NeverVerifyAllowlistedImages":
                return not pulled_by_us and self._listed(image)
            case _:
                return False

    def _listed(self, image: str) -> bool:
        return any(
            image.startswith(entry[:-1]) if entry.endswith("/*") else image == repository(entry)
            for entry in self.allowlist
        )
