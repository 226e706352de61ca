"""Who approves and signs certificate requests: no controller does, so the test does."""

import base64
import datetime as dt
from typing import Final

from tests.e2e.cluster.api import Api, Json
from tests.e2e.cluster.authority import Authority
from tests.e2e.lab.waiting import until

_REQUESTS: Final = "/apis/certificates.k8s.io/v1/certificatesigningrequests"


class Signer:
    """Approves and signs requests when it is told to."""

    def __init__(self, api: Api, authority: Authority) -> None:
        self._api = api
        self._authority = authority

    def pending(self, requestor: str) -> list[Json]:
        """The requests of a user that nobody has decided on."""
        return [
            item
            for item in self._api.get(_REQUESTS)["items"]
            if item["spec"]["username"] == requestor and not item["status"].get("conditions")
        ]

    def wait_pending(self, requestor: str, *, timeout: float = 60) -> Json:
        """Wait for a request of a user."""
        what = f"a certificate request of {requestor}"
        return until(what, lambda: self.pending(requestor), timeout=timeout)[0]

    def approve(self, request: Json) -> None:
        """Say yes, as ``kubectl certificate approve`` does."""
        self._decide(request, "Approved")

    def deny(self, request: Json) -> None:
        """Say no, as ``kubectl certificate deny`` does."""
        self._decide(request, "Denied")

    def sign(self, request: Json, *, lifetime: dt.timedelta = dt.timedelta(days=1)) -> None:
        """Put the signed certificate into an approved request."""
        spec = request["spec"]
        made = self._authority.sign(base64.b64decode(spec["request"]), spec["usages"], lifetime)
        path = f"{_REQUESTS}/{request['metadata']['name']}/status"
        status = {"certificate": base64.b64encode(made).decode()}
        self._api.patch(path, {"status": status})

    def grant(self, requestor: str, *, lifetime: dt.timedelta = dt.timedelta(days=1)) -> Json:
        """Wait for a request of a user, approve and sign it; returns the request."""
        request = self.wait_pending(requestor)
        self.approve(request)
        self.sign(request, lifetime=lifetime)
        return request

    def _decide(self, request: Json, kind: str) -> None:
        path = f"{_REQUESTS}/{request['metadata']['name']}/approval"
        condition = {"type": kind, "status": "True", "reason": "Test", "message": "by the test"}
        current = self._api.get(f"{_REQUESTS}/{request['metadata']['name']}")
        current.setdefault("status", {})["conditions"] = [condition]
        self._api.replace(path, current)
