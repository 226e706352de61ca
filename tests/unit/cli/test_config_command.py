"""``nodeagent config``: docs/configuration.md, "Commands"."""

from __future__ import annotations

import json
from pathlib import Path

import anyio
import pytest
import yaml

from nodeagent.cli import app
from nodeagent.config import AgentConfig
from nodeagent.config.agent_file import AGENT_FIELDS
from nodeagent.config.kubelet_fields import FIELDS
from nodeagent.config.kubelet_model import API_VERSION, KIND
from nodeagent.reload.last_good import LastGood, Saved
from nodeagent.reload.loading import FileLoader

HEAD = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
KUBEADM = """
authentication:
  anonymous: {enabled: false}
  webhook: {cacheTTL: 0s, enabled: true}
  x509: {clientCAFile: /etc/kubernetes/pki/ca.crt}
authorization:
  mode: Webhook
  webhook: {cacheAuthorizedTTL: 0s, cacheUnauthorizedTTL: 0s}
cgroupDriver: systemd
clusterDNS: [10.96.0.10]
clusterDomain: cluster.local
containerRuntimeEndpoint: ""
cpuManagerReconcilePeriod: 0s
crashLoopBackOff: {}
evictionPressureTransitionPeriod: 0s
fileCheckFrequency: 0s
healthzBindAddress: 127.0.0.1
healthzPort: 10248
httpCheckFrequency: 0s
imageMaximumGCAge: 0s
imageMinimumGCAge: 0s
logging:
  flushFrequency: 0
  options: {json: {infoBufferSize: "0"}, text: {infoBufferSize: "0"}}
  verbosity: 0
memorySwap: {}
nodeStatusReportFrequency: 0s
nodeStatusUpdateFrequency: 0s
resolvConf: /run/systemd/resolve/resolv.conf
rotateCertificates: true
runtimeRequestTimeout: 0s
shutdownGracePeriod: 0s
shutdownGracePeriodCriticalPods: 0s
staticPodPath: /etc/kubernetes/manifests
streamingConnectionIdleTimeout: 0s
syncFrequency: 0s
volumeStatsAggPeriod: 0s
"""
CLOUD = """
address: 0.0.0.0
authentication: {anonymous: {enabled: false}, webhook: {cacheTTL: 2m0s, enabled: true}}
authorization: {mode: Webhook}
clusterDNS: [172.20.0.10]
clusterDomain: cluster.local
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
evictionHard: {memory.available: 100Mi, nodefs.available: 10%, nodefs.inodesFree: 5%}
featureGates: {RotateKubeletServerCertificate: true}
hairpinMode: hairpin-veth
kubeAPIBurst: 100
kubeAPIQPS: 50
kubeReserved: {cpu: 80m, ephemeral-storage: 1Gi, memory: 893Mi}
logging: {flushFrequency: 0, options: {json: {infoBufferSize: "0"}}, verbosity: 2}
maxPods: 58
protectKernelDefaults: true
providerID: cloud:///zone-a/i-0123456789
readOnlyPort: 0
serializeImagePulls: false
serverTLSBootstrap: true
tlsCipherSuites: [TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256]
"""
DROP_INS = {
    "00-defaults.conf": "address: 127.0.0.1\nfailSwapOn: false\ncgroupDriver: systemd\n",
    "10-agent.conf": "clusterDNS: [10.43.0.10]\nclusterDomain: cluster.local\nmaxPods: 200\n",
    "99-user.conf": "maxPods: 250\nshutdownGracePeriod: 30s\n"
    "shutdownGracePeriodCriticalPods: 10s\n",
}

OWN = "apiVersion: nodeagent.dev/v1alpha1\nkind: NodeAgentConfiguration\n"


def written(directory: Path, text: str, name: str = "kubelet.yaml") -> str:
    path = directory / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(HEAD + text)
    return str(path)


