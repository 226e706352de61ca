"""Random things happening to manifest files while a file source watches them, and never rescans."""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Final, TextIO

import anyio

from nodeagent.journal import Journal
from nodeagent.model import Snapshot
from nodeagent.sources import FileSource

_POD: Final = """apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  containers:
  - {name: c, image: "%s"}
"""
_NAMES: Final = ("a.yaml", "b.yaml", "c.yaml", "a.yaml~", ".b.yaml.swp", "sedAb12Zz")
_NEVER: Final = 1e9
_SETTLED: Final = 45.0
"""Seconds after which every writer has been given up."""


class _Meddler:
    """Does things to files. Everything it opens is closed when ``opened`` is."""

    def __init__(self, rng: Random, root: Path, opened: ExitStack) -> None:
        self._rng = rng
        self._root = root
        self._m = root / "m"
        self._opened = opened
        self._writers: list[TextIO] = []
        self._count = 0

    def step(self) -> None:
        """Do one thing; what cannot be done just now is not."""
        steps = (
            self.write, self.write, self.write, self.begin, self.go_on, self.end, self.rename,
            self.rename, self.remove, self.link, self.touch, self.place, self.mischief, self.swap,
        )  # fmt: skip
        try:
            self._rng.choice(steps)()
        except OSError:
            return

    def _text(self) -> str:
        self._count += 1
        name = self._rng.choice(["one", "two", "three"])
        return _POD % (name, self._count) if self._rng.random() < 0.9 else "a: b: c"

    def _path(self) -> Path:
        path = self._m / self._rng.choice(_NAMES)
        if path.is_fifo():
            # Whoever opened it would wait for ever.
            path.unlink()
        return path

    def write(self) -> None:
        self._path().write_text(self._text())

    def begin(self) -> None:
        file = self._opened.enter_context(self._path().open(self._rng.choice(["w", "a"])))
        self._writers.append(file)
        self.go_on()

    def go_on(self) -> None:
        if self._writers:
            file = self._rng.choice(self._writers)
            file.write(self._rng.choice([self._text(), "# more\n"]))
            file.flush()

    def end(self) -> None:
        if self._writers:
            self._writers.pop().close()

    def rename(self) -> None:
        self._path().rename(self._path())

    def remove(self) -> None:
        self._path().unlink()

    def link(self) -> None:
        path = self._path()
        soft = self._rng.random() < 0.5
        # What is written by another hard link's name makes no event here, so nobody does that.
        name = self._rng.choice(_NAMES) if soft else f"hard{self._count}"
        target = self._root / "out" / name
        target.write_text(self._text())
        path.unlink(missing_ok=True)
        if soft:
            path.symlink_to(target)
        else:
            path.hardlink_to(target)

    def touch(self) -> None:
        path = self._path()
        match self._rng.randrange(3):
            case 0:
                path.touch()
            case 1:
                path.chmod(0o600)
            case _:
                os.truncate(path, 40)

    def place(self) -> None:
        new = self._root / "out" / "new"
        new.write_text(self._text())
        new.rename(self._path())

    def mischief(self) -> None:
        path = self._path()
        path.unlink(missing_ok=True)
        match self._rng.randrange(3):
            case 0:
                os.mkfifo(path)
            case 1:
                path.mkdir()
            case _:
                path.symlink_to("nowhere")

    def swap(self) -> None:
        """The whole directory is replaced, removed, or put back."""
        if self._rng.random() < 0.5 and self._m.exists():
            shutil.rmtree(self._m)
        else:
            aside = self._root / f"aside{self._count}"
            self._m.rename(aside)
        if self._rng.random() < 0.7:
            self._m.mkdir()

    def whole(self) -> None:
        """End all writing, and let the directory be there."""
        for writer in self._writers:
            writer.close()
        self._m.mkdir(exist_ok=True)


def _shown(source: FileSource) -> set[tuple[str, str]]:
    pods = [document.pod for document in source.selection.pods.values()]
    return {(p.metadata.name, p.spec.containers[0].image) for p in pods}


async def fuzz_files(rng: Random) -> None:
    """What a source has seen in the end is what it would see anew, but for what it keeps.

    Raises:
        AssertionError: it has missed a change.
    """
    root = Path(tempfile.mkdtemp(prefix="nodeagent-fuzz-"))
    try:
        for name in ("m", "out"):
            (root / name).mkdir()
        await _fuzz_below(rng, root)
    finally:
        shutil.rmtree(root, ignore_errors=True)


async def _fuzz_below(rng: Random, root: Path) -> None:
    async def take(_snapshot: Snapshot) -> None:
        await anyio.lowlevel.checkpoint()

    source = FileSource([root / "m"], "n1", period=_NEVER, journal=Journal())
    with ExitStack() as opened:
        meddler = _Meddler(rng, root, opened)
        async with anyio.create_task_group() as tg:
            await tg.start(source.run, take)
            for _ in range(rng.randrange(30)):
                meddler.step()
                await anyio.sleep(rng.choice([0, 0, 0.01, 0.06, 0.25, 1.1, 4]))
            meddler.whole()
            await anyio.sleep(_SETTLED)
            seen, kept = _shown(source), set(source.selection.kept)
            tg.cancel_scope.cancel()
    fresh = FileSource([root / "m"], "n1", period=_NEVER, journal=Journal())
    async with anyio.create_task_group() as tg:
        await tg.start(fresh.run, take)
        await anyio.sleep(_SETTLED)
        anew = _shown(fresh)
        tg.cancel_scope.cancel()
    names = {f"{identity.name}-n1" for identity in kept}
    missed = {pod for pod in seen ^ anew if pod[0] not in names}
    assert not missed, f"seen {sorted(seen)}, there are {sorted(anew)}, kept {sorted(names)}"
