"""A file on the host into which containers write what happens to them, in order."""

from pathlib import Path
from typing import Any, Final

from tests.e2e.lab.manifests import Json

_INSIDE: Final = "/diary"


class Diary:
    """Containers write lines, the test reads them.

    Args:
        directory: an existing directory of the host.
    """

    def __init__(self, directory: Path) -> None:
        self._file = directory / "diary" / "lines"
        self._file.parent.mkdir(mode=0o777)
        self._file.parent.chmod(0o777)

    def lines(self) -> list[str]:
        """What was written so far."""
        return self._file.read_text().splitlines() if self._file.exists() else []

    @property
    def volume(self) -> Json:
        """The volume that a pod needs."""
        return {"name": "diary", "hostPath": {"path": str(self._file.parent)}}

    @property
    def mount(self) -> dict[str, Any]:
        """What a container that writes needs."""
        return {"volumeMounts": [{"name": "diary", "mountPath": _INSIDE}]}


def write(line: str) -> str:
    """A shell command that writes a line."""
    return f"echo {line} >>{_INSIDE}/lines"


def until_told(name: str) -> tuple[str, ...]:
    """A command that writes its start, waits to be told to stop, and writes its end."""
    end = f"{write(f'stop-{name}')}; exit 0"
    return ("sh", "-c", f"trap '{end}' TERM; {write(name)}; sleep 1000000 & wait")


def once(name: str, code: int = 0, pause: int = 0) -> tuple[str, ...]:
    """A command that writes its start, waits a while, and ends."""
    return ("sh", "-c", f"{write(name)}; sleep {pause}; exit {code}")
