# ruff: noqa: N818  (the classes carry gRPC's own names for its codes)
"""What a call can end in, by gRPC status code.

Callers ask about behaviour: is it gone (:class:`NotFound`), worth another try
(:class:`Unavailable`, :class:`DeadlineExceeded`), not there at all (:class:`Unimplemented`)?
The same classes are raised by the client and, from a handler, answered by the server.
"""

from __future__ import annotations

import enum
from typing import ClassVar, Final


class Code(enum.IntEnum):
    """gRPC status codes other than OK."""

    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


class RpcError(Exception):
    """A call failed. Raise a subclass; this base is for ``except``.

    Args:
        message: the cause, as the other side or the operating system gave it.
        method: the call, ``RunPodSandbox``; a handler may leave it out.

    Attributes:
        code: the gRPC status code.
        message: see Args.
        method: see Args.
    """

    code: ClassVar[Code] = Code.UNKNOWN

    def __init__(self, message: str = "", method: str = "") -> None:
        super().__init__(message, method)
        self.message = message
        self.method = method

    def __str__(self) -> str:
        kind = self.code.name.lower().replace("_", " ")
        parts = (self.method, kind, self.message)
        return ": ".join(part for part in parts if part)


class Cancelled(RpcError):
    """The other side gave the call up."""

    code = Code.CANCELLED


class Unknown(RpcError):
    """The other side failed and did not say how; most plain runtime errors are this."""

    code = Code.UNKNOWN


class InvalidArgument(RpcError):
    """The request makes no sense; trying again does not help."""

    code = Code.INVALID_ARGUMENT


class DeadlineExceeded(RpcError):
    """No answer in time. Whether the call had its effect is not known."""

    code = Code.DEADLINE_EXCEEDED


class NotFound(RpcError):
    """What the call is about does not exist."""

    code = Code.NOT_FOUND


class AlreadyExists(RpcError):
    """What the call would create exists, or its name is reserved."""

    code = Code.ALREADY_EXISTS


class PermissionDenied(RpcError):
    """The caller may not do this."""

    code = Code.PERMISSION_DENIED


class ResourceExhausted(RpcError):
    """Something ran out: space, quota, or the size of a message."""

    code = Code.RESOURCE_EXHAUSTED


class FailedPrecondition(RpcError):
    """The state of things does not allow it now."""

    code = Code.FAILED_PRECONDITION


class Aborted(RpcError):
    """Another operation got in the way."""

    code = Code.ABORTED


class OutOfRange(RpcError):
    """Past the end of something."""

    code = Code.OUT_OF_RANGE


class Unimplemented(RpcError):
    """The other side has no such method."""

    code = Code.UNIMPLEMENTED


class Internal(RpcError):
    """The other side broke, or its answer makes no sense."""

    code = Code.INTERNAL


class Unavailable(RpcError):
    """Nothing answers, or the connection was lost. A call that was cut may have had its effect."""

    code = Code.UNAVAILABLE


class DataLoss(RpcError):
    """Data is lost or damaged for good."""

    code = Code.DATA_LOSS


class Unauthenticated(RpcError):
    """The caller did not say who it is."""

    code = Code.UNAUTHENTICATED


ERRORS: Final[dict[int, type[RpcError]]] = {
    kind.code.value: kind for kind in RpcError.__subclasses__()
}
"""The class for each status code."""


def error_for(status: int, message: str, method: str = "") -> RpcError:
    """Build the error for a gRPC status code; one out of range counts as UNKNOWN."""
    return ERRORS.get(status, Unknown)(message, method)
