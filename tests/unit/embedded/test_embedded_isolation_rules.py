"""What is refused and what is warned about where containers have nothing of their own."""

from __future__ import annotations

import pytest

from nodeagent import rpc
from nodeagent.embedded.process.isolation import (
    TERMINATION_PATH,
    Isolation,
    container_warnings,
    refuse_impossible,
    remedy,
)
from nodeagent.proto.runtime import v1
from nodeagent.testing.cri_configs import container_config

ROOT = Isolation("root")
ROOTLESS = Isolation("user", reason="not root")
PLAIN = Isolation("none", reason="not root; user namespaces: no", remedy="run as root")
DATA = v1.Mount(host_path="/srv/data", container_path="/data")
SAME = v1.Mount(host_path="/srv/data/", container_path="/srv/data")
ETC_HOSTS = v1.Mount(host_path="/pods/u/etc-hosts", container_path="/etc/hosts")
TERMINATION = v1.Mount(
    host_path="/pods/u/containers/main/0af3", container_path="/dev/termination-log"
)


def config(*mounts: v1.Mount) -> v1.ContainerConfig:
    made = container_config(mounts=mounts)
    made.annotations = {TERMINATION_PATH: "/dev/termination-log"}
    return made


def test_a_mount_that_a_plain_process_cannot_have_is_refused_with_the_remedy() -> None:
    with pytest.raises(rpc.FailedPrecondition) as caught:
        refuse_impossible(config(ETC_HOSTS, DATA), PLAIN)
    assert caught.value.message == (
        "cannot mount /srv/data on /data: containers are plain processes here (not root; user"
        " namespaces: no); run as root"
    )


@pytest.mark.parametrize("isolation", [ROOT, ROOTLESS])
def test_nothing_is_refused_where_containers_have_a_file_system(isolation: Isolation) -> None:
    refuse_impossible(config(DATA), isolation)
    assert container_warnings(config(DATA), isolation) == []


def test_a_mount_where_there_is_nothing_to_do_is_not_refused() -> None:
    refuse_impossible(config(SAME), PLAIN)
    assert container_warnings(config(SAME), PLAIN) == []


def test_what_the_agent_mounts_of_its_own_accord_is_left_out_with_a_warning() -> None:
    made = config(ETC_HOSTS, TERMINATION)
    refuse_impossible(made, PLAIN)
    assert container_warnings(made, PLAIN) == [
        "the host's own /etc/hosts, /dev/termination-log (not root; user namespaces: no)"
    ]


@pytest.mark.parametrize(
    "mount",
    [
        v1.Mount(host_path="/my/hosts", container_path="/etc/hosts"),
        v1.Mount(host_path="/my/log", container_path="/dev/termination-log"),
        v1.Mount(host_path="/pods/u/containers/main/0af3", container_path="/elsewhere"),
    ],
)
def test_a_volume_in_the_place_of_one_of_those_is_refused(mount: v1.Mount) -> None:
    with pytest.raises(rpc.FailedPrecondition, match=f"on {mount.container_path}: "):
        refuse_impossible(config(mount), PLAIN)


def test_a_device_under_another_name_is_refused() -> None:
    made = config()
    made.devices = [v1.Device(host_path="/dev/kvm", container_path="/dev/kvm")]
    refuse_impossible(made, PLAIN)
    made.devices = [v1.Device(host_path="/dev/kvm", container_path="/dev/virtual")]
    with pytest.raises(rpc.FailedPrecondition, match="cannot have /dev/kvm as /dev/virtual"):
        refuse_impossible(made, PLAIN)


def test_what_only_limits_a_container_is_warned_about() -> None:
    made = config(v1.Mount(host_path="/srv", container_path="/srv", readonly=True))
    assert made.linux is not None
    assert made.linux.security_context is not None
    made.linux.security_context.readonly_rootfs = True
    made.linux.security_context.namespace_options = v1.NamespaceOption(pid=v1.NamespaceMode.POD)
    made.linux.resources = v1.LinuxContainerResources(memory_limit_in_bytes=1)
    always = [
        "cpu and memory limits are recorded, not enforced",
        "containers of one pod do not share a process namespace",
    ]
    assert container_warnings(made, ROOT) == always
    assert container_warnings(made, PLAIN) == [
        *always,
        "/srv can be written to (not root; user namespaces: no)",
        "the root file system is the host's, writable (not root; user namespaces: no)",
    ]


def test_a_seccomp_profile_that_has_no_effect_is_told() -> None:
    kinds = v1.SecurityProfileProfileType
    for kind, told in (
        (kinds.RuntimeDefault, ["no seccomp filter is applied"]),
        (kinds.Unconfined, []),
    ):
        context = v1.LinuxContainerSecurityContext(seccomp=v1.SecurityProfile(profile_type=kind))
        made = v1.ContainerConfig(linux=v1.LinuxContainerConfig(security_context=context))
        assert container_warnings(made, ROOT) == told


@pytest.mark.parametrize(
    ("sysctls", "advice"),
    [
        (
            {"user.max_user_namespaces": "0", "kernel.unprivileged_userns_clone": "0"},
            "sysctl -w user.max_user_namespaces=10000 kernel.unprivileged_userns_clone=1",
        ),
        (
            {
                "user.max_user_namespaces": "4096",
                "kernel.apparmor_restrict_unprivileged_userns": "1",
            },
            "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0",
        ),
        ({"user.max_user_namespaces": "4096"}, "no sysctl forbids them here"),
    ],
)
def test_the_remedy_names_the_settings_that_forbid_user_namespaces(
    sysctls: dict[str, str], advice: str
) -> None:
    assert advice in remedy(sysctls, is_root=False)
    assert remedy(sysctls, is_root=False).startswith("run as root, or enable unprivileged")
    assert remedy(sysctls, is_root=True).startswith("run with CAP_SYS_ADMIN, or enable")


def test_it_says_itself_what_is_in_force() -> None:
    assert [str(one) for one in (ROOT, ROOTLESS, PLAIN)] == [
        "root",
        "user namespaces: not root",
        "none: not root; user namespaces: no",
    ]
