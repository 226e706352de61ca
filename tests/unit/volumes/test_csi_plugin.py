"""Staging and publishing, and their end (docs/behaviour/csi.md, "Volumes", "Calls")."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import anyio
import pytest

from nodeagent.api import CSIVolumeSource, Volume
from nodeagent.api.storage import SecretReference
from nodeagent.api.storage import TokenRequestSpec as Wanted
from nodeagent.csi.client import Abilities
from nodeagent.model import PodUID
from nodeagent.rpc import DeadlineExceeded, Internal, Unavailable
from nodeagent.testing import ApiStore, StoreClient, make_pod
from nodeagent.volumes.csi_attach import Attachments
from nodeagent.volumes.csi_names import unique_name
from nodeagent.volumes.last_heard import LastHeard
from nodeagent.volumes.plugin import Ownership, Stage, VolumeError

from .csi_lab import LIFE, NAME, Lab, persistent, pod, until, working

pytestmark = pytest.mark.anyio


def secret(lab: Lab, name: str, value: str) -> None:
    lab.store.create(
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": name, "namespace": "n"},
            "data": {"key": value},
        }
    )


def counted_once(lab: Lab, labels: dict[str, str]) -> bool:
    """Whether one operation of that kind ended well."""
    name = "storage_operation_duration_seconds"
    return lab.count(name, status="success", migrated="false", **labels) == 1


async def test_yv1_yv2_yv3_yv4_the_whole_life_of_a_volume(tmp_path: Path) -> None:
    async with working(tmp_path) as lab, lab.driver() as driver:
        made = await lab.plugin.set_up_volume(lab.request(pod()), persistent())
        home = tmp_path / "pods" / "uid-web" / "volumes" / "kubernetes.io~csi" / "pv"
        assert made.host_path == str(home / "mount")
        assert made.name == "v"
        assert json.loads((home / "vol_data.json").read_text()) == {
            "specVolID": "pv",
            "volumeHandle": "h",
            "driverName": NAME,
            "nodeName": "n1",
            "attachmentID": lab.plugin._data(persistent()).attachment,
            "volumeLifecycleMode": "Persistent",
            "seLinuxMountContext": "",
        }
        staged = Path(driver.last("NodeStageVolume").staging_target_path)
        assert staged.parent.parent == tmp_path / "plugins" / "kubernetes.io" / "csi" / NAME
        assert staged.name == "globalmount"
        assert driver.last("NodePublishVolume").staging_target_path == str(staged)
        await lab.plugin.tear_down(lab.end())
        assert not home.exists()
        await until(lambda: driver.names() == LIFE)
        await until(lambda: not staged.parent.exists())
        assert lab.mounter.points == []
        for operation in ("volume_mount", "volume_unmount", "unmount_device"):
            labels = {"volume_plugin": f"kubernetes.io/csi:{NAME}", "operation_name": operation}
            # The directory goes before the operation is over.
            await until(partial(counted_once, lab, labels))
        assert (
            lab.count(
                "csi_operations_seconds",
                driver_name=NAME,
                method_name="/csi.v1.Node/NodeStageVolume",
                grpc_status_code="OK",
                migrated="false",
            )
            == 1
        )


async def test_yv3_to_end_what_is_not_there_is_nothing(tmp_path: Path) -> None:
    async with working(tmp_path) as lab, lab.driver() as driver:
        await lab.plugin.tear_down(lab.end())
        assert driver.calls == []


async def test_yv3_what_the_driver_leaves_in_the_way_is_never_removed(tmp_path: Path) -> None:
    async with working(tmp_path) as lab, lab.driver() as driver:
        await lab.plugin.set_up_volume(lab.request(pod()), persistent())
        driver.keeps = True
        with pytest.raises(Exception, match="still mounted although the driver has unpublished"):
            await lab.plugin.tear_down(lab.end())
        driver.keeps = False
        await lab.plugin.tear_down(lab.end())


async def test_yv5_one_pod_at_a_time(tmp_path: Path) -> None:
    one = persistent(access_modes=("ReadWriteOncePod",))
    async with working(tmp_path) as lab, lab.driver() as driver:
        await lab.plugin.set_up_volume(lab.request(pod("a")), one)
        with pytest.raises(VolumeError, match="already in use by another pod"):
            await lab.plugin.set_up_volume(lab.request(pod("b")), one)
        await lab.plugin.tear_down(lab.end("a"))
        await lab.plugin.set_up_volume(lab.request(pod("b")), one)
        await lab.plugin.tear_down(lab.end("b"))
        await until(lambda: driver.names()[-1] == "NodeUnstageVolume")


async def test_yv6_an_inline_volume_is_published_only(tmp_path: Path) -> None:
    source = CSIVolumeSource(driver=NAME)
    wanted = make_pod("web", volumes=(Volume(name="v", csi=source),))
    async with working(tmp_path) as lab, lab.driver() as driver:
        assert lab.plugin.handles(wanted.spec.volumes[0])
        with pytest.raises(VolumeError, match="not supported by driver"):
            await lab.plugin.set_up(lab.request(wanted))
        lab.wish(volume_lifecycle_modes=("Ephemeral",))
        await lab.plugin.set_up(lab.request(wanted))
        await lab.plugin.tear_down(lab.end(volume="v"))
        assert driver.names() == ["NodePublishVolume", "NodeUnpublishVolume"]


async def test_yv7_a_volume_is_published_again_for_drivers_that_want_it(tmp_path: Path) -> None:
    failing = False

    async def before(method: str) -> None:
        if method == "NodePublishVolume" and failing:
            raise Internal("not now")

    async with working(tmp_path) as lab, lab.driver(before=before) as driver:
        request = lab.request(pod())
        await lab.plugin.set_up_volume(request, persistent())
        await lab.plugin.refresh_volume(request, persistent())
        assert driver.count()["NodePublishVolume"] == 1
        lab.wish(requires_republish=True)
        await lab.plugin.refresh_volume(request, persistent())
        assert driver.count()["NodePublishVolume"] == 2
        assert driver.count()["NodeStageVolume"] == 1
        failing = True
        with pytest.raises(VolumeError, match="not now"):
            await lab.plugin.refresh_volume(request, persistent())
        mount = tmp_path / "pods" / "uid-web" / "volumes" / "kubernetes.io~csi" / "pv" / "mount"
        assert mount.exists()


async def test_yv8_yv9_the_next_agent_takes_over_what_is_in_use(tmp_path: Path) -> None:
    async with working(tmp_path) as lab, lab.driver():
        await lab.plugin.set_up_volume(lab.request(pod()), persistent())
    async with working(tmp_path) as lab, lab.driver() as driver:
        await lab.stages.ready()
        await anyio.sleep(600)
        assert driver.names() == []
        await lab.plugin.set_up_volume(lab.request(pod()), persistent())
        assert driver.names() == LIFE[:2]
        await lab.plugin.tear_down(lab.end())
        await until(lambda: driver.names() == LIFE)


async def test_yv8_the_next_agent_ends_what_nobody_has(tmp_path: Path) -> None:
    async with working(tmp_path) as lab, lab.driver():
        await lab.plugin.set_up_volume(lab.request(pod()), persistent())
        lab.registry.on_change.clear()
    async with working(tmp_path) as lab, lab.driver() as driver:
        # Its memory has nothing; the pod's directory says what it is.
        await lab.plugin.tear_down(lab.end())
        await until(lambda: driver.names() == LIFE[2:])


@pytest.mark.parametrize("left", ["published", "staged"])
async def test_yv8_killed_between_any_two_steps(tmp_path: Path, left: str) -> None:
    hang = {"published": "NodePublishVolume", "staged": "NodeStageVolume"}[left]

    async def before(method: str) -> None:
        if method == hang:
            await anyio.sleep_forever()

    async with working(tmp_path) as lab, lab.driver(before=before):
        with anyio.move_on_after(1):
            await lab.plugin.set_up_volume(lab.request(pod()), persistent())
    async with working(tmp_path) as lab, lab.driver() as driver:
        await lab.plugin.tear_down(lab.end())
        await until(lambda: driver.count()["NodeUnstageVolume"] == 1)
        assert driver.count()["NodeUnpublishVolume"] == (1 if left == "published" else 0)
        await until(lambda: list(tmp_path.rglob("vol_data.json")) == [])


async def test_yv4_what_cannot_be_unstaged_is_tried_again(tmp_path: Path) -> None:
    failures = 3

    async def before(method: str) -> None:
        nonlocal failures
        if method == "NodeUnstageVolume" and failures:
            failures -= 1
            raise Internal("in use")

    async with working(tmp_path) as lab, lab.driver(before=before) as driver:
        await lab.plugin.set_up_volume(lab.request(pod()), persistent())
        await lab.plugin.tear_down(lab.end())
        await until(lambda: driver.count()["NodeUnstageVolume"] == 4)
        await until(lambda: lab.stages.all() == [])
        said = [r.why for r in lab.journal.select("") if r.what == "UnstageFailed"]
        assert said == ["rpc error: code = Internal desc = in use"]


async def test_yd1_after_a_final_error_nothing_is_left(tmp_path: Path) -> None:
    async def before(method: str) -> None:
        if method == "NodeStageVolume":
            raise Internal("no pool")

    async with working(tmp_path) as lab, lab.driver(before=before) as driver:
        with pytest.raises(VolumeError, match="code = Internal desc = no pool") as caught:
            await lab.plugin.set_up_volume(lab.request(pod()), persistent())
        assert caught.value.stage is Stage.DEVICE
        assert list(tmp_path.rglob("vol_data.json")) == []
        await lab.plugin.tear_down(lab.end())
        await until(lambda: lab.stages.all() == [])
        assert driver.names() == ["NodeStageVolume"]


@pytest.mark.parametrize("error", [DeadlineExceeded("late"), Unavailable("gone")])
async def test_yd1_after_an_open_error_what_was_begun_is_undone(
    tmp_path: Path, error: Exception
) -> None:
    async def before(method: str) -> None:
        if method == "NodePublishVolume":
            raise error

    async with working(tmp_path) as lab, lab.driver(before=before) as driver:
        with pytest.raises(VolumeError) as caught:
            await lab.plugin.set_up_volume(lab.request(pod()), persistent())
        assert caught.value.stage is Stage.SET_UP
        await lab.plugin.tear_down(lab.end())
        await until(lambda: driver.names() == LIFE)


async def test_yd1_a_driver_has_two_minutes(tmp_path: Path) -> None:
    async def before(method: str) -> None:
        if method == "NodeStageVolume":
            await anyio.sleep_forever()

    async with working(tmp_path) as lab, lab.driver(before=before):
        began = anyio.current_time()
        with pytest.raises(VolumeError, match="code = DeadlineExceeded"):
            await lab.plugin.set_up_volume(lab.request(pod()), persistent())
        assert 119 < anyio.current_time() - began < 125


async def test_yd3_a_driver_that_is_not_there_is_named_and_waited_for(tmp_path: Path) -> None:
    async with working(tmp_path) as lab:
        with pytest.raises(VolumeError, match=f"driver name {NAME} not found in the list"):
            await lab.plugin.set_up_volume(lab.request(pod()), persistent())
        lab.plugin.wake()
        assert lab.retried == ["uid-web"]
        lab.plugin.wake()
        assert lab.retried == ["uid-web"]


async def test_yd5_secrets_are_read_for_each_call(tmp_path: Path) -> None:
    volume = persistent(
        stage_secret=SecretReference(name="s", namespace="n"),
        publish_secret=SecretReference(name="p", namespace="n"),
    )
    async with working(tmp_path) as lab, lab.driver() as driver:
        with pytest.raises(VolumeError, match="failed to find the secret s in the namespace n"):
            await lab.plugin.set_up_volume(lab.request(pod()), volume)
        secret(lab, "s", "c3RhZ2U=")
        secret(lab, "p", "cHVibGlzaA==")
        await lab.plugin.set_up_volume(lab.request(pod()), volume)
        assert driver.last("NodeStageVolume").secrets == {"key": "stage"}
        assert driver.last("NodePublishVolume").secrets == {"key": "publish"}


@pytest.mark.parametrize("in_secrets", [False, True])
async def test_yd6_yd7_the_pod_and_its_tokens_are_told(tmp_path: Path, in_secrets: bool) -> None:
    async with working(tmp_path) as lab, lab.driver() as driver:
        lab.wish(
            pod_info_on_mount=True,
            token_requests=(Wanted(audience="bank"), Wanted(audience="")),
            service_account_token_in_secrets=in_secrets,
        )
        await lab.plugin.set_up_volume(lab.request(pod()), persistent(attributes={"a": "b"}))
        told = driver.last("NodePublishVolume")
        assert told.volume_context["a"] == "b"
        assert told.volume_context["csi.storage.k8s.io/pod.name"] == "web"
        place = told.secrets if in_secrets else told.volume_context
        tokens = json.loads(place["csi.storage.k8s.io/serviceAccount.tokens"])
        assert tokens["bank"]["token"] == "web for bank"
        assert set(tokens) == {"bank", ""}
        assert "csi.storage.k8s.io/serviceAccount.tokens" not in (
            told.volume_context if in_secrets else told.secrets
        )
        assert driver.last("NodeStageVolume").volume_context == {"a": "b"}


async def test_yd8_a_driver_that_can_gives_files_to_the_group_itself(tmp_path: Path) -> None:
    abilities = Abilities(stage=True, mount_group=True)
    async with working(tmp_path) as lab, lab.driver(abilities=abilities) as driver:
        lab.wish(fs_group_policy="File")
        await lab.plugin.set_up_volume(lab.request(pod(), Ownership(fs_group=77)), persistent())
        for call in LIFE[:2]:
            assert driver.last(call).volume_capability.mount.volume_mount_group == "77"


async def test_ya1_ya2_ya4_ya5_a_volume_is_told_then_attached_then_made(tmp_path: Path) -> None:
    name = unique_name(NAME, "h")
    async with working(tmp_path) as lab, lab.driver() as driver:
        lab.wish(attach_required=True)
        told: list[object] = []
        lab.attachments.on_wanted.append(lambda: told.append(lab.attachments.in_use()))
        assert lab.attachments.in_use() is None
        lab.attachments.complete()
        request = lab.request(pod())

        async def refused() -> str:
            with pytest.raises(VolumeError) as caught:
                await lab.plugin.set_up_volume(request, persistent())
            assert caught.value.stage is Stage.ATTACH
            assert caught.value.quiet is (
                "GET error" not in str(caught.value) and "deleted" not in str(caught.value)
            )
            return str(caught.value)

        assert "has not been added to the list of VolumesInUse" in await refused()
        assert told[-1] == [name]
        lab.attachments.reported([name])
        assert await refused() == "Volume not attached according to node status"
        lab.attached(name)
        assert "has GET error for volume attachment csi-" in await refused()
        attachment = lab.plugin._data(persistent()).attachment
        made = lab.store.create(
            {
                "apiVersion": "storage.k8s.io/v1",
                "kind": "VolumeAttachment",
                "metadata": {"name": attachment},
                "spec": {"attacher": NAME, "nodeName": "n1", "source": {}},
            },
        )
        assert await refused() == f"volume attachment {attachment} is not attached yet"
        going = {**made["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}
        lab.store.put("volumeattachments", ("", attachment), {**made, "metadata": going})
        assert await refused() == f"volume attachment {attachment} is being deleted"
        status = {"attached": True, "attachmentMetadata": {"lun": "1"}}
        lab.store.put("volumeattachments", ("", attachment), {**made, "status": status})
        await lab.plugin.set_up_volume(request, persistent())
        assert driver.last("NodeStageVolume").publish_context == {"lun": "1"}
        assert driver.last("NodePublishVolume").publish_context == {"lun": "1"}
        await lab.plugin.tear_down(lab.end())
        assert lab.attachments.in_use() == [name]
        await until(lambda: lab.attachments.in_use() == [])
        assert driver.names() == LIFE


async def test_ya5_a_pod_that_ends_before_its_volume_is_attached_lets_it_go(
    tmp_path: Path,
) -> None:
    async with working(tmp_path) as lab, lab.driver() as driver:
        lab.wish(attach_required=True)
        lab.attachments.complete()
        with pytest.raises(VolumeError):
            await lab.plugin.set_up_volume(lab.request(pod()), persistent())
        assert lab.attachments.in_use() == [unique_name(NAME, "h")]
        await lab.plugin.tear_down(lab.end())
        await until(lambda: lab.attachments.in_use() == [])
        assert driver.names() == []


async def test_yb1_yb2_the_whole_life_of_a_device(tmp_path: Path) -> None:
    volume = persistent(block=True)
    async with working(tmp_path) as lab, lab.driver(fake_devices=True) as driver:
        made = await lab.plugin.set_up_volume(lab.request(pod()), volume)
        top = tmp_path / "plugins" / "kubernetes.io" / "csi" / "volumeDevices"
        link = tmp_path / "pods" / "uid-web" / "volumeDevices" / "kubernetes.io~csi" / "pv"
        assert (made.block, made.host_path) == (True, str(link))
        assert link.readlink() == top / "publish" / "pv" / "uid-web"
        assert driver.last("NodeStageVolume").staging_target_path == str(top / "staging" / "pv")
        assert driver.last("NodePublishVolume").target_path == str(link.readlink())
        assert lab.devices.held == {top / "pv" / "dev" / "uid-web"}
        assert (top / "pv" / "data" / "vol_data.json").exists()
        await lab.plugin.tear_down(lab.end(block=True))
        assert lab.devices.held == set()
        assert not link.is_symlink()
        await until(lambda: driver.names() == LIFE)
        await until(lambda: not (top / "pv").exists())
        assert lab.mounter.points == []


async def test_yb1_the_next_agent_ends_a_device_by_its_link(tmp_path: Path) -> None:
    volume = persistent(block=True)
    async with working(tmp_path) as lab, lab.driver(fake_devices=True):
        await lab.plugin.set_up_volume(lab.request(pod()), volume)
        points = lab.mounter.points
    async with working(tmp_path) as lab, lab.driver(fake_devices=True) as driver:
        lab.mounter.points.extend(points)
        await lab.plugin.tear_down(lab.end(block=True))
        await until(lambda: driver.names() == LIFE[2:])
        await until(lambda: list(tmp_path.rglob("vol_data.json")) == [])


@pytest.mark.parametrize(
    ("broken", "stage"),
    [("NodeStageVolume", Stage.MAP_DEVICE), ("NodePublishVolume", Stage.MAP)],
)
async def test_yb4_failures_of_devices_have_words_of_their_own(
    tmp_path: Path, broken: str, stage: Stage
) -> None:
    async def before(method: str) -> None:
        if method == broken:
            raise Internal("x")

    async with working(tmp_path) as lab, lab.driver(before=before, fake_devices=True):
        with pytest.raises(VolumeError) as caught:
            await lab.plugin.set_up_volume(lab.request(pod()), persistent(block=True))
        assert caught.value.stage is stage
        assert stage.reason == "FailedMapVolume"


async def test_ya3_without_a_controller_only_the_attachment_counts(tmp_path: Path) -> None:
    alone = Attachments(LastHeard(StoreClient(ApiStore())), "n1", lambda: None, managed=False)
    await alone.check(persistent(), PodUID("u"))
    with pytest.raises(VolumeError, match="has GET error for volume attachment"):
        await alone.context(persistent(), PodUID("u"))
