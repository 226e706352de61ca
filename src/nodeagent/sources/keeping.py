"""What stays in force although its document is bad. Pure (docs/behaviour/sources.md, "Selection").

The rules are the same for pods and for the objects that they refer to.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from nodeagent.api.documents import Identity, Verdict
from nodeagent.sources.origin import Origin


class Held(Protocol):
    """A document in force."""

    @property
    def origin(self) -> Origin:
        """The file or URL that supplies it."""
        ...

    @property
    def written(self) -> bytes:
        """The document in its one form."""
        ...


@dataclass(frozen=True, slots=True)
class FileVerdicts:
    """All that one file or URL says.

    Attributes:
        origin: the file or URL.
        verdicts: of its documents.
        problem: why it could not be read at all, or "".
        keeps: whether then what it gave stays in force.
        unjudged: it is being written or has only just gone, so what it gave stays in force
            and nothing is said about it.
    """

    origin: Origin
    verdicts: tuple[Verdict, ...] = ()
    problem: str = ""
    keeps: bool = True
    unjudged: bool = False

    def may_concern(self, identity: Identity) -> bool:
        """Whether the file may be meant to supply that pod and does not."""
        if self.problem or self.unjudged:
            return self.keeps
        return any(v.may_concern(identity) for v in self.verdicts)


def kept_ones(
    files: Iterable[FileVerdicts],
    before: Mapping[Identity, Held],
    now: Mapping[Identity, Held],
) -> Iterator[tuple[Identity, Origin]]:
    """What stays: its file is there and bad, so its last good document counts.

    Args:
        files: verdicts of all files.
        before: what was in force.
        now: what good documents give.
    """
    by_origin = {file.origin: file for file in files}
    for identity, old in before.items():
        file, new = by_origin.get(old.origin), now.get(identity)
        if file is None:
            continue
        if not file.may_concern(identity) and (
            new is not None or not _may_be_renamed(file, before, identity.kind)
        ):
            continue
        # Another file that gives the same must not take over because this one is bad.
        if new is None or (new.origin != old.origin and new.written != old.written):
            yield identity, old.origin


def _may_be_renamed(file: FileVerdicts, before: Mapping[Identity, Held], kind: str) -> bool:
    """Whether bad documents may have come in place of those that the file gave before.

    So may one with a name that the file did not give, and so may other kinds that are alone.
    """
    if file.verdicts and all(verdict.foreign for verdict in file.verdicts):
        return True
    return any(
        verdict.may_be(kind)
        and verdict.identity is not None
        and not _gave(file.origin, Identity(*verdict.identity[:2], kind), before)
        for verdict in file.verdicts
    )


def _gave(origin: Origin, identity: Identity, before: Mapping[Identity, Held]) -> bool:
    return identity in before and before[identity].origin == origin
