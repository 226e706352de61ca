"""The file and its drop-ins, one over the other: a JSON merge patch (RFC 7386) for each drop-in.

docs/configuration.md, "Drop-ins". Trees keep the lines of what was written, and every value of the
result knows the file it comes from.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from nodeagent.api.nodes import Mapping, Node, Scalar, to_plain
from nodeagent.api.problems import FieldProblem
from nodeagent.api.splitting import load_documents
from nodeagent.config.contents import DISK, Files
from nodeagent.config.errors import ConfigError

_HEAD: Final = ("apiVersion", "kind")


@dataclass(frozen=True, slots=True)
class Layered:
    """What files say together.

    Attributes:
        root: the merged object.
        origins: the file of each value, by its path in the object.
    """

    root: Mapping
    origins: dict[str, Path] = field(default_factory=dict)

    def origin(self, path: str) -> Path | None:
        """The file that a value comes from; of an object, one of its files."""
        at = path
        while at:
            if found := self.origins.get(at):
                return found
            at = at.rpartition("[" if at.endswith("]") else ".")[0]
        inside = (path + ".", path + "[")
        return next((file for at, file in self.origins.items() if at.startswith(inside)), None)


def read_objects(path: Path, option: str = "config", files: Files = DISK) -> list[Mapping]:
    """Read a file of objects, mostly of one. Blocks.

    Args:
        path: the file.
        option: the setting that named it, for errors.
        files: where its content comes from.

    Raises:
        ConfigError: it cannot be read, or holds something else.
    """
    try:
        data = files.read(path)
    except OSError as error:
        raise ConfigError(option, path, f"cannot be read: {error.strerror}") from error
    found = []
    for document in load_documents(data):
        if document.error is not None:
            wrong = document.error
            fault = FieldProblem("", wrong.message, wrong.line, wrong.column)
            raise ConfigError(option, path, str(fault))
        if document.root is None:
            continue
        if not isinstance(document.root, Mapping):
            raise ConfigError(option, path, "must be an object with apiVersion and kind")
        found.append(document.root)
    if not found:
        raise ConfigError(option, path, "is empty")
    return found


def head_of(root: Mapping) -> tuple[Any, Any]:
    """``apiVersion`` and ``kind`` as they stand there."""
    found = (root.values.get(name) for name in _HEAD)
    api_version, kind = (None if node is None else to_plain(node) for node in found)
    return api_version, kind


def drop_ins(directory: Path, files: Files = DISK) -> tuple[list[Path], list[Path]]:
    """The drop-ins of a directory in the order in which they count, and files left aside.

    Raises:
        ConfigError: it cannot be read.
    """
    try:
        return files.drop_ins(directory)
    except OSError as error:
        name = error.filename or directory
        raise ConfigError("config_dir", name, f"cannot be read: {error.strerror}") from error


def layered(root: Mapping, file: Path) -> Layered:
    """What one file says."""
    return Layered(root, dict.fromkeys(leaf_paths(root), file))


def merge(base: Layered, patch: Mapping, file: Path) -> Layered:
    """Put a drop-in over what there is: objects merge, null removes, all else replaces."""
    origins = dict(base.origins)
    return Layered(_merged(base.root, patch, file, "", origins), origins)


def leaf_paths(root: Mapping, above: str = "") -> Iterator[str]:
    """The paths of all values that are no objects; lists count as a whole."""
    for key, node in root.values.items():
        path = f"{above}.{key}" if above else key
        if isinstance(node, Mapping) and node.values:
            yield from leaf_paths(node, path)
        else:
            yield path


def _merged(
    base: Node | None, patch: Mapping, file: Path, above: str, origins: dict[str, Path]
) -> Mapping:
    merged = Mapping(patch.line)
    if isinstance(base, Mapping):
        merged.values.update(base.values)
        merged.key_lines.update(base.key_lines)
        merged.remarks.extend(base.remarks)
    merged.remarks.extend(patch.remarks)
    for key, node in patch.values.items():
        path = f"{above}.{key}" if above else key
        if not above and key in _HEAD:
            continue
        if isinstance(node, Mapping):
            if not isinstance(merged.values.get(key), Mapping):
                _forget(origins, path)
            merged.values[key] = _merged(merged.values.get(key), node, file, path, origins)
            if not node.values:
                origins.setdefault(path, file)
        else:
            _forget(origins, path)
            if isinstance(node, Scalar) and node.value is None:
                merged.values.pop(key, None)
                continue
            merged.values[key] = node
            origins[path] = file
        merged.key_lines[key] = patch.key_lines.get(key, node.line)
    return merged


def _forget(origins: dict[str, Path], path: str) -> None:
    for known in [at for at in origins if at == path or at.startswith(f"{path}.")]:
        del origins[known]
