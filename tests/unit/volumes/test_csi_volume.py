"""What a storage driver is asked for (docs/behaviour/csi.md)."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from nodeagent.api import CSIVolumeSource, ObjectMeta, Volume
from nodeagent.api.codec import convert
from nodeagent.api.storage import CSIDriver, CSIDriverSpec, PersistentVolume
from nodeagent.csi.client import Abilities
from nodeagent.model.volumes import ServiceAccountToken
from nodeagent.rpc import DeadlineExceeded, Internal
from nodeagent.testing import make_pod
from nodeagent.volumes import csi_names as names
from nodeagent.volumes.csi_errors import describe
from nodeagent.volumes.csi_volume import (
    CsiVolume,
    access_mode,
    attach_required,
    capability,
    from_inline,
    from_persistent,
    gives_group,
    group_of,
    pod_info,
    serves_inline,
    tokens_text,
)

EXACT = Abilities(single_writer=True)
PLAIN = Abilities()


def of_driver(**spec: Any) -> CSIDriver:
    return CSIDriver(metadata=ObjectMeta(name="d"), spec=CSIDriverSpec(**spec))


def persistent(**fields: Any) -> CsiVolume:
    return CsiVolume(**{"name": "pv", "driver": "d", "handle": "h", "persistent": True, **fields})


@pytest.mark.parametrize(
    ("mode", "plain", "exact"),
    [
        ("ReadWriteOnce", "SINGLE_NODE_WRITER", "SINGLE_NODE_MULTI_WRITER"),
        ("ReadWriteOncePod", "SINGLE_NODE_WRITER", "SINGLE_NODE_SINGLE_WRITER"),
        ("ReadOnlyMany", "MULTI_NODE_READER_ONLY", "MULTI_NODE_READER_ONLY"),
        ("ReadWriteMany", "MULTI_NODE_MULTI_WRITER", "MULTI_NODE_MULTI_WRITER"),
    ],
)
def test_yd4_the_first_access_mode_counts(mode: str, plain: str, exact: str) -> None:
    assert access_mode((mode, "ReadWriteMany"), PLAIN) == plain
    assert access_mode((mode, "ReadWriteMany"), EXACT) == exact
    made = capability(persistent(access_modes=(mode,)), EXACT, None)
    assert made.access_mode is not None
    assert made.access_mode.mode.name == exact


def test_yd4_without_a_mode_one_node_writes() -> None:
    assert access_mode((), PLAIN) == "SINGLE_NODE_WRITER"


def test_a_file_system_is_mounted_with_its_type_and_options() -> None:
    volume = persistent(fs_type="xfs", mount_options=("noatime",))
    made = capability(volume, PLAIN, 3)
    assert made.block is None
    assert made.mount is not None
    assert (made.mount.fs_type, made.mount.mount_flags) == ("xfs", ["noatime"])
    assert made.mount.volume_mount_group == ""


def test_yd8_a_driver_that_can_is_given_the_group() -> None:
    made = capability(persistent(), Abilities(mount_group=True), 3000)
    assert made.mount is not None
    assert made.mount.volume_mount_group == "3000"


def test_a_device_has_no_file_system() -> None:
    made = capability(persistent(block=True, fs_type="ext4"), PLAIN, 3)
    assert made.block is not None
    assert made.mount is None


@pytest.mark.parametrize(
    ("policy", "fields", "given"),
    [
        ("None", {"fs_type": "ext4"}, False),
        ("File", {}, True),
        ("File", {"read_only": True}, False),
        ("File", {"block": True}, False),
        ("ReadWriteOnceWithFSType", {"fs_type": "ext4"}, True),
        ("ReadWriteOnceWithFSType", {}, False),
        (
            "ReadWriteOnceWithFSType",
            {"fs_type": "ext4", "access_modes": ("ReadWriteMany",)},
            False,
        ),
        (
            "ReadWriteOnceWithFSType",
            {"fs_type": "ext4", "access_modes": ("ReadWriteOncePod",)},
            True,
        ),
        (None, {"fs_type": "ext4"}, True),
        (None, {"fs_type": "ext4", "persistent": False}, True),
    ],
)
def test_yd8_who_gives_files_to_the_group(
    policy: str | None, fields: dict[str, Any], given: bool
) -> None:
    driver = of_driver(fs_group_policy=policy) if policy else None
    assert gives_group(persistent(**fields), driver, 3000) is given
    assert not gives_group(persistent(**fields), driver, None)


def test_ya1_a_driver_says_whether_its_volumes_are_attached() -> None:
    assert attach_required(None)
    assert attach_required(of_driver())
    assert attach_required(of_driver(attach_required=True))
    assert not attach_required(of_driver(attach_required=False))


def test_yv6_an_inline_volume_needs_a_driver_that_serves_such() -> None:
    assert serves_inline("d", of_driver(volume_lifecycle_modes=("Persistent", "Ephemeral"))) == ""
    what = 'volume mode "Ephemeral" not supported by driver d'
    assert serves_inline("d", None) == f"{what} (no CSIDriver object)"
    assert serves_inline("d", of_driver()) == f'{what} (only supports ["Persistent"])'


def test_yv6_an_inline_volume_has_a_handle_of_its_own() -> None:
    source = CSIVolumeSource(driver="d", fs_type="ext4", read_only=True)
    pod = make_pod("web", volumes=(Volume(name="v", csi=source),))
    volume = from_inline(pod, pod.spec.volumes[0])
    assert volume.handle == names.inline_handle("uid-web", "v")
    assert volume.handle.startswith("csi-")
    assert len(volume.handle) == 4 + 64
    assert (volume.read_only, volume.fs_type, volume.persistent) == (True, "ext4", False)
    assert volume.publish_secret is None


def test_yd6_a_driver_is_told_whose_volume_it_is() -> None:
    pod = make_pod("web", namespace="shop", service_account_name="robot")
    assert pod_info(pod, persistent()) == {
        "csi.storage.k8s.io/pod.name": "web",
        "csi.storage.k8s.io/pod.namespace": "shop",
        "csi.storage.k8s.io/pod.uid": "uid-web",
        "csi.storage.k8s.io/serviceAccount.name": "robot",
        "csi.storage.k8s.io/ephemeral": "false",
    }


def test_yd7_tokens_are_told_with_the_time_at_which_they_end() -> None:
    token = ServiceAccountToken("secret", datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC))
    assert json.loads(tokens_text({"bank": token})) == {
        "bank": {"token": "secret", "expirationTimestamp": "2026-01-02T03:04:05Z"}
    }


def test_a_persistent_volume_is_what_the_api_says() -> None:
    pv = convert(
        {
            "metadata": {"name": "pv1", "annotations": {"pv.beta.kubernetes.io/gid": " 3000 "}},
            "spec": {
                "capacity": {"storage": "1Ki"},
                "accessModes": ["ReadWriteOncePod"],
                "mountOptions": ["ro"],
                "volumeMode": "Block",
                "csi": {
                    "driver": "d",
                    "volumeHandle": "h",
                    "fsType": "xfs",
                    "volumeAttributes": {"a": "b"},
                    "nodeStageSecretRef": {"name": "s", "namespace": "n"},
                },
            },
        },
        PersistentVolume,
    )
    volume = from_persistent(pv, read_only=True)
    assert volume.unique_name == "kubernetes.io/csi/d^h"
    assert (volume.capacity, volume.block, volume.one_pod) == (1024, True, True)
    assert volume.stage_secret is not None
    assert volume.stage_secret.namespace == "n"
    assert volume.publish_secret is None
    assert volume.groups == (3000,)


@pytest.mark.parametrize(("text", "groups"), [("7", (7,)), ("", ()), ("x", ()), ("-1", ())])
def test_yc9_an_annotation_names_a_group(text: str, groups: tuple[int, ...]) -> None:
    metadata = ObjectMeta(name="pv", annotations={"pv.beta.kubernetes.io/gid": text})
    assert group_of(PersistentVolume(metadata=metadata)) == groups


def test_yd2_errors_of_drivers_read_as_grpc_libraries_write_them() -> None:
    assert describe(Internal("no pool")) == "rpc error: code = Internal desc = no pool"
    late = describe(DeadlineExceeded("no answer within 120 s"))
    assert late == "rpc error: code = DeadlineExceeded desc = no answer within 120 s"
    assert describe(FileNotFoundError(2, "No such file", "/x")) == "/x: No such file"


def test_yv2_names_follow_from_the_handle_alone() -> None:
    one = names.attachment_name("d", "h", "node1")
    assert one == names.attachment_name("d", "h", "node1")
    assert one != names.attachment_name("d", "h", "node2")
    assert len(one) == 4 + 64
