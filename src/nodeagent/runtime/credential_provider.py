"""Logins from credential provider plugins (docs/behaviour/images.md, "Providers")."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import anyio
import msgspec
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from nodeagent.api import Pod
from nodeagent.duration import parse_duration
from nodeagent.journal import Journal
from nodeagent.log import Log
from nodeagent.plain_counter import SECONDS
from nodeagent.program import ProgramError, run_program
from nodeagent.runtime.credential_config import ProvidersConfig, ProviderSettings, TokenAttributes
from nodeagent.runtime.keyring import Keyring, Login, covers

TIMEOUT: Final = 60.0
PURGE_PERIOD: Final = 900.0

log = Log("runtime.credentials")


@dataclass(frozen=True, slots=True)
class ServiceAccountToken:
    """A token of a pod's service account, and whose it is.

    Attributes:
        annotations: those of the service account.
        token: the token itself; never shown.
    """

    namespace: str
    name: str
    uid: str
    annotations: Mapping[str, str]
    token: str = field(repr=False)


class TokenSource(Protocol):
    """Gives tokens of service accounts."""

    async def token(self, pod: Pod, audience: str) -> ServiceAccountToken | None:
        """A token of the pod's service account; None when it has none or nobody can ask."""
        ...


class NoTokens:
    """A node without an API server: there are no service accounts."""

    async def token(self, pod: Pod, audience: str) -> ServiceAccountToken | None:
        """Give None."""
        return None


@dataclass(frozen=True, slots=True)
class ProviderLogin:
    """A login, and the service account that it was given for, None for the node."""

    login: Login
    account: ServiceAccountToken | None = None


RunPlugin = Callable[[Sequence[str], bytes, Mapping[str, str], float], Awaitable[bytes]]
"""Runs a program with an input; see :func:`nodeagent.program.run_program`."""


class _Auth(msgspec.Struct, frozen=True):
    username: str = ""
    password: str = ""


class _Response(msgspec.Struct, frozen=True, rename="camel"):
    api_version: str = ""
    kind: str = ""
    cache_key_type: str = ""
    cache_duration: str | None = None
    auth: dict[str, _Auth] | None = None


@dataclass(slots=True)
class _Kept:
    """An answer that is kept until ``expires`` (loop time)."""

    ring: Keyring[Login]
    expires: float


@dataclass(slots=True)
class _Flight:
    """A run of a plugin that others wait for."""

    landed: anyio.Event = field(default_factory=anyio.Event)
    ring: Keyring[Login] | None = None
    done: bool = False


class ProviderMetrics:
    """Metrics of the plugins.

    Args:
        registry: where they are registered; None for a private one.
    """

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        registry = registry or CollectorRegistry()
        self.errors = Counter(
            "kubelet_credential_provider_plugin_errors",
            "Runs of credential provider plugins that failed",
            ["plugin_name"],
            registry=registry,
        )
        self.duration = Histogram(
            "kubelet_credential_provider_plugin_duration",
            "Seconds that a run of a credential provider plugin took",
            ["plugin_name"],
            buckets=SECONDS,
            registry=registry,
        )
        self.config = Gauge(
            "kubelet_credential_provider_config_info",
            "The hash of the configuration of the credential providers",
            ["hash"],
            registry=registry,
        )


