"""Records on disk, and processes told apart beyond the reuse of their ids."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodeagent.embedded import ContainerRecord, Exit, SandboxRecord
from nodeagent.embedded.process.handles import kill_process, open_handle, open_process
from nodeagent.embedded.process.launcher import procs
from nodeagent.embedded.process.store import MonitorFile, Store
from nodeagent.embedded.process.usage import mount_point, tree_size
from nodeagent.model import ContainerID, PodUID, SandboxID
from nodeagent.testing.cri_configs import container_config, sandbox_config


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store(tmp_path / "state")
    store.open()
    yield store
    store.close()


def sandbox() -> SandboxRecord:
    config = sandbox_config(hostname="web-0")
    return SandboxRecord(SandboxID("s1"), config, "127.88.0.9", created_at=5)


def container() -> ContainerRecord:
    return ContainerRecord(
        id=ContainerID("c1"),
        sandbox_id=SandboxID("s1"),
        pod_uid=PodUID("u1"),
        config=container_config(env={"A": "b"}),
        image_id="sha256:x",
        log_path="/logs/main/0.log",
        created_at=7,
    )


def test_the_state_directory_is_private(store: Store) -> None:
    assert store.root.stat().st_mode & 0o777 == 0o700


def test_two_servers_do_not_share_a_state_directory(store: Store) -> None:
    other = Store(store.root)
    with pytest.raises(BlockingIOError) as caught:
        other.open()
    assert caught.value.strerror == (
        f"{store.root} is in use by process {os.getpid()}, another embedded runtime: stop that"
        " one, or choose another directory (--root-dir of run, --state-dir of embedded-runtime)"
    )
    store.close()
    other.open()
    other.close()


def test_what_is_saved_is_loaded(store: Store) -> None:
    store.save_sandbox(sandbox())
    store.save_container(container())
    store.save_images(["nginx", "redis"])
    (loaded,) = store.load_sandboxes()
    assert (loaded.id, loaded.ip, loaded.created_at, loaded.ready) == ("s1", "127.88.0.9", 5, True)
    assert loaded.config == sandbox().config
    (found,), unknown = store.load_containers()
    assert unknown == []
    assert (found.id, found.sandbox_id, found.pod_uid) == ("c1", "s1", "u1")
    assert found.config == container().config
    assert store.load_images() == ["nginx", "redis"]


def test_files_of_the_sandbox_are_written(store: Store) -> None:
    store.save_sandbox(sandbox())
    assert (store.sandbox_dir("s1") / "hostname").read_text() == "web-0\n"


def test_no_sandbox_is_ready_after_a_reboot(store: Store) -> None:
    store.save_sandbox(sandbox())
    store.boot_id = "another boot"
    (loaded,) = store.load_sandboxes()
    assert not loaded.ready


@pytest.mark.parametrize("content", [b"", b"{}", b"\0" * 100, b'{"version": 1'])
def test_a_damaged_record_is_moved_aside(store: Store, content: bytes) -> None:
    store.save_sandbox(sandbox())
    store.save_container(container())
    record = store.container_dir("c1") / "container.json"
    record.write_bytes(content)
    (store.root / "images.json").write_bytes(b"nonsense")
    assert store.load_containers() == ([], ["c1"])
    assert (store.container_dir("c1") / "container.json.damaged").read_bytes() == content
    assert store.load_images() == []
    (store.sandbox_dir("s1") / "sandbox.json").write_bytes(content)
    assert store.load_sandboxes() == []


def test_removing_leaves_nothing(store: Store) -> None:
    store.save_sandbox(sandbox())
    store.save_container(container())
    store.remove_container("c1")
    store.remove_sandbox("s1")
    assert store.load_sandboxes() == []
    assert store.load_containers() == ([], [])


def test_directories_that_are_closed_to_their_owner_are_removed(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.save_container(container())
    closed = store.container_dir("c1") / "rootfs/work/work"
    (closed / "below").mkdir(parents=True)
    (store.container_dir("c1") / "link").symlink_to(store.root)
    (closed / "below").chmod(0)
    closed.chmod(0)
    real = shutil.rmtree

    def as_others_would(path: Path, *, ignore_errors: bool) -> None:
        # For root nothing is closed.
        if (closed.stat().st_mode & 0o700, (closed / "below").stat().st_mode & 0o700) == (
            0o700,
            0o700,
        ):
            real(path, ignore_errors=ignore_errors)

    monkeypatch.setattr(shutil, "rmtree", as_others_would)
    store.remove_container("c1")
    assert not store.container_dir("c1").exists()
    assert store.root.is_dir()


def test_an_exit_is_read_as_it_was_written(store: Store) -> None:
    store.save_container(container())
    assert store.read_exit("c1") is None
    end = Exit(255, 9, "Unknown", "lost")
    store.save_exit("c1", end)
    assert store.read_exit("c1") == end


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "1000"]) as process:
        yield process
        process.kill()


def test_a_process_is_held_by_id_and_start(sleeper: subprocess.Popen[bytes]) -> None:
    start = procs.start_time(sleeper.pid)
    fd = open_process(sleeper.pid, start)
    assert fd >= 0
    os.close(fd)


def test_a_process_that_took_over_the_id_is_left_alone(sleeper: subprocess.Popen[bytes]) -> None:
    wrong = procs.start_time(sleeper.pid) - 1
    assert open_process(sleeper.pid, wrong) == -1
    kill_process(sleeper.pid, wrong)
    assert sleeper.poll() is None
    kill_process(sleeper.pid, wrong + 1)
    assert sleeper.wait(10) == -9


def test_a_process_that_has_ended_is_not_held(sleeper: subprocess.Popen[bytes]) -> None:
    start = procs.start_time(sleeper.pid)
    sleeper.kill()
    os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT)
    assert open_process(sleeper.pid, start) == -1
    assert procs.start_time(2**22 + 1) == 0


def test_a_monitor_of_another_boot_is_not_held(sleeper: subprocess.Popen[bytes]) -> None:
    start = procs.start_time(sleeper.pid)
    record = MonitorFile("boot-1", sleeper.pid, start, sleeper.pid, start, 1, "none")
    assert open_handle(record, "boot-2") is None
    handle = open_handle(record, "boot-1")
    assert handle is not None
    handle.close()


def test_descendants_are_found_through_all_generations() -> None:
    script = "sleep 1000 & sleep 1000 & wait"
    command = ["sh", "-c", f"sh -c '{script}' & echo; wait"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        below: list[procs.ProcessStat] = []
        while len(below) < 3:
            below = procs.descendants(process.pid, procs.all_processes())
        assert len(below) == 3
        procs.kill_descendants(process.pid)
        assert process.wait(10) >= 0


def test_sizes_of_directories_are_added_up(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a/file").write_bytes(b"x" * 10_000)
    size, files = tree_size(tmp_path)
    assert size >= 10_000
    assert files == 3
    assert tree_size(tmp_path / "missing") == (0, 0)


def test_a_mount_point_is_found() -> None:
    assert mount_point(Path("/proc/self/fd")) == "/proc"
