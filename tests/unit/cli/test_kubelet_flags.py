"""Every flag of the kubelet is taken: docs/configuration.md, "The kubelet's flags"."""

from __future__ import annotations

import logging
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from nodeagent.cli import app
from nodeagent.cli.log_setup import set_up_logging
from nodeagent.cli.run import run
from nodeagent.cli.run_help import GROUPS
from nodeagent.config import AgentConfig, ConfigError, ConfigFilesError, load_configuration
from nodeagent.config.flag_layer import kinds
from nodeagent.config.kubelet_fields import ACTS, FIELDS
from nodeagent.config.kubelet_flags import OTHERS, field_of_flag
from nodeagent.log import TRACE, Log, set_levels

LOGGER = logging.getLogger("nodeagent")
HEAD = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"

KUBEADM = """
  --bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf
  --kubeconfig=/etc/kubernetes/kubelet.conf --config={config}
  --container-runtime-endpoint=unix:///run/containerd/containerd.sock
  --pod-infra-container-image=registry.k8s.io/pause:3.10 --node-ip=10.0.0.4
"""
K3S = """
  --address=0.0.0.0 --allowed-unsafe-sysctls=net.ipv4.ip_forward,net.ipv6.conf.all.forwarding
  --anonymous-auth=false --authentication-token-webhook=true --authorization-mode=Webhook
  --cgroup-driver=systemd --client-ca-file=/var/lib/agent/client-ca.crt --cloud-provider=external
  --cluster-dns=10.43.0.10 --cluster-domain=cluster.local
  --container-runtime-endpoint=unix:///run/k3s/containerd/containerd.sock
  --containerd=/run/k3s/containerd/containerd.sock
  --eviction-hard=imagefs.available<5%,nodefs.available<5%
  --eviction-minimum-reclaim=imagefs.available=10%,nodefs.available=10% --fail-swap-on=false
  --healthz-bind-address=127.0.0.1 --hostname-override=node1 --kubelet-cgroups=/k3s
  --kubeconfig=/var/lib/agent/kubelet.kubeconfig --node-labels=a=b,c=d
  --pod-infra-container-image=rancher/mirrored-pause:3.6
  --pod-manifest-path=/var/lib/agent/pod-manifests --read-only-port=0
  --resolv-conf=/run/systemd/resolve/resolv.conf --runtime-cgroups=/k3s
  --serialize-image-pulls=false --tls-cert-file=/s/kubelet.crt
  --tls-private-key-file=/s/kubelet.key
"""
MANAGED = """
  --enable-server=true --node-labels=agentpool=a,kubernetes.azure.com/mode=system --v=2
  --volume-plugin-dir=/etc/kubernetes/volumeplugins --kubeconfig /var/lib/kubelet/kubeconfig
  --bootstrap-kubeconfig /var/lib/kubelet/bootstrap-kubeconfig
  --container-runtime=remote --runtime-request-timeout=15m
  --container-runtime-endpoint=unix:///run/containerd/containerd.sock
  --runtime-cgroups=/system.slice/containerd.service --cgroup-driver=systemd --address=0.0.0.0
  --anonymous-auth=false --authentication-token-webhook=true --authorization-mode=Webhook
  --azure-container-registry-config=/etc/kubernetes/azure.json --cgroups-per-qos=true
  --client-ca-file=/etc/kubernetes/certs/ca.crt --cloud-config=/etc/kubernetes/azure.json
  --cloud-provider=external --cluster-dns=10.0.0.10 --cluster-domain=cluster.local
  --enforce-node-allocatable=pods --event-qps=0
  --eviction-hard=memory.available<750Mi,nodefs.available<10%,nodefs.inodesFree<5%
  --image-gc-high-threshold=85 --image-gc-low-threshold=80 --keep-terminated-pod-volumes=false
  --kube-reserved=cpu=100m,memory=1638Mi --kubelet-cgroups=/system.slice --max-pods=110
  --network-plugin=cni --node-status-update-frequency=10s --pod-max-pids=-1
  --protect-kernel-defaults=true --read-only-port=0 --rotate-certificates=true
  --streaming-connection-idle-timeout=4h --tls-cert-file=/c/kubelet.crt
  --tls-private-key-file=/c/kubelet.key --system-reserved=cpu=0,memory=0
  --tls-cipher-suites=TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256
  --experimental-mounter-path=/home/kubernetes/mounter --cert-dir=/var/lib/kubelet/pki/
  --registry-qps=10 --registry-burst=20 --node-status-max-images=25 --housekeeping-interval=30s
  --serialize_image_pulls=false --register-with-taints=a=b:NoSchedule --rotate-server-certificates
"""

