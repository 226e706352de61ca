"""Containers as processes of this machine: programs, logs, ends, commands."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import anyio
import pytest
from embedded_lab import PATIENCE, a_day, gone, lab, processes_with, shell

from nodeagent import rpc
from nodeagent.embedded.process.launcher import procs
from nodeagent.proto.runtime import v1
from nodeagent.testing.cri_configs import container_config

pytestmark = [pytest.mark.anyio, pytest.mark.realtime]

EXITED = v1.ContainerState.CONTAINER_EXITED
BOTH = pytest.mark.parametrize("isolate", [True, False], ids=["isolated", "plain"])
"""As isolated as this machine and user allow, and as a plain process."""


@BOTH
async def test_a_program_runs_and_its_log_and_end_are_recorded(
    tmp_path: Path, isolate: bool
) -> None:
    async with lab(tmp_path, isolate=isolate) as one:
        container_id = await one.start(*shell("echo out; echo err >&2; printf rest; exit 3"))
        found = await one.ended(container_id)
        assert (found.state, found.exit_code, found.reason) == (EXITED, 3, "Error")
        assert 0 < found.created_at <= found.started_at <= found.finished_at
        assert one.log(container_id) == ["out", "rest"]
        assert one.log(container_id, "stderr") == ["err"]
        text = Path(found.log_path).read_text()
        assert re.fullmatch(
            r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z std(out|err) [FP] \w+\n)+", text
        )
        assert Path(found.log_path).stat().st_mode & 0o777 == 0o640
        assert found.log_path == str(tmp_path / "logs/main/0.log")


@BOTH
async def test_a_program_that_succeeds_is_completed(tmp_path: Path, isolate: bool) -> None:
    async with lab(tmp_path, isolate=isolate) as one:
        found = await one.run("true")
        assert (found.exit_code, found.reason) == (0, "Completed")


@BOTH
async def test_it_has_the_environment_arguments_and_directory_it_was_given(
    tmp_path: Path, isolate: bool
) -> None:
    async with lab(tmp_path, isolate=isolate) as one:
        where = "/srv/made" if one.isolated else str(tmp_path / "made")
        container_id = await one.start(
            *shell('echo "$0 $1 $GREETING $HOSTNAME"; pwd; env | wc -l; readlink /proc/self/fd/0'),
            args=["zero", "one"],
            env={"GREETING": "hello world"},
            working_dir=where,
        )
        await one.ended(container_id)
        lines = one.log(container_id)
        assert lines[:2] == ["zero one hello world lab-host", where]
        assert int(lines[2]) <= 8  # nothing of the server's own environment
        assert lines[3] == "/dev/null"


async def test_a_container_without_a_command_says_what_to_do(tmp_path: Path) -> None:
    async with lab(tmp_path) as one:
        with pytest.raises(rpc.InvalidArgument, match="no entrypoint, set `command`"):
            await one.create()


@BOTH
@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("no-such-program", 'exec: "no-such-program": executable file not found in $PATH'),
        ("/no/such", 'exec: "/no/such": stat /no/such: no such file or directory'),
        ("/etc/passwd", 'exec: "/etc/passwd": permission denied'),
        ("/etc", 'exec: "/etc": is a directory'),
    ],
)
async def test_a_program_that_cannot_be_run_is_a_start_error(
    tmp_path: Path, isolate: bool, command: str, message: str
) -> None:
    async with lab(tmp_path, isolate=isolate) as one:
        container_id = await one.create(command)
        with pytest.raises(rpc.Unknown, match=re.escape(message)):
            await one.runtime.start_container(container_id)
        found = await one.status(container_id)
        assert (found.state, found.exit_code, found.reason) == (EXITED, 128, "StartError")
        assert message in found.message


@BOTH
async def test_stopping_asks_first(tmp_path: Path, isolate: bool) -> None:
    async with lab(tmp_path, isolate=isolate) as one:
        container_id = await one.start(
            *shell("trap 'echo bye; exit 5' TERM; echo up; while :; do sleep 0.05; done")
        )
        await one.logged(container_id, "up")
        with anyio.fail_after(PATIENCE):
            await one.runtime.stop_container(container_id, 60)
        assert (await one.status(container_id)).exit_code == 5
        assert one.log(container_id) == ["up", "bye"]


@BOTH
async def test_stopping_kills_what_does_not_listen(tmp_path: Path, isolate: bool) -> None:
    async with lab(tmp_path, isolate=isolate) as one:
        container_id = await one.start(
            *shell("trap '' TERM; echo up; while :; do sleep 0.05; done")
        )
        await one.logged(container_id, "up")
        await one.runtime.stop_container(container_id, 1)
        found = await one.status(container_id)
        assert (found.exit_code, found.reason) == (137, "Error")


async def test_the_signal_that_asks_can_be_chosen(tmp_path: Path) -> None:
    async with lab(tmp_path) as one:
        line = "trap 'exit 9' USR1; echo up; while :; do sleep 0.05; done"
        config = container_config(command=shell(line))
        config.stop_signal = v1.Signal.SIGUSR1
        container_id = await one.runtime.create_container(one.sandbox, config)
        await one.runtime.start_container(container_id)
        await one.logged(container_id, "up")
        with anyio.fail_after(PATIENCE):
            await one.runtime.stop_container(container_id, 60)
        assert (await one.status(container_id)).exit_code == 9


@BOTH
@pytest.mark.parametrize("how", ["kill", "exit"])
async def test_all_its_processes_end_with_it(tmp_path: Path, isolate: bool, how: str) -> None:
    mark = a_day()
    async with lab(tmp_path, isolate=isolate) as one:
        end = "sleep 0.3" if how == "exit" else "wait"
        line = f"setsid sleep {mark} & (sleep {mark} & sleep {mark}) & echo up; {end}"
        container_id = await one.start(*shell(line))
        await one.logged(container_id, "up")
        if how == "kill":
            with anyio.fail_after(PATIENCE):
                while len(processes_with(mark)) < 3:
                    await anyio.sleep(0.01)
            await one.runtime.stop_container(container_id, 0)
        await one.ended(container_id)
        await gone(mark)


async def test_a_container_with_a_terminal_has_one(tmp_path: Path) -> None:
    async with lab(tmp_path) as one:
        container_id = await one.start(*shell("test -t 0 && test -t 1 && echo yes"), tty=True)
        assert (await one.ended(container_id)).exit_code == 0
        assert [line.strip() for line in one.log(container_id)] == ["yes"]


async def test_a_container_without_a_log_path_runs_without_a_log(tmp_path: Path) -> None:
    async with lab(tmp_path) as one:
        config = container_config(command=shell("echo unheard; exit 4"))
        config.log_path = ""
        container_id = await one.runtime.create_container(one.sandbox, config)
        await one.runtime.start_container(container_id)
        assert (await one.ended(container_id)).exit_code == 4
        assert not (tmp_path / "logs").exists()


async def test_a_log_goes_on_in_a_new_file_when_reopened(tmp_path: Path) -> None:
    async with lab(tmp_path) as one:
        where = "/flag" if one.isolated else f"{tmp_path}/flag"
        container_id = await one.start(
            *shell("echo before; while ! test -e $FLAG; do sleep 0.01; done; echo after"),
            env={"FLAG": f"{where}/set"},
            mounts=[v1.Mount(host_path=str(tmp_path / "flag"), container_path=where)],
        )
        await one.logged(container_id, "before")
        log = Path(one.record(container_id).log_path)
        log.rename(log.with_suffix(".1"))
        await one.runtime.reopen_container_log(container_id)
        (tmp_path / "flag").mkdir(exist_ok=True)
        (tmp_path / "flag/set").touch()
        await one.ended(container_id)
        assert one.log(container_id) == ["after"]
        assert "before" in log.with_suffix(".1").read_text()
        with pytest.raises(rpc.FailedPrecondition):
            await one.runtime.reopen_container_log(container_id)


@BOTH
async def test_a_command_runs_in_the_container(tmp_path: Path, isolate: bool) -> None:
    async with lab(tmp_path, isolate=isolate) as one:
        container_id = await one.start("sleep", "1000", env={"COLOUR": "blue"})
        line = "echo $COLOUR; echo bad >&2; hostname; exit 7"
        done = await one.runtime.exec_sync(container_id, shell(line), 30)
        assert done.exit_code == 7
        assert done.stderr == b"bad\n"
        colour, host = done.stdout.decode().split()
        assert colour == "blue"
        assert (host == "lab-host") is one.isolated
        assert one.monitor(container_id).isolation == one.means


@BOTH
async def test_a_command_that_takes_too_long_is_killed_with_its_children(
    tmp_path: Path, isolate: bool
) -> None:
    mark = a_day()
    async with lab(tmp_path, isolate=isolate) as one:
        container_id = await one.start("sleep", "1000")
        with pytest.raises(rpc.DeadlineExceeded, match="timeout 1s exceeded"):
            await one.runtime.exec_sync(container_id, shell(f"sleep {mark} & sleep {mark}"), 1)
        await gone(mark)
        assert (await one.status(container_id)).state is v1.ContainerState.CONTAINER_RUNNING


async def test_a_command_whose_caller_gives_up_is_killed(tmp_path: Path) -> None:
    mark = a_day()
    async with lab(tmp_path) as one:
        container_id = await one.start("sleep", "1000")
        async with anyio.create_task_group() as tg:
            tg.start_soon(one.runtime.exec_sync, container_id, ["sleep", mark])
            with anyio.fail_after(PATIENCE):
                while not processes_with(mark):
                    await anyio.sleep(0.01)
            tg.cancel_scope.cancel()
        await gone(mark)


async def test_a_command_that_cannot_be_run_says_why(tmp_path: Path) -> None:
    async with lab(tmp_path) as one:
        container_id = await one.start("sleep", "1000")
        with pytest.raises(
            rpc.Unknown, match=r'exec: "nonsense": executable file not found in \$PATH'
        ):
            await one.runtime.exec_sync(container_id, ["nonsense"], 30)


async def test_the_output_of_a_command_is_cut_at_16_mib(tmp_path: Path) -> None:
    async with lab(tmp_path) as one:
        container_id = await one.start("sleep", "1000")
        command = ["head", "-c", str(17 * 2**20), "/dev/zero"]
        done = await one.runtime.exec_sync(container_id, command, 60)
        assert len(done.stdout) == 16 * 2**20
        assert done.exit_code == 0


async def test_a_command_is_done_when_it_ends_whatever_it_leaves_behind(tmp_path: Path) -> None:
    async with lab(tmp_path) as one:
        container_id = await one.start("sleep", "1000")
        with anyio.fail_after(PATIENCE):
            line = f"sleep {a_day()} & echo done"
            done = await one.runtime.exec_sync(container_id, shell(line), 60)
        assert done.stdout == b"done\n"


async def test_a_command_does_not_outlive_its_container(tmp_path: Path) -> None:
    mark = a_day()
    async with lab(tmp_path) as one:
        container_id = await one.start("sleep", "1000")
        async with anyio.create_task_group() as tg:
            outcomes: list[object] = []

            async def command() -> None:
                try:
                    outcomes.append(await one.runtime.exec_sync(container_id, ["sleep", mark]))
                except rpc.Unavailable as exc:
                    outcomes.append(exc)

            tg.start_soon(command)
            with anyio.fail_after(PATIENCE):
                while not processes_with(mark):
                    await anyio.sleep(0.01)
                await one.runtime.stop_container(container_id, 0)
        (outcome,) = outcomes
        if isinstance(outcome, v1.ExecSyncResponse):
            assert outcome.exit_code == 137
        await gone(mark)


@BOTH
async def test_a_command_for_a_container_that_ends_at_that_moment_finds_it_not_running(
    tmp_path: Path, isolate: bool
) -> None:
    async with lab(tmp_path, isolate=isolate) as one:
        container_id = await one.start("sleep", "1000")
        record = one.monitor(container_id)
        os.kill(record.monitor_pid, signal.SIGSTOP)  # so that the server does not hear of the end
        try:
            os.kill(record.pid, signal.SIGKILL)
            with anyio.fail_after(PATIENCE):
                while procs.start_time(record.pid):
                    await anyio.sleep(0.01)
            with pytest.raises(rpc.FailedPrecondition) as early:
                await one.runtime.exec_sync(container_id, ["true"], 30)
        finally:
            os.kill(record.monitor_pid, signal.SIGCONT)
        await one.ended(container_id)
        with pytest.raises(rpc.FailedPrecondition) as late:
            await one.runtime.exec_sync(container_id, ["true"], 30)
        assert early.value.message == late.value.message


async def test_usage_counts_all_processes_of_a_container(tmp_path: Path) -> None:
    async with lab(tmp_path) as one:
        container_id = await one.start(*shell("sleep 1000 & echo up; sleep 1000"))
        await one.logged(container_id, "up")
        (stats,) = await one.runtime.list_container_stats()
        assert stats.memory is not None
        assert stats.memory.working_set_bytes is not None
        assert stats.memory.working_set_bytes.value > 0
        pod = await one.runtime.pod_sandbox_stats(one.sandbox)
        assert pod.linux is not None
        assert pod.linux.process is not None
        assert pod.linux.process.process_count is not None
        assert pod.linux.process.process_count.value >= 2
        info = await one.embedded.images.image_fs_info()
        assert info.container_filesystems[0].fs_id is not None
        assert Path(info.container_filesystems[0].fs_id.mountpoint).is_mount()


async def test_a_container_that_ends_is_an_event(tmp_path: Path) -> None:
    async with lab(tmp_path) as one, one.runtime.get_container_events() as events:
        container_id = await one.start("true")
        with anyio.fail_after(PATIENCE):
            kinds = [(await anext(events)).container_event_type for _ in range(3)]
        stopped = v1.ContainerEventType.CONTAINER_STOPPED_EVENT
        assert kinds[2] is stopped
        assert (await one.status(container_id)).state is EXITED


async def test_the_launcher_is_started_anew_when_it_was_killed(tmp_path: Path) -> None:
    async with lab(tmp_path) as one:
        first = await one.start("sleep", "1000", name="first")
        launcher = procs.read_stat(one.monitor(first).monitor_pid)
        assert launcher is not None
        os.kill(launcher.parent, signal.SIGKILL)
        second = await one.start("sleep", "1000", name="second")
        for container_id in (first, second):
            assert (await one.status(container_id)).state is v1.ContainerState.CONTAINER_RUNNING


@BOTH
async def test_a_container_whose_monitor_is_killed_ends_and_is_said_to_be_lost(
    tmp_path: Path, isolate: bool
) -> None:
    mark = a_day()
    async with lab(tmp_path, isolate=isolate) as one:
        container_id = await one.start("sleep", mark)
        os.kill(one.monitor(container_id).monitor_pid, signal.SIGKILL)
        found = await one.ended(container_id)
        assert (found.exit_code, found.reason) == (255, "Unknown")
        await gone(mark)


async def test_removing_leaves_no_files_but_the_log(tmp_path: Path) -> None:
    async with lab(tmp_path) as one:
        line = "echo x > file; mkdir closed; touch closed/x; chmod 0 closed; echo up; sleep 1000"
        container_id = await one.start(*shell(line))
        await one.logged(container_id, "up")
        await one.runtime.remove_container(container_id)
        assert list((tmp_path / "state/containers").iterdir()) == []
        assert (tmp_path / "logs/main/0.log").exists()


async def test_stopping_all_takes_one_grace_for_everything(tmp_path: Path) -> None:
    async with lab(tmp_path) as one:
        for name in ("a", "b", "c"):
            await one.start(*shell("trap '' TERM; while :; do sleep 0.05; done"), name=name)
        with anyio.fail_after(PATIENCE):
            await one.embedded.stop_all(grace=0.2)
        assert {found.state for found in await one.runtime.list_containers()} == {EXITED}


async def test_a_start_that_only_seemed_to_fail_is_taken_up_by_the_next_try(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with lab(tmp_path) as one:
        container_id = await one.create("sleep", "1000")

        async def out_of_files(record: object) -> None:
            raise OSError(24, "Too many open files")

        with monkeypatch.context() as patch:
            patch.setattr(one.backend, "_hold", out_of_files)
            with pytest.raises(rpc.Internal, match="Too many open files"):
                await one.runtime.start_container(container_id)
        pid = one.monitor(container_id).pid
        await one.runtime.start_container(container_id)
        assert one.monitor(container_id).pid == pid
        await one.runtime.stop_container(container_id, 0)
        assert (await one.status(container_id)).exit_code == 137


async def test_no_file_descriptors_are_left_open(tmp_path: Path) -> None:
    def count() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    async with lab(tmp_path / "first") as one:
        await one.run("true")
    before = count()
    async with lab(tmp_path / "second") as one:
        container_id = await one.start("sleep", "1000")
        await one.runtime.exec_sync(container_id, ["true"], 30)
        await one.runtime.stop_container(container_id, 0)
    assert count() == before
