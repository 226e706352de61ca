"""A container's own file system and namespaces; where there can be none, a refusal instead.

As root these tests see what root can do; test_embedded_rootless runs them as somebody else.
"""

from __future__ import annotations

import os
import pwd
from pathlib import Path
from typing import Any

import pytest
from embedded_lab import Lab, lab, shell

from nodeagent import rpc
from nodeagent.proto.runtime import v1
from nodeagent.testing.cri_configs import sandbox_config

pytestmark = [pytest.mark.anyio, pytest.mark.realtime]


async def output(one: Lab, line: str, **options: Any) -> list[str]:
    """What a container prints, which must succeed."""
    container_id = await one.start(*shell(line), **options)
    found = await one.ended(container_id)
    assert found.exit_code == 0, one.log(container_id, "stderr")
    return one.log(container_id)


def said_instead(one: Lab, container_id: str) -> str:
    """What is said about a container that could not be isolated."""
    return " ".join(one.backend.warnings(one.record(container_id)))


async def refused(one: Lab, *mounts: v1.Mount) -> None:
    """Where containers are plain processes, one that wants a mount does not start without."""
    with pytest.raises(rpc.FailedPrecondition) as caught:
        await one.create("true", mounts=mounts)
    wanted = mounts[0]
    assert caught.value.message.startswith(
        f"cannot mount {wanted.host_path} on {wanted.container_path}: containers are plain"
    )
    assert "enable unprivileged user namespaces" in caught.value.message
    assert await one.runtime.list_containers() == []


