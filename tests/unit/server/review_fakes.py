"""An API server that reviews tokens and rights, in memory."""

from __future__ import annotations

from typing import Any, cast

import anyio
import msgspec

from nodeagent.kube import KubeClient


def certificate(name: str, *organizations: str) -> dict[str, Any]:
    """A client certificate as :mod:`ssl` describes it."""
    subject = [(("organizationName", each),) for each in organizations]
    if name:
        subject.append((("commonName", name),))
    return {"subject": tuple(subject)}


class Reviews:
    """Knows the token ``good``, and allows everything but ``proxy``.

    Attributes:
        bodies: of the requests.
        gate: answers wait for it; None lets them out.
    """

    def __init__(self) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.paths: list[str] = []
        self.gate: anyio.Event | None = None
        self._failures: list[Exception] = []

    @property
    def client(self) -> KubeClient:
        """Who asks."""
        return cast(KubeClient, self)

    def fail(self, *errors: Exception) -> None:
        """Let the next requests fail."""
        self._failures.extend(errors)

    def count(self, resource: str) -> int:
        """How many requests there were of a kind."""
        return sum(path.endswith(resource) for path in self.paths)

    async def post(self, path: str, body: Any, wanted: Any, **_how: Any) -> Any:
        """See :class:`nodeagent.kube.KubeClient`."""
        self.bodies.append(body)
        self.paths.append(path)
        await anyio.lowlevel.checkpoint()
        if self.gate is not None:
            await self.gate.wait()
        if self._failures:
            raise self._failures.pop(0)
        return msgspec.convert({"status": self._status(path, body["spec"])}, wanted)

    def _status(self, path: str, spec: dict[str, Any]) -> dict[str, Any]:
        if path.endswith("subjectaccessreviews"):
            return {"allowed": spec["resourceAttributes"]["subresource"] != "proxy"}
        if spec["token"] != "good":
            return {"authenticated": False, "error": "unknown"}
        user = {"username": "jane", "uid": "u1", "groups": ["ops"], "extra": {"scopes": ["a"]}}
        return {"authenticated": True, "user": user}
