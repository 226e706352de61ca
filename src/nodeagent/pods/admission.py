"""Whether a new pod may run on this node (docs/behaviour/workers.md, H3)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from nodeagent.api import Pod
from nodeagent.pods.handlers import Admission, Rejection


def admission(checks: Mapping[str, Callable[[Pod], str]]) -> Admission:
    """Put an admission together from what each check says.

    Args:
        checks: by reason of the rejection; a check says why the pod may not run, "" for
            nothing. The first one that objects counts.
    """

    def admit(pod: Pod, active: Sequence[Pod]) -> Rejection | None:
        for reason, check in checks.items():
            if message := check(pod):
                return Rejection(reason, message)
        return None

    return admit
