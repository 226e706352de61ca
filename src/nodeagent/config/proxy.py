"""The HTTP proxy that the environment asks for."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit


def environment_proxy(url: str) -> str | None:
    """The proxy for a URL by HTTP_PROXY, HTTPS_PROXY and NO_PROXY; None to go there directly.

    As in the kubelet, this machine itself is never reached through a proxy.
    """
    # Loaded here: it is large, and only an agent with a manifest URL needs it.
    from urllib.request import getproxies, proxy_bypass

    parts = urlsplit(url)
    host = parts.hostname or ""
    if _is_this_machine(host) or proxy_bypass(host):
        return None
    proxy = getproxies().get(parts.scheme)
    if not proxy:
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


def _is_this_machine(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