async def test_volumes_appear_where_the_pod_wants_them(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data/file").write_text("from the host\n")
    (tmp_path / "config").write_text("a file\n")
    mounts = [
        v1.Mount(host_path=str(tmp_path / "data"), container_path="/deep/inside/data"),
        v1.Mount(host_path=str(tmp_path / "config"), container_path="/etc/app.conf"),
        v1.Mount(host_path=str(tmp_path / "data"), container_path="/usr/share/nodeagent/page"),
        v1.Mount(host_path=str(tmp_path / "made"), container_path="/deep"),
        v1.Mount(host_path=str(tmp_path / "config"), container_path="/etc/passwd"),
        v1.Mount(host_path=str(tmp_path / "config"), container_path="/var/run/app/x"),
    ]
    async with lab(tmp_path) as one:
        if not one.isolated:
            await refused(one, *mounts)
            return
        line = (
            "cat /deep/inside/data/file /etc/app.conf /usr/share/nodeagent/page/file /etc/passwd"
            " /run/app/x; echo back > /deep/inside/data/answer"
        )
        assert await output(one, line, mounts=mounts) == [
            "from the host",
            "a file",
            "from the host",
            "a file",
            "a file",
        ]
        assert (tmp_path / "data/answer").read_text() == "back\n"
        assert (tmp_path / "made").is_dir()
        assert not Path("/deep").exists()
        assert not Path("/usr/share/nodeagent").exists()


async def test_a_read_only_volume_cannot_be_written_to(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    mount = v1.Mount(host_path=str(tmp_path / "data"), container_path="/data", readonly=True)
    async with lab(tmp_path) as one:
        if not one.isolated:
            await refused(one, mount)
            return
        lines = await output(one, "touch /data/x 2>/dev/null || echo refused", mounts=[mount])
        assert lines == ["refused"]
        assert list((tmp_path / "data").iterdir()) == []


async def test_a_volume_does_not_land_outside_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "link").symlink_to("/made-by-link")
    mount = v1.Mount(host_path=str(tmp_path / "data"), container_path=f"{tmp_path}/link/below")
    async with lab(tmp_path) as one:
        if not one.isolated:
            return
        assert await output(one, "ls -d /made-by-link/below", mounts=[mount]) == [
            "/made-by-link/below"
        ]
        assert not Path("/made-by-link").exists()


async def test_the_host_is_not_written_to(tmp_path: Path) -> None:
    mark = f"/nodeagent-test-{os.getpid()}"
    mine = tmp_path / "mine"
    mine.write_text("before\n")
    async with lab(tmp_path) as one:
        if not one.isolated:
            container_id = await one.create("true")
            assert one.means == "none"
            assert said_instead(one, container_id) == ""
            return
        line = (
            f"echo here > {mark}; cat {mark}; rm /etc/passwd; echo x > /etc/group; touch /tmp/x;"
            f" (echo after > {mine}) 2>/dev/null; ls /etc/passwd 2>/dev/null; true"
        )
        assert await output(one, line) == ["here"]
        assert not Path(mark).exists()
        assert Path("/etc/passwd").exists()
        assert "root:" in Path("/etc/group").read_text()
        assert mine.read_text() == "before\n"


async def test_the_kernels_settings_are_not_written_to(tmp_path: Path) -> None:
    security = v1.LinuxContainerSecurityContext(readonly_paths=["/proc/sys"])
    async with lab(tmp_path) as one:
        if not one.isolated:
            return
        line = (
            "for dir in /sys /sys/fs/cgroup; do mkdir $dir/x 2>/dev/null || echo no; done;"
            " (echo 1 > /proc/sys/vm/panic_on_oom) 2>/dev/null || echo no"
        )
        assert await output(one, line, security=security) == ["no", "no", "no"]


async def test_it_is_alone_with_its_own_name_and_network_of_the_host(tmp_path: Path) -> None:
    async with lab(tmp_path) as one:
        if not one.isolated:
            return
        lines = await output(
            one,
            "echo $$; hostname; cat /etc/hostname; ls -d /proc/[0-9]* | wc -l; ls /sys/class/net",
        )
        assert lines[:3] == ["1", "lab-host", "lab-host"]
        assert int(lines[3]) <= 4
        assert "lo" in lines[4:]


async def test_it_shares_with_the_host_what_it_is_told_to(tmp_path: Path) -> None:
    node = v1.NamespaceMode.NODE
    security = v1.LinuxContainerSecurityContext(
        namespace_options=v1.NamespaceOption(network=node, pid=node, ipc=node)
    )
    names = ("ipc", "pid", "net")
    async with lab(tmp_path) as one:
        line = f"test -d /proc/{os.getpid()} && cd /proc/self/ns && readlink {' '.join(names)}"
        container_id = await one.start(*shell(f"{line}; exec sleep 1000"), security=security)
        await one.logged(container_id, "net:")
        own = [str(Path("/proc/self/ns", name).readlink()) for name in names]
        assert one.log(container_id) == own
        done = await one.runtime.exec_sync(container_id, shell(f"{line}; hostname"), 30)
        lines = done.stdout.decode().splitlines()
        assert lines[:3] == own
        assert (lines[3] == "lab-host") is one.isolated


async def test_it_has_the_usual_devices_and_no_disks(tmp_path: Path) -> None:
    async with lab(tmp_path) as one:
        if not one.isolated:
            return
        lines = await output(one, "ls /dev; echo x > /dev/null; head -c 4 /dev/zero | wc -c")
        assert {"null", "zero", "random", "tty", "shm", "pts", "ptmx", "fd"} <= set(lines)
        assert not [name for name in lines if name.startswith(("sd", "vd", "nvme"))]
        assert lines[-1].strip() == "4"


async def test_the_hosts_mounts_are_out_of_sight(tmp_path: Path) -> None:
    async with lab(tmp_path) as one:
        if not one.isolated:
            return
        lines = await output(one, "cut -d' ' -f5 /proc/self/mountinfo")
        assert not [point for point in lines if str(tmp_path) in point]
        assert lines.count("/") == 1


async def test_masked_and_read_only_paths_and_a_read_only_root(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    mounts = [v1.Mount(host_path=str(tmp_path / "data"), container_path="/etc/data")]
    security = v1.LinuxContainerSecurityContext(
        readonly_rootfs=True,
        masked_paths=["/etc/passwd", "/etc/ssl", "/sys/firmware", "/not/there"],
        readonly_paths=["/proc/sys"],
    )
    async with lab(tmp_path) as one:
        if not one.isolated:
            container_id = await one.create("true", security=security)
            assert "writable" in said_instead(one, container_id)
            return
        line = (
            "wc -c < /etc/passwd; ls /etc/ssl | wc -l; pwd;"
            " for at in /x /etc/x /tmp/x /srv/made/x; do touch $at 2>/dev/null || echo no; done;"
            " echo yes > /etc/data/x"
        )
        lines = await output(one, line, security=security, working_dir="/srv/made", mounts=mounts)
        assert [text.strip() for text in lines] == ["0", "0", "/srv/made", *["no"] * 4]
        assert (tmp_path / "data/x").read_text() == "yes\n"


async def test_it_runs_as_the_user_it_is_told(tmp_path: Path) -> None:
    async with lab(tmp_path) as one:
        plain = one.means == "none" and os.geteuid()
        security = v1.LinuxContainerSecurityContext(
            run_as_user=v1.Int64Value(value=os.geteuid() if plain else 12345),
            run_as_group=v1.Int64Value(value=os.getegid() if plain else 23456),
            supplemental_groups=[] if one.means == "user" or plain else [34567],
            no_new_privs=True,
        )
        line = "id -u; id -g; id -G; grep NoNewPrivs /proc/self/status"
        container_id = await one.start(*shell(f"{line}; exec sleep 1000"), security=security)
        await one.logged(container_id, "NoNewPrivs")
        done = await one.runtime.exec_sync(container_id, shell(line), 30)
        for lines in (one.log(container_id), done.stdout.decode().splitlines()):
            assert security.run_as_user is not None
            assert security.run_as_group is not None
            assert lines[0] == str(security.run_as_user.value)
            assert lines[1] == str(security.run_as_group.value)
            assert set(map(str, security.supplemental_groups)) <= set(lines[2].split())
            assert lines[3].split() == ["NoNewPrivs:", "1"]


async def test_it_is_root_unless_told_otherwise_and_owns_what_it_makes(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    mount = v1.Mount(host_path=str(tmp_path / "data"), container_path="/data")
    async with lab(tmp_path) as one:
        if not one.isolated:
            assert await output(one, "id -u") == [str(os.geteuid())]
            return
        line = "id -u; id -g; touch /data/made; stat -c %u /data/made; cd; pwd; touch in-home"
        assert await output(one, line, mounts=[mount]) == ["0", "0", "0", "/root"]
        assert (tmp_path / "data/made").stat().st_uid == os.geteuid()
        assert not os.path.lexists("/root/in-home")  # also if /root is closed to this user


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ({"supplemental_groups": [34567]}, r"supplementary groups \[34567\] need root"),
        ({"run_as_group": v1.Int64Value(value=23456)}, "running as group 23456 needs root"),
        ({"run_as_user": v1.Int64Value(value=12345)}, "running as user 12345 needs root"),
    ],
)
async def test_what_only_root_can_be_is_refused_to_others(
    tmp_path: Path, asked: dict[str, Any], why: str
) -> None:
    security = v1.LinuxContainerSecurityContext(**asked)
    async with lab(tmp_path) as one:
        mapped = one.means == "user" and "supplemental_groups" not in asked
        if os.geteuid() == 0 or mapped:
            await output(one, "true", security=security)
            return
        container_id = await one.create("true", security=security)
        with pytest.raises(rpc.Unknown, match=why):
            await one.runtime.start_container(container_id)


async def test_a_user_can_be_named(tmp_path: Path) -> None:
    async with lab(tmp_path) as one:
        name = next(user.pw_name for user in pwd.getpwall() if user.pw_uid)
        security = v1.LinuxContainerSecurityContext(run_as_username=name)
        if one.isolated or os.geteuid() == 0:
            assert await output(one, "id -un", security=security) == [name]
        other = v1.LinuxContainerSecurityContext(run_as_username="no-such-user")
        container_id = await one.create("true", name="other", security=other)
        with pytest.raises(rpc.Unknown, match="no user 'no-such-user'"):
            await one.runtime.start_container(container_id)


async def test_capabilities_are_taken_away(tmp_path: Path) -> None:
    async with lab(tmp_path) as one:
        if os.geteuid() and not one.isolated:
            return
        security = v1.LinuxContainerSecurityContext(
            capabilities=v1.Capability(drop_capabilities=["ALL"], add_capabilities=["KILL"])
        )
        (line,) = await output(one, "grep CapEff /proc/self/status", security=security)
        assert int(line.split()[1], 16) == 1 << 5
        container_id = await one.start("sleep", "1000", name="default")
        done = await one.runtime.exec_sync(
            container_id, ["grep", "CapEff", "/proc/self/status"], 30
        )
        assert int(done.stdout.split()[1], 16) & (1 << 21) == 0  # SYS_ADMIN


async def test_a_privileged_container_has_all_devices(tmp_path: Path) -> None:
    security = v1.LinuxContainerSecurityContext(privileged=True)
    async with lab(tmp_path) as one:
        if os.geteuid() and not one.isolated:
            return
        lines = await output(one, "ls /dev; grep CapEff /proc/self/status", security=security)
        assert set(lines[:-1]) >= set(os.listdir("/dev"))  # noqa: PTH208
        assert int(lines[-1].split()[1], 16) & (1 << 21)


async def test_dns_is_what_the_sandbox_says(tmp_path: Path) -> None:
    async with lab(tmp_path) as one:
        if not one.isolated:
            return
        config = sandbox_config("dns", logs=tmp_path / "dns-logs")
        config.dns_config = v1.DnsConfig(servers=["192.0.2.1"], options=["ndots:5"])
        one.sandbox = await one.runtime.run_pod_sandbox(config)
        lines = await output(one, "cat /etc/resolv.conf")
        assert lines == ["nameserver 192.0.2.1", "options ndots:5"]
