"""Configuration files as users have them load; bad ones say exactly what is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodeagent.config import AgentConfig, ConfigError, load_configuration

HEAD = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
ROOT = Path(__file__).parent / "files"


def written(directory: Path, text: str, name: str = "config.yaml") -> Path:
    path = directory / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(HEAD + text)
    return path


@pytest.mark.parametrize("name", ["kubeadm", "managed", "managed-second"])
def test_a_file_loads_without_error(name: str) -> None:
    loaded = load_configuration(ROOT / f"{name}.yaml")
    own = {"verbosity", "logging_format", "vmodule"}
    AgentConfig(**{key: value for key, value in loaded.settings.items() if key not in own})
    for warning in loaded.warnings:
        told = ("not acted on by this version", "has no meaning here", "feature gate")
        assert any(text in warning for text in told), warning


def test_drop_ins_of_a_distribution_load_without_error() -> None:
    loaded = load_configuration(None, ROOT / "distribution.d")
    assert loaded.settings["cluster_dns"] == ("10.43.0.10",)
    assert loaded.settings["max_pods"] == 200
    assert loaded.effective["evictionHard"]["imagefs.available"] == "5%"
    assert loaded.effective["evictionHard"]["memory.available"] == "100Mi"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("maxPods: 1\nmaxPods: 2\n", "maxPods: duplicate key, first on line 3 (line 4)"),
        ("maxPods: many\n", 'maxPods: expected an integer, got the string "many" (line 3)'),
        ("maxPods: '5'\n", 'maxPods: expected an integer, got the string "5"; remove the quotes'),
        ("clusterDNS: 10.0.0.1\n", "clusterDNS: expected a list, got"),
        ("imageGCHighThresholdPercent: 101\n", "imageGCHighThresholdPercent: 101 must be between"),
        ("evictionHard: {nodefs.available: 110%}\n", "evictionHard: "),
        ("kubeReserved: {cpu: '-1'}\n", "kubeReserved: "),
        ("containerLogMaxSize: 10Zi\n", "containerLogMaxSize: '10Zi' is not a quantity"),
        ("syncFrequency: -5s\n", "syncFrequency: -5s must be longer than 0 seconds"),
        ("evictionPressureTransitionPeriod: -5s\n", "evictionPressureTransitionPeriod: -5s must"),
        ("healthzPort: 10250\n", "port: 10250 is the port of healthzPort already"),
        ("readOnlyPort: 10248\n", "readOnlyPort: 10248 is the port of healthzPort already"),
        ("port: 5\nreadOnlyPort: 5\n", "readOnlyPort: 5 is the port of port already"),
        ("runOnce: true\n", "runOnce: true: there is no such mode any more; remove the field"),
        ("maxPods: 5\n  port: 1\n", "(line 4, column"),
    ],
)
def test_what_is_wrong_is_said_exactly(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_configuration(written(tmp_path, text))
    assert told in caught.value.allowed


def test_unknown_and_removed_fields_are_told_and_harm_nothing(tmp_path: Path) -> None:
    text = "maxPodz: 5\nenableCAdvisorJSONEndpoints: false\nmaxPods: 7\n"
    loaded = load_configuration(written(tmp_path, text))
    assert loaded.settings == {"max_pods": 7}
    assert loaded.warnings == (
        "maxPodz: unknown field, did you mean maxPods? (line 3)",
        "enableCAdvisorJSONEndpoints: unknown field (line 4)",
    )


def test_two_drop_ins_that_contradict_each_other_are_named(tmp_path: Path) -> None:
    written(tmp_path / "d", "shutdownGracePeriod: 30s\n", "10-a.conf")
    second = written(
        tmp_path / "d",
        "shutdownGracePeriodByPodPriority: [{priority: 1, shutdownGracePeriodSeconds: 5}]\n",
        "20-b.conf",
    )
    with pytest.raises(ConfigError) as caught:
        load_configuration(None, tmp_path / "d")
    assert caught.value.allowed == (
        f"{second}: shutdownGracePeriodByPodPriority: cannot go with shutdownGracePeriod and "
        "shutdownGracePeriodCriticalPods"
    )
    # Two that say another value for the same field do not: the later name counts.
    written(tmp_path / "e", "maxPods: 1\n", "1.conf")
    written(tmp_path / "e", "maxPods: 2\n", "2.conf")
    assert load_configuration(None, tmp_path / "e").settings == {"max_pods": 2}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "is empty"),
        (
            HEAD[:-4],
            "must be kind KubeletConfiguration of apiVersion kubelet.config.k8s.io/v1beta1",
        ),
        (HEAD + "evictionHard: {memory.avail", "(line "),
        (HEAD + 'staticPodPath: "/etc/kuber', "(line "),
        (HEAD + "maxPods", "(line "),
    ],
)
def test_a_drop_in_that_is_half_written_is_named(tmp_path: Path, text: str, told: str) -> None:
    file = written(tmp_path, "maxPods: 5\n")
    drop_in = tmp_path / "d" / "10.conf"
    drop_in.parent.mkdir()
    drop_in.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_configuration(file, tmp_path / "d")
    assert caught.value.value == drop_in
    assert told in caught.value.allowed


def test_a_directory_that_is_gone_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load_configuration(None, tmp_path / "gone")
    assert str(caught.value) == (
        f"config_dir={tmp_path}/gone: cannot be read: No such file or directory"
    )
