"""Who a container runs as, and what it may do (docs/behaviour/runtime.md, "Security")."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.runtime.fakes import make_container, make_pod, make_settings

from nodeagent.api import (
    AppArmorProfile,
    Capabilities,
    PodSecurityContext,
    SeccompProfile,
    SecurityContext,
    SELinuxOptions,
)
from nodeagent.proto.runtime import v1
from nodeagent.runtime.errors import ContainerStartError, Waiting
from nodeagent.runtime.security import container_security, namespace_options
from nodeagent.runtime.settings import HostFacts, RuntimeSettings

Kind = v1.SecurityProfileProfileType
ROOT_IMAGE = v1.Image(id="x", uid=v1.Int64Value(value=0))
USER_IMAGE = v1.Image(id="x", uid=v1.Int64Value(value=1000))
NAMED_IMAGE = v1.Image(id="x", username="nobody")
BARE_IMAGE = v1.Image(id="x")


def build(
    own: SecurityContext | None = None,
    shared: PodSecurityContext | None = None,
    image: v1.Image | None = None,
    *,
    settings: RuntimeSettings | None = None,
    annotations: dict[str, str] | None = None,
    host: HostFacts | None = None,
    **spec: Any,
) -> v1.LinuxContainerSecurityContext:
    container = make_container(security_context=own)
    pod = make_pod(container, security_context=shared, **spec)
    meta = msgspec.structs.replace(pod.metadata, annotations=annotations or {})
    pod = msgspec.structs.replace(pod, metadata=meta)
    settings = settings or make_settings(Path("/x"))
    return container_security(pod, container, image, settings, host or HostFacts())


def user(number: int | None) -> v1.Int64Value | None:
    return None if number is None else v1.Int64Value(value=number)


@pytest.mark.parametrize(
    ("own", "shared", "image", "uid", "name"),
    [
        (None, None, USER_IMAGE, 1000, ""),
        (None, None, NAMED_IMAGE, None, "nobody"),
        (None, None, BARE_IMAGE, None, ""),
        (None, 5, NAMED_IMAGE, 5, ""),
        (0, 5, USER_IMAGE, 0, ""),
        (7, None, None, 7, ""),
    ],
)
def test_the_container_says_the_user_else_the_pod_else_the_image(
    own: int | None, shared: int | None, image: v1.Image | None, uid: int | None, name: str
) -> None:
    found = build(SecurityContext(run_as_user=own), PodSecurityContext(run_as_user=shared), image)
    assert (found.run_as_user, found.run_as_username) == (user(uid), name)


@pytest.mark.parametrize("level", ["own", "shared"])
def test_a_group_never_stands_without_a_user(level: str) -> None:
    """Runtimes refuse it, and an image that names no user means root."""
    own = SecurityContext(run_as_group=7) if level == "own" else None
    shared = PodSecurityContext(run_as_group=7) if level == "shared" else None
    for image, uid, name in (
        (BARE_IMAGE, 0, ""),
        (USER_IMAGE, 1000, ""),
        (NAMED_IMAGE, None, "nobody"),
    ):
        found = build(own, shared, image)
        assert (found.run_as_user, found.run_as_username) == (user(uid), name)
        assert found.run_as_group == v1.Int64Value(value=7)


WHERE = '(pod: "web_default(uid-1)", container: web)'
BREAKS = f"container's runAsUser breaks non-root policy {WHERE}"
AS_ROOT = f"container has runAsNonRoot and image will run as root {WHERE}"
NAMED = (
    "container has runAsNonRoot and image has non-numeric user (nobody), "
    f"cannot verify user is non-root {WHERE}"
)


@pytest.mark.parametrize(
    ("uid", "image", "trouble"),
    [
        (0, USER_IMAGE, BREAKS),
        (1, ROOT_IMAGE, ""),
        (None, USER_IMAGE, ""),
        (None, ROOT_IMAGE, AS_ROOT),
        (None, BARE_IMAGE, AS_ROOT),
        (None, NAMED_IMAGE, NAMED),
    ],
)
@pytest.mark.parametrize("level", ["own", "shared"])
def test_a_container_that_must_not_be_root_is_not(
    level: str, uid: int | None, image: v1.Image, trouble: str
) -> None:
    own: SecurityContext | None = SecurityContext(run_as_user=uid, run_as_non_root=True)
    shared: PodSecurityContext | None = None
    if level == "shared":
        own, shared = None, PodSecurityContext(run_as_user=uid, run_as_non_root=True)
    if not trouble:
        assert build(own, shared, image)
        return
    with pytest.raises(ContainerStartError) as caught:
        build(own, shared, image)
    assert caught.value.reason is Waiting.CONFIG
    assert caught.value.message == trouble


def test_the_container_may_allow_root_where_the_pod_does_not() -> None:
    shared = PodSecurityContext(run_as_non_root=True)
    assert build(SecurityContext(run_as_non_root=False), shared, ROOT_IMAGE)


def test_privileges_and_the_root_file_system_are_as_the_container_says() -> None:
    found = build(
        SecurityContext(
            privileged=True,
            capabilities=Capabilities(add=("NET_ADMIN",), drop=("ALL",)),
            read_only_root_filesystem=True,
        )
    )
    assert found.privileged
    assert found.capabilities == v1.Capability(
        add_capabilities=["NET_ADMIN"], drop_capabilities=["ALL"]
    )
    assert found.readonly_rootfs


@pytest.mark.parametrize(("allowed", "forbidden"), [(None, False), (True, False), (False, True)])
def test_only_an_explicit_no_forbids_new_privileges(allowed: bool | None, forbidden: bool) -> None:
    found = build(SecurityContext(allow_privilege_escalation=allowed))
    assert found.no_new_privs is forbidden


def test_groups_come_from_the_pod_the_group_of_the_volumes_first() -> None:
    found = build(
        SecurityContext(run_as_group=7),
        PodSecurityContext(
            run_as_group=6,
            fs_group=3,
            supplemental_groups=(5, 4),
            supplemental_groups_policy="Strict",
        ),
    )
    assert found.run_as_group == user(7)
    assert found.supplemental_groups == [3, 5, 4]
    assert found.supplemental_groups_policy is v1.SupplementalGroupsPolicy.Strict
    inherited = build(None, PodSecurityContext(run_as_group=6))
    assert inherited.run_as_group == user(6)
    assert inherited.supplemental_groups_policy is v1.SupplementalGroupsPolicy.Merge


def test_selinux_options_of_the_container_win_as_a_whole() -> None:
    shared = PodSecurityContext(se_linux_options=SELinuxOptions(user="u", level="s0"))
    own = SecurityContext(se_linux_options=SELinuxOptions(type="t"))
    assert build(own, shared).selinux_options == v1.SeLinuxOption(type="t")
    assert build(None, shared).selinux_options == v1.SeLinuxOption(user="u", level="s0")
    assert build().selinux_options is None


def local(name: str) -> SeccompProfile:
    return SeccompProfile(type="Localhost", localhost_profile=name)


@pytest.mark.parametrize(
    ("own", "shared", "default", "expected", "name"),
    [
        (None, None, False, (Kind.Unconfined, ""), "unconfined"),
        (None, None, True, (Kind.RuntimeDefault, ""), "runtime/default"),
        (None, SeccompProfile(type="RuntimeDefault"), False, (Kind.RuntimeDefault, ""), None),
        (
            SeccompProfile(type="Unconfined"),
            SeccompProfile(type="RuntimeDefault"),
            True,
            (Kind.Unconfined, ""),
            None,
        ),
        (
            local("a/b.json"),
            None,
            False,
            (Kind.Localhost, "/x/agent/seccomp/a/b.json"),
            "localhost//x/agent/seccomp/a/b.json",
        ),
    ],
)
def test_the_seccomp_profile_of_the_container_wins_then_the_pods_then_the_nodes(
    own: SeccompProfile | None,
    shared: SeccompProfile | None,
    default: bool,
    expected: tuple[Kind, str],
    name: str | None,
) -> None:
    settings = RuntimeSettings(root_dir=Path("/x/agent"), seccomp_default=default)
    found = build(
        SecurityContext(seccomp_profile=own),
        PodSecurityContext(seccomp_profile=shared),
        settings=settings,
    )
    kind, ref = expected
    assert found.seccomp == v1.SecurityProfile(profile_type=kind, localhost_ref=ref)
    assert name is None or found.seccomp_profile_path == name


KEY = "container.apparmor.security.beta.kubernetes.io/web"


@pytest.mark.parametrize(
    ("own", "annotation", "shared", "expected"),
    [
        (None, "", None, None),
        ("Unconfined", "runtime/default", "RuntimeDefault", (Kind.Unconfined, "", "unconfined")),
        (None, "runtime/default", "Unconfined", (Kind.RuntimeDefault, "", "runtime/default")),
        (None, "localhost/mine", "Unconfined", (Kind.Localhost, "mine", "localhost/mine")),
        (None, "nonsense", "Unconfined", (Kind.Unconfined, "", "unconfined")),
        (None, "", "RuntimeDefault", (Kind.RuntimeDefault, "", "runtime/default")),
    ],
)
def test_the_apparmor_profile_of_the_container_wins_then_the_annotation_then_the_pods(
    own: str | None, annotation: str, shared: str | None, expected: tuple[Kind, str, str] | None
) -> None:
    found = build(
        SecurityContext(app_armor_profile=AppArmorProfile(type=own) if own else None),
        PodSecurityContext(app_armor_profile=AppArmorProfile(type=shared) if shared else None),
        annotations={KEY: annotation},
    )
    if expected is None:
        assert (found.apparmor, found.apparmor_profile) == (None, "")
        return
    kind, ref, name = expected
    assert found.apparmor == v1.SecurityProfile(profile_type=kind, localhost_ref=ref)
    assert found.apparmor_profile == name


def test_an_apparmor_profile_of_this_node_has_its_name() -> None:
    mine = AppArmorProfile(type="Localhost", localhost_profile="mine")
    found = build(SecurityContext(app_armor_profile=mine))
    assert found.apparmor == v1.SecurityProfile(profile_type=Kind.Localhost, localhost_ref="mine")


def test_a_host_without_apparmor_cannot_enforce_a_profile() -> None:
    without = HostFacts(app_armor=False)
    for kind in ("RuntimeDefault", "Localhost"):
        context = SecurityContext(app_armor_profile=AppArmorProfile(type=kind))
        with pytest.raises(ContainerStartError, match="AppArmor is not enabled") as caught:
            build(context, host=without)
        assert caught.value.reason is Waiting.CONFIG
    free = SecurityContext(app_armor_profile=AppArmorProfile(type="Unconfined"))
    assert build(free, host=without).apparmor_profile == "unconfined"
    assert build(host=without).apparmor is None


def test_an_unmasked_proc_masks_nothing() -> None:
    found = build(SecurityContext(proc_mount="Unmasked"))
    assert (found.masked_paths, found.readonly_paths) == ([], [])


def test_a_debugging_container_enters_the_processes_of_its_target_if_they_are_apart() -> None:
    """docs/behaviour/runtime.md, "Security"."""
    mode = v1.NamespaceMode
    for pod, pid, target in (
        (make_pod(), mode.TARGET, "c1"),
        (make_pod(share_process_namespace=True), mode.POD, ""),
        (make_pod(host_pid=True), mode.NODE, ""),
    ):
        options = namespace_options(pod, target="c1")
        assert (options.pid, options.target_id) == (pid, target)


ids = st.none() | st.integers(0, 3)


@given(ids, ids, st.none() | st.booleans(), st.none() | st.booleans(), ids)
def test_whoever_must_not_be_root_never_is(
    own: int | None,
    shared: int | None,
    own_rule: bool | None,
    shared_rule: bool | None,
    image: int | None,
) -> None:
    rule = own_rule if own_rule is not None else shared_rule
    picture = v1.Image(id="x", uid=user(image))
    try:
        found = build(
            SecurityContext(run_as_user=own, run_as_non_root=own_rule),
            PodSecurityContext(run_as_user=shared, run_as_non_root=shared_rule),
            picture,
        )
    except ContainerStartError:
        assert rule
    else:
        if rule:
            assert found.run_as_user is not None
            assert found.run_as_user.value > 0