@pytest.mark.parametrize("text", [KUBEADM, CLOUD])
def test_files_as_users_have_them_are_valid(
    tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert app.invoke(["config", "validate", "--config", written(tmp_path, text)]) == 0
    assert "kubelet.yaml: valid, " in capsys.readouterr().out


def test_drop_ins_as_users_have_them_are_valid(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, text in DROP_INS.items():
        written(tmp_path / "d", text, name)
    assert app.invoke(["config", "validate", f"--config-dir={tmp_path}/d"]) == 0
    told = capsys.readouterr().out
    assert f"warning: {tmp_path}/d/99-user.conf: shutdownGracePeriod: not acted on by this" in told
    assert app.invoke(["config", "diff", f"--config-dir={tmp_path}/d"]) == 1
    told = capsys.readouterr().out
    assert "maxPods: 110 -> 250\n" in told
    assert "failSwapOn: true -> false\n" in told


def test_validate_tells_every_problem_on_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path, "maxPods: -1\nhairpinMode: x\n")
    assert app.invoke(["config", "validate", "--config", path]) == 1
    assert capsys.readouterr().out.splitlines() == [
        f"error: {path}: hairpinMode: 'x' is not one of none, hairpin-veth, promiscuous-bridge",
        f"error: {path}: maxPods: -1 must not be negative",
    ]
    assert app.invoke(["config", "validate", "--config", f"{path}.none"]) == 1
    assert "cannot be read: No such file or directory" in capsys.readouterr().out
    assert app.invoke(["config", "validate"]) == 2
    assert "name a file with --config" in capsys.readouterr().err


def test_explain_lists_every_field(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.invoke(["config", "explain"]) == 0
    told = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in told] == [*FIELDS, *AGENT_FIELDS]
    assert "journalSize: default 16384; of NodeAgentConfiguration" in told
    assert 'nodeName: default ""; of NodeAgentConfiguration; flag --hostname-override' in told
    assert "maxPods: default 110; flag --max-pods" in told
    assert (
        'hairpinMode: default "promiscuous-bridge"; flag --hairpin-mode; '
        "no meaning: the network plugin decides it"
    ) in told
    assert "iptablesDropBit: default 15; no meaning: the kubelet does not use it either" in told
    assert app.invoke(["config", "explain", "authorization", "maxPods"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 4
    assert app.invoke(["config", "explain", "maxPodz"]) == 2
    assert "there is no field maxPodz" in capsys.readouterr().err


def test_explain_says_which_file_set_a_field(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = written(tmp_path, "maxPods: 5\n")
    drop_in = written(tmp_path / "d", "evictionHard: {pid.available: 5%}\n", "a.conf")
    given = [f"--config={file}", f"--config-dir={tmp_path}/d", "--json"]
    assert app.invoke(["config", "explain", *given, "maxPods", "evictionHard"]) == 0
    pods, hard = json.loads(capsys.readouterr().out)
    assert (pods["value"], pods["files"]) == (5, [file])
    assert hard["value"]["pid.available"] == "5%"
    assert drop_in in hard["files"]


def test_show_prints_a_file_that_can_be_used(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert app.invoke(["config", "show", "--defaults"]) == 0
    again = tmp_path / "again.yaml"
    again.write_text(capsys.readouterr().out)
    assert app.invoke(["config", "diff", f"--config={again}"]) == 0
    assert capsys.readouterr().out == ""
    path = written(tmp_path, "maxPods: 7\n")
    assert app.invoke(["config", "show", "--config", path]) == 0
    kubelet, own = yaml.safe_load_all(capsys.readouterr().out)
    assert (kubelet["maxPods"], own["journalSize"]) == (7, 16384)
    assert app.invoke(["config", "diff", f"--config={path}", str(again)]) == 1
    assert capsys.readouterr().out == "maxPods: 110 -> 7\n"
    assert app.invoke(["config", "show", "--defaults", f"--config={path}"]) == 2
    own = written(tmp_path / "d", "", "own.conf")
    Path(own).write_text(OWN + "journalSize: 5\n")
    assert app.invoke(["config", "diff", f"--config-dir={tmp_path}/d"]) == 1
    assert capsys.readouterr().out == "journalSize: 16384 -> 5\n"
    assert app.invoke(["config", "explain", f"--config-dir={tmp_path}/d", "journalSize"]) == 0
    assert capsys.readouterr().out.endswith(f"set to 5 by {tmp_path}/d/own.conf\n")


def test_nothing_secret_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(
        tmp_path,
        "staticPodURL: https://me:hunter2@example.com/pods\n"
        "staticPodURLHeader: {Authorization: [hunter2]}\n",
    )
    for command in (["show"], ["diff"], ["explain"], ["explain", "--json"], ["validate"]):
        app.invoke(["config", *command, f"--config={path}"])
    told = capsys.readouterr()
    assert "hunter2" not in told.out + told.err
    assert "Authorization" in told.out


def test_what_was_found_good_last_is_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "kubelet.yaml"
    file.write_text(f"apiVersion: {API_VERSION}\nkind: {KIND}\nmaxPods: 33\n")
    loader = FileLoader(file, None, lambda _loaded: (AgentConfig(), {}))
    loaded = loader.read()
    last_good = LastGood(tmp_path)
    anyio.run(last_good.save, Saved(loaded.digest, "now", loaded.saved))
    file.write_text("{")
    assert app.invoke(["config", "show", "--last-known-good", "--root-dir", str(tmp_path)]) == 0
    assert "maxPods: 33\n" in capsys.readouterr().out
    empty = tmp_path / "none"
    assert app.invoke(["config", "show", "--last-known-good", "--root-dir", str(empty)]) == 1
    assert "there is none" in capsys.readouterr().err
