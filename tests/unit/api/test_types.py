"""The types cover the pod API and survive a round trip through JSON."""

import inspect
import re
import subprocess
import sys
from datetime import UTC, datetime
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import msgspec
import pytest
from kubernetes_asyncio.client import models

import nodeagent.api as api
from nodeagent.api.base import ApiObject, json_name
from nodeagent.api.codec import convert, decode, decode_pod, encode, to_builtins
from nodeagent.api.quantity import Quantity

# Where the reference writes "str" or "object", the API has a type of its own.
_OWN_SCALARS = {Quantity: "quantity", datetime: "datetime", str: "str", int: "int", bool: "bool"}
_QUANTITIES = {"divisor", "sizeLimit", "limits", "requests", "overhead", "allocatedResources"}
_RENAMED = {"CoreV1ResourceClaim": "ResourceClaim"}


def _reference_shape(kind: str) -> tuple[str, str]:
    """Return container ("", "list", "dict") and item type of a reference type text."""
    if match := re.fullmatch(r"list\[(\w+)\]", kind):
        return "list", match[1]
    if match := re.fullmatch(r"dict\(str, (\w+)\)", kind):
        return "dict", match[1]
    return "", kind


def _strip(kind: Any) -> Any:
    """Take off Annotated and None."""
    if get_origin(kind) is Annotated:
        kind = get_args(kind)[0]
    if get_origin(kind) in (Union, UnionType):
        rest = [arg for arg in get_args(kind) if arg is not NoneType]
        if len(rest) == 1:
            return _strip(rest[0])
    return kind


def _our_shape(kind: Any) -> tuple[str, Any]:
    kind = _strip(kind)
    if get_origin(kind) is tuple:
        return "list", _strip(get_args(kind)[0])
    if get_origin(kind) is dict:
        return "dict", _strip(get_args(kind)[1])
    return "", kind


def _differences(ours: type[ApiObject], reference: Any, seen: set[str]) -> list[str]:
    """List how our type, and all it refers to, differs from the reference model."""
    if ours.__name__ in seen:
        return []
    seen.add(ours.__name__)
    theirs = {reference.attribute_map[name]: kind for name, kind in reference.openapi_types.items()}
    hints = get_type_hints(ours, include_extras=True)
    mine = {field.encode_name: hints[field.name] for field in msgspec.structs.fields(ours)}
    found = [f"{ours.__name__}.{name} is missing" for name in sorted(theirs.keys() - mine.keys())]
    found += [f"{ours.__name__}.{name} is ours alone" for name in sorted(mine.keys() - theirs)]
    for name in sorted(theirs.keys() & mine.keys()):
        found += _field_differences(f"{ours.__name__}.{name}", mine[name], theirs[name], seen)
    return found


def _field_differences(path: str, ours: Any, theirs: str, seen: set[str]) -> list[str]:
    shape, item = _our_shape(ours)
    their_shape, their_item = _reference_shape(theirs)
    if (shape, their_item) == ("dict", "object"):
        return []  # raw JSON
    if shape != their_shape:
        return [f"{path} is {shape or 'single'}, not {their_shape or 'single'}"]
    if isinstance(item, type) and issubclass(item, ApiObject):
        expected = _RENAMED.get(their_item, their_item.removeprefix("V1"))
        if item.__name__ != expected:
            return [f"{path} holds {item.__name__}, not {expected}"]
        return _differences(item, getattr(models, their_item), seen)
    if their_item == "object":
        return [] if set(get_args(item)) == {int, str} else [f"{path} is not int or string"]
    name = path.rpartition(".")[2]
    in_status = path == "NodeAllocatableResourceClaimStatus.resources"
    wanted = "quantity" if name in _QUANTITIES or in_status else their_item
    got = _OWN_SCALARS.get(item)
    return [] if got == wanted else [f"{path} is {got}, not {wanted}"]


@pytest.mark.parametrize("name", ["Pod", "PodList"])
def test_every_field_of_the_api_is_here_with_its_kind(name: str) -> None:
    assert _differences(getattr(api, name), getattr(models, f"V1{name}"), set()) == []


def test_the_package_exports_exactly_its_types() -> None:
    defined = {
        name
        for name, value in vars(api).items()
        if inspect.isclass(value) and value.__module__.startswith("nodeagent.api.")
    }
    assert defined | {"IntOrString", "Time", "json_name"} == set(api.__all__)


@pytest.mark.parametrize(
    ("attribute", "name"),
    [
        ("pod_ip", "podIP"),
        ("host_ips", "hostIPs"),
        ("set_hostname_as_fqdn", "setHostnameAsFQDN"),
        ("container_id", "containerID"),
        ("uid", "uid"),
        ("continue_", "continue"),
        ("http_get", "httpGet"),
        ("termination_grace_period_seconds", "terminationGracePeriodSeconds"),
    ],
)
def test_attributes_have_the_names_of_the_api_in_json(attribute: str, name: str) -> None:
    assert json_name(attribute) == name


