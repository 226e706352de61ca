"""Feature gates: which there are, and what may be said of them.

docs/configuration.md, "Feature gates". Nothing in the agent hangs on a gate; that a gate was set to
another value than its default is told, so that nobody takes it for a switch.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

ALPHA: Final = "ALPHA"
BETA: Final = "BETA"
GA: Final = "GA"
_GROUPS: Final = ("AllAlpha", "AllBeta")
_TRUE: Final = ("1", "t", "T", "true", "TRUE", "True")
_FALSE: Final = ("0", "f", "F", "false", "FALSE", "False")

_ALPHA: Final = """
    CPUManagerPolicyAlphaOptions CSIVolumeHealth ClusterTrustBundleProjection ContainerStopSignals
    CrossNamespaceVolumeDataSource EventedPLEG HPAScaleToZero
    InPlacePodVerticalScalingExclusiveCPUs InPlacePodVerticalScalingExclusiveMemory
    KubeletInUserNamespace KubeletRegistrationGetOnExistsOnly LoggingAlphaOptions MemoryQoS
    PodAndContainerStatsFromCRI PodCertificateRequest PodLogsQuerySplitStreams QOSReserved
    ReduceDefaultCrashLoopBackOffDecay SELinuxMount TopologyManagerPolicyAlphaOptions
    WindowsCPUAndMemoryAffinity
"""
_BETA: Final = """
    CPUManagerPolicyBetaOptions ComponentFlagz ComponentStatusz ContainerRestartRules
    ContextualLogging DRADeviceTaints DRAExtendedResource DRAPartitionableDevices
    DRAPrioritizedList EnvFiles GracefulNodeShutdown GracefulNodeShutdownBasedOnPodPriority
    HostnameOverride ImageVolume ImageVolumeWithDigest InPlacePodLevelResourcesVerticalScaling
    KubeletCrashLoopBackOffMax KubeletEnsureSecretPulledImages KubeletPSI
    KubeletPodResourcesDynamicResources KubeletPodResourcesGet KubeletSeparateDiskGC
    KubeletServiceAccountTokenForCredentialProviders LocalStorageCapacityIsolationFSQuotaMonitoring
    LoggingBetaOptions MutableCSINodeAllocatableCount NodeDeclaredFeatures NodeLogQuery
    OpenAPIEnums PodLevelResources PodObservedGenerationTracking PreventStaticPodAPIReferences
    ResourceHealthStatus RestartAllContainersOnContainerExits RotateKubeletServerCertificate
    RuntimeClassInImageCriApi SELinuxChangePolicy SELinuxMountReadWriteOncePod
    SupplementalGroupsPolicy TopologyManagerPolicyBetaOptions TopologyAwareHints
    TranslateStreamCloseWebsocketRequests UserNamespacesPodSecurityStandards
    UserNamespacesSupport WatchList WatchListClient WindowsGracefulNodeShutdown
"""
_GA: Final = """
    APIServerTracing AnyVolumeDataSource AppArmor AuthorizeNodeWithSelectors CPUManagerPolicyOptions
    ComponentSLIs ConsistentListFromCache DevicePluginCDIDevices DynamicResourceAllocation
    ExecProbeTimeout ImageMaximumGCAge InPlacePodVerticalScaling JobManagedBy
    KubeletCgroupDriverFromCRI KubeletFineGrainedAuthz KubeletTracing LogarithmicScaleDown
    MemoryManager MultiCIDRServiceAllocator NFTablesProxyMode NodeSwap
    PodLifecycleSleepAction PodLifecycleSleepActionAllowZero PodReadyToStartContainersCondition
    ProcMountType RecoverVolumeExpansionFailure RecursiveReadOnlyMounts
    RelaxedDNSSearchValidation RelaxedEnvironmentVariableValidation SidecarContainers
    SizeMemoryBackedVolumes SystemdWatchdog TopologyManagerPolicyOptions VolumeAttributesClass