TEXTS = {
    "bool": "true",
    "int": "1",
    "map": "a=b",
    "thresholds": "memory.available<100Mi",
    "vmodule": "pleg=5",
    "memory": "0:memory=1Gi",
}
VALUES = {
    "featureGates": "ImageVolume=false",
    "staticPodURLHeader": "A: b",
    "kubeReserved": "cpu=1",
    "systemReserved": "cpu=1",
    "evictionSoftGracePeriod": "memory.available=1m",
    "evictionMinimumReclaim": "memory.available=1Mi",
    "qosReserved": "memory=50%",
    "registerWithTaints": "a=b:NoSchedule",
    "clusterDNS": "10.0.0.1",
    "allowedUnsafeSysctls": "net.core.somaxconn",
    "tlsCipherSuites": "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
    "enforceNodeAllocatable": "pods",
    "imageGCHighThresholdPercent": "90",
    "imageGCLowThresholdPercent": "70",
    "containerLogMaxFiles": "3",
    "staticPodURL": "http://127.0.0.1/x",
    "podCIDR": "10.0.0.0/24",
    "reservedSystemCPUs": "0-1",
    "runOnce": "false",
    "tlsMinVersion": "VersionTLS12",
    "clusterDomain": "cluster.local",
    "providerID": "cloud://1",
    "imageServiceEndpoint": "unix:///run/x.sock",
}
TOGETHER = {
    "evictionSoft": ["--eviction-soft-grace-period=memory.available=1m"],
    "evictionSoftGracePeriod": [],
    "systemCgroups": ["--cgroup-root=/"],
    "tlsCertFile": ["--tls-private-key-file=/k"],
    "tlsPrivateKeyFile": ["--tls-cert-file=/c"],
}


class Served:
    """What would have been run."""

    def __init__(self) -> None:
        self.configs: list[AgentConfig] = []

    def __call__(self, config: AgentConfig, *_others: object) -> int:
        self.configs.append(config)
        return 0


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    """Runs no agent; the package's logger is put back afterwards."""
    handlers, level, propagate = list(LOGGER.handlers), LOGGER.level, LOGGER.propagate
    found = Served()
    monkeypatch.setattr("nodeagent.cli.run.serve", found)
    yield found
    LOGGER.handlers[:] = handlers
    LOGGER.setLevel(level)
    LOGGER.propagate = propagate
    set_levels(())


def text_for(path: str) -> str:
    """A value that a flag of this field takes."""
    default = FIELDS[path].default
    if path in VALUES:
        return VALUES[path]
    if isinstance(default, str) and default:
        return default
    return TEXTS.get(kinds()[path], "/x")


@pytest.mark.parametrize("flag", sorted(field_of_flag()))
def test_each_flag_of_a_field_is_taken(flag: str, served: Served) -> None:
    path = field_of_flag()[flag]
    text = text_for(path)
    more = TOGETHER.get(path, [])
    assert app.invoke(["run", f"--{flag}={text}", *more]) == 0
    assert app.invoke(["run", *more, f"--{flag.replace('-', '_')}={text}"]) == 0
    if kinds()[path] != "bool":
        assert app.invoke(["run", f"--{flag}", text, *more]) == 0
    elif path != "runOnce":
        assert app.invoke(["run", f"--{flag}", *more]) == 0
    assert len({repr(config) for config in served.configs}) == 1


