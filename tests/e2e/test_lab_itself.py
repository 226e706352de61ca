"""The laboratory works without the agent, so that a red test elsewhere is about the agent."""

import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from grpclib.exceptions import GRPCError
from tests.e2e.lab import images, processes
from tests.e2e.lab.claims import reap_abandoned
from tests.e2e.lab.containerd_lab import Lab
from tests.e2e.lab.cri import container_config, sandbox_config
from tests.e2e.lab.ports import free_port
from tests.e2e.lab.waiting import until

from nodeagent.proto.runtime import v1 as pb

pytestmark = [pytest.mark.realtime, pytest.mark.timeout(240)]


def _start(lab: Lab, logs: Path, image: str, *command: str) -> str:
    pod = sandbox_config("direct", logs)
    sandbox = lab.cri.run_sandbox(pod)
    container = container_config(pod, "main", image, *command)
    return lab.cri.start_container(sandbox, pod, container)


def test_a_container_runs_and_answers_exec(lab: Lab, tmp_path: Path) -> None:
    cid = _start(lab, tmp_path, images.BUSYBOX, "sleep", "1000")
    assert [container.id for container in lab.cri.running("direct")] == [cid]
    assert lab.cri.exec(cid, "cat", "/etc/image-version").stdout == "1\n"
    assert lab.cri.process(cid).alive()


@pytest.mark.parametrize(
    ("image", "command", "said"),
    [
        (images.WITH_USER, ("id", "-u"), "1000"),
        (images.WITH_ENTRYPOINT, (), "entrypoint of-image"),
        (images.WITH_ENV, ("sh", "-c", "echo $COLOR"), "green"),
        (images.WITH_WORKDIR, ("pwd",), "/srv/work"),
        (images.BUSYBOX_2, ("cat", "/etc/image-version"), "2"),
    ],
)
def test_the_image_variants_do_what_their_names_say(
    lab: Lab, tmp_path: Path, image: str, command: tuple[str, ...], said: str
) -> None:
    _start(lab, tmp_path, image, *command)
    log = tmp_path / "main.log"
    line = until("a line of log", lambda: log.read_text() if log.exists() else None)
    assert line.split(maxsplit=3)[3].strip() == said


def test_a_host_port_reaches_the_pod_from_loopback(lab: Lab, tmp_path: Path) -> None:
    port = free_port()
    pod = sandbox_config("direct", tmp_path)
    pod.port_mappings = [pb.PortMapping(container_port=80, host_port=port)]
    sandbox = lab.cri.run_sandbox(pod)
    serve = ("sh", "-c", "mkdir /www; echo hello >/www/index.html; httpd -f -h /www")
    lab.cri.start_container(sandbox, pod, container_config(pod, "main", images.BUSYBOX, *serve))

    def page() -> bytes | None:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=5) as answer:
                return bytes(answer.read())
        except OSError:
            return None

    assert until("an answer on the host port", page) == b"hello\n"


def test_an_image_is_pulled_from_the_loopback_registry(lab: Lab, tmp_path: Path) -> None:
    layer = images.LayerBuilder()
    layer.file("only-in-registry", b"yes\n")
    base = [lab.image(images.BUSYBOX).layers[0], layer.done()]
    reference = lab.registry.push("direct:1", images.make_image("direct", base, {}))
    lab.cri.pull(reference)
    cid = _start(lab, tmp_path, reference, "sleep", "1000")
    assert lab.cri.exec(cid, "cat", "/only-in-registry").stdout == "yes\n"
    assert lab.registry.asked["direct:1"] > 0


@pytest.mark.parametrize("where", ["unreachable host", "missing tag"])
def test_a_pull_that_cannot_work_fails_at_once(lab: Lab, where: str) -> None:
    missing = lab.registry.reference("no/such/image:1")
    reference = images.UNREACHABLE if where == "unreachable host" else missing
    with pytest.raises(GRPCError, match="failed to pull"):
        lab.cri.pull(reference)
    assert not lab.cri.has_image(reference)


_DIES_WITH_A_POD_RUNNING = """
import os, signal
from pathlib import Path
from tests.e2e.lab import cri, images
from tests.e2e.lab.claims import reap_abandoned
from tests.e2e.lab.containerd_lab import open_lab
with open_lab() as lab:
    pod = cri.sandbox_config("abandoned", lab.base / "logs")
    main = cri.container_config(pod, "main", images.BUSYBOX, "sleep", "1000")
    lab.cri.start_container(lab.cri.run_sandbox(pod), pod, main)
    print(lab.base, lab.network.bridge, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_laboratory_left_is_cleaned_up_by_the_next_one(
    lab: Lab, pytestconfig: pytest.Config
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _DIES_WITH_A_POD_RUNNING],
        check=False,
        cwd=pytestconfig.rootpath,
        stdout=subprocess.PIPE,
        text=True,
        timeout=60,
    )
    assert done.returncode == -signal.SIGKILL
    base, bridge = done.stdout.split()
    assert processes.that_name(Path(base))
    reap_abandoned()
    assert not processes.that_name(Path(base))
    assert not Path(base).exists()
    assert not Path("/sys/class/net", bridge).exists()
    assert base not in Path("/proc/self/mountinfo").read_text()
    assert lab.cri.ready()