"""
_OFF: Final = ("UserNamespacesPodSecurityStandards",)
"""Gates of stages that are on by default, and are not."""
_LOCKED: Final = (
    "AppArmor",
    "ImageMaximumGCAge",
    "KubeletCgroupDriverFromCRI",
    "PodLifecycleSleepAction",
    "RecursiveReadOnlyMounts",
    "SidecarContainers",
    "SizeMemoryBackedVolumes",
)


_DEPENDS: Final[Mapping[str, tuple[str, ...]]] = {
    "DRADeviceTaints": ("DynamicResourceAllocation",),
    "DRAExtendedResource": ("DynamicResourceAllocation",),
    "DRAPartitionableDevices": ("DynamicResourceAllocation",),
    "DRAPrioritizedList": ("DynamicResourceAllocation",),
    "GracefulNodeShutdownBasedOnPodPriority": ("GracefulNodeShutdown",),
    "ImageVolumeWithDigest": ("ImageVolume",),
    "InPlacePodLevelResourcesVerticalScaling": ("InPlacePodVerticalScaling", "PodLevelResources"),
    "InPlacePodVerticalScalingExclusiveCPUs": ("InPlacePodVerticalScaling",),
    "InPlacePodVerticalScalingExclusiveMemory": ("InPlacePodVerticalScaling", "MemoryManager"),
    "KubeletPodResourcesDynamicResources": ("DynamicResourceAllocation",),
    "SELinuxChangePolicy": ("SELinuxMountReadWriteOncePod",),
    "SELinuxMount": ("SELinuxMountReadWriteOncePod", "SELinuxChangePolicy"),
    "UserNamespacesPodSecurityStandards": ("UserNamespacesSupport",),
}
"""Features that need others."""


class GateError(ValueError):
    """Gates cannot be set so; says which and why."""


@dataclass(frozen=True, slots=True)
class Gate:
    """A feature that can be switched on or off.

    Attributes:
        name: how it is called.
        stage: ``ALPHA``, ``BETA`` or ``GA``.
        default: whether it is on by default.
        locked: it cannot be set otherwise.
    """

    name: str
    stage: str
    default: bool
    locked: bool = False


def _gates() -> Iterator[Gate]:
    for stage, names in ((ALPHA, _ALPHA), (BETA, _BETA), (GA, _GA)):
        for name in names.split():
            default = stage != ALPHA and name not in _OFF
            yield Gate(name, stage, default, name in _LOCKED)


GATES: Final[Mapping[str, Gate]] = MappingProxyType({gate.name: gate for gate in _gates()})
"""All gates by name."""


def parse_gates(text: str) -> dict[str, bool]:
    """Gates as the flag has them: ``A=true,B=false``.

    Raises:
        GateError: it is not written so. Whether there are such gates is not judged here.
    """
    found = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, sign, value = (piece.strip() for piece in part.partition("="))
        if not sign:
            msg = f"{part!r}: malformed pair, expect string=bool"
            raise GateError(msg)
        if value not in (*_TRUE, *_FALSE):
            msg = f"{part!r}: invalid value of {name}: {value!r} is not true or false"
            raise GateError(msg)
        found[name] = value in _TRUE
    return found


def gates_text(gates: Mapping[str, bool]) -> str:
    """Gates as the flag has them."""
    return ",".join(f"{name}={str(on).lower()}" for name, on in gates.items())


def gate_fault(name: str, value: bool) -> str | None:
    """What is wrong with setting a gate so."""
    if name in _GROUPS:
        return None
    gate = GATES.get(name)
    if gate is None:
        near = difflib.get_close_matches(name, GATES, n=1)
        hint = f" (did you mean {near[0]}?)" if near else ""
        return f"unrecognized feature gate: {name}{hint}"
    if gate.locked and value != gate.default:
        wanted, fixed = str(value).lower(), str(gate.default).lower()
        return f"cannot set feature gate {name} to {wanted}, feature is locked to {fixed}"
    return None


def enabled(given: Mapping[str, bool]) -> Mapping[str, bool]:
    """Which features are on; ``AllAlpha`` and ``AllBeta`` stand for those that are not named."""
    stages = {ALPHA: given.get("AllAlpha"), BETA: given.get("AllBeta")}
    found = {}
    for name, gate in GATES.items():
        of_stage = None if gate.locked else stages.get(gate.stage)
        found[name] = given.get(name, gate.default if of_stage is None else of_stage)
    return found


def dependency_faults(given: Mapping[str, bool]) -> Iterator[str]:
    """What is wrong with gates that are good each by itself.

    A gate that is on by default is no reason to refuse that another one is switched off.
    """
    on = enabled(given)
    for name, needed in _DEPENDS.items():
        missing = [other for other in needed if not on[other]]
        asked = given.get(name) or (on[name] and not GATES[name].default)
        if asked and missing:
            listed = " ".join(missing)
            yield f"{name} is enabled, but depends on features that are disabled: [{listed}]"


def remarks(given: Mapping[str, bool]) -> Iterator[str]:
    """What to tell of gates that were set."""
    for name, value in sorted(given.items()):
        gate = GATES.get(name)
        setting = f"{name}={str(value).lower()}"
        if gate is not None and gate.stage == GA:
            yield f"feature gate {setting}: the feature is GA, and the gate will be removed"
        if gate is None or value != gate.default:
            yield f"feature gate {setting}: nothing here hangs on it"
