"""Reads the files that a collection needs. Blocking; meant for a thread."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from nodeagent.model import RuntimePod
from nodeagent.proto.runtime import v1
from nodeagent.runtime.logs import container_log, plain_names
from nodeagent.runtime.names import PodNames
from nodeagent.stats.assemble import Readings, RuntimeAnswers, running
from nodeagent.stats.cgroup_tree import Cgroups, read
from nodeagent.stats.from_runtime import amount
from nodeagent.stats.machine import Machine, directory_size, file_system
from nodeagent.stats.places import Places
from nodeagent.stats.records import Fs, Network, SystemFigures, Usage


class Reader:
    """Reads what files say of the machine and of the containers that run.

    Args:
        places: where things are.
    """

    def __init__(self, places: Places) -> None:
        self._places = places
        self._cgroups = Cgroups(places.root)
        self._machine = Machine(self._cgroups, places.root)

    def read(
        self, answers: RuntimeAnswers, host_network: Callable[[RuntimePod], bool], now: int
    ) -> Readings:
        """Everything.

        Args:
            answers: of the runtime, which say what runs.
            host_network: whether a pod has the host's network.
            now: wall time.
        """
        paths = self._cgroups.find(answers.ids())
        usages = {id_: self._cgroups.usage(path, now) for id_, path in paths.items()}
        networks: dict[str, Network] = {}
        for pod in answers.pods:
            for sandbox in pod.sandboxes[:1]:
                path = paths.get(sandbox.id)
                if path is not None and not host_network(pod):
                    self._network(networks, sandbox.id, path, now)
        for usage in usages.values():
            for device in usage.io.devices if usage.io is not None else ():
                self._machine.device_name(device.number)
        node = self._machine.figures(self._places.node, now)
        node_fs = file_system(str(self._places.root_dir), now, self._machine)
        image_fs = self._mounted(answers.image_fs, node_fs, now)
        node = replace(
            node,
            fs=node_fs,
            image_fs=image_fs,
            container_fs=self._mounted(answers.container_fs, image_fs, now),
            system=self._system(now),
        )
        return Readings(
            time=now,
            node=node,
            cgroups=paths,
            usages=usages,
            networks=networks,
            logs=self.logs(answers),
        )

    def logs(self, answers: RuntimeAnswers) -> dict[str, tuple[int, int]]:
        """Bytes and files of the logs of containers that run, by id."""
        found: dict[str, tuple[int, int]] = {}
        for pod in answers.pods:
            names = PodNames(pod.name, pod.namespace, pod.uid)
            for one in running(pod):
                if plain_names(names, one.name):
                    log = container_log(self._places.logs_dir, names, one.name, 0)
                    found[one.id] = directory_size(str(log.parent))
        return found

    def _network(self, found: dict[str, Network], sandbox: str, path: str, now: int) -> None:
        process = self._cgroups.first_process(path)
        network = self._machine.network(process, now) if process is not None else None
        if network is not None:
            found[sandbox] = network

    def _mounted(self, told: v1.FilesystemUsage | None, other: Fs | None, now: int) -> Fs | None:
        """A file system of the runtime; another one when it does not say where it is."""
        if told is None:
            return other
        mount = told.fs_id.mountpoint if told.fs_id is not None else ""
        room = (file_system(mount, now, self._machine) if mount else None) or other or Fs(time=now)
        return replace(
            room,
            time=told.timestamp or now,
            used=amount(told.used_bytes),
            inodes_used=amount(told.inodes_used),
        )

    def _system(self, now: int) -> tuple[SystemFigures, ...]:
        found = [self._service("self", "kubelet", now)]
        runtime = self._places.runtime_pid()
        if runtime is not None:
            found.append(self._service(runtime, "runtime", now))
        return tuple(one for one in found if one is not None)

    def _service(self, pid: int | str, name: str, now: int) -> SystemFigures | None:
        """What a service uses: all of its cgroup, when it has one of its own."""
        process = self._machine.process(pid, name, now)
        path = own_cgroup(read(f"{self._places.root / 'proc'}/{pid}/cgroup"), self._cgroups.version)
        usage = self._cgroups.usage(path, now) if path else Usage()
        if process is None or usage.cpu is None or usage.memory is None:
            return process
        return replace(process, usage=usage)


def own_cgroup(text: str | None, version: int) -> str:
    """The cgroup of a service by ``/proc/<pid>/cgroup``; "" when it shares one with others.

    In cgroup v1 it counts only when all controllers that are read agree.
    """
    paths: Mapping[str, str] = {
        controller: path
        for _, controllers, path in (
            line.split(":", 2) for line in (text or "").splitlines() if line.count(":") > 1
        )
        for controller in controllers.split(",")
    }
    wanted = ("",) if version > 1 else ("cpuacct", "memory")
    found = {paths.get(controller, "/") for controller in wanted}
    path = found.pop() if len(found) == 1 else "/"
    return "" if path == "/" or not path.endswith(".service") else path
