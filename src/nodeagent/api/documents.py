"""Manifests: a file's bytes to one verdict per object, whatever the bytes are.

The rules stand in docs/behaviour/decoding.md. Every document and every list item is judged by
itself, so one bad pod never takes the others with it.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import msgspec

from nodeagent.api.decode import Decoded, decode_node
from nodeagent.api.nodes import Loaded, Mapping, Node, Plain, Scalar, Sequence, to_plain
from nodeagent.api.objects import ConfigMap, Secret
from nodeagent.api.pod import Pod
from nodeagent.api.problems import FieldProblem, Findings, shown
from nodeagent.api.splitting import load_documents
from nodeagent.api.strict import report_remarks, suggest
from nodeagent.api.strict_values import describe

DEFAULT_NAMESPACE: Final = "default"
PODS: Final = ("Pod",)
OBJECTS: Final = ("Pod", "ConfigMap", "Secret")
"""Kinds that are judged where no API server gives the objects that pods refer to."""

_SEVERAL: Final = "(several words)"
_LISTS: Final = ("List", "PodList")
_LIST_FIELDS: Final = frozenset({"apiVersion", "kind", "metadata", "items"})
_STEP: Final = re.compile(r'\[(\d+)\]|\["((?:[^"\\]|\\.)*)"\]|\[([^\]]*)\]|\.?([^.\[\]]+)')


class Identity(NamedTuple):
    """The namespace and name as written (namespace defaulted, no node name added), and kind."""

    namespace: str
    name: str
    kind: str = "Pod"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The judgement on one document, or on one item of a list document.

    A verdict is good (``pod`` or ``config``), bad (``errors``), or neither: an empty list document
    has no pod and nothing wrong with it.

    Attributes:
        source: The file or URL, as given.
        document: Which document of the file, from 1; documents without a value do not count.
        documents: How many documents the file has.
        item: Which item of the list, from 0; None for a document that is no list, and for the
            list itself, which has a verdict only when there is something to say about it.
        kind: The kind as written, "" if it cannot be read.
        line: Where it starts, from 1; 0 for an empty file.
        identity: Whose document this is, if that can be read, also of a bad one.
        pod: The pod as written, without defaults; None unless it is a good one.
        config: The ConfigMap or Secret as written; None unless it is a good one.
        errors: Everything that is wrong, in the order of the document.
        warnings: Ignored fields and the like; they do not make it bad.
        written: The document as written in one form, whatever its comments, order or syntax:
            compact JSON with sorted keys. Empty if it could not be read to its end.
        kinds: The kinds that are judged.
    """

    source: str
    document: int = 1
    documents: int = 1
    item: int | None = None
    kind: str = ""
    line: int = 0
    identity: Identity | None = None
    pod: Pod | None = None
    config: ConfigMap | Secret | None = field(default=None, repr=False)
    errors: tuple[FieldProblem, ...] = ()
    warnings: tuple[FieldProblem, ...] = ()
    written: bytes = field(default=b"", repr=False)
    kinds: tuple[str, ...] = PODS
    _tree: Node | None = field(default=None, repr=False, compare=False)

    @property
    def where(self) -> str:
        """The file and, where there are several, the document: ``web.yaml: document 2``."""
        return self.source if self.documents < 2 else f"{self.source}: document {self.document}"

    @property
    def foreign(self) -> bool:
        """Whether it is a document of another kind, on purpose and not by a slip."""
        return bool(self.errors) and _is_foreign(self.kind, self.kinds)

    def may_be(self, kind: str) -> bool:
        """Whether a bad document may be meant as an object of that kind."""
        return bool(self.errors) and not self.foreign and self.kind in (kind, *self._slips())

    def _slips(self) -> tuple[str, ...]:
        return () if self.kind in self.kinds else (self.kind,)

    def may_concern(self, identity: Identity) -> bool:
        """Whether this is a bad document that may be meant for that object of its file.

        Then the object's last good version stays in force. A document of another kind never is
        one; a document whose kind or name cannot be read may be any object's.
        """
        if not self.may_be(identity.kind):
            return False
        return self.identity is None or self.identity[:2] == identity[:2]

    def describe(self, problem: FieldProblem) -> str:
        """One line of text: ``web.yaml: spec.containers[0].image: required (line 9)``."""
        item = "" if self.item is None else f"items[{self.item}]"
        joint = "." if item and problem.path and not problem.path.startswith("[") else ""
        path = f"{item}{joint}{problem.path}"
        return f"{self.where}: {dataclasses.replace(problem, path=path)}"

    def error_lines(self) -> list[str]:
        """All errors as text."""
        return [self.describe(problem) for problem in self.errors]

    def warning_lines(self) -> list[str]:
        """All warnings as text."""
        return [self.describe(problem) for problem in self.warnings]

    def rejected(self, problems: Iterable[tuple[str, str]]) -> Verdict:
        """The same verdict with further errors, such as validation finds.

        Args:
            problems: Path and message of each; lines are looked up. With none the verdict
                stays as it is.
        """
        more = tuple(FieldProblem(path, text, self.line_of(path)) for path, text in problems)
        if not more:
            return self
        return dataclasses.replace(self, pod=None, config=None, errors=self.errors + more)

    def warned(self, problems: Iterable[tuple[str, str]]) -> Verdict:
        """The same verdict with further warnings, given as for ``rejected``."""
        more = tuple(FieldProblem(path, text, self.line_of(path)) for path, text in problems)
        return dataclasses.replace(self, warnings=self.warnings + more)

    def line_of(self, path: str) -> int:
        """The line of a field, or of what is nearest to it and was written."""
        node: Node | None = self._tree
        line = self.line
        for match in _STEP.finditer(path):
            index, quoted, bracketed, name = match.groups()
            if isinstance(node, Sequence) and index is not None:
                if int(index) >= len(node.items):
                    break
                node = node.items[int(index)]
                line = node.line
                continue
            key = json.loads(f'"{quoted}"') if quoted else bracketed or index or name
            if not isinstance(node, Mapping) or key not in node.values:
                break
            line = node.key_lines[key]
            node = node.values[key]
        return line

    def without_lines(self) -> Verdict:
        """The same verdict without what ``line_of`` needs, which is most of its memory."""
        return dataclasses.replace(self, _tree=None)


