"""What cannot be rebuilt is saved when it changes, and a refusing disk stops nobody."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from nodeagent import checkpointer
from nodeagent.checkpointer import Checkpointer
from nodeagent.journal import Journal
from nodeagent.state_file import StateFile

pytestmark = pytest.mark.anyio


class Part:
    """A section whose content is set from outside."""

    def __init__(self, content: Any = None) -> None:
        self.content = content
        self.restored: list[tuple[Any, float]] = []

    def snapshot(self) -> Any:
        if isinstance(self.content, Exception):
            raise self.content
        return self.content

    def restore(self, saved: Any, shift: float) -> None:
        self.restored.append((saved, shift))
        if isinstance(self.content, Exception):
            raise self.content


async def opened(path: Path, journal: Journal | None = None, **sections: Part) -> Checkpointer:
    made = Checkpointer(StateFile(path), journal=journal)
    for name, section in sections.items():
        made.add(name, section)
    await made.load()
    return made


async def loaded(path: Path, name: str = "a") -> list[tuple[Any, float]]:
    part = Part()
    made = Checkpointer(StateFile(path))
    made.add(name, part)
    await made.load()
    return part.restored


async def test_each_part_gets_back_what_it_gave(tmp_path: Path) -> None:
    path = tmp_path / "state" / "x.json"
    assert await loaded(path) == []
    await (await opened(path, a=Part({"x": [1, 2.5]}), b=Part(["y"]))).save()
    a, b, c = Part(), Part(), Part()
    await opened(path, a=a, b=b, c=c)
    assert (a.restored, b.restored, c.restored) == ([({"x": [1, 2.5]}, 0.0)], [(["y"], 0.0)], [])


async def test_it_is_written_only_when_something_has_changed(tmp_path: Path) -> None:
    path, part = tmp_path / "x.json", Part({"since": 1.0})
    made = await opened(path, a=part)
    await made.save()
    before = path.stat().st_ino
    await anyio.sleep(100)
    await made.save()
    assert path.stat().st_ino == before
    part.content = {"since": 2.0}
    await made.save()
    assert await loaded(path) == [({"since": 2.0}, 0.0)]


async def test_a_name_is_given_once(tmp_path: Path) -> None:
    made = await opened(tmp_path / "x.json", a=Part())
    with pytest.raises(ValueError, match="section 'a' already"):
        made.add("a", Part())


async def test_time_without_an_agent_counts_until_the_machine_boots(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, part = tmp_path / "x.json", Part([1.0])
    boot = "first"
    monkeypatch.setattr(checkpointer, "boot_id", lambda: boot)
    made = await opened(path, a=part)
    await anyio.sleep(50)
    await made.save()
    began = anyio.current_time()
    await anyio.sleep(30)
    assert await loaded(path) == [([1.0], 0.0)]
    boot = "second"
    ((_, shift),) = await loaded(path)
    # Ages are as at the moment of writing.
    assert shift == pytest.approx(anyio.current_time() - began, abs=1.0)
    assert shift >= 30


async def test_moments_in_the_future_are_those_of_another_clock(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    made = await opened(path, a=Part(1))
    await made.save()
    envelope = msgspec.json.decode(path.read_bytes())["content"]
    StateFile(path).save({**envelope, "at": 1e9})
    ((_, shift),) = await loaded(path)
    assert shift == pytest.approx(anyio.current_time() - 1e9)


async def test_a_system_that_does_not_tell_its_boot_counts_no_time_between(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpointer, "boot_id", lambda: "")
    path = tmp_path / "x.json"
    await (await opened(path, a=Part(1))).save()
    await anyio.sleep(10)
    ((_, shift),) = await loaded(path)
    assert shift >= 10


async def test_it_saves_once_a_period_and_when_it_ends(tmp_path: Path) -> None:
    path, part = tmp_path / "x.json", Part(1)
    made = await opened(path, a=part)
    async with anyio.create_task_group() as tg:
        await tg.start(made.run)
        await anyio.sleep(6)
        assert await loaded(path) == [(1, 0.0)]
        part.content = 2
        tg.cancel_scope.cancel()
    assert await loaded(path) == [(2, 0.0)]


async def test_it_saves_at_once_when_it_is_told_and_not_too_often(tmp_path: Path) -> None:
    path, part = tmp_path / "x.json", Part(0)
    made = await opened(path, a=part)
    async with anyio.create_task_group() as tg:
        await tg.start(made.run)
        files = set()
        for number in range(1, 101):
            part.content = number
            made.changed()
            await anyio.sleep(0.01)
            files.add(path.stat().st_mtime_ns if path.exists() else 0)
        assert len(files) <= 5
        await anyio.sleep(1)
        assert await loaded(path) == [(100, 0.0)]
        tg.cancel_scope.cancel()


async def test_a_disk_that_refuses_is_said_once_and_so_is_its_recovery(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    place = tmp_path / "file"
    part, journal = Part(1), Journal()
    made = await opened(place / "x.json", journal, a=part)
    place.write_text("")
    await made.save()
    since = made.trouble_since
    await anyio.sleep(5)
    part.content = 2
    await made.save()
    assert (made.trouble, made.trouble_since) == ("File exists", since)
    assert [r.getMessage() for r in caplog.records] == ["checkpoint_not_saved"]
    place.unlink()
    await made.save()
    assert (made.trouble, made.trouble_since) == ("", None)
    assert await loaded(place / "x.json") == [(2, 0.0)]
    assert [(r.what, r.why) for r in journal.select()] == [
        ("CheckpointNotSaved", "File exists"),
        ("CheckpointSavedAgain", "after: File exists"),
    ]


async def test_a_part_that_fails_keeps_its_last_content_and_costs_the_others_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path, sick, well = tmp_path / "x.json", Part("good"), Part(1)
    made = await opened(path, a=sick, b=well)
    await made.save()
    for broken in (KeyError("boom"), KeyError("boom"), object()):
        sick.content, well.content = broken, well.content + 1
        await made.save()
        assert await loaded(path, "a") == [("good", 0.0)]
        assert await loaded(path, "b") == [(well.content, 0.0)]
    assert [r.getMessage() for r in caplog.records] == ["checkpoint_section_failed"]
    sick.content = "well again"
    await made.save()
    assert await loaded(path, "a") == [("well again", 0.0)]


async def test_a_part_that_cannot_take_its_content_begins_anew(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path, journal = tmp_path / "x.json", Journal()
    await (await opened(path, a=Part(1), b=Part(2))).save()
    sick, well = Part(KeyError("delay")), Part()
    await opened(path, journal, a=sick, b=well)
    assert well.restored == [(2, 0.0)]
    assert [r.getMessage() for r in caplog.records] == ["checkpoint_section_ignored"]
    assert [(r.what, r.why) for r in journal.select()] == [
        ("CheckpointIgnored", "a: KeyError('delay')"),
        ("CheckpointRestored", "a, b"),
    ]


@pytest.mark.parametrize("content", [None, 1, [], {}, {"crash": {}}, {"boot": 1}])
async def test_content_of_another_form_is_done_without(tmp_path: Path, content: Any) -> None:
    path = tmp_path / "x.json"
    StateFile(path).save(content)
    assert await loaded(path) == []


async def test_a_damaged_file_is_in_the_journal(tmp_path: Path) -> None:
    path, journal = tmp_path / "x.json", Journal()
    path.write_bytes(b"")
    await opened(path, journal, a=Part())
    (record,) = journal.select()
    assert (record.component, record.what) == ("checkpoint", "CheckpointDamaged")
    assert record.why.endswith("moved to x.json.damaged")
    assert record.fields == {"file": "x.json"}
