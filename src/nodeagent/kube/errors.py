"""How a request to the API server can fail."""

from __future__ import annotations


class KubeError(Exception):
    """A request to the API server failed."""


class UnreachableError(KubeError):
    """No answer came: the connection failed or was lost, or the deadline passed.

    Whether a write took effect is not known.
    """


class ApiError(KubeError):
    """The server answered with an error.

    Attributes:
        status: HTTP status code.
        reason: the ``reason`` of the Status object, such as ``NotFound``; "" without one.
        message: what the server says, on one line and at most 500 characters.
        retry_after: seconds after which the server wants to be asked again, or None.
    """

    def __init__(
        self, status: int, reason: str, message: str, retry_after: float | None = None
    ) -> None:
        super().__init__(message or reason or f"HTTP {status}")
        self.status = status
        self.reason = reason
        self.message = message
        self.retry_after = retry_after

    @property
    def not_found(self) -> bool:
        """There is no such object."""
        return self.status == 404

    @property
    def already_exists(self) -> bool:
        """An object of that name is there."""
        return self.status == 409 and self.reason == "AlreadyExists"

    @property
    def conflict(self) -> bool:
        """The object has changed meanwhile, or has another UID."""
        return self.status == 409 and self.reason != "AlreadyExists"

    @property
    def gone(self) -> bool:
        """The resource version is too old to go on from."""
        return self.status == 410 or self.reason in {"Expired", "Gone"}

    @property
    def unauthorized(self) -> bool:
        """The server does not know who asks."""
        return self.status == 401

    @property
    def forbidden(self) -> bool:
        """The server knows who asks, and does not allow it."""
        return self.status == 403

    @property
    def too_many_requests(self) -> bool:
        """The server is busy; ``retry_after`` may say for how long."""
        return self.status == 429


def may_be_of_connection(error: KubeError) -> bool:
    """Whether a new connection, perhaps to another server behind the address, may do better.

    Who refuses a request has understood it.
    """
    return not (isinstance(error, ApiError) and 400 <= error.status < 500)


def is_away(error: KubeError) -> bool:
    """Whether the server, rather than the request, is the trouble: nothing follows from it."""
    return not isinstance(error, ApiError) or error.status >= 500 or error.too_many_requests


class UndecodableError(KubeError):
    """An answer with a good status is not what it should be: HTML, cut-off JSON, another kind."""