def decode_manifest(data: bytes, name: str, *, kinds: tuple[str, ...] = PODS) -> list[Verdict]:
    """Judge a manifest file or body.

    Takes time in proportion to the size, about 0.7 s for each megabyte: call it in a thread for
    large input. Never raises for any bytes.

    Args:
        data: YAML or JSON, any number of documents; each a v1 Pod, List or PodList, or of
            another kind that is judged.
        name: What to call it in messages.
        kinds: The kinds that are judged: ``PODS`` or ``OBJECTS``.

    Returns:
        At least one verdict; of a list document one for each item.
    """
    documents = load_documents(data)
    if not documents:
        return [Verdict(name, errors=(FieldProblem("", "empty: no documents"),))]
    verdicts: list[Verdict] = []
    for number, loaded in enumerate(documents, start=1):
        frame = Verdict(name, document=number, documents=len(documents), kinds=kinds)
        verdicts.extend(_judge_document(loaded, frame))
    return verdicts


def _judge_document(loaded: Loaded, frame: Verdict) -> Iterator[Verdict]:
    root = loaded.root
    if loaded.error is not None:
        yield _unreadable(loaded, frame)
        return
    assert root is not None
    frame = dataclasses.replace(frame, line=root.line, kind=_word(root, "kind"), _tree=root)
    if frame.kind in _LISTS and isinstance(root, Mapping):
        yield from _judge_list(root, frame)
    else:
        yield _judge_object(root, frame, listed=False)


def _unreadable(loaded: Loaded, frame: Verdict) -> Verdict:
    error, root = loaded.error, loaded.root
    assert error is not None
    problem = FieldProblem("", error.message, error.line, error.column)
    kind = "" if root is None else _word(root, "kind")
    identity = None
    # The metadata is whole only if something was read after it.
    known = kind in frame.kinds
    if known and isinstance(root, Mapping) and list(root.values)[-1] != "metadata":
        identity = _identity(root, kind)
        if identity is not None and any(len(part.split()) > 1 for part in identity):
            identity = None
    line = error.line if root is None else root.line
    return dataclasses.replace(frame, kind=kind, line=line, identity=identity, errors=(problem,))


def _judge_list(root: Mapping, frame: Verdict) -> Iterator[Verdict]:
    found = Findings()
    _check_type(root, found, frame.kind, listed=False)
    report_remarks(root, None, found, fields=True)
    for key in root.values:
        if key not in _LIST_FIELDS:
            found.warning((None, key), "unknown field", root.key_lines[key])
    items = root.values.get("items")
    if isinstance(items, Scalar) and items.value is None:
        items = None
    if items is not None and not isinstance(items, Sequence):
        found.error((None, "items"), f"expected a list, got {describe(items)}", items.line)
    nodes = items.items if isinstance(items, Sequence) else []
    if found.errors or found.warnings or not nodes:
        written = _written(root) if not nodes else b""
        yield dataclasses.replace(
            frame, errors=found.errors, warnings=found.warnings, written=written
        )
    listed = frame.kind == "PodList"
    for index, node in enumerate(nodes):
        kind = _word(node, "kind") or ("Pod" if listed else "")
        item = dataclasses.replace(frame, item=index, kind=kind, line=node.line, _tree=node)
        yield _judge_object(node, item, listed=listed)


