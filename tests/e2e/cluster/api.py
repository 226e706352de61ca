"""A plain client of the API server, for what the tests do besides kubectl."""

import http.client
import json
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

from tests.e2e.cluster.authority import Identity

Json = dict[str, Any]


class RefusedError(Exception):
    """The server's answer is not a success; ``code`` is HTTP's."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{code}: {text}")
        self.code = code


class Api:
    """Requests with a client certificate, one connection each."""

    def __init__(self, url: str, ca: Path, identity: Identity) -> None:
        self._address = urlsplit(url).netloc
        self._tls = ssl.create_default_context(cafile=str(ca))
        self._tls.load_cert_chain(identity.cert, identity.key)

    def text(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        kind: str = "application/json",
        query: Mapping[str, str] | None = None,
        timeout: float = 30,
    ) -> str:
        """The body of the answer.

        Raises:
            RefusedError: the server said no.
            OSError: no answer.
        """
        connection = http.client.HTTPSConnection(self._address, timeout=timeout, context=self._tls)
        try:
            connection.request(
                method,
                f"{path}?{urlencode(query)}" if query else path,
                None if body is None else json.dumps(body),
                {"Content-Type": kind, "Accept": "application/json"},
            )
            answer = connection.getresponse()
            said = answer.read().decode()
        except http.client.HTTPException as error:
            raise OSError(f"{method} {path}: {error!r}") from error
        finally:
            connection.close()
        if answer.status >= 300:
            raise RefusedError(answer.status, said)
        return said

    def get(self, path: str, **query: str) -> Json:
        """An object, or a list of them."""
        return _object(self.text("GET", path, query=query))

    def find(self, path: str) -> Json | None:
        """An object; None when there is no such."""
        try:
            return self.get(path)
        except RefusedError as error:
            if error.code == 404:
                return None
            raise

    def create(self, path: str, body: Json) -> Json:
        """Post an object to its collection."""
        return _object(self.text("POST", path, body))

    def replace(self, path: str, body: Json) -> Json:
        """Put an object."""
        return _object(self.text("PUT", path, body))

    def patch(self, path: str, body: Json) -> Json:
        """A merge patch."""
        return _object(self.text("PATCH", path, body, kind="application/merge-patch+json"))

    def delete(self, path: str, *, grace: int | None = None) -> None:
        """Delete an object, or all of a collection; what is not there is fine."""
        options = {} if grace is None else {"gracePeriodSeconds": grace}
        try:
            self.text("DELETE", path, options)
        except RefusedError as error:
            if error.code != 404:
                raise

    def ready(self) -> bool:
        """Whether the server says that it is ready."""
        try:
            return self.text("GET", "/readyz", timeout=5) == "ok"
        except (OSError, RefusedError):
            return False


def _object(text: str) -> Json:
    value = json.loads(text)
    assert isinstance(value, dict)
    return value