class CredentialProviders:
    """All plugins of a node.

    Args:
        config: which there are.
        journal: the flight recorder.
        metrics: counters.
        tokens: gives tokens of service accounts.
        run: runs a program.
    """

    def __init__(
        self,
        config: ProvidersConfig,
        *,
        journal: Journal,
        metrics: ProviderMetrics,
        tokens: TokenSource | None = None,
        run: RunPlugin = run_program,
    ) -> None:
        self._tokens = tokens or NoTokens()
        self._journal, self._run = journal, run
        self._metrics = metrics
        self._config = ProvidersConfig()
        self._plugins: list[_Plugin] = []
        self.reconfigure(config)

    def reconfigure(self, config: ProvidersConfig) -> None:
        """Have other plugins from now on; what those of before have answered is forgotten."""
        if config == self._config:
            return
        self._config = config
        self._plugins = [
            _Plugin(settings, self._journal, self._metrics, self._run)
            for settings in config.providers
        ]
        self._metrics.config.clear()
        if config.hash:
            self._metrics.config.labels(config.hash).set(1)

    async def lookup(self, pod: Pod, image: str) -> list[ProviderLogin]:
        """The logins for an image, in the order of the plugins.

        A plugin that fails is logged and gives none.

        Args:
            pod: whose image it is.
            image: the full name of its repository.
        """
        found: list[ProviderLogin] = []
        for plugin in self._plugins:
            if not plugin.covers(image):
                continue
            account = None
            if plugin.settings.token is not None:
                account = await self._account(pod, plugin.settings.token)
                if account is None and plugin.settings.token.require_service_account:
                    continue
            ring = await plugin.ask(image, account)
            found += [ProviderLogin(login, account) for login in ring.lookup(image)]
        return found

    async def accounts(self, pod: Pod, image: str) -> list[ServiceAccountToken]:
        """The service accounts for which plugins would give logins for an image."""
        wanted = [p.settings.token for p in self._plugins if p.settings.token and p.covers(image)]
        found = [await self._account(pod, token) for token in wanted]
        return [account for account in found if account is not None]

    async def _account(self, pod: Pod, wanted: TokenAttributes) -> ServiceAccountToken | None:
        account = await self._tokens.token(pod, wanted.service_account_token_audience)
        if account is None:
            return None
        required = set(wanted.required_service_account_annotation_keys)
        if not required <= account.annotations.keys():
            return None
        return account


