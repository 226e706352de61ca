"""docs/configuration.md, "Feature gates"."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodeagent.cli import app
from nodeagent.config import ConfigError, load_configuration
from nodeagent.config.feature_gates import (
    GATES,
    GateError,
    dependency_faults,
    enabled,
    gate_fault,
    gates_text,
    parse_gates,
    remarks,
)

HEAD = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
OFF = (
    "ClusterTrustBundleProjection",
    "PodCertificateRequest",
    "ContainerStopSignals",
    "CSIVolumeHealth",
    "EventedPLEG",
    "MemoryQoS",
    "PodAndContainerStatsFromCRI",
    "PodLogsQuerySplitStreams",
    "ReduceDefaultCrashLoopBackOffDecay",
    "SELinuxMount",
    "QOSReserved",
    "LoggingAlphaOptions",
    "KubeletRegistrationGetOnExistsOnly",
)


def test_which_are_off_by_default() -> None:
    assert [name for name in OFF if GATES[name].default] == []
    assert GATES["RotateKubeletServerCertificate"].default
    assert GATES["KubeletEnsureSecretPulledImages"].default


def test_how_they_are_written() -> None:
    assert parse_gates("A=true, B=F,C=1,") == {"A": True, "B": False, "C": True}
    with pytest.raises(GateError, match="'A': malformed pair, expect string=bool"):
        parse_gates("A")
    with pytest.raises(GateError, match="invalid value of A: 'on' is not true or false"):
        parse_gates("A=on")


def test_unknown_and_locked_ones_are_refused() -> None:
    assert gate_fault("EventedPLEG", True) is None
    assert gate_fault("AllAlpha", True) is None
    assert gate_fault("EventedPleg", True) == (
        "unrecognized feature gate: EventedPleg (did you mean EventedPLEG?)"
    )
    assert gate_fault("Zzz", True) == "unrecognized feature gate: Zzz"
    assert gate_fault("SidecarContainers", True) is None
    assert gate_fault("SidecarContainers", False) == (
        "cannot set feature gate SidecarContainers to false, feature is locked to true"
    )


def test_what_is_told_of_them() -> None:
    assert list(remarks({"EventedPLEG": False, "NodeSwap": True, "AllBeta": True})) == [
        "feature gate AllBeta=true: nothing here hangs on it",
        "feature gate NodeSwap=true: the feature is GA, and the gate will be removed",
    ]
    assert list(remarks({"EventedPLEG": True})) == [
        "feature gate EventedPLEG=true: nothing here hangs on it"
    ]


def test_they_stand_in_the_file_and_among_the_flags(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "kubelet.yaml"
    path.write_text(HEAD + "featureGates: {EventedPLEG: true}\n")
    assert load_configuration(path).warnings == (
        "feature gate EventedPLEG=true: nothing here hangs on it",
    )
    assert app.invoke(["run", "--feature-gates=EventedPLEG=true,Zzz=false"]) == 2
    assert "unrecognized feature gate: Zzz" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({}, []),
        ({"GracefulNodeShutdown": False}, []),
        (
            {"GracefulNodeShutdown": False, "GracefulNodeShutdownBasedOnPodPriority": True},
            [
                (
                    "GracefulNodeShutdownBasedOnPodPriority is enabled, but depends on features "
                    "that are disabled: [GracefulNodeShutdown]"
                )
            ],
        ),
        (
            {"GracefulNodeShutdown": False, "GracefulNodeShutdownBasedOnPodPriority": False},
            [],
        ),
        ({"SELinuxMount": True}, []),
        (
            {"AllAlpha": True, "SELinuxChangePolicy": False},
            [
                (
                    "SELinuxMount is enabled, but depends on features that are disabled: "
                    "[SELinuxChangePolicy]"
                )
            ],
        ),
        ({"AllBeta": False}, []),
    ],
)
def test_features_that_need_others(given: dict[str, bool], told: list[str]) -> None:
    assert list(dependency_faults(given)) == told


def test_stages_stand_for_gates_that_are_not_named() -> None:
    on = enabled({"AllAlpha": True, "AllBeta": False, "EnvFiles": True, "EventedPLEG": False})
    for name, gate in GATES.items():
        wanted = {"ALPHA": True, "BETA": False}.get(gate.stage, gate.default)
        wanted = gate.default if gate.locked else wanted
        assert on[name] == {"EnvFiles": True, "EventedPLEG": False}.get(name, wanted), name


def test_gates_are_written_as_they_are_read() -> None:
    gates = {"EnvFiles": False, "SELinuxMount": True}
    assert parse_gates(gates_text(gates)) == gates


def test_gates_of_file_and_flag_are_judged_together(tmp_path: Path) -> None:
    file = tmp_path / "kubelet.yaml"
    file.write_text(
        "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
        "featureGates: {SELinuxMount: true}\n"
    )
    with pytest.raises(ConfigError, match="SELinuxMount is enabled, but depends on features"):
        load_configuration(file, None, [("feature-gates", "SELinuxChangePolicy=false")])
