"""A container's own file system and namespaces as root; without, a warning instead."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from embedded_lab import Lab, lab, shell

from nodeagent.proto.runtime import v1
from nodeagent.testing.cri_configs import container_config

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


async def test_volumes_appear_where_the_pod_wants_them(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data/file").write_text("from the host\n")
    (tmp_path / "config").write_text("a file\n")
    mounts = [
        v1.Mount(host_path=str(tmp_path / "data"), container_path="/deep/inside/data"),
        v1.Mount(host_path=str(tmp_path / "config"), container_path="/etc/app.conf"),
        v1.Mount(host_path=str(tmp_path / "made"), container_path="/deep"),
    ]
    async with lab(tmp_path) as one:
        if not one.isolated:
            container_id = await one.create("true", mounts=mounts)
            assert "missing /deep/inside/data" in said_instead(one, container_id)
            return
        line = "cat /deep/inside/data/file /etc/app.conf; echo back > /deep/inside/data/answer"
        assert await output(one, line, mounts=mounts) == ["from the host", "a file"]
        assert (tmp_path / "data/answer").read_text() == "back\n"
        assert (tmp_path / "made").is_dir()
        assert not Path("/deep").exists()


async def test_a_read_only_volume_cannot_be_written_to(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    mount = v1.Mount(host_path=str(tmp_path / "data"), container_path="/data", readonly=True)
    async with lab(tmp_path) as one:
        if not one.isolated:
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
    async with lab(tmp_path) as one:
        if not one.isolated:
            container_id = await one.create("true")
            assert one.backend.info()["isolation"].startswith("none: ")
            assert said_instead(one, container_id) == ""
            return
        assert await output(one, f"echo here > {mark}; cat {mark}; rm /etc/passwd") == ["here"]
        assert not Path(mark).exists()
        assert Path("/etc/passwd").exists()


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
    security = v1.LinuxContainerSecurityContext(
        readonly_rootfs=True,
        masked_paths=["/etc/passwd", "/etc/ssl", "/not/there"],
        readonly_paths=["/proc/sys"],
    )
    async with lab(tmp_path) as one:
        if not one.isolated:
            container_id = await one.create("true", security=security)
            assert "writable" in said_instead(one, container_id)
            return
        line = (
            "wc -c < /etc/passwd; ls /etc/ssl | wc -l; pwd;"
            " touch /x 2>/dev/null || echo no;"
            " echo 1 2>/dev/null > /proc/sys/vm/panic_on_oom || echo no"
        )
        lines = await output(one, line, security=security, working_dir="/work/made")
        assert [text.strip() for text in lines] == ["0", "0", "/work/made", "no", "no"]


async def test_it_runs_as_the_user_it_is_told(tmp_path: Path) -> None:
    security = v1.LinuxContainerSecurityContext(
        run_as_user=v1.Int64Value(value=os.geteuid() or 12345),
        run_as_group=v1.Int64Value(value=os.getegid() or 23456),
        supplemental_groups=[] if os.geteuid() else [34567],
        no_new_privs=True,
    )
    async with lab(tmp_path) as one:
        lines = await output(
            one, "id -u; id -g; id -G; grep NoNewPrivs /proc/self/status", security=security
        )
        assert security.run_as_user is not None
        assert security.run_as_group is not None
        assert lines[0] == str(security.run_as_user.value)
        assert lines[1] == str(security.run_as_group.value)
        assert set(map(str, security.supplemental_groups)) <= set(lines[2].split())
        assert lines[3].split() == ["NoNewPrivs:", "1"]


async def test_a_user_can_be_named(tmp_path: Path) -> None:
    async with lab(tmp_path) as one:
        if os.geteuid():
            return
        security = v1.LinuxContainerSecurityContext(run_as_username="nobody")
        (name,) = await output(one, "id -un", security=security)
        assert name == "nobody"
        config = container_config("other", ["true"])
        assert config.linux is not None
        assert config.linux.security_context is not None
        config.linux.security_context.run_as_username = "no-such-user"
        container_id = await one.runtime.create_container(one.sandbox, config)
        with pytest.raises(Exception, match="no user 'no-such-user'"):
            await one.runtime.start_container(container_id)


async def test_capabilities_are_taken_away(tmp_path: Path) -> None:
    async with lab(tmp_path) as one:
        if os.geteuid():
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


async def test_dns_is_what_the_sandbox_says(tmp_path: Path) -> None:
    from nodeagent.testing.cri_configs import sandbox_config

    async with lab(tmp_path) as one:
        if not one.isolated:
            return
        config = sandbox_config("dns", logs=tmp_path / "dns-logs")
        config.dns_config = v1.DnsConfig(servers=["192.0.2.1"], options=["ndots:5"])
        one.sandbox = await one.runtime.run_pod_sandbox(config)
        lines = await output(one, "cat /etc/resolv.conf")
        assert lines == ["nameserver 192.0.2.1", "options ndots:5"]
