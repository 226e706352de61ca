"""Volumes that have much in them already (docs/behaviour/volumes.md, "fsGroup")."""

from __future__ import annotations

import threading
from pathlib import Path

import anyio
import pytest

from nodeagent.api import PersistentVolumeClaimVolumeSource, Volume
from nodeagent.testing import RecordedMounter, make_pod
from nodeagent.volumes import hand_over
from nodeagent.volumes.local import LocalPlugin
from nodeagent.volumes.plugin import Ownership, SetUp, VolumeError
from nodeagent.volumes.threads import DiskThreads

pytestmark = pytest.mark.anyio


def request(root: Path, notes: list[str], group: int | None) -> SetUp:
    claim = PersistentVolumeClaimVolumeSource(claim_name="c")
    return SetUp(
        pod=make_pod(),
        volume=Volume(name="data", persistent_volume_claim=claim),
        root_dir=root,
        directory=root / "pods/uid-web/volumes/kubernetes.io~local-volume/data",
        mounter=RecordedMounter(),
        threads=DiskThreads(),
        ownership=Ownership(fs_group=group),
        note=lambda *words: notes.append(" ".join(words)),
    )


@pytest.mark.realtime
async def test_a_change_that_takes_long_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told, notes = threading.Event(), []

    def slow(*_args: object, **_kwargs: object) -> None:
        told.wait(30)

    def note(text: str) -> None:
        notes.append(text)
        if len(notes) == 2:
            told.set()

    monkeypatch.setattr(hand_over, "set_group", slow)
    monkeypatch.setattr(hand_over, "FIRST_NOTE", 0.01)
    monkeypatch.setattr(hand_over, "NEXT_NOTE", 0.01)
    whole = request(tmp_path, [], 1000)
    given = SetUp(
        pod=whole.pod,
        volume=whole.volume,
        root_dir=tmp_path,
        directory=whole.directory,
        mounter=whole.mounter,
        threads=whole.threads,
        ownership=whole.ownership,
        note=lambda *words: note(" ".join(words)),
    )
    with anyio.fail_after(30):
        await hand_over.hand_over(given, tmp_path)
    assert notes[0].startswith(
        "Warning VolumePermissionChangeInProgress Setting volume ownership for data is taking "
    )
    assert notes[1].endswith("Setting volume ownership for data, processed 0 files.")


async def test_without_a_group_nothing_is_changed(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    await hand_over.hand_over(request(tmp_path, [], None), tmp_path)
    assert tmp_path.stat().st_mode & 0o777 == 0o700


async def test_a_directory_of_the_node_is_shown_and_given_to_the_group(tmp_path: Path) -> None:
    source = tmp_path / "disk"
    source.mkdir()
    given = request(tmp_path, [], tmp_path.stat().st_gid)
    mounted = await LocalPlugin().set_up_path(given, str(source))
    await LocalPlugin().set_up_path(given, str(source))
    assert mounted.host_path == str(given.directory)
    mounter = given.mounter
    assert isinstance(mounter, RecordedMounter)
    assert mounter.calls == [f"bind {source} {given.directory}"]
    assert given.directory.stat().st_mode & 0o2770 == 0o2770


@pytest.mark.parametrize("path", ["relative", "/a/../b", "/does/not/exist"])
async def test_a_path_that_is_no_directory_of_the_node(tmp_path: Path, path: str) -> None:
    with pytest.raises(VolumeError):
        await LocalPlugin().set_up_path(request(tmp_path, [], None), path)
