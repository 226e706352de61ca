"""Environment variables of containers and where their values come from."""

from nodeagent.api.base import ApiObject
from nodeagent.api.quantity import Quantity


class ObjectFieldSelector(ApiObject):
    """A field of the pod itself, such as ``metadata.name``."""

    api_version: str = ""
    field_path: str = ""


class ResourceFieldSelector(ApiObject):
    """A container's resource, such as ``limits.cpu``, divided by ``divisor``."""

    container_name: str = ""
    resource: str = ""
    divisor: Quantity | None = None


class ConfigMapKeySelector(ApiObject):
    """One key of a ConfigMap."""

    name: str = ""
    key: str = ""
    optional: bool | None = None


class SecretKeySelector(ApiObject):
    """One key of a Secret."""

    name: str = ""
    key: str = ""
    optional: bool | None = None


class FileKeySelector(ApiObject):
    """One key of an environment file that lies in an emptyDir volume."""

    volume_name: str = ""
    path: str = ""
    key: str = ""
    optional: bool | None = None


class EnvVarSource(ApiObject):
    """Where the value of a variable comes from; exactly one field is set."""

    field_ref: ObjectFieldSelector | None = None
    resource_field_ref: ResourceFieldSelector | None = None
    config_map_key_ref: ConfigMapKeySelector | None = None
    secret_key_ref: SecretKeySelector | None = None
    file_key_ref: FileKeySelector | None = None


class EnvVar(ApiObject):
    """One environment variable, with a value or a source of it."""

    name: str = ""
    value: str = ""
    value_from: EnvVarSource | None = None


class ConfigMapEnvSource(ApiObject):
    """A ConfigMap whose keys all become variables."""

    name: str = ""
    optional: bool | None = None


class SecretEnvSource(ApiObject):
    """A Secret whose keys all become variables."""

    name: str = ""
    optional: bool | None = None


class EnvFromSource(ApiObject):
    """Variables taken from a whole ConfigMap or Secret, under a prefix."""

    prefix: str = ""
    config_map_ref: ConfigMapEnvSource | None = None
    secret_ref: SecretEnvSource | None = None
