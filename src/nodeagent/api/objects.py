"""ConfigMap and Secret: the objects whose keys become files and variables."""

from msgspec import field

from nodeagent.api.base import ApiObject, always
from nodeagent.api.meta import ObjectMeta


class ConfigMap(ApiObject):
    """Settings by key; a key is in ``data`` (text) or in ``binary_data``, never in both."""

    api_version: str = always("v1")
    kind: str = always("ConfigMap")
    metadata: ObjectMeta = ObjectMeta()
    data: dict[str, str] = field(default_factory=dict)
    binary_data: dict[str, bytes] = field(default_factory=dict)
    immutable: bool | None = None


class Secret(ApiObject):
    """Confidential values by key; ``string_data`` is what a writer gave as text.

    It never shows its values.
    """

    api_version: str = always("v1")
    kind: str = always("Secret")
    metadata: ObjectMeta = ObjectMeta()
    type: str = ""
    data: dict[str, bytes] = field(default_factory=dict)
    string_data: dict[str, str] = field(default_factory=dict)
    immutable: bool | None = None

    def __repr__(self) -> str:
        return f"Secret({self.metadata.namespace}/{self.metadata.name})"


class ServiceAccount(ApiObject):
    """Whom pods act as, as far as a node needs it."""

    api_version: str = always("v1")
    kind: str = always("ServiceAccount")
    metadata: ObjectMeta = ObjectMeta()
