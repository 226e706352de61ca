"""Reading a configuration: from its files, or as it was kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from nodeagent.config import AgentConfig, ConfigError, ConfigFilesError, load_configuration
from nodeagent.config.contents import Kept, Recorded
from nodeagent.config.kubelet_file import LoadedFile
from nodeagent.config.trial import ConfigState, started
from nodeagent.log import Log
from nodeagent.reload.last_good import LastGood, Saved

log = Log("config")


@dataclass(frozen=True, slots=True)
class Loaded:
    """A configuration that can be used.

    Attributes:
        config: the agent's settings.
        logging: what it says of the log, which is the process's: ``logging_format``,
            ``verbosity``, ``vmodule``.
        warnings: what was ignored, or is not acted on.
        digest: a short name of what the files hold.
        saved: their content, as :meth:`Loader.restore` takes it.
    """

    config: AgentConfig
    logging: Mapping[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    digest: str = ""
    saved: Mapping[str, Any] = field(default_factory=dict)


Build = Callable[[LoadedFile], tuple[AgentConfig, Mapping[str, Any]]]
"""Makes the settings of what files say, and those of the log; raises ConfigError."""


class Loader(Protocol):
    """Where a configuration comes from."""

    def read(self) -> Loaded:
        """Read it as it is now. Blocks.

        Raises:
            ConfigError: it cannot be used.
        """
        ...

    def restore(self, saved: Mapping[str, Any]) -> Loaded:
        """What :attr:`Loaded.saved` stands for. Blocks.

        Raises:
            ConfigError: it cannot be used (any more).
        """
        ...


class FileLoader:
    """Reads a KubeletConfiguration file and its drop-ins.

    Args:
        file: the file; None for none.
        directory: where the drop-ins lie; None for none.
        build: puts flags that are settings over what they say.
        flags: flags of further fields, with their values as text.
    """

    def __init__(
        self,
        file: Path | None,
        directory: Path | None,
        build: Build,
        flags: Sequence[tuple[str, str]] = (),
    ) -> None:
        self.file = file
        self.directory = directory
        self._build = build
        self._flags = flags

    def read(self) -> Loaded:
        """See :class:`Loader`."""
        if self.file is None and self.directory is None and not self._flags:
            return self._built(LoadedFile({}, ()), "", {})
        recorded = Recorded()
        loaded = load_configuration(self.file, self.directory, self._flags, recorded)
        places = {"file": str(self.file or ""), "directory": str(self.directory or "")}
        return self._built(loaded, recorded.digest, places | recorded.saved())

    def restore(self, saved: Mapping[str, Any]) -> Loaded:
        """See :class:`Loader`."""
        loaded = restored(saved, self._flags)
        return self._built(loaded, Kept.restored(saved).digest, saved)

    def _built(self, loaded: LoadedFile, digest: str, saved: Mapping[str, Any]) -> Loaded:
        config, logging = self._build(loaded)
        return Loaded(config, logging, loaded.warnings, digest, saved)


def restored(saved: Mapping[str, Any], flags: Sequence[tuple[str, str]] = ()) -> LoadedFile:
    """What files said that were kept, with flags over them.

    Raises:
        ConfigError: what was kept cannot be used.
    """
    try:
        kept = Kept.restored(saved)
    except ValueError as error:
        raise ConfigError("config", "the last known good one", str(error)) from error
    file, directory = (_path(saved.get(name)) for name in ("file", "directory"))
    if file is None and directory is None:
        raise ConfigError("config", "the last known good one", "names no file")
    return load_configuration(file, directory, flags, kept)


def _path(text: object) -> Path | None:
    return Path(text) if isinstance(text, str) and text else None


@dataclass(frozen=True, slots=True)
class First:
    """What an agent starts with.

    Attributes:
        loaded: the configuration.
        good: the last known good one; None when there is none.
        state: where the agent stands with it; its trial, if it has one, has no end yet.
        errors: why it is not what the files say.
        saved: what is on the disk.
    """

    loaded: Loaded
    good: Loaded | None
    state: ConfigState
    errors: tuple[str, ...]
    saved: Saved


def first_configuration(loader: Loader, last_good: LastGood) -> First:
    """Decide what an agent starts with: what the files say, or else what was good. Blocks.

    Raises:
        ConfigError: what the files say cannot be used, and nothing is known to be good.
    """
    saved = last_good.load()
    good, why_none = _restored(loader, saved)
    errors: tuple[str, ...] = ()
    found: Loaded | None = None
    try:
        found = loader.read()
    except ConfigError as error:
        if good is None:
            raise _without_good(error, why_none or last_good.problem) from error
        errors = problems_of(error)
    if found is not None and good is not None and found.digest == saved.refused:
        errors = (saved.why or "it was rolled back",)
    start = good if errors and good is not None else found
    assert start is not None
    state = started(
        files="" if found is None else found.digest,
        active=start.digest,
        last_good="" if good is None else good.digest,
        error="; ".join(errors),
        refused=saved.refused if good is not None else "",
        until=float("inf"),
    )
    return First(start, good, state, errors, saved)


def _restored(loader: Loader, saved: Saved) -> tuple[Loaded | None, str]:
    """The last known good configuration, and why it cannot be used if there is one."""
    if not saved.digest:
        return None, ""
    try:
        return loader.restore(saved.files), ""
    except ConfigError as error:
        why = "; ".join(problems_of(error))
        log.warning("last_known_good_unusable", digest=saved.digest, cause=why)
        return None, why


def _without_good(error: ConfigError, why_none: str) -> Exception:
    if not why_none:
        return error
    text = f"{error.allowed}; nor can the last known good configuration be used: {why_none}"
    return ConfigError(error.field, error.value, text)


def problems_of(error: ConfigError) -> tuple[str, ...]:
    """All that is wrong, each with the file and the path of the field."""
    if isinstance(error, ConfigFilesError):
        return tuple(f"{error.value}: {problem}" for problem in error.problems)
    return (f"{error.value}: {error.allowed}" if str(error.value) else str(error),)