def _judge_object(node: Node, frame: Verdict, *, listed: bool) -> Verdict:
    """Judge one object; in a PodList (``listed``) kind and version go without saying."""
    if not isinstance(node, Mapping):
        message = f"expected an object with apiVersion and kind, got {describe(node)}"
        problem = FieldProblem("", message, node.line)
        return dataclasses.replace(frame, errors=(problem,), written=_written(node))
    found = Findings()
    wanted = frame.kind if frame.kind in frame.kinds and not listed else "Pod"
    known = _check_type(node, found, wanted, listed=listed, kinds=frame.kinds)
    written = _written_pod(node) if listed else _written(node)
    frame = dataclasses.replace(frame, identity=_identity(node, wanted), written=written)
    if not known:
        return dataclasses.replace(frame, errors=found.errors)
    if wanted == "Secret":
        return _with_config(frame, found, decode_node(node, Secret, secret=True))
    if wanted == "ConfigMap":
        return _with_config(frame, found, decode_node(node, ConfigMap))
    decoded = decode_node(node, Pod)
    errors = (*found.errors, *decoded.errors)
    pod = None if errors else decoded.value
    if pod is not None and listed:
        pod = msgspec.structs.replace(pod, api_version="v1", kind="Pod")  # may be written as ""
    return dataclasses.replace(frame, pod=pod, errors=errors, warnings=decoded.warnings)


def _with_config(
    frame: Verdict, found: Findings, decoded: Decoded[Secret] | Decoded[ConfigMap]
) -> Verdict:
    errors = (*found.errors, *decoded.errors)
    config = None if errors else decoded.value
    return dataclasses.replace(frame, config=config, errors=errors, warnings=decoded.warnings)


def _check_type(
    node: Mapping,
    found: Findings,
    wanted: str,
    *,
    listed: bool,
    kinds: tuple[str, ...] = PODS,
) -> bool:
    """Check kind and version; False if the rest cannot be judged."""
    kind, version = node.values.get("kind"), node.values.get("apiVersion")
    known = True
    for key, value in (("apiVersion", version), ("kind", kind)):
        if value is None or (isinstance(value, Scalar) and value.value in (None, "")):
            if not listed:
                found.error((None, key), "required", node.line)
                known = known and key == "apiVersion"
        elif not isinstance(value, Scalar) or not isinstance(value.value, str):
            known = False
            found.error((None, key), f"expected a string, got {describe(value)}", value.line)
    if not known:
        return False
    kind_text, version_text = _word(node, "kind"), _word(node, "apiVersion")
    if kind_text not in ("", wanted):
        found.error((None, "kind"), _wrong_kind(kind_text, kinds), node.key_lines["kind"])
        return False
    if version_text not in ("", "v1"):
        message = f'unknown apiVersion for a {wanted}: {shown(version_text)}, expected "v1"'
        found.error((None, "apiVersion"), message, node.key_lines["apiVersion"])
        return False
    return True


def _wrong_kind(kind: str, kinds: tuple[str, ...]) -> str:
    if kind in _LISTS:
        return f"a {kind} cannot be an item of a list"
    if kind in kinds:
        return f"a {kind} cannot be an item of a PodList"
    near = suggest(kind, [*kinds, *_LISTS])
    hint = f"did you mean {near}?" if near else f"expected {', '.join(kinds)}, List or PodList"
    return f"a {shown(kind)} cannot be run from a manifest, {hint}"


def _is_foreign(kind: str, kinds: tuple[str, ...]) -> bool:
    """Whether the kind is another one on purpose, not by a slip or by being absent."""
    known = [*kinds, *_LISTS]
    return kind not in ("", *known) and suggest(kind, known) is None


def _text(node: Node, key: str) -> str:
    value = node.values.get(key) if isinstance(node, Mapping) else None
    return value.value if isinstance(value, Scalar) and isinstance(value.value, str) else ""


def _word(node: Node, key: str) -> str:
    """The text of a field that holds one word; of others nothing is repeated.

    A quotation mark too many makes all that follows part of it, passwords included.
    """
    text = _text(node, key)
    return _SEVERAL if len(text.split()) > 1 else text


def _identity(node: Mapping, kind: str) -> Identity | None:
    metadata = node.values.get("metadata")
    if not isinstance(metadata, Mapping):
        return None
    name = _text(metadata, "name")
    namespace = metadata.values.get("namespace")
    if isinstance(namespace, Scalar) and namespace.value in (None, ""):
        namespace = None
    if not name or (namespace is not None and not _text(metadata, "namespace")):
        return None
    return Identity(_text(metadata, "namespace") or DEFAULT_NAMESPACE, name, kind)


def _written(node: Node) -> bytes:
    return _canonical(to_plain(node))


def _written_pod(node: Mapping) -> bytes:
    """The written form of an item of a PodList: the same as if the pod stood alone."""
    plain = {key: to_plain(child) for key, child in node.values.items()}
    for key, value in (("apiVersion", "v1"), ("kind", "Pod")):
        plain[key] = plain.get(key) or value
    return _canonical(plain)


def _canonical(plain: Plain) -> bytes:
    return json.dumps(plain, ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode()
