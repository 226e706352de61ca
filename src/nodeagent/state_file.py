"""Small files of state that survive a crash: written whole or not at all.

A damaged or unknown file is moved aside and reported; the caller rebuilds what it held.
All functions block: call them in a thread, saves by :meth:`StateFile.in_time`.
"""

from __future__ import annotations

import asyncio
import errno
import os
import stat
import threading
import zlib
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any, Final, TypeVar

import anyio
import msgspec

from nodeagent.futures import pending
from nodeagent.log import Log

log = Log("state")

_MODE: Final = 0o600
_DIR_MODE: Final = 0o700
_NEW: Final = ".new"
SAVE_LIMIT: Final = 10.0
"""Seconds after which a save is not waited for any longer: the disk is dead, or as good as."""

_LAST_MOMENT: Final = 1.0

T = TypeVar("T")


class _InOrder(Executor):
    """Makes calls one after the other in a thread that keeps no process from ending.

    The thread lasts as long as there are calls. One that hangs holds up the others: what is
    written later must not be overtaken by what was written before.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls: deque[tuple[Future[Any], Callable[[], None]]] = deque()
        self._serving = False

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        future, run = pending(fn, args, kwargs)
        with self._lock:
            # Those that were given up would pile up behind one that hangs for hours.
            self._calls = deque(call for call in self._calls if not call[0].cancelled())
            self._calls.append((future, run))
            if self._serving:
                return future
            self._serving = True
        threading.Thread(target=self._serve, name="state", daemon=True).start()
        return future

    def _serve(self) -> None:
        while True:
            with self._lock:
                if not self._calls:
                    self._serving = False
                    return
                _, run = self._calls.popleft()
            run()
            del run  # what it holds is not kept for as long as the next one takes


class StateFile:
    """One file of JSON state with a version and a checksum.

    Args:
        path: where it lies; its directory is made with mode 0700 when missing.
        version: format of the content; another version counts as damage.

    Attributes:
        path: see Args.
        problem: what was wrong with the file at the last :meth:`load`, and where it is now;
            "" when nothing was.
        refused: why the last :meth:`save` failed; "" when it did not.
    """

    def __init__(self, path: Path, version: int = 1) -> None:
        self.path = path
        self.problem = ""
        self.refused = ""
        self._version = version
        self._thread = _InOrder()
        self._hangs = False

    def save(self, content: Any) -> None:
        """Write ``content`` (JSON-able) atomically and durably, with mode 0600.

        Raises:
            OSError: it could not be written; the old content is untouched.
        """
        body = msgspec.json.encode(content)
        envelope = {"version": self._version, "crc32": zlib.crc32(body)}
        data = msgspec.json.encode({**envelope, "content": msgspec.Raw(body)})
        try:
            self.path.parent.mkdir(mode=_DIR_MODE, parents=True, exist_ok=True)
            write_atomically(self.path, data)
        except OSError as error:
            self.refused = error.strerror or str(error)
            raise
        self.refused = ""

    async def in_time(self, save: Callable[[], None], limit: float = SAVE_LIMIT) -> None:
        """Have a thread call ``save``, which ends in :meth:`save`, and wait for it, for a while.

        Saves are made in the order of these calls. One that is given up, after ``limit`` or
        1 s after a cancellation, is left behind with a warning that names the file, and may still
        be made later; those that stand behind it and are given up, too, are never made.

        Args:
            save: blocks; what it raises comes out.
            limit: seconds to wait.

        Raises:
            OSError: it could not be written, or not in time.
        """
        call = asyncio.get_running_loop().run_in_executor(self._thread, save)
        waited = False
        try:
            with anyio.move_on_after(limit):
                await asyncio.wait((call,))
            waited = True
        finally:
            if not waited:
                # Cancelled in the midst of it: a disk that is well is done in a moment.
                with anyio.move_on_after(_LAST_MOMENT, shield=True):
                    await asyncio.wait((call,))
            if not call.done():
                call.cancel()
                self._abandoned()
            elif not waited:
                call.exception()  # nobody is left who could be told
        if call.cancelled():
            raise OSError(errno.ETIMEDOUT, self.refused)
        self._hangs = False
        call.result()

    def _abandoned(self) -> None:
        self.refused = "the disk does not answer"
        if not self._hangs:
            remedy = "look after its disk or file system; nothing waits for it"
            log.warning("state_save_abandoned", file=str(self.path), remedy=remedy)
        self._hangs = True

    def load(self) -> Any:
        """The content, or None when there is none or it is damaged (then moved aside)."""
        self.problem = ""
        _remove_leftovers(self.path)
        try:
            data = _read(self.path)
        except FileNotFoundError:
            return None
        except OSError as error:
            self.problem = f"cannot be read: {error.strerror}"
            log.warning("state_unreadable", file=str(self.path), cause=error.strerror)
            return None
        if data is None:
            return self._set_aside("no regular file")
        try:
            envelope = msgspec.json.decode(data, type=_Envelope)
            if envelope.version != self._version:
                return self._set_aside(f"written by another version ({envelope.version})")
            if zlib.crc32(bytes(envelope.content)) != envelope.crc32:
                return self._set_aside("checksum does not match")
            return msgspec.json.decode(envelope.content)
        except (msgspec.DecodeError, RecursionError) as error:
            return self._set_aside(str(error))

    def _set_aside(self, cause: str) -> None:
        aside = self.path.with_name(self.path.name + ".damaged")
        try:
            self.path.replace(aside)
        except OSError as error:
            self.problem = f"{cause}; it cannot be moved aside: {error.strerror}"
            log.warning("state_damaged", file=str(self.path), cause=cause, kept=error.strerror)
        else:
            self.problem = f"{cause}; moved to {aside.name}"
            log.warning("state_damaged", file=str(self.path), cause=cause, moved_to=str(aside))


class _Envelope(msgspec.Struct):
    version: int
    crc32: int
    content: msgspec.Raw


def _read(path: Path) -> bytes | None:
    """All bytes of a file; None when it is not a regular one, which is not read.

    A FIFO would hang its reader, and a device may never end.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        return None
    with os.fdopen(descriptor, "rb") as file:
        return file.read()


def write_atomically(path: Path, data: bytes, mode: int = _MODE) -> None:
    """Replace a file's content: temporary file, fsync, rename, fsync of the directory.

    Raises:
        OSError: it could not be written; the old content is untouched.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}{_NEW}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
    try:
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(descriptor, view) :]
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    _fsync_directory(path.parent)


def remove_leftovers(directory: Path) -> None:
    """Remove what writers left in a directory that were killed in the middle, and are gone.

    Another program may be writing there: what it is at is left alone.
    """
    for leftover in directory.glob(f".*{_NEW}"):
        writer = leftover.name.removesuffix(_NEW).rpartition(".")[2]
        if writer.isdecimal() and not Path("/proc", writer).exists():
            _remove(leftover)


def _remove_leftovers(path: Path) -> None:
    """Remove what writers left that were killed in the middle; a disk could fill up with it."""
    for leftover in path.parent.glob(f".{path.name}.*{_NEW}"):
        _remove(leftover)


def _remove(leftover: Path) -> None:
    try:
        leftover.unlink(missing_ok=True)
    except OSError as error:
        log.debug("leftover_not_removed", file=str(leftover), cause=error.strerror)


def _fsync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some file systems cannot sync a directory; the rename itself is done.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)
