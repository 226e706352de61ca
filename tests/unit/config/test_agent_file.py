"""The agent's own fields: docs/configuration.md, "The agent's own fields"."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from nodeagent.cli.run import run
from nodeagent.config import (
    AgentConfig,
    ConfigError,
    ConfigFilesError,
    LoadedFile,
    load_configuration,
)
from nodeagent.config.agent_file import AGENT_FIELDS, NodeAgentConfiguration
from nodeagent.config.kubelet_fields import settings_in_file

KUBELET = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
OWN = "apiVersion: nodeagent.dev/v1alpha1\nkind: NodeAgentConfiguration\n"

VALID: dict[str, Any] = {
    "nodeIP": "10.0.0.1",
    "nodeLabels": {"a": "b"},
    "cloudProvider": "external",
    "nodeName": "n1",
    "readOnlyAddress": "127.0.0.1",
    "bootstrapKubeconfig": None,
    "imageCredentialProviderConfig": None,
    "imageCredentialProviderBinDir": None,
    "embeddedScenario": None,
}
INVALID: dict[str, Any] = {
    "nodeIP": "here",
    "nodeLabels": {"a b": "c"},
    "cloudProvider": "internal",
    "nodeName": "a_b",
    "readOnlyAddress": "here",
    "stopPodsOnExit": "true",
    "inspectionConcurrency": 0,
    "journalSize": 0,
    "maximumDeadContainers": "all",
    "maximumDeadContainersPerContainer": -1,
}
"""Of durations -1s, of paths a list."""


def written(directory: Path, text: str, name: str = "agent.yaml") -> Path:
    path = directory / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return path


def load(directory: Path, text: str) -> LoadedFile:
    return load_configuration(written(directory, text))


def refusal(directory: Path, text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load(directory, text)
    return caught.value.allowed


def test_every_setting_is_in_one_of_the_two_kinds() -> None:
    own = {field.setting for field in AGENT_FIELDS.values()}
    everything = {field.name for field in dataclasses.fields(AgentConfig)}
    assert own == everything - set(settings_in_file())
    model = {field.encode_name for field in msgspec.structs.fields(NodeAgentConfiguration)}
    assert model == {*AGENT_FIELDS, "apiVersion", "kind"}


def test_its_flags_are_flags() -> None:
    flags = {opt for param in run.params for opt in param.opts}
    assert {f"--{field.flag}" for field in AGENT_FIELDS.values() if field.flag} <= flags
    by_setting = {param.name for param in run.params}
    without = [f.name for f in AGENT_FIELDS.values() if not f.flag and f.setting in by_setting]
    assert without == []


def valid(name: str) -> Any:
    field = AGENT_FIELDS[name]
    if name in VALID:
        return VALID[name]
    if isinstance(field.default, bool):
        return not field.default
    if isinstance(field.default, int):
        return 7
    return "7s" if _is_duration(field.default) else "some/where"


def _is_duration(default: Any) -> bool:
    return isinstance(default, str) and default[-1:] == "s" and default[:1].isdigit()


@pytest.mark.parametrize("name", [n for n in AGENT_FIELDS if valid(n) is not None])
def test_each_field_has_its_default_and_takes_a_value(tmp_path: Path, name: str) -> None:
    value = valid(name)
    loaded = load(tmp_path, OWN + yaml.safe_dump({name: value}))
    assert loaded.own == {n: value if n == name else f.default for n, f in AGENT_FIELDS.items()}
    given = {f"{name}.{key}" for key in value} if isinstance(value, dict) else {name}
    assert loaded.own_origins.keys() == {*given, "apiVersion", "kind"}
    setting = AGENT_FIELDS[name].setting
    assert loaded.settings.keys() == {setting}
    config = AgentConfig(**loaded.settings)
    if value == "7s":
        assert getattr(config, setting) == 7.0
    elif value == "some/where":
        assert getattr(config, setting) == tmp_path / "some/where"
    else:
        assert getattr(config, setting) == value
    default = AGENT_FIELDS[name].default
    assert load(tmp_path, OWN + yaml.safe_dump({name: default})).own == {
        n: f.default for n, f in AGENT_FIELDS.items()
    }


@pytest.mark.parametrize("name", AGENT_FIELDS)
def test_each_field_refuses_what_it_cannot_use(tmp_path: Path, name: str) -> None:
    duration = _is_duration(AGENT_FIELDS[name].default)
    value = INVALID.get(name, "-1s" if duration else ["x"])
    told = refusal(tmp_path, OWN + yaml.safe_dump({name: value}))
    assert told.startswith(name), told
    wrong = refusal(tmp_path, OWN + yaml.safe_dump({name: [[1]]}))
    assert wrong.startswith(name), wrong


def test_two_fields_that_go_together(tmp_path: Path) -> None:
    told = refusal(tmp_path, OWN + "imageCredentialProviderConfig: c.yaml\n")
    assert told == (
        "imageCredentialProviderBinDir: is needed with image-credential-provider-config"
    )
    both = "imageCredentialProviderConfig: c.yaml\nimageCredentialProviderBinDir: /bin\n"
    assert load(tmp_path, OWN + both).settings == {
        "image_credential_provider_config": tmp_path / "c.yaml",
        "image_credential_provider_bin_dir": Path("/bin"),
    }


def test_a_bootstrap_kubeconfig_goes_with_a_kubeconfig_that_a_flag_may_give(tmp_path: Path) -> None:
    settings = load(tmp_path, OWN + "bootstrapKubeconfig: b.conf\n").settings
    config = AgentConfig(**settings, kubeconfig="k.conf")
    assert config.bootstrap_kubeconfig == tmp_path / "b.conf"


def test_the_embedded_runtime_by_file(tmp_path: Path) -> None:
    text = "embeddedScenario: s.yaml\nkubelet: {containerRuntimeEndpoint: embedded:simulated}\n"
    config = AgentConfig(**load(tmp_path, OWN + text).settings)
    assert config.embedded == "simulated"
    assert config.embedded_scenario == tmp_path / "s.yaml"


@pytest.mark.parametrize(
    "text",
    [
        OWN + "journalSize: 9\nkubelet:\n  maxPods: 5\n",
        OWN + "journalSize: 9\nkubelet:\n  " + KUBELET.replace("\n", "\n  ") + "maxPods: 5\n",
        KUBELET + "maxPods: 5\n---\n" + OWN + "journalSize: 9\n",
        OWN + "journalSize: 9\n---\n" + KUBELET + "maxPods: 5\n---\n",
    ],
    ids=["inside", "inside with its kind", "beside", "beside, first"],
)
def test_it_may_hold_the_kubelets_configuration_or_stand_beside_it(
    tmp_path: Path, text: str
) -> None:
    loaded = load(tmp_path, text)
    assert loaded.settings == {"max_pods": 5, "journal_size": 9}
    assert loaded.effective["maxPods"] == 5
    assert loaded.origins["maxPods"] == loaded.own_origins["journalSize"]


def test_drop_ins_of_both_kinds(tmp_path: Path) -> None:
    file = written(tmp_path, KUBELET + "maxPods: 5\n")
    written(tmp_path / "d", OWN + "journalSize: 9\nnodeLabels: {a: '1', b: '2'}\n", "1.conf")
    written(tmp_path / "d", OWN + "nodeLabels: {b: null, c: '3'}\nkubelet: {maxPods: 6}", "2.conf")
    loaded = load_configuration(file, tmp_path / "d")
    assert loaded.settings == {
        "max_pods": 6,
        "journal_size": 9,
        "node_labels": {"a": "1", "c": "3"},
    }
    assert loaded.own_origins["nodeLabels.c"] == tmp_path / "d" / "2.conf"
    assert loaded.origins["maxPods"] == tmp_path / "d" / "2.conf"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            OWN + "kubelet: {}\n---\n" + KUBELET,
            "must hold one KubeletConfiguration, has 2 (line 3 and line 5)",
        ),
        (OWN + "---\n" + OWN, "must hold one NodeAgentConfiguration, has 2 (line 1 and line 4)"),
        (OWN + "kubelet: [1]\n", "kubelet: must be the fields of a KubeletConfiguration (line 3)"),
        (OWN + "kubelet: {kind: Pod}\n", "kubelet: must be kind KubeletConfiguration of apiV"),
        (OWN.replace("v1alpha1", "v1"), "must be kind KubeletConfiguration of apiVersion"),
        (OWN + "journalSize: 1\njournalSize: 2\n", "journalSize: duplicate key"),
        (OWN + "journalSize: many\n", "journalSize: expected an integer, got the string"),
        (OWN + "relistPeriod: 5x\n", "relistPeriod: '5x' is not a duration (write it like 20s, "),
        (OWN + "journalSize: 0\n", "journalSize: 0 must be at least 1 (line 3)"),
    ],
)
def test_what_cannot_be_used_says_where(tmp_path: Path, text: str, told: str) -> None:
    assert told in refusal(tmp_path, text)


def test_faults_of_both_kinds_are_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigFilesError) as caught:
        load(tmp_path, OWN + "journalSize: 0\nnodeIP: x\nkubelet: {maxPods: -1, port: 70000}\n")
    assert [problem.partition(":")[0] for problem in caught.value.problems] == [
        "nodeIP",
        "journalSize",
        "maxPods",
        "port",
    ]


def test_an_unknown_field_is_told(tmp_path: Path) -> None:
    (warning,) = load(tmp_path, OWN + "journalsize: 5\n").warnings
    assert warning == "journalsize: unknown field, did you mean journalSize? (line 3)"
