"""How the agent serves the kubelet's API: where, with which certificate, and to whom."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from nodeagent.config.errors import ConfigError
from nodeagent.config.node_options import NodeOptions

ALWAYS_ALLOW: Final = "AlwaysAllow"
WEBHOOK: Final = "Webhook"
AUTHORIZATION_MODES: Final = (ALWAYS_ALLOW, WEBHOOK)
TLS_VERSIONS: Final = ("VersionTLS10", "VersionTLS11", "VersionTLS12", "VersionTLS13")
CIPHER_SUITES: Final = {
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA": "ECDHE-ECDSA-AES128-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA": "ECDHE-ECDSA-AES256-SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA": "ECDHE-RSA-AES128-SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA": "ECDHE-RSA-AES256-SHA",
    "TLS_RSA_WITH_AES_128_GCM_SHA256": "AES128-GCM-SHA256",
    "TLS_RSA_WITH_AES_256_GCM_SHA384": "AES256-GCM-SHA384",
    "TLS_RSA_WITH_AES_128_CBC_SHA": "AES128-SHA",
    "TLS_RSA_WITH_AES_256_CBC_SHA": "AES256-SHA",
}
"""Cipher suites up to TLS 1.2, by their names in the configuration; the values are OpenSSL's.

Those of TLS 1.3 are always there, as with the kubelet.
"""
_TLS13_SUITES: Final = (
    "TLS_AES_128_GCM_SHA256",
    "TLS_AES_256_GCM_SHA384",
    "TLS_CHACHA20_POLY1305_SHA256",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerOptions(NodeOptions):
    """How the kubelet's API is served.

    Attributes:
        enable_server: whether there are an API port and a read-only port at all.
        address: IP address of the API port; "" means all of the machine's. Given, it is also
            that of the read-only port, unless that has one of its own.
        port: of the API; 0 opens none.
        cert_dir: see :class:`ClusterSettings`; also holds the certificate that is made here.
        tls_cert_file: certificate of the API port, with its chain; "" for one made here.
        tls_private_key_file: its key.
        server_tls_bootstrap: ask the cluster for the certificate of the API port.
        tls_cipher_suites: cipher suites up to TLS 1.2; empty means OpenSSL's choice.
        tls_min_version: lowest version of TLS; "" means ``VersionTLS12``.
        client_ca_file: who signs the certificates of clients; "" means that none count.
        anonymous_auth: whether requests without credentials are ``system:anonymous``.
        authentication_token_webhook: whether the API server is asked about bearer tokens.
        authentication_token_webhook_cache_ttl: seconds that an answer is good for.
        authorization_mode: ``Webhook`` (the API server is asked) or ``AlwaysAllow``.
        authorization_webhook_cache_authorized_ttl: seconds that a yes is good for.
        authorization_webhook_cache_unauthorized_ttl: seconds that a no is good for.
        streaming_connection_idle_timeout: seconds without a byte after which a stream of exec,
            attach or port-forward is closed; 0 for never.
        streaming_connection_lifetime: seconds after which it is closed in any case; 0 for never.
        enable_debugging_handlers: whether logs, exec, attach, port-forward, run and the like are
            served.
        enable_system_log_handler: whether ``/logs`` is.
        enable_system_log_query: whether it shows logs of services, too.
        enable_profiling_handler: whether ``/debug/tasks`` and ``/debug/pprof`` are.
        enable_debug_flags_handler: whether ``/debug/flags/v`` is.
    """

    enable_server: bool = True
    address: str = ""
    port: int = 0
    tls_cert_file: Path | str = ""
    tls_private_key_file: Path | str = ""
    server_tls_bootstrap: bool = False
    tls_cipher_suites: tuple[str, ...] = ()
    tls_min_version: str = ""
    client_ca_file: Path | str = ""
    anonymous_auth: bool = False
    authentication_token_webhook: bool = True
    authentication_token_webhook_cache_ttl: float = 120.0
    authorization_mode: str = WEBHOOK
    authorization_webhook_cache_authorized_ttl: float = 300.0
    authorization_webhook_cache_unauthorized_ttl: float = 30.0
    streaming_connection_idle_timeout: float = 4 * 3600.0
    streaming_connection_lifetime: float = 24 * 3600.0
    enable_debugging_handlers: bool = True
    enable_system_log_handler: bool = True
    enable_system_log_query: bool = False
    enable_profiling_handler: bool = True
    enable_debug_flags_handler: bool = True

    @property
    def api_address(self) -> str:
        """Where the API port is bound to."""
        return self.address or "0.0.0.0"  # noqa: S104 - the API server comes from outside

    def _check_server(self) -> None:
        """Raises ConfigError."""
        if not 0 <= self.port <= 65535:
            allowed = "must be a port between 1 and 65535, or 0 for none"
            raise ConfigError("port", self.port, allowed)
        if self.address:
            try:
                ipaddress.ip_address(self.address)
            except ValueError as error:
                raise ConfigError("address", self.address, "must be an IP address") from error
        _check_files(self)
        _check_tls(self)
        if self.authorization_mode not in AUTHORIZATION_MODES:
            allowed = f"must be {' or '.join(AUTHORIZATION_MODES)}"
            raise ConfigError("authorization_mode", self.authorization_mode, allowed)
        for name in (
            "authentication_token_webhook_cache_ttl",
            "authorization_webhook_cache_authorized_ttl",
            "authorization_webhook_cache_unauthorized_ttl",
            "streaming_connection_idle_timeout",
            "streaming_connection_lifetime",
        ):
            value = getattr(self, name)
            if value < 0:
                raise ConfigError(name, value, "must not be negative")


def _check_files(options: ServerOptions) -> None:
    files = ("tls_cert_file", "tls_private_key_file")
    given = [name for name in files if str(getattr(options, name))]
    if len(given) == 1:
        other = next(name for name in files if name not in given)
        raise ConfigError(other, "", f"is needed with {given[0].replace('_', '-')}")


def _check_tls(options: ServerOptions) -> None:
    version = options.tls_min_version
    if version and version not in TLS_VERSIONS:
        raise ConfigError("tls_min_version", version, f"must be one of {', '.join(TLS_VERSIONS)}")
    for suite in options.tls_cipher_suites:
        if suite not in CIPHER_SUITES and suite not in _TLS13_SUITES:
            allowed = f"must be some of {', '.join((*CIPHER_SUITES, *_TLS13_SUITES))}"
            raise ConfigError("tls_cipher_suites", suite, allowed)