def test_zero_values_that_mean_something_survive() -> None:
    given: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web", "deletionGracePeriodSeconds": 0},
        "spec": {
            "containers": [
                {
                    "name": "app",
                    "securityContext": {"runAsUser": 0, "privileged": False},
                    "env": [{"name": "EMPTY"}],
                }
            ],
            "terminationGracePeriodSeconds": 0,
            "enableServiceLinks": False,
            "securityContext": {},
            "volumes": [
                {"name": "v", "configMap": {"name": "c", "optional": False, "defaultMode": 0}},
                {"name": "e", "emptyDir": {}},
                {"name": "h", "hostPath": {"path": "/", "type": ""}},
            ],
        },
    }
    written = msgspec.json.decode(encode(decode_pod(msgspec.json.encode(given))))
    assert written == given


def test_null_counts_as_not_given_everywhere() -> None:
    pod = decode_pod(
        b'{"metadata":{"name":"a","creationTimestamp":null,"labels":null,"namespace":null},'
        b'"spec":{"hostNetwork":null,"containers":[{"name":"c","args":null,"resources":null}],'
        b'"volumes":null},"status":null}'
    )
    spec = api.PodSpec(containers=(api.Container(name="c"),))
    assert pod == api.Pod(metadata=api.ObjectMeta(name="a"), spec=spec)


def test_missing_required_fields_decode_to_zero_values() -> None:
    pod = decode_pod(b'{"spec":{"containers":[{}],"volumes":[{}]}}')
    assert pod.spec.containers == (api.Container(),)
    assert pod.metadata.name == ""


def test_the_empty_pod_is_written_with_its_kind() -> None:
    assert to_builtins(api.Pod()) == {"apiVersion": "v1", "kind": "Pod"}
    assert encode(api.PodList()) == b'{"apiVersion":"v1","kind":"PodList","items":[]}'


def test_container_statuses_always_say_ready_and_restart_count() -> None:
    assert to_builtins(api.ContainerStatus(name="app")) == {
        "name": "app",
        "ready": False,
        "restartCount": 0,
        "image": "",
        "imageID": "",
    }


def test_a_wrong_type_is_named_by_its_path() -> None:
    with pytest.raises(msgspec.ValidationError, match=r"\$\.spec\.containers\[0\]\.image"):
        decode_pod(b'{"spec":{"containers":[{"image":1}]}}')
    with pytest.raises(msgspec.ValidationError, match=r"not a quantity.*\$\.spec\.overhead"):
        decode_pod(b'{"spec":{"overhead":{"cpu":"one"}}}')


def test_times_need_a_zone() -> None:
    read = decode(api.ObjectMeta, b'{"creationTimestamp":"2024-05-06T07:08:09Z"}')
    assert read.creation_timestamp == datetime(2024, 5, 6, 7, 8, 9, tzinfo=UTC)
    assert encode(read) == b'{"creationTimestamp":"2024-05-06T07:08:09Z"}'
    with pytest.raises(msgspec.ValidationError, match="timezone"):
        decode(api.ObjectMeta, b'{"creationTimestamp":"2024-05-06T07:08:09"}')


def test_ports_are_numbers_or_names() -> None:
    named = convert({"httpGet": {"port": "http"}}, api.Probe)
    numbered = convert({"httpGet": {"port": 80}}, api.Probe)
    assert named.http_get is not None
    assert numbered.http_get is not None
    assert (named.http_get.port, numbered.http_get.port) == ("http", 80)


def test_managed_fields_are_kept_as_they_are() -> None:
    entry = {"manager": "kubectl", "fieldsV1": {"f:spec": {"k:{}": {}, ".": None}}}
    read = decode(api.ManagedFieldsEntry, msgspec.json.encode(entry))
    assert to_builtins(read) == entry


def test_objects_cannot_be_changed() -> None:
    pod = api.Pod()
    with pytest.raises(AttributeError):
        pod.kind = "Node"  # type: ignore[misc]


def test_importing_the_types_loads_no_parser_and_no_event_loop() -> None:
    code = (
        "import sys, nodeagent.api, nodeagent.api.codec, nodeagent.api.validation;"
        "print(*{'yaml', 'asyncio', 'anyio', 'kubernetes_asyncio'} & set(sys.modules))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == ""


def test_plain_values_are_those_of_json() -> None:
    plain = to_builtins(api.Pod(metadata=api.ObjectMeta(finalizers=("a", "b"))))
    assert plain["metadata"]["finalizers"] == ["a", "b"]
