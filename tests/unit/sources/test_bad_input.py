"""docs/behaviour/sources.md, "Files", "Selection", "Verdicts": what is bad, and what is said."""

from __future__ import annotations

import os
import socket
import stat
import unicodedata
from pathlib import Path

import anyio
import pytest
from tests.unit.sources.bad_input import ACCEPTED, POD, REFUSED, Accepted, Refused
from tests.unit.sources.file_lab import Running, running

from nodeagent.sources import manifest_scan
from nodeagent.sources.manifest_scan import SIZE_LIMIT

pytestmark = pytest.mark.anyio


async def settled(run: Running) -> None:
    """Everything that changed was looked at."""
    await anyio.sleep(2.5)


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case.what)
async def test_what_is_refused_is_told_exactly_and_what_ran_runs_on(
    tmp_path: Path, case: Refused
) -> None:
    """sources.md, L2, V1."""
    path = tmp_path / "web.yaml"
    path.write_text(POD)
    async with running(tmp_path) as run:
        before = await run.snapshot()
        path.write_bytes(case.data)
        await settled(run)
        assert run.refusals() == [f"web.yaml: {line}" for line in case.lines]
        assert run.source.problems() == {str(path): f"web.yaml: {case.lines[0]}"}
        now = [document.pod for document in run.source.selection.pods.values()]
        assert now == list(before.pods)
        path.write_text(POD)
        await settled(run)
        assert run.source.problems() == {}
        assert [d.pod.metadata.name for d in run.source.selection.pods.values()] == ["web-n1"]


@pytest.mark.parametrize("case", ACCEPTED, ids=lambda case: case.what)
async def test_what_looks_odd_and_is_good_runs(tmp_path: Path, case: Accepted) -> None:
    """sources.md, L1, V2."""
    (tmp_path / "web.yaml").write_bytes(case.data)
    async with running(tmp_path) as run:
        (pod,) = (await run.snapshot()).pods
        assert case.look(pod) == case.read
        assert run.refusals() == []
        told = [r.why for r in run.journal.select() if r.what == "ManifestWarning"]
        assert told == [f"web.yaml: {line}" for line in case.warnings]


def padded(size: int) -> bytes:
    return POD.encode() + b"#" * (size - len(POD))


async def test_ten_mebibytes_are_too_many_and_one_byte_less_is_not(tmp_path: Path) -> None:
    """sources.md, F5."""
    path = tmp_path / "web.yaml"
    path.write_bytes(padded(SIZE_LIMIT - 1))
    async with running(tmp_path) as run:
        before = await run.snapshot()
        assert [p.metadata.name for p in before.pods] == ["web-n1"]
        path.write_bytes(padded(SIZE_LIMIT))
        await settled(run)
        assert run.refusals() == [
            "web.yaml: too large: 10485760 bytes, the limit is below 10485760"
        ]
        assert [d.pod for d in run.source.selection.pods.values()] == list(before.pods)


async def test_a_file_that_turns_into_something_else_keeps_its_pod(tmp_path: Path) -> None:
    """sources.md, F4, F5."""
    path = tmp_path / "web.yaml"
    path.write_text(POD)
    async with running(tmp_path) as run:
        before = await run.snapshot()

        async def becomes(told: str) -> None:
            await settled(run)
            assert run.source.problems() == {str(path): f"web.yaml: {told}"}
            assert [d.pod for d in run.source.selection.pods.values()] == list(before.pods)
            path.unlink()

        path.unlink()
        os.mkfifo(path)
        await becomes("not a regular file")
        path.symlink_to("/nowhere/web.yaml")
        await becomes("the link leads to /nowhere/web.yaml, which does not exist")
        path.symlink_to("/dev/null")
        await becomes("not a regular file")
        path.symlink_to("web.yaml")
        await becomes("cannot be read: Too many levels of symbolic links")
        with socket.socket(socket.AF_UNIX) as listener:
            os.chdir(tmp_path)
            listener.bind("web.yaml")
        await becomes("not a regular file")
        path.write_text(POD)
        await settled(run)
        assert run.source.problems() == {}
        assert await run.silent(1)


async def test_a_device_is_not_even_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """sources.md, F4: to open some devices does something."""
    (tmp_path / "zero.yaml").symlink_to("/dev/zero")
    (tmp_path / "web.yaml").write_text(POD)
    opened: list[str] = []
    real = os.open

    def spy(path: str, flags: int, *rest: int) -> int:
        opened.append(str(path))
        return real(path, flags, *rest)

    monkeypatch.setattr(os, "open", spy)
    (seen,) = manifest_scan.scan([tmp_path], {})
    assert [(f.path.name, f.problem) for f in seen.files] == [
        ("web.yaml", ""),
        ("zero.yaml", "not a regular file"),
    ]
    assert opened == [str(tmp_path / "web.yaml")]


async def test_a_file_that_may_not_be_read_keeps_its_pod(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """sources.md, F5: root may read anything, so the kernel's answer is played."""
    path = tmp_path / "web.yaml"
    path.write_text(POD)
    async with running(tmp_path) as run:
        before = await run.snapshot()
        real = os.open

        def denied(target: str | Path, flags: int, *rest: int) -> int:
            if Path(target) == path and not path.stat().st_mode & stat.S_IRUSR:
                raise PermissionError(13, "Permission denied")
            return real(target, flags, *rest)

        monkeypatch.setattr(os, "open", denied)
        path.chmod(0)
        await settled(run)
        assert run.refusals() == ["web.yaml: cannot be read: Permission denied"]
        assert [d.pod for d in run.source.selection.pods.values()] == list(before.pods)
        path.chmod(0o600)
        await settled(run)
        assert run.source.problems() == {}
        assert await run.silent(1)


async def test_names_that_look_the_same_are_told_apart(tmp_path: Path) -> None:
    """sources.md, V7."""
    for form in ("NFC", "NFD"):
        (tmp_path / unicodedata.normalize(form, "caf\xe9.yaml")).write_text(POD)
    async with running(tmp_path) as run:
        assert len((await run.snapshot()).pods) == 1
        (told,) = run.refusals()
        twin = "cafe\\u0301.yaml already gives the pod default/web (line 4)"
        assert told == f"caf\xe9.yaml: metadata.name: duplicate: {twin}"


async def test_a_name_that_is_no_text_is_told_as_it_can_be(tmp_path: Path) -> None:
    """sources.md, V7."""
    for name in (b"w\xffb.yaml", b"a\nb.yaml", b"\x1b[31m.yaml"):
        with open(os.path.join(os.fsencode(tmp_path), name), "w") as file:  # noqa: PTH118, PTH123
            file.write("a: b: c")
    async with running(tmp_path) as run:
        await run.snapshot()
        told = sorted(line.partition(": ")[0] for line in run.refusals())
        assert told == ["\\x1b[31m.yaml", "a\\nb.yaml", "w\\udcffb.yaml"]
        assert "\n" not in "".join(run.source.problems().values())
