"""What every Kubernetes API type shares: field names, always-present fields, times.

All API types are frozen msgspec Structs. Python attributes are snake_case, JSON names are
Kubernetes'. A field that Kubernetes holds by pointer is ``T | None`` with ``None`` for "not
given", so an explicit zero (``runAsUser: 0``) survives; a field that Kubernetes holds by value
has its zero value as default and is left out when written. Lists are tuples. Maps are dicts
that nobody modifies: API objects are immutable by convention throughout.
"""

from datetime import datetime
from typing import Annotated, Final, TypeAlias, TypeVar, dataclass_transform

import msgspec

T = TypeVar("T")

Time: TypeAlias = Annotated[datetime, msgspec.Meta(tz=True)]
"""An RFC 3339 instant with its zone; Kubernetes keeps whole seconds."""

IntOrString: TypeAlias = int | str
"""A port by number or by name."""

# Acronyms keep their capitals in JSON, and Kubernetes is not regular about it (podIP, but
# httpGet), so the irregular names are listed whole.
_IRREGULAR_NAMES: Final = {
    "boot_id": "bootID",
    "cluster_ip": "clusterIP",
    "container_id": "containerID",
    "continue_": "continue",
    "dataset_uuid": "datasetUUID",
    "disk_uri": "diskURI",
    "downward_api": "downwardAPI",
    "fields_v1": "fieldsV1",
    "host_ip": "hostIP",
    "host_ipc": "hostIPC",
    "host_ips": "hostIPs",
    "host_pid": "hostPID",
    "image_id": "imageID",
    "machine_id": "machineID",
    "node_id": "nodeID",
    "pd_id": "pdID",
    "pod_cidr": "podCIDR",
    "pod_cidrs": "podCIDRs",
    "pod_ip": "podIP",
    "pod_ips": "podIPs",
    "provider_id": "providerID",
    "resource_id": "resourceID",
    "scale_io": "scaleIO",
    "set_hostname_as_fqdn": "setHostnameAsFQDN",
    "storage_policy_id": "storagePolicyID",
    "system_uuid": "systemUUID",
    "target_wwns": "targetWWNs",
    "volume_id": "volumeID",
}


def json_name(attribute: str) -> str:
    """Return the JSON field name of a Python attribute (``pod_ip`` is ``podIP``)."""
    if irregular := _IRREGULAR_NAMES.get(attribute):
        return irregular
    first, *rest = attribute.split("_")
    return first + "".join(word.capitalize() for word in rest)


def always(value: T) -> T:
    """Declare a default that is written out too, as Kubernetes does for ``restartCount: 0``.

    msgspec leaves out a field that equals its default, but it does not look behind a factory.
    """

    def default() -> T:
        return value

    declared: T = msgspec.field(default_factory=default)
    return declared


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(msgspec.field,))
class ApiObject(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    omit_defaults=True,
    gc=False,  # trees of plain data: no cycles, nothing for the collector to find
    rename=json_name,
):
    """Base of all Kubernetes API types."""
