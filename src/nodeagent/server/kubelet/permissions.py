"""Which right a request needs. No I/O.

docs/behaviour/server.md, "Rights".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

_VERBS: Final = {
    "POST": "create",
    "GET": "get",
    "PUT": "update",
    "PATCH": "patch",
    "DELETE": "delete",
}
_PROXY: Final = "proxy"
_SUBRESOURCES: Final = (
    ("/stats", ("stats",)),
    ("/metrics", ("metrics",)),
    ("/logs", ("log",)),
    ("/checkpoint", ("checkpoint",)),
    ("/statusz", ("statusz",)),
    ("/flagz", ("configz",)),
    ("/pods", ("pods", _PROXY)),
    ("/runningpods", ("pods", _PROXY)),
    ("/healthz", ("healthz", _PROXY)),
    ("/configz", ("configz", _PROXY)),
)


def verb(method: str) -> str:
    """The verb that a method stands for; "" for one that stands for none."""
    return _VERBS.get(method, "")


def subresources(path: str) -> tuple[str, ...]:
    """The subresources of the node of which one must be allowed, in the order of asking."""
    for prefix, found in _SUBRESOURCES:
        if path == prefix or path.startswith(f"{prefix}/"):
            return found
    return (_PROXY,)


def forbidden(user: str, verb: str, tried: Sequence[str]) -> str:
    """What somebody is told who lacks the right."""
    names = " ".join(tried)
    return f"Forbidden (user={user}, verb={verb}, resource=nodes, subresource(s)=[{names}])\n"


def undecided(user: str, verb: str, subresource: str) -> str:
    """What somebody is told when nobody could say whether they have the right."""
    asked = f"user={user}, verb={verb}, resource=nodes, subresource={subresource}"
    return f"Authorization error ({asked})"
