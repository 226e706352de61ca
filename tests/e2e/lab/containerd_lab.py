"""The whole laboratory: containerd, network, images, registry and a CRI client."""

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from anyio.from_thread import start_blocking_portal
from tests.e2e.lab.claims import claim
from tests.e2e.lab.containerd import Containerd
from tests.e2e.lab.cri import Cri, open_cri
from tests.e2e.lab.images import Image, build_all
from tests.e2e.lab.network import PodNetwork
from tests.e2e.lab.registry import Registry, open_registry
from tests.e2e.lab.waiting import until


@dataclass(frozen=True, slots=True)
class Lab:
    """What tests and benches work with."""

    base: Path
    containerd: Containerd
    network: PodNetwork
    registry: Registry
    cri: Cri
    images: Sequence[Image]

    @property
    def endpoint(self) -> str:
        """What goes into ``--container-runtime-endpoint``."""
        return self.containerd.endpoint

    def clear(self) -> None:
        """Remove all pods, whoever made them and in whatever state they are."""
        try:
            self.cri.remove_everything(timeout=10)
        except TimeoutError:
            self.containerd.kill_tasks()
            self.cri.remove_everything(timeout=30)

    def image(self, name: str) -> Image:
        """One of the images that were made for this laboratory."""
        return next(image for image in self.images if image.name == name)


@contextmanager
def open_lab() -> Iterator[Lab]:
    """Set the laboratory up (a few seconds, as root); on exit nothing of it is left.

    Raises:
        PermissionError: when the caller is not root.
    """
    if os.geteuid() != 0:
        raise PermissionError("containerd and pods need root: run the tests with sudo make e2e")
    os.environ["PATH"] += ":/usr/local/sbin:/usr/sbin:/sbin"  # root's PATH may lack them
    with ExitStack() as stack:
        claimed = stack.enter_context(claim())
        base, network = Path(claimed.base), claimed.network
        containerd = Containerd(base)
        containerd.write_config()
        paths = containerd.paths
        network.write_conf(paths.cni_conf, paths.ipam)
        stack.callback(containerd.stop)
        made = build_all(base)
        containerd.start()
        containerd.import_images(made)
        portal = stack.enter_context(start_blocking_portal())
        registry = stack.enter_context(open_registry(portal))
        cri = stack.enter_context(open_cri(portal, paths.socket))
        until("runtime and network readiness", cri.ready)
        until("the images in CRI", lambda: all(cri.has_image(image.name) for image in made))
        lab = Lab(base, containerd, network, registry, cri, made)
        stack.callback(lab.clear)
        yield lab