@pytest.mark.parametrize("flag", sorted(OTHERS))
def test_each_flag_without_a_meaning_is_taken_and_told(
    flag: str, served: Served, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [f"--{flag}=x"] if not OTHERS[flag].boolean else [f"--{flag}"]
    assert app.invoke(["run", *given, "--max-pods=7"]) == 0
    assert f'cli flag_ignored note="--{flag}: ' in capsys.readouterr().err
    if not OTHERS[flag].boolean:
        assert app.invoke(["run", f"--{flag}", "x", "--max-pods=7"]) == 0
    assert {config.max_pods for config in served.configs} == {7}


@pytest.mark.parametrize("line", [KUBEADM, K3S, MANAGED], ids=["kubeadm", "k3s", "managed"])
def test_command_lines_as_users_have_them(line: str, served: Served, tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(HEAD + "cgroupDriver: systemd\nstaticPodPath: /etc/kubernetes/manifests\n")
    assert app.invoke(["run", *shlex.split(line.format(config=file))]) == 0
    (config,) = served.configs
    assert config.kubeconfig
    if line is K3S:
        assert str(config.resolv_conf) == "/run/systemd/resolve/resolv.conf"
        assert config.allowed_unsafe_sysctls == (
            "net.ipv4.ip_forward",
            "net.ipv6.conf.all.forwarding",
        )
        assert config.node_labels == {"a": "b", "c": "d"}


def test_deprecated_flags_are_told_once_on_one_line(
    served: Served, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["--max-pods=7", "--v=2", "--cpu_cfs_quota", "--cpu-cfs-quota=false", "--root-dir=/r"]
    assert app.invoke(["run", *given]) == 0
    (line,) = [t for t in capsys.readouterr().err.splitlines() if "flags_deprecated" in t]
    assert 'flags="--max-pods --cpu-cfs-quota" note=' in line


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (["--cpu-cfs-quota=maybe"], "--cpu-cfs-quota=maybe: must be true or false"),
        (["--max-open-files=x"], "--max-open-files=x: must be a whole number"),
        (["--max-open-files=-1"], "--max-open-files: maxOpenFiles: -1 must not be negative"),
        (["--oom-score-adj", "1001"], "--oom-score-adj: oomScoreAdj: 1001 is not between"),
        (["--eviction-soft=a"], "--eviction-soft=a: 'a' is not written name<value"),
        (["--qos-reserved=a"], "--qos-reserved=a: 'a' is not written name=value"),
        (["--reserved-memory=1Gi"], "--reserved-memory=1Gi: '1Gi' is not written node:memory"),
        (["--vmodule=a=b"], "--vmodule=a=b: must be a whole number"),
        (["--cpu-manager-policy=x"], "--cpu-manager-policy: cpuManagerPolicy: 'x' is not one of"),
        (["--runonce"], "--runonce: runOnce: true: there is no such mode any more"),
        (["--hairpin-mode"], "--hairpin-mode: needs a value"),
        (["--max-pods"], "Option '--max-pods' requires an argument."),
        (["surplus"], 'unknown command "surplus"'),
        (["--no-such-flag"], "No such option '--no-such-flag'."),
    ],
)
def test_a_bad_value_is_one_line(
    given: list[str], told: str, served: Served, capsys: pytest.CaptureFixture[str]
) -> None:
    assert app.invoke(["run", *given]) == 2
    assert capsys.readouterr().err.startswith(f"nodeagent: {told}")
    assert served.configs == []


def test_the_version_is_said_before_anything_else(
    served: Served, capsys: pytest.CaptureFixture[str]
) -> None:
    for flag in ("--version", "--version=raw", "--version=true"):
        assert app.invoke(["run", "--no-such", flag]) == 0
        assert capsys.readouterr().out.startswith("nodeagent ")
    assert served.configs == []


def test_flags_lie_over_file_and_drop_ins(tmp_path: Path) -> None:
    file = tmp_path / "k.yaml"
    file.write_text(
        HEAD + "evictionSoft: {memory.available: 1Gi}\nallowedUnsafeSysctls: [net.a]\n"
        "evictionSoftGracePeriod: {memory.available: 1m, nodefs.available: 1m}\n"
        "featureGates: {ImageVolume: false}\ncpuCFSQuota: true\nresolvConf: r.conf\n"
    )
    flags = [
        ("eviction-soft", "nodefs.available<10%"),
        ("allowed-unsafe-sysctls", "net.b,net.c"),
        ("allowed-unsafe-sysctls", "net.d"),
        ("feature-gates", "EnvFiles=false"),
        ("cpu-cfs-quota", "true"),
        ("cpu-cfs-quota", "false"),
        ("resolv-conf", "mine.conf"),
    ]
    loaded = load_configuration(file, None, flags)
    # A list or map takes the place of the whole; what is repeated adds to it; gates merge.
    assert loaded.effective["evictionSoft"] == {"nodefs.available": "10%"}
    assert loaded.effective["allowedUnsafeSysctls"] == ["net.b", "net.c", "net.d"]
    assert loaded.effective["featureGates"] == {"ImageVolume": False, "EnvFiles": False}
    assert loaded.settings["cpu_cfs_quota"] is False
    assert loaded.settings["resolv_conf"] == Path("mine.conf")
    assert loaded.origins["cpuCFSQuota"] == Path("--cpu-cfs-quota")
    assert loaded.origins["evictionSoftGracePeriod.nodefs.available"] == file


def test_a_flag_cannot_help_a_file_that_is_wrong_elsewhere(tmp_path: Path) -> None:
    file = tmp_path / "k.yaml"
    file.write_text(HEAD + "maxOpenFiles: -1\noomScoreAdj: 5000\n")
    with pytest.raises(ConfigFilesError) as caught:
        load_configuration(file, None, [("max-open-files", "5")])
    assert [problem.partition(":")[0] for problem in caught.value.problems] == ["oomScoreAdj"]


def test_flags_alone_may_contradict_each_other(tmp_path: Path) -> None:
    flags = [("reserved-cpus", "0"), ("kube-reserved-cgroup", "/k")]
    with pytest.raises(ConfigError, match="reservedSystemCPUs: cannot go with kubeReservedCgroup"):
        load_configuration(None, None, flags)


# -- help, completion, listing -------------------------------------------------------------------


def test_help_has_every_flag_once_with_default_and_field(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    assert app.invoke(["run", "--help"]) == 0
    told = capsys.readouterr().out
    head, _, last = told.partition("Taken for the sake of the kubelet's command lines")
    described = [line.split()[0] for line in head.splitlines() if line.startswith("  --")]
    described.append("--v")
    own = {
        opt for p in run.params for opt in p.opts if isinstance(p, click.Option) and not p.hidden
    }
    acting = {f"--{flag}" for flag, path in field_of_flag().items() if FIELDS[path].effect == ACTS}
    assert sorted(described) == sorted({o for o in own if o.startswith("--")} | acting)
    ignored = {word.strip(",") for word in last.split() if word.startswith("--")}
    assert set(map("--{}".format, OTHERS)) <= ignored
    assert ignored | set(described) >= set(map("--{}".format, field_of_flag()))
    flat = " ".join(head.split())
    for flag, path in field_of_flag().items():
        if FIELDS[path].effect == ACTS:
            assert f"[field: {path}]" in flat, flag
    titles = [line[:-1] for line in head.splitlines() if re.fullmatch(r"\S.*:", line)]
    assert titles == [*GROUPS, "Other"]


def test_help_needs_nothing_that_a_start_loads() -> None:
    code = (
        "import sys; from nodeagent.cli import app; "
        "print([m for m in sys.modules if m.endswith(('run_help', 'plan_state', '.planning'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_completes_commands_and_flags(
    shell: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert app.invoke(["completion", shell]) == 0
    assert "_NODEAGENT_COMPLETE" in capsys.readouterr().out
    assert app.invoke(["completion", "tcsh"]) == 2


def test_every_flag_is_completed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("_NODEAGENT_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", "nodeagent run --")
    monkeypatch.setenv("COMP_CWORD", "2")
    with pytest.raises(SystemExit):
        app.invoke([])
    found = {line.removeprefix("plain,--") for line in capsys.readouterr().out.splitlines()}
    assert field_of_flag().keys() <= found
    assert {"kubeconfig", "help"} <= found


def test_explain_lists_every_flag(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.invoke(["config", "explain", "--flags"]) == 0
    told = capsys.readouterr().out.splitlines()
    names = [line[2:].partition(":")[0] for line in told]
    assert names == sorted(names)
    assert {*field_of_flag(), *OTHERS, "kubeconfig"} <= set(names)
    assert "--max-pods: field maxPods" in told
    assert "--kubeconfig" in told
    assert app.invoke(["config", "explain", "--flags", "--json"]) == 0


# -- logs ----------------------------------------------------------------------------------------


def test_single_parts_may_log_more(served: Served) -> None:
    early = Log("pleg.early")
    assert app.invoke(["run", "--v=2", "--vmodule=pleg*=5,pods=4,source.*=0"]) == 0
    late = Log("source.file")
    levels = {name: logging.getLogger(f"nodeagent.{name}") for name in ("pleg", "pods", "probes")}
    assert logging.getLogger("nodeagent.pleg.early").getEffectiveLevel() == TRACE
    assert levels["probes"].getEffectiveLevel() == logging.INFO
    Log("pods")
    assert levels["pods"].getEffectiveLevel() == logging.DEBUG
    assert logging.getLogger("nodeagent.pods.workers").getEffectiveLevel() == logging.DEBUG
    assert logging.getLogger("nodeagent.source.file").getEffectiveLevel() == logging.INFO
    assert early is not late


def test_levels_come_from_the_file_too(served: Served, tmp_path: Path) -> None:
    file = tmp_path / "k.yaml"
    file.write_text(HEAD + "logging: {vmodule: [{filePattern: pleg, verbosity: 5}]}\n")
    assert app.invoke(["run", f"--config={file}"]) == 0
    Log("pleg")
    assert logging.getLogger("nodeagent.pleg").getEffectiveLevel() == TRACE
    assert app.invoke(["run", f"--config={file}", "--vmodule=probes=5"]) == 0
    assert logging.getLogger("nodeagent.pleg").getEffectiveLevel() == logging.INFO
    set_up_logging("text", 2)
    assert logging.getLogger("nodeagent.probes").getEffectiveLevel() == logging.INFO
