"""Why an HTTP server could not be reached, in words."""

from __future__ import annotations

import os


def cause_of(error: Exception) -> str:
    """The cause, on one line."""
    import aiohttp

    match error:
        case aiohttp.ClientConnectorCertificateError():
            reason = getattr(error.certificate_error, "verify_message", "") or "not valid"
            return f"the certificate of {error.host} is not accepted: {reason}"
        case aiohttp.ClientConnectorDNSError():
            return f"the host {error.host} is not found: {_reason(error.os_error)}"
        case aiohttp.ClientConnectorSSLError():
            return f"no secure connection to {error.host}:{error.port}: {_reason(error.os_error)}"
        case aiohttp.ClientConnectorError():
            return f"cannot connect to {error.host}:{error.port}: {_reason(error.os_error)}"
        case aiohttp.ClientPayloadError():
            return "the answer broke off"
        case aiohttp.ServerDisconnectedError():
            return "the server closed the connection without an answer"
        case aiohttp.ClientResponseError():
            # Its message has several lines, with a drawing of where the fault is.
            return f"not an HTTP answer: {' '.join(error.message.split())}"[:200]
        case aiohttp.ClientOSError() | OSError():
            return f"the connection was lost: {_reason(error)}"
        case aiohttp.ClientConnectionError():
            return "the connection was lost"
        case _:
            return f"it cannot be asked: {type(error).__name__}"


def _reason(error: OSError) -> str:
    # asyncio words an error of connect() with the address in the middle.
    plain = type(error) is OSError or isinstance(error, ConnectionError)
    if plain and error.errno and error.errno > 0:
        return os.strerror(error.errno)
    return str(getattr(error, "reason", "")) or error.strerror or type(error).__name__
