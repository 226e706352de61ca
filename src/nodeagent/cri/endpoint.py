"""Where a runtime is, and what to do when it is not there."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

from nodeagent.rpc import RpcError, Unavailable, check_path

DEFAULT_ENDPOINT: Final = "unix:///run/containerd/containerd.sock"

_REMEDIES: Final = (
    ("no such socket", "start the runtime (for containerd: systemctl start containerd)"),
    ("nobody listens", "restart the runtime (for containerd: systemctl restart containerd)"),
    ("permission denied", "run as root, or as a user who may use the socket"),
    ("unknown service", "enable the runtime's CRI plugin (containerd: disabled_plugins)"),
)
_WITHOUT_IMAGES: Final = "or leave --image-service-endpoint out to use the runtime's endpoint"
_OTHERWISE: Final = "or try --container-runtime-endpoint=embedded, which needs no runtime"


def socket_path(endpoint: str) -> str:
    """Return the path of a ``unix:///path`` endpoint.

    Raises:
        ValueError: it is no such endpoint, or the path is too long for a socket.
    """
    parts = urlsplit(endpoint)
    if parts.scheme != "unix" or parts.netloc or not parts.path.startswith("/"):
        hint = f"unix://{endpoint}" if endpoint.startswith("/") else DEFAULT_ENDPOINT
        msg = f"endpoint {endpoint!r} is not of the form unix:///path (for example {hint})"
        raise ValueError(msg)
    return check_path(endpoint.removeprefix("unix://"))


def not_reached(endpoint: str, cause: RpcError, *, images: bool = False) -> Unavailable:
    """Build the error for a runtime that does not answer: endpoint, cause and remedy.

    Args:
        endpoint: where it should be.
        cause: what the call said.
        images: it is an image service with an endpoint of its own.
    """
    reason = cause.message.removeprefix(f"{endpoint}: ")
    first = next((remedy for sign, remedy in _REMEDIES if sign in reason), None)
    otherwise = _WITHOUT_IMAGES if images else _OTHERWISE
    advice = f"{first}, {otherwise}" if first else otherwise.removeprefix("or ")
    what = "image service" if images else "container runtime"
    msg = f"no {what} at {endpoint}: {reason or cause}; {advice}"
    return Unavailable(msg)