class _Plugin:
    """One plugin with the answers that are kept of it."""

    def __init__(
        self,
        settings: ProviderSettings,
        journal: Journal,
        metrics: ProviderMetrics,
        run: RunPlugin,
    ) -> None:
        self.settings = settings
        self._journal = journal
        self._metrics = metrics
        self._run = run
        self._kept: dict[tuple[str, str, str], _Kept] = {}
        self._flights: dict[tuple[str, str], _Flight] = {}
        self._purged = 0.0

    def covers(self, image: str) -> bool:
        """Whether it is to be asked about the image."""
        return any(covers(pattern, image) for pattern in self.settings.match_images)

    async def ask(self, image: str, account: ServiceAccountToken | None) -> Keyring[Login]:
        """Its logins, kept ones if there are; concurrent questions make one run."""
        key = (image, self._whose(account))
        while True:
            if (kept := self._find(*key)) is not None:
                return kept
            flight = self._flights.get(key)
            if flight is None:
                return await self._fly(key, image, account)
            await flight.landed.wait()
            if flight.done:
                return flight.ring or Keyring(())

    async def _fly(
        self, key: tuple[str, str], image: str, account: ServiceAccountToken | None
    ) -> Keyring[Login]:
        flight = self._flights[key] = _Flight()
        try:
            flight.ring = await self._ask_now(image, account, key[1])
            flight.done = True
            return flight.ring
        finally:
            # One that was cancelled has no answer: the next in line runs it again.
            del self._flights[key]
            flight.landed.set()

    async def _ask_now(
        self, image: str, account: ServiceAccountToken | None, whose: str
    ) -> Keyring[Login]:
        settings, began = self.settings, anyio.current_time()
        name = settings.name
        try:
            output = await self._run(
                (str(settings.program), *settings.args),
                self._request(image, account),
                {**os.environ, **dict(settings.env)},
                TIMEOUT,
            )
            response = self._read(output, account)
        except ProgramError as error:
            self._metrics.errors.labels(name).inc()
            cause = f"credential provider {name}: {error}"
            log.warning("credential_provider_failed", plugin=name, image=image, cause=str(error))
            self._journal.record("runtime", "CredentialProviderFailed", "", cause, image=image)
            return Keyring(())
        finally:
            self._metrics.duration.labels(name).observe(anyio.current_time() - began)
        auths = (response.auth or {}).items()
        ring = Keyring((key, Login(auth.username, auth.password)) for key, auth in auths)
        self._keep(image, whose, response, ring)
        return ring

    def _request(self, image: str, account: ServiceAccountToken | None) -> bytes:
        request: dict[str, Any] = {
            "kind": "CredentialProviderRequest",
            "apiVersion": self.settings.api_version,
            "image": image,
        }
        if account is not None:
            request["serviceAccountToken"] = account.token
            if shown := self._annotations(account):
                request["serviceAccountAnnotations"] = shown
        return msgspec.json.encode(request)

    def _annotations(self, account: ServiceAccountToken) -> dict[str, str]:
        token = self.settings.token
        assert token is not None
        wanted = (
            *token.required_service_account_annotation_keys,
            *token.optional_service_account_annotation_keys,
        )
        return {key: account.annotations[key] for key in wanted if key in account.annotations}

    def _read(self, output: bytes, account: ServiceAccountToken | None) -> _Response:
        try:
            response = msgspec.json.decode(output, type=_Response)
        except (msgspec.DecodeError, RecursionError) as error:
            # The text of the error may quote what must not be shown.
            raise ProgramError("printed something that is no CredentialProviderResponse") from error
        expected = self.settings.api_version
        if response.kind != "CredentialProviderResponse" or response.api_version != expected:
            msg = (
                f"answered with {response.api_version} {response.kind}, "
                f"expected {expected} CredentialProviderResponse"
            )
            raise ProgramError(msg)
        if response.cache_key_type not in ("Image", "Registry", "Global"):
            msg = f"cacheKeyType {response.cache_key_type!r} is not Image, Registry or Global"
            raise ProgramError(msg)
        self._duration(response)
        token = self.settings.token
        if account is None or token is None or token.cache_type == "Token":
            return response
        if any(auth.password == account.token for auth in (response.auth or {}).values()):
            raise ProgramError("gave the token back as a password; that needs cacheType Token")
        return response

    def _duration(self, response: _Response) -> float:
        if response.cache_duration is None:
            return self.settings.cache_duration
        try:
            return parse_duration(response.cache_duration)
        except ValueError as error:
            msg = f"cacheDuration: {error}"
            raise ProgramError(msg) from error

    def _keep(self, image: str, whose: str, response: _Response, ring: Keyring[Login]) -> None:
        now, duration = anyio.current_time(), self._duration(response)
        if now - self._purged > PURGE_PERIOD:
            self._kept = {key: kept for key, kept in self._kept.items() if kept.expires > now}
            self._purged = now
        if duration > 0:
            subject = _subject(response.cache_key_type, image)
            self._kept[response.cache_key_type, subject, whose] = _Kept(ring, now + duration)

    def _find(self, image: str, whose: str) -> Keyring[Login] | None:
        for kind in ("Image", "Registry", "Global"):
            kept = self._kept.get((kind, _subject(kind, image), whose))
            if kept is not None and kept.expires > anyio.current_time():
                return kept.ring
        return None

    def _whose(self, account: ServiceAccountToken | None) -> str:
        """Who may use a kept answer: all, a service account, or the bearer of a token."""
        if account is None or self.settings.token is None:
            return ""
        if self.settings.token.cache_type == "Token":
            return hashlib.sha256(account.token.encode()).hexdigest()
        shown = msgspec.json.encode(sorted(self._annotations(account).items())).decode()
        return f"{account.namespace}/{account.name}/{account.uid}/{shown}"


def _subject(kind: str, image: str) -> str:
    match kind:
        case "Image":
            return image
        case "Registry":
            return image.partition("/")[0]
        case _:
            return ""
