"""List messages for the protobuf package, described by hand: it has no generated code here.

Only the benchmark uses them, to compare with. Loaded only when the package is installed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

if TYPE_CHECKING:
    from collections.abc import Mapping

_STRING: Final = "string"
_INT64: Final = "int64"
_UINT32: Final = "uint32"
_ENUM: Final = "int32"  # the same bytes as an open enum
_MAP: Final = "map"

# Message -> field -> (number, type). A type that is no scalar names a message; a star repeats.
_MESSAGES: Final[Mapping[str, Mapping[str, tuple[int, str]]]] = {
    "SandboxMetadata": {
        "name": (1, _STRING),
        "uid": (2, _STRING),
        "namespace": (3, _STRING),
        "attempt": (4, _UINT32),
    },
    "Sandbox": {
        "id": (1, _STRING),
        "metadata": (2, "SandboxMetadata"),
        "state": (3, _ENUM),
        "created_at": (4, _INT64),
        "labels": (5, _MAP),
        "annotations": (6, _MAP),
        "runtime_handler": (7, _STRING),
    },
    "ContainerMetadata": {"name": (1, _STRING), "attempt": (2, _UINT32)},
    "ImageSpec": {
        "image": (1, _STRING),
        "annotations": (2, _MAP),
        "user_specified_image": (18, _STRING),
        "runtime_handler": (19, _STRING),
        "image_ref": (20, _STRING),
    },
    "Container": {
        "id": (1, _STRING),
        "pod_sandbox_id": (2, _STRING),
        "metadata": (3, "ContainerMetadata"),
        "image": (4, "ImageSpec"),
        "image_ref": (5, _STRING),
        "state": (6, _ENUM),
        "created_at": (7, _INT64),
        "labels": (8, _MAP),
        "annotations": (9, _MAP),
        "image_id": (10, _STRING),
    },
    "SandboxList": {"items": (1, "*Sandbox")},
    "ContainerList": {"items": (1, "*Container")},
}
_PACKAGE: Final = "nodeagent.bench"
_Field = descriptor_pb2.FieldDescriptorProto
_SCALARS: Final = {
    _STRING: _Field.TYPE_STRING,
    _INT64: _Field.TYPE_INT64,
    _UINT32: _Field.TYPE_UINT32,
    _ENUM: _Field.TYPE_INT32,
}


def list_classes() -> tuple[Any, Any]:
    """Build the message classes of a sandbox list and of a container list."""
    file = descriptor_pb2.FileDescriptorProto(
        name="nodeagent/bench.proto", package=_PACKAGE, syntax="proto3"
    )
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, (number, kind) in fields.items():
            _add_field(message, field, number, kind)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    sandboxes, containers = (
        message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}"))
        for name in ("SandboxList", "ContainerList")
    )
    return sandboxes, containers


def _add_field(message: descriptor_pb2.DescriptorProto, name: str, number: int, kind: str) -> None:
    repeated = kind == _MAP or kind.startswith("*")
    field = message.field.add(
        name=name,
        number=number,
        label=_Field.LABEL_REPEATED if repeated else _Field.LABEL_OPTIONAL,
    )
    if kind in _SCALARS:
        field.type = _SCALARS[kind]
        return
    field.type = _Field.TYPE_MESSAGE
    field.type_name = f".{_PACKAGE}.{kind.lstrip('*')}"
    if kind == _MAP:
        entry = message.nested_type.add(name=f"{name.title().replace('_', '')}Entry")
        entry.options.map_entry = True
        for part, at in (("key", 1), ("value", 2)):
            entry.field.add(
                name=part, number=at, type=_Field.TYPE_STRING, label=_Field.LABEL_OPTIONAL
            )
        field.type_name = f".{_PACKAGE}.{message.name}.{entry.name}"
