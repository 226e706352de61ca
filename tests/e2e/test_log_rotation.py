"""Logs that grow: rotated, compressed, and nothing is lost between two files."""

import gzip
import re
from contextlib import closing
from pathlib import Path

import pytest
from tests.e2e.lab.agent import Agent
from tests.e2e.lab.containerd_lab import Lab
from tests.e2e.lab.manifests import container, pod
from tests.e2e.lab.waiting import until

pytestmark = [pytest.mark.realtime, pytest.mark.timeout(240)]

#: Writes about 100 kB a second, one number in each line.
_TALKATIVE = (
    "sh",
    "-c",
    """
    trap 'exit 0' TERM; i=0
    while true; do
      for n in 1 2 3 4 5 6 7 8 9 10; do
        i=$((i + 1)); echo line $i of a log that has much to say about very little
      done
      usleep 5000
    done
    """,
)


def _settings(base: Path) -> Path:
    path = base / "kubelet.yaml"
    path.write_text(
        "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
        "containerLogMaxSize: 100Ki\ncontainerLogMaxFiles: 4\ncontainerLogMonitorInterval: 3s\n"
        "---\napiVersion: nodeagent.dev/v1alpha1\nkind: NodeAgentConfiguration\n"
        f"containerLogsDir: {base / 'links'}\n"
    )
    return path


def _numbers(path: Path) -> list[int]:
    data = path.read_bytes()
    text = gzip.decompress(data) if path.suffix == ".gz" else data
    return [int(found) for found in re.findall(rb" F line (\d+) of", text)]


def test_a_log_is_rotated_and_compressed_and_no_line_is_lost(lab: Lab, tmp_path: Path) -> None:
    with closing(Agent(tmp_path, lab.endpoint, f"--config={_settings(tmp_path)}")) as agent:
        agent.start()
        agent.put("web", pod("web", container(command=_TALKATIVE)))
        web = agent.wait_pod("web")
        log = agent.container_log(web)
        link = tmp_path / "links" / f"{web.name}_default_main-{web.container().id}.log"
        assert link.readlink() == log
        until("two compressed files", lambda: len(list(log.parent.glob("0.log.*.gz"))) >= 2)
        agent.wait_journal("web", '"LogRotated"')
        lab.cri.stop_container(web.container().id)
        files = sorted(log.parent.glob("0.log.*"))
        assert len(files) <= 3
        assert [path.suffix == ".gz" for path in files].count(False) <= 1
        numbers = [number for path in (*files, log) for number in _numbers(path)]
        assert len(numbers) > 1000
        assert numbers == list(range(numbers[0], numbers[-1] + 1))
        again = agent.wait_pod("web", lambda it: it.running and it.container().restarts == 1)
        assert agent.container_log(again, attempt=1).exists()
        # Of the run before log and link stay, for people to read.
        assert link.exists()
        agent.remove("web")
        agent.wait_gone("web")
        until("no log is left", lambda: not log.parent.exists(), timeout=90)
        until("no link is left", lambda: not list((tmp_path / "links").iterdir()), timeout=90)


def test_a_log_that_somebody_removes_is_written_anew(lab: Lab, tmp_path: Path) -> None:
    with closing(Agent(tmp_path, lab.endpoint, f"--config={_settings(tmp_path)}")) as agent:
        agent.start()
        script = ("sh", "-c", "trap 'exit 0' TERM; while true; do date; sleep 0.2; done")
        agent.put("web", pod("web", container(command=script)))
        log = agent.container_log(agent.wait_pod("web"))
        until("a line", lambda: log.exists() and log.stat().st_size > 0)
        log.unlink()
        until("a line of the new file", lambda: log.exists() and log.stat().st_size > 0)
