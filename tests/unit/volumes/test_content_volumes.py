"""configMap, secret, downwardAPI and projected (docs/behaviour/volumes.md, "Content")."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.unit.volumes.content_lab import Rig, make_pod, running, until

from nodeagent.api import (
    ClusterTrustBundleProjection,
    ConfigMapProjection,
    ConfigMapVolumeSource,
    DownwardAPIProjection,
    DownwardAPIVolumeFile,
    DownwardAPIVolumeSource,
    KeyToPath,
    ObjectFieldSelector,
    ObjectMeta,
    PodCertificateProjection,
    PodSecurityContext,
    ProjectedVolumeSource,
    ResourceFieldSelector,
    SecretProjection,
    SecretVolumeSource,
    ServiceAccountTokenProjection,
    Volume,
    VolumeProjection,
)
from nodeagent.api.objects import ConfigMap, Secret
from nodeagent.model import DeadlineError, PodUID, SyncError
from nodeagent.model.volumes import MountedVolume
from nodeagent.volumes.content import format_map, quote
from nodeagent.volumes.mounter import MountError
from nodeagent.volumes.objects import NoObjects

pytestmark = pytest.mark.anyio

UID = PodUID("uid-1")
ONE = "-----BEGIN CERTIFICATE-----\nQQ==\n-----END CERTIFICATE-----\n"
TWO = "-----BEGIN CERTIFICATE-----\nQg==\n-----END CERTIFICATE-----\n"


def config_map(**fields: Any) -> Volume:
    return Volume(name="v", config_map=ConfigMapVolumeSource(name="c", **fields))


def secret(**fields: Any) -> Volume:
    return Volume(name="v", secret=SecretVolumeSource(secret_name="s", **fields))


def projected(*parts: VolumeProjection) -> Volume:
    return Volume(name="v", projected=ProjectedVolumeSource(sources=parts))


def content(path: Path) -> dict[str, bytes]:
    data = path / "..data"
    return {str(p.relative_to(data)): p.read_bytes() for p in data.rglob("*") if p.is_file()}


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


async def failure(rig: Rig, volume: Volume, security: PodSecurityContext | None = None) -> str:
    """What the event about the volume says, after the words that all of them begin with."""
    with pytest.raises(DeadlineError):
        await rig.manager.mount(make_pod(volume, security=security))
    kind, reason, text = rig.events[0]
    assert (kind, reason) == ("Warning", "FailedMount")
    return text.removeprefix('MountVolume.SetUp failed for volume "v" : ')


async def test_a_config_map_is_text_and_binary_files(tmp_path: Path) -> None:
    async with running(tmp_path) as rig:
        rig.objects.config_maps["c"] = ConfigMap(
            data={"a": "1", "empty": ""}, binary_data={"b": b"\xff\x00"}
        )
        mounted = await rig.manager.mount(make_pod(config_map()))
        path = rig.volume_dir("configmap")
        assert mounted == {"v": MountedVolume("v", str(path), read_only=True, relabel=True)}
        assert content(path) == {"a": b"1", "empty": b"", "b": b"\xff\x00"}
        assert mode(path / "a") == 0o644
        assert mode(path) == 0o777
        assert rig.mounter.calls == []


async def test_a_secret_lies_in_memory(tmp_path: Path) -> None:
    async with running(tmp_path) as rig:
        rig.objects.secrets["s"] = Secret(data={"password": b"hunter2"})
        await rig.manager.mount(make_pod(secret(default_mode=0o400)))
        path = rig.volume_dir("secret")
        assert rig.mounter.calls == [f"mount tmpfs {path} noswap"]
        assert content(path) == {"password": b"hunter2"}
        assert mode(path / "password") == 0o400
        await rig.manager.unmount(UID)
        assert rig.mounter.points == []
        assert not (tmp_path / "pods" / UID).exists()


async def test_a_secret_that_cannot_lie_in_memory_is_not_written(tmp_path: Path) -> None:
    def refuse(call: str) -> None:
        raise MountError(call)

    async with running(tmp_path) as rig:
        rig.mounter.before = refuse
        rig.objects.secrets["s"] = Secret(data={"password": b"hunter2"})
        assert "mount tmpfs" in await failure(rig, secret())
        assert not rig.volume_dir("secret").exists()


async def test_items_choose_keys_paths_and_modes(tmp_path: Path) -> None:
    async with running(tmp_path) as rig:
        rig.objects.set_config_map("c", a="1", b="2", c="3")
        items = (KeyToPath(key="a", path="x/y"), KeyToPath(key="b", path="z", mode=0o600))
        await rig.manager.mount(make_pod(config_map(items=items, default_mode=0o440)))
        path = rig.volume_dir("configmap")
        assert content(path) == {"x/y": b"1", "z": b"2"}
        assert (mode(path / "x/y"), mode(path / "z")) == (0o440, 0o600)


_MISSING = (KeyToPath(key="missing", path="m"), KeyToPath(key="a", path="a"))


@pytest.mark.parametrize(
    ("volume", "says"),
    [
        (config_map(items=_MISSING), "configmap references non-existent config key: missing"),
        (secret(items=_MISSING), "references non-existent secret key: missing"),
        (Volume(name="v", config_map=ConfigMapVolumeSource(name="no")), 'configmap "no" not found'),
        (Volume(name="v", secret=SecretVolumeSource(secret_name="no")), 'secret "no" not found'),
        (
            config_map(items=(KeyToPath(key="a", path="../a"),)),
            "invalid path: must not contain '..': ../a",
        ),
        (
            projected(
                VolumeProjection(secret=SecretProjection(name="no")),
                VolumeProjection(config_map=ConfigMapProjection(name="c", items=_MISSING)),
            ),
            '[secret "no" not found, configmap references non-existent config key: missing]',
        ),
        (
            Volume(
                name="v",
                downward_api=DownwardAPIVolumeSource(
                    items=(
                        DownwardAPIVolumeFile(
                            path="x", field_ref=ObjectFieldSelector(field_path="spec.x")
                        ),
                    )
                ),
            ),
            "unsupported fieldPath: spec.x",
        ),
        (
            projected(
                VolumeProjection(
                    cluster_trust_bundle=ClusterTrustBundleProjection(signer_name="s", path="p")
                )
            ),
            "combination of signerName and labelSelector matched zero ClusterTrustBundles",
        ),
    ],
)
async def test_what_is_missing_is_named(tmp_path: Path, volume: Volume, says: str) -> None:
    async with running(tmp_path) as rig:
        rig.objects.set_config_map("c", a="1")
        rig.objects.secrets["s"] = Secret(data={"a": b"1"})
        assert await failure(rig, volume) == says


@pytest.mark.parametrize(
    ("volume", "plugin", "files"),
    [
        (config_map(items=_MISSING, optional=True), "configmap", {"a"}),
        (secret(items=_MISSING, optional=True), "secret", {"a"}),
        (
            Volume(name="v", config_map=ConfigMapVolumeSource(name="no", optional=True)),
            "configmap",
            set(),
        ),
        (
            projected(
                VolumeProjection(
                    cluster_trust_bundle=ClusterTrustBundleProjection(
                        name="no", path="p", optional=True
                    )
                )
            ),
            "projected",
            {"p"},
        ),
    ],
)
async def test_what_is_optional_may_be_missing(
    tmp_path: Path, volume: Volume, plugin: str, files: set[str]
) -> None:
    async with running(tmp_path) as rig:
        rig.objects.set_config_map("c", a="1")
        rig.objects.secrets["s"] = Secret(data={"a": b"1"})
        await rig.manager.mount(make_pod(volume))
        assert set(content(rig.volume_dir(plugin))) == files


@pytest.mark.parametrize(
    ("volume", "word"),
    [
        (config_map(), "configmap"),
        (secret(), "secret"),
        (projected(VolumeProjection(secret=SecretProjection(name="s"))), "projected"),
    ],
)
async def test_without_anybody_to_ask_the_volume_says_so(
    tmp_path: Path, volume: Volume, word: str
) -> None:
    async with running(tmp_path, NoObjects()) as rig:
        says = f"cannot setup {word} volume v because kube client is not configured"
        assert await failure(rig, volume) == says


async def test_fields_of_the_pod_need_nobody(tmp_path: Path) -> None:
    items = (
        DownwardAPIVolumeFile(
            path="name", field_ref=ObjectFieldSelector(field_path="metadata.name"), mode=0o400
        ),
        DownwardAPIVolumeFile(
            path="labels", field_ref=ObjectFieldSelector(field_path="metadata.labels")
        ),
        DownwardAPIVolumeFile(
            path="cpu",
            resource_field_ref=ResourceFieldSelector(container_name="main", resource="limits.cpu"),
        ),
    )
    volume = Volume(name="v", downward_api=DownwardAPIVolumeSource(items=items))
    async with running(tmp_path, NoObjects()) as rig:
        await rig.manager.mount(make_pod(volume, labels={"b": "2", "a": 'x"y'}))
        path = rig.volume_dir("downward-api")
        assert content(path) == {
            "name": b"web",
            "labels": b'a="x\\"y"\nb="2"',
            "cpu": b"main:limits.cpu",
        }
        assert mode(path / "name") == 0o400
        await rig.manager.mount(make_pod(volume, labels={"c": "3"}))
        await until(lambda: content(path)["labels"] == b'c="3"')


async def test_the_sources_of_a_projected_volume_lie_side_by_side(tmp_path: Path) -> None:
    async with running(tmp_path) as rig:
        rig.objects.set_config_map("c", a="1", both="config")
        rig.objects.secrets["s"] = Secret(data={"both": b"secret"})
        rig.objects.bundles = f"junk{ONE}{TWO}{ONE}"
        name = ObjectFieldSelector(field_path="metadata.name")
        await rig.manager.mount(
            make_pod(
                projected(
                    VolumeProjection(config_map=ConfigMapProjection(name="c")),
                    VolumeProjection(secret=SecretProjection(name="s")),
                    VolumeProjection(
                        downward_api=DownwardAPIProjection(
                            items=(DownwardAPIVolumeFile(path="me", field_ref=name),)
                        )
                    ),
                    VolumeProjection(
                        service_account_token=ServiceAccountTokenProjection(
                            audience="me", path="token", expiration_seconds=600
                        )
                    ),
                    VolumeProjection(
                        cluster_trust_bundle=ClusterTrustBundleProjection(name="b", path="ca.pem")
                    ),
                    VolumeProjection(
                        pod_certificate=PodCertificateProjection(
                            credential_bundle_path="all.pem",
                            key_path="key.pem",
                            certificate_chain_path="chain.pem",
                        )
                    ),
                )
            )
        )
        found = content(rig.volume_dir("projected"))
        anchors = found.pop("ca.pem").decode()
        assert anchors in (ONE + TWO, TWO + ONE)
        assert found == {
            "a": b"1",
            "both": b"secret",
            "me": b"web",
            "token": b"web/me/600/0",
            "all.pem": b"KEY\nCHAIN\n",
            "key.pem": b"KEY\n",
            "chain.pem": b"CHAIN\n",
        }


TOKEN = projected(
    VolumeProjection(service_account_token=ServiceAccountTokenProjection(path="token"))
)


async def test_a_token_is_read_by_its_user_only(tmp_path: Path) -> None:
    async with running(tmp_path) as rig:
        await rig.manager.mount(make_pod(TOKEN))
        assert mode(rig.volume_dir("projected") / "token") == 0o644
        me = PodSecurityContext(run_as_user=0)
        await rig.manager.mount(make_pod(TOKEN, uid="u2", security=me))
        assert mode(rig.volume_dir("projected", uid="u2") / "token") == 0o600
        group = PodSecurityContext(fs_group=tmp_path.stat().st_gid)
        await rig.manager.mount(make_pod(TOKEN, uid="u3", security=group))
        assert mode(rig.volume_dir("projected", uid="u3") / "token") == 0o640


async def test_a_token_that_was_renewed_is_written_at_the_next_resync(tmp_path: Path) -> None:
    async with running(tmp_path) as rig:
        await rig.manager.mount(make_pod(TOKEN))
        rig.objects.tokens += 1
        await rig.manager.mount(make_pod(TOKEN))
        path = rig.volume_dir("projected") / "token"
        await until(lambda: path.read_bytes() == b"web//3600/1")


async def test_a_change_reaches_the_files_at_once_and_the_last_one_wins(tmp_path: Path) -> None:
    async with running(tmp_path) as rig:
        rig.objects.set_config_map("c", a="0", b="0")
        await rig.manager.mount(make_pod(config_map()))
        path = rig.volume_dir("configmap")
        for number in range(1, 101):
            rig.objects.set_config_map("c", a=str(number), b=str(number))
        await until(lambda: content(path) == {"a": b"100", "b": b"100"})


async def test_what_has_not_changed_is_not_written(tmp_path: Path) -> None:
    async with running(tmp_path) as rig:
        rig.objects.set_config_map("c", a="0")
        pod = make_pod(config_map())
        await rig.manager.mount(pod)
        before = (rig.volume_dir("configmap") / "..data").readlink()
        rig.objects.config_maps["c"] = ConfigMap(metadata=ObjectMeta(name="c"), data={"a": "0"})
        await rig.manager.mount(pod)
        rig.objects.set_config_map("c", a="0")
        await rig.manager.mount(pod)
        assert (rig.volume_dir("configmap") / "..data").readlink() == before
        assert [r.what for r in rig.journal.select(UID)] == ["VolumesMounted"]


async def test_what_is_in_use_stays_as_it_is_while_nobody_can_tell(tmp_path: Path) -> None:
    async with running(tmp_path) as rig:
        rig.objects.set_config_map("c", a="0")
        pod = make_pod(config_map())
        await rig.manager.mount(pod)
        rig.objects.failure = "the server is away"
        assert await rig.manager.mount(pod)
        await until(lambda: rig.events)
        assert content(rig.volume_dir("configmap")) == {"a": b"0"}
        rig.objects.failure = ""
        rig.objects.set_config_map("c", a="1")
        await until(lambda: content(rig.volume_dir("configmap")) == {"a": b"1"})


async def test_without_a_mode_nothing_is_written(tmp_path: Path) -> None:
    async with running(tmp_path) as rig:
        rig.objects.set_config_map("c", a="0")
        pod = make_pod(config_map())
        spec = replace(pod.spec, volumes=(config_map(),))
        with pytest.raises(SyncError, match="no defaultMode used"):
            await rig.manager.mount(replace(pod, spec=spec))


def test_labels_are_lines_in_order() -> None:
    assert format_map({}) == ""
    assert format_map({"b": "2", "a": "1"}) == 'a="1"\nb="2"'


def test_a_value_is_quoted_so_that_it_stays_on_its_line() -> None:
    assert quote('a\nb\t"\\\x00é\u200b\U000e0001') == '"a\\nb\\t\\"\\\\\\x00é\\u200b\\U000e0001"'
