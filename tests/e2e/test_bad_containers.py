"""What a manifest gets wrong about a container: the reason and the words that show, on containerd.

In each pod a sound container runs beside the bad one, and what is mended runs too.
"""

import re
from dataclasses import dataclass

import pytest
from tests.e2e.lab.agent import Agent, full_name
from tests.e2e.lab.containerd_lab import Lab
from tests.e2e.lab.manifests import Json, container, pod

pytestmark = [pytest.mark.realtime, pytest.mark.timeout(240)]

_CONFIG = "CreateContainerConfigError"
_NO_PROFILE = {"type": "Localhost", "localhostProfile": "none.json"}


@dataclass(frozen=True)
class _Bad:
    """A way to be wrong, and what shows: the whole message or, of the runtime's, a part."""

    reason: str
    message: str
    fields: Json
    whole: bool = True


def _from(**source: Json) -> Json:
    return {"env": [{"name": "A", "valueFrom": source}]}


def _mounted(**fields: Json | str) -> Json:
    return {"volumeMounts": [{"name": "data", "mountPath": "/data", **fields}]}


_ROWS = {
    "no config map": _Bad(
        _CONFIG,
        'configmap "none" not found',
        _from(configMapKeyRef={"name": "none", "key": "k"}),
    ),
    "no secret": _Bad(
        _CONFIG, 'secret "none" not found', _from(secretKeyRef={"name": "none", "key": "k"})
    ),
    "no variable for a sub path": _Bad(
        _CONFIG, "missing value for THERE", _mounted(subPathExpr="a/$(THERE)")
    ),
    "no profile": _Bad(
        "CreateContainerError",
        "none.json: no such file or directory",
        {"securityContext": {"seccompProfile": _NO_PROFILE}},
        whole=False,
    ),
    "no command": _Bad(
        "RunContainerError",
        'exec: "no-such-command": executable file not found in $PATH',
        {"command": ["no-such-command"]},
        whole=False,
    ),
}


@pytest.mark.parametrize("row", _ROWS.values(), ids=_ROWS)
def test_what_is_wrong_shows_and_harms_nobody_else(lab: Lab, agent: Agent, row: _Bad) -> None:
    volume = {"name": "data", "emptyDir": {}}
    bad = {**container("bad"), **row.fields}
    agent.put("web", pod("web", container("good"), bad, volumes=[volume]))
    if row.reason == "RunContainerError":
        # The back-off follows at once, so that the status shows it for a moment only.
        agent.wait_journal("web", "RunContainerError", row.message.replace('"', '\\"'))
    else:
        web = agent.wait_pod("web", lambda it: it.container("bad").reason == row.reason)
        message = web.container("bad").message
        assert message == row.message if row.whole else row.message in message
        assert web.phase == "Pending"
    agent.wait_journal("web", "Failed", "Error: ")
    good = agent.wait_pod("web", lambda it: it.container("good").ready, what="the good one")
    assert "Traceback" not in agent.log_tail()
    if row.reason == "RunContainerError":
        _crashes(agent)
    else:
        agent.pod_stays("web", good, seconds=2)
    assert len(lab.cri.sandboxes(full_name("web"))) == 1


def _crashes(agent: Agent) -> None:
    """What was made and cannot start counts as a crash: the wait says how long, and until when."""
    web = agent.wait_pod("web", lambda it: it.container("bad").reason == "CrashLoopBackOff")
    bad = web.container("bad")
    where = f"restarting failed container=bad pod={full_name('web')}_default({web.uid})"
    assert re.match(rf"back-off (10|20|40)s {re.escape(where)}, next try at 20", bad.message)
    assert (bad.last_exit_code, bad.last_reason) == (128, "StartError")
    agent.wait_journal("web", "BackOff", "Back-off restarting failed container bad in pod")
