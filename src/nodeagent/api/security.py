"""Security settings of pods and containers."""

from nodeagent.api.base import ApiObject


class Capabilities(ApiObject):
    """Linux capabilities added to and dropped from the runtime's default set."""

    add: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()


class SELinuxOptions(ApiObject):
    """The SELinux context of a process."""

    user: str = ""
    role: str = ""
    type: str = ""
    level: str = ""


class SeccompProfile(ApiObject):
    """The seccomp profile: Unconfined, RuntimeDefault, or Localhost with a file."""

    type: str = ""
    localhost_profile: str | None = None


class AppArmorProfile(ApiObject):
    """The AppArmor profile: Unconfined, RuntimeDefault, or Localhost with a name."""

    type: str = ""
    localhost_profile: str | None = None


class WindowsSecurityContextOptions(ApiObject):
    """Security settings that only Windows knows."""

    gmsa_credential_spec_name: str | None = None
    gmsa_credential_spec: str | None = None
    run_as_user_name: str | None = None
    host_process: bool | None = None


class SecurityContext(ApiObject):
    """Security settings of one container; they win over those of the pod."""

    capabilities: Capabilities | None = None
    privileged: bool | None = None
    se_linux_options: SELinuxOptions | None = None
    windows_options: WindowsSecurityContextOptions | None = None
    run_as_user: int | None = None
    run_as_group: int | None = None
    run_as_non_root: bool | None = None
    read_only_root_filesystem: bool | None = None
    allow_privilege_escalation: bool | None = None
    proc_mount: str | None = None
    seccomp_profile: SeccompProfile | None = None
    app_armor_profile: AppArmorProfile | None = None


class Sysctl(ApiObject):
    """A kernel parameter of the pod's namespaces."""

    name: str = ""
    value: str = ""


class PodSecurityContext(ApiObject):
    """Security settings of the whole pod, and defaults for its containers."""

    se_linux_options: SELinuxOptions | None = None
    windows_options: WindowsSecurityContextOptions | None = None
    run_as_user: int | None = None
    run_as_group: int | None = None
    run_as_non_root: bool | None = None
    supplemental_groups: tuple[int, ...] = ()
    supplemental_groups_policy: str | None = None
    fs_group: int | None = None
    sysctls: tuple[Sysctl, ...] = ()
    fs_group_change_policy: str | None = None
    seccomp_profile: SeccompProfile | None = None
    app_armor_profile: AppArmorProfile | None = None
    se_linux_change_policy: str | None = None
