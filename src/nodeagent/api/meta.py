"""Object metadata, selectors and references shared by all API objects."""

from typing import Any

from msgspec import field

from nodeagent.api.base import ApiObject, Time


class OwnerReference(ApiObject):
    """The object that owns this one and with which it is garbage collected."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None
    block_owner_deletion: bool | None = None


class ManagedFieldsEntry(ApiObject):
    """Which fields one manager set, for server-side apply."""

    manager: str = ""
    operation: str = ""
    api_version: str = ""
    time: Time | None = None
    fields_type: str = ""
    fields_v1: dict[str, Any] | None = None
    subresource: str = ""


class ObjectMeta(ApiObject):
    """Name, identity, labels and life cycle of an API object."""

    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    self_link: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: Time | None = None
    deletion_timestamp: Time | None = None
    deletion_grace_period_seconds: int | None = None
    labels: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    owner_references: tuple[OwnerReference, ...] = ()
    finalizers: tuple[str, ...] = ()
    managed_fields: tuple[ManagedFieldsEntry, ...] = ()


class ShardInfo(ApiObject):
    """The shard selector that a list answer was limited to."""

    selector: str = ""


class ListMeta(ApiObject):
    """Version and paging of a list."""

    self_link: str = ""
    resource_version: str = ""
    continue_: str = ""
    remaining_item_count: int | None = None
    shard_info: ShardInfo | None = None


class LabelSelectorRequirement(ApiObject):
    """One condition on one label: In, NotIn, Exists or DoesNotExist."""

    key: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


class LabelSelector(ApiObject):
    """A query over labels; all of its parts must hold, an empty one selects everything."""

    match_labels: dict[str, str] = field(default_factory=dict)
    match_expressions: tuple[LabelSelectorRequirement, ...] = ()


class LocalObjectReference(ApiObject):
    """An object of the same namespace, by name."""

    name: str = ""


class TypedLocalObjectReference(ApiObject):
    """An object of the same namespace, by group, kind and name."""

    api_group: str | None = None
    kind: str = ""
    name: str = ""


class TypedObjectReference(ApiObject):
    """An object of any namespace, by group, kind and name."""

    api_group: str | None = None
    kind: str = ""
    name: str = ""
    namespace: str | None = None
