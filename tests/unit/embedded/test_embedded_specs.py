"""What the process backend makes of the CRI's configuration, and what it refuses."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from nodeagent import rpc
from nodeagent.embedded import ContainerRecord, SandboxRecord
from nodeagent.embedded.process.isolation import Isolation
from nodeagent.embedded.process.launcher.spec import ContainerSpec
from nodeagent.embedded.process.specs import check_container, check_sandbox, container_spec
from nodeagent.embedded.process.store import sandbox_files
from nodeagent.model import ContainerID, PodUID, SandboxID
from nodeagent.proto.runtime import v1
from nodeagent.testing.cri_configs import container_config, sandbox_config

ISOLATED = Isolation("root")
ROOTLESS = Isolation("user", "tmpfs", "not root")
PLAIN = Isolation("none", reason="not root")
MOUNT = v1.Mount(host_path="/srv/data", container_path="/data", readonly=True)


def context(config: v1.ContainerConfig) -> v1.LinuxContainerSecurityContext:
    assert config.linux is not None
    assert config.linux.security_context is not None
    return config.linux.security_context


def records(
    config: v1.ContainerConfig, sandbox: v1.PodSandboxConfig | None = None
) -> tuple[ContainerRecord, SandboxRecord]:
    sandbox = sandbox or sandbox_config(hostname="web-0")
    container = ContainerRecord(
        id=ContainerID("c1"),
        sandbox_id=SandboxID("s1"),
        pod_uid=PodUID("u1"),
        config=config,
        image_id="sha256:x",
        log_path="/logs/main/0.log",
        created_at=1,
    )
    return container, SandboxRecord(SandboxID("s1"), sandbox, "127.88.0.1", 1)


def spec(config: v1.ContainerConfig, isolation: Isolation = ISOLATED) -> ContainerSpec:
    container, sandbox = records(config)
    return container_spec(
        container,
        sandbox,
        isolation,
        directory="/state/c1",
        sandbox_files=[
            {"source": "/s/hostname", "target": "/etc/hostname", "readonly": False, "private": True}
        ],
        hidden=["/state"],
    )


def test_command_and_arguments_make_the_program() -> None:
    config = container_config(command=["sh", "-c"], args=["echo $A"], env={"A": "b"})
    process = spec(config)["process"]
    assert process["argv"] == ["sh", "-c", "echo $A"]
    assert process["env"] == {"HOSTNAME": "web-0", "A": "b"}
    assert process["cwd"] == "/"


def test_an_environment_value_may_be_any_bytes() -> None:
    config = container_config()
    config.envs = [v1.KeyValue(key="RAW", value=b"\xff\xfe")]
    value = spec(config)["process"]["env"]["RAW"]
    assert value.encode("utf-8", "surrogateescape") == b"\xff\xfe"


def test_without_a_command_the_error_says_what_to_do() -> None:
    with pytest.raises(rpc.InvalidArgument, match="set `command`"):
        check_container(container_config(command=[]))


def test_arguments_alone_are_a_program() -> None:
    config = container_config(command=[], args=["sleep", "1"])
    check_container(config)
    assert spec(config)["process"]["argv"] == ["sleep", "1"]


def test_volumes_and_the_files_of_the_sandbox_are_mounted() -> None:
    isolation = spec(container_config(mounts=[MOUNT]))["isolation"]
    assert isolation is not None
    assert [(one["source"], one["target"], one["readonly"]) for one in isolation["mounts"]] == [
        ("/s/hostname", "/etc/hostname", False),
        ("/srv/data", "/data", True),
    ]


def test_a_mount_of_the_pod_goes_before_a_file_of_the_sandbox() -> None:
    own = v1.Mount(host_path="/my/hostname", container_path="/etc/hostname")
    isolation = spec(container_config(mounts=[own]))["isolation"]
    assert isolation is not None
    assert [one["source"] for one in isolation["mounts"]] == ["/my/hostname"]


def test_a_plain_process_works_in_a_directory_of_its_own() -> None:
    plain = spec(container_config(), PLAIN)
    assert plain["isolation"] is None
    assert plain["process"]["cwd"] == "/state/c1/cwd"
    assert plain["process"]["env"]["HOME"] == "/state/c1/cwd"
    assert spec(container_config(working_dir="/srv"), PLAIN)["process"]["cwd"] == "/srv"


def test_namespaces_follow_the_options() -> None:
    isolation = spec(container_config())["isolation"]
    assert isolation is not None
    assert (isolation["hostname"], isolation["own_pid"], isolation["own_ipc"]) == (
        "web-0",
        True,
        True,
    )
    config = container_config()
    options = context(config).namespace_options
    assert options is not None
    options.pid = options.ipc = v1.NamespaceMode.NODE
    isolation = spec(config)["isolation"]
    assert isolation is not None
    assert (isolation["own_pid"], isolation["own_ipc"]) == (False, False)


def test_a_user_namespace_is_for_those_without_privileges() -> None:
    found = [spec(container_config(), one)["isolation"] for one in (ISOLATED, ROOTLESS, PLAIN)]
    assert [one and (one["user"], one["upper"]) for one in found] == [
        (False, "dir"),
        (True, "tmpfs"),
        None,
    ]


def test_who_it_runs_as_comes_from_the_security_context() -> None:
    security = v1.LinuxContainerSecurityContext(
        run_as_user=v1.Int64Value(value=1000),
        run_as_group=v1.Int64Value(value=2000),
        supplemental_groups=[3000],
        supplemental_groups_policy=v1.SupplementalGroupsPolicy.Strict,
        no_new_privs=True,
        capabilities=v1.Capability(drop_capabilities=["ALL"]),
    )
    identity = spec(container_config(security=security))["process"]["identity"]
    assert identity == {
        "uid": 1000,
        "username": "",
        "gid": 2000,
        "groups": [3000],
        "merge_groups": False,
        "capabilities": [],
        "no_new_privs": True,
        "oom_score_adj": None,
    }


def test_a_privileged_container_keeps_everything() -> None:
    security = v1.LinuxContainerSecurityContext(
        privileged=True, masked_paths=["/proc/kcore"], readonly_paths=["/proc/sys"]
    )
    made = spec(container_config(security=security))
    assert made["process"]["identity"]["capabilities"] is None
    assert made["isolation"] is not None
    assert made["isolation"]["all_devices"]
    assert made["isolation"]["masked"] == made["isolation"]["readonly_paths"] == []


def change_mount(**fields: object) -> Callable[[v1.ContainerConfig], None]:
    def change(config: v1.ContainerConfig) -> None:
        mount = v1.Mount(host_path="/a", container_path="/b")
        for name, value in fields.items():
            setattr(mount, name, value)
        config.mounts = [mount]

    return change


def change_security(**fields: object) -> Callable[[v1.ContainerConfig], None]:
    def change(config: v1.ContainerConfig) -> None:
        for name, value in fields.items():
            setattr(context(config), name, value)

    return change


def own_devices(config: v1.ContainerConfig) -> None:
    config.CDI_devices = [v1.CdiDevice(name="vendor.com/gpu=0")]


BIDIRECTIONAL = v1.MountPropagation.PROPAGATION_BIDIRECTIONAL
LOCALHOST = v1.SecurityProfile(profile_type=v1.SecurityProfileProfileType.Localhost)
TARGET = v1.NamespaceOption(pid=v1.NamespaceMode.TARGET, target_id="x")
USERNS = v1.NamespaceOption(
    userns_options=v1.UserNamespace(
        mode=v1.NamespaceMode.POD, uids=[v1.IdMapping(host_id=65536, length=65536)]
    )
)


@pytest.mark.parametrize(
    ("change", "names"),
    [
        (change_mount(image=v1.ImageSpec(image="x")), "image volumes"),
        (change_mount(propagation=BIDIRECTIONAL), "bidirectional mount propagation"),
        (change_mount(recursive_read_only=True), "recursive read-only"),
        (change_mount(uid_mappings=[v1.IdMapping()]), "id-mapped"),
        (change_security(seccomp=LOCALHOST), "seccomp"),
        (change_security(apparmor=LOCALHOST), "AppArmor"),
        (change_security(namespace_options=TARGET), "another container"),
        (change_security(namespace_options=USERNS), "user namespaces"),
        (own_devices, "CDI devices"),
    ],
)
def test_what_a_container_cannot_have_here_is_refused_by_name(
    change: Callable[[v1.ContainerConfig], None], names: str
) -> None:
    config = container_config()
    change(config)
    with pytest.raises(rpc.Unimplemented, match=f"the embedded runtime cannot do .*{names}"):
        check_container(config)


@pytest.mark.parametrize(
    ("change", "names"),
    [
        (change_mount(host_path=""), "needs a host path"),
        (change_mount(container_path="data"), "must be absolute"),
        (lambda config: setattr(config, "log_path", "../../etc/cron.d/x"), "log path"),
        (lambda config: setattr(config, "log_path", "/etc/x"), "log path"),
        (lambda config: setattr(config, "command", [""]), "command is empty"),
    ],
)
def test_senseless_configurations_are_refused(
    change: Callable[[v1.ContainerConfig], None], names: str
) -> None:
    config = container_config()
    change(config)
    with pytest.raises(rpc.InvalidArgument, match=names):
        check_container(config)


def test_sysctls_and_user_namespaces_of_a_sandbox_are_refused() -> None:
    config = sandbox_config()
    check_sandbox(config)
    assert config.linux is not None
    config.linux.sysctls = {"net.core.somaxconn": "1"}
    with pytest.raises(rpc.Unimplemented, match=r"sysctls \(net.core.somaxconn\)"):
        check_sandbox(config)
    config.linux.sysctls = {}
    config.linux.security_context = v1.LinuxSandboxSecurityContext(namespace_options=USERNS)
    with pytest.raises(rpc.Unimplemented, match="user namespaces"):
        check_sandbox(config)


@pytest.mark.parametrize(
    ("port", "trouble", "remedy"),
    [
        (
            v1.PortMapping(host_port=8080, container_port=80),
            "hostPort 8080 cannot lead to containerPort 80",
            "use hostPort equal to containerPort",
        ),
        (
            v1.PortMapping(host_port=80, container_port=80, host_ip="127.0.0.1"),
            "hostPort 80 cannot be limited to hostIP 127.0.0.1",
            "leave hostIP out, and have the program itself listen on that address only",
        ),
    ],
)
def test_a_host_port_that_would_lead_nowhere_is_refused(
    port: v1.PortMapping, trouble: str, remedy: str
) -> None:
    config = sandbox_config("web")
    config.port_mappings = [v1.PortMapping(container_port=80), port]
    with pytest.raises(rpc.FailedPrecondition) as caught:
        check_sandbox(config)
    why = "pods of the embedded runtime share the host's network"
    assert caught.value.message == f"pod default/web: {trouble}: {why}; {remedy}"


@pytest.mark.parametrize("host_ip", ["", "0.0.0.0", "::"])
def test_a_host_port_that_is_the_containers_needs_nothing(host_ip: str) -> None:
    config = sandbox_config()
    config.port_mappings = [v1.PortMapping(host_port=80, container_port=80, host_ip=host_ip)]
    check_sandbox(config)


def test_host_ports_mean_nothing_in_the_hosts_network() -> None:
    config = sandbox_config(host_network=True)
    config.port_mappings = [v1.PortMapping(host_port=80, container_port=80, host_ip="127.0.0.1")]
    check_sandbox(config)


def test_a_sandbox_gives_its_containers_resolv_conf_and_hostname() -> None:
    config = sandbox_config(hostname="web-0")
    assert sandbox_files(config) == {"hostname": "web-0\n"}
    config.dns_config = v1.DnsConfig(
        servers=["10.0.0.10", "10.0.0.11"], searches=["a.b", "c"], options=["ndots:5"]
    )
    assert sandbox_files(config)["resolv.conf"] == (
        "search a.b c\nnameserver 10.0.0.10\nnameserver 10.0.0.11\noptions ndots:5\n"
    )
    assert sandbox_files(sandbox_config()) == {}
