"""The root file system of a container in a user namespace.

There, one overlay of the whole root is refused where something is mounted below it (it would
show what the mounts hide). So the root is a directory of the container's own, with an overlay
for each of the host's top directories; one that has mounts in it is put together in the same
way. What an overlay cannot show is there read-only.
"""

from __future__ import annotations

import os
import stat

from nodeagent.embedded.process.launcher import linux, mounts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

MANY_ENTRIES = 64
"""A directory with more entries than this is not put together from parts."""


class UserRoot:
    """Puts a root file system together.

    Args:
        base: has the directories ``upper`` and ``work``.
        merged: where the root file system is to be.
    """

    def __init__(self, base: str, merged: str) -> None:
        self._upper = f"{base}/upper"
        self._work = f"{base}/work"
        self._merged = merged
        self._works = 0
        self._mounted = [path for path, _ in mounts.host_mounts()]
        self._points: list[str] = []
        self._changeable: list[int] = []

    def build(self, points: Iterable[tuple[str, bool]]) -> None:
        """Do it.

        Args:
            points: paths that must be there to be mounted on, and whether each is a directory.
                They are made here, where the directories that they are in can be changed: most
                belong to the host's root, who is nobody in the namespace.

        Raises:
            OSError: it cannot be done.
        """
        for path, is_directory in points:
            self._make_point(os.path.realpath(path), is_directory=is_directory)
        linux.mount(self._upper, self._merged, None, linux.MS_BIND)
        self._changeable.append(os.open(self._merged, os.O_PATH))
        for top in mounts.KERNEL:
            os.makedirs(self._upper + top, mode=0o755, exist_ok=True)  # noqa: PTH103
        self._show_parts("/")

    def seal(self) -> None:
        """Make all of it read-only that can be changed, but not what was mounted on it since."""
        for fd in self._changeable:
            linux.make_readonly(fd, recursive=False)

    def _make_point(self, path: str, *, is_directory: bool) -> None:
        if mounts.is_below(path, *mounts.KERNEL) or os.path.exists(path):  # noqa: PTH110
            return
        self._points.append(path)
        parts = path.split("/")[1:]
        for count in range(1, len(parts) + is_directory):
            self._make_own("/" + "/".join(parts[:count]))
        mounts.make_point(self._upper + path, is_directory=is_directory)

    def _make_own(self, path: str) -> None:
        """Make a directory that is like the host's, except that it belongs to this user."""
        own = self._upper + path
        if os.path.isdir(own):  # noqa: PTH112
            return
        os.mkdir(own)  # noqa: PTH102
        try:
            mode = stat.S_IMODE(os.stat(path).st_mode) & 0o1777  # noqa: PTH116
        except OSError:
            mode = 0o755
        os.chmod(own, mode | 0o700)  # noqa: PTH101

    def _show_parts(self, path: str) -> None:
        """Show what is in a directory of the host, in one of this container's own."""
        for name in os.listdir(path):  # noqa: PTH208
            below = f"{path.rstrip('/')}/{name}"
            if mounts.is_below(below, *mounts.KERNEL):
                continue
            try:
                self._show(below, os.lstat(below).st_mode)
            except FileNotFoundError:
                continue  # it has just gone

    def _show(self, path: str, mode: int) -> None:
        if stat.S_ISLNK(mode):
            if not os.path.lexists(self._upper + path):
                os.symlink(os.readlink(path), self._upper + path)  # noqa: PTH115, PTH211
            return
        if not stat.S_ISDIR(mode):
            if not os.path.lexists(self._upper + path):
                self._show_readonly(path, is_directory=False)
            return
        self._make_own(path)
        if not os.access(path, os.R_OK | os.X_OK):
            return  # an empty one: this user has no business in the host's
        if self._has_below(path, self._mounted):
            self._show_around_mounts(path, mode)
            return
        try:
            self._show_overlay(path)
        except OSError:
            if self._has_below(path, self._points):
                self._show_parts(path)
            else:
                self._show_readonly(path, is_directory=True)

    def _show_around_mounts(self, path: str, mode: int) -> None:
        many = len(os.listdir(path)) > MANY_ENTRIES  # noqa: PTH208
        if many and mode & stat.S_ISVTX:
            return  # a place for temporary files: better empty than read-only
        if many and not self._has_below(path, self._points):
            self._show_readonly(path, is_directory=True)
        else:
            self._show_parts(path)

    @staticmethod
    def _has_below(path: str, points: list[str]) -> bool:
        return any(point.startswith(path + "/") for point in points)

    def _show_overlay(self, path: str) -> None:
        self._works += 1
        work = f"{self._work}/{self._works}"
        os.mkdir(work)  # noqa: PTH102
        target = self._merged + path
        mounts.overlay(path, self._upper + path, work, target, "userxattr")
        self._changeable.append(os.open(target, os.O_PATH))

    def _show_readonly(self, path: str, *, is_directory: bool) -> None:
        """Show it with all that is mounted in it; never so that it could be changed."""
        target = self._merged + path
        try:
            mounts.make_point(self._upper + path, is_directory=is_directory)
            linux.mount(path, target, None, linux.MS_BIND | linux.MS_REC)
        except OSError:
            return  # it cannot be shown, so there is an empty one
        fd = os.open(target, os.O_PATH)
        try:
            linux.make_readonly(fd, recursive=True)
        except OSError:
            linux.detach(target)
            raise
        finally:
            os.close(fd)
