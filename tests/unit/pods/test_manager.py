"""docs/behaviour/workers.md, "Pod manager"."""

from __future__ import annotations

from tests.unit.pods.worker_fakes import make_pod, mirror_pod, static_pod

from nodeagent.model import FullName, PodUID
from nodeagent.pods.manager import PodManager

WEB = FullName("web_default")


def test_p1_pods_and_mirrors_are_found_by_uid_and_by_full_name() -> None:
    manager = PodManager()
    static, mirror = static_pod("s"), mirror_pod("m")
    manager.set_pods([static, mirror])
    assert manager.get_by_uid(PodUID("s")) is static
    assert manager.get_by_full_name(WEB) is static
    assert manager.get_mirror_of(static) is mirror
    assert manager.get_pods() == [static]
    assert manager.get_mirrors() == [mirror]


def test_p1_a_lookup_by_uid_never_gives_a_mirror() -> None:
    manager = PodManager()
    manager.add(mirror_pod("m"))
    assert manager.get_by_uid(PodUID("m")) is None
    assert manager.get_by_full_name(WEB) is None


def test_p2_a_mirror_belongs_to_its_pod_whichever_came_first() -> None:
    static, mirror = static_pod("s"), mirror_pod("m")
    for order in ((static, mirror), (mirror, static)):
        manager = PodManager()
        manager.set_pods(order)
        of_mirror, of_pod = manager.get_pod_and_mirror(mirror), manager.get_pod_and_mirror(static)
        assert (of_mirror.pod, of_mirror.mirror, of_mirror.was_mirror) == (static, mirror, True)
        assert (of_pod.pod, of_pod.mirror, of_pod.was_mirror) == (static, mirror, False)


def test_p3_a_mirrors_uid_translates_to_its_static_pods() -> None:
    manager = PodManager()
    manager.set_pods([static_pod("s"), mirror_pod("m"), mirror_pod("lonely", "other")])
    assert manager.translate(PodUID("m")) == "s"
    assert manager.translate(PodUID("s")) == "s"
    assert manager.translate(PodUID("lonely")) == "lonely"
    assert manager.translate(PodUID("stranger")) == "stranger"


def test_p4_a_static_pod_without_mirror_maps_to_nothing() -> None:
    manager = PodManager()
    manager.set_pods([static_pod("s"), make_pod("a", "api-pod")])
    assert manager.static_to_mirror() == {"s": ""}
    manager.add(mirror_pod("m"))
    assert manager.static_to_mirror() == {"s": "m"}


def test_p5_a_mirror_whose_full_name_no_pod_has_is_an_orphan() -> None:
    manager = PodManager()
    lonely = mirror_pod("lonely", "other")
    manager.set_pods([static_pod("s"), mirror_pod("m"), lonely])
    assert manager.orphaned_mirrors() == [lonely]
    manager.remove(static_pod("s"))
    assert len(manager.orphaned_mirrors()) == 2


def test_p6_the_late_removal_of_an_old_uid_does_not_hide_a_new_one_of_the_same_name() -> None:
    manager = PodManager()
    old, new = static_pod("old"), static_pod("new")
    manager.set_pods([old, new])
    manager.remove(old)
    assert manager.get_by_full_name(WEB) is new
    assert manager.get_pods() == [new]


def test_p6_a_pod_that_changes_its_name_is_not_found_under_the_old_one() -> None:
    manager = PodManager()
    manager.add(static_pod("s", "web"))
    manager.update(renamed := static_pod("s", "shop"))
    assert manager.get_by_full_name(WEB) is None
    assert manager.get_by_uid(PodUID("s")) is renamed


def test_removing_what_is_not_known_is_no_error() -> None:
    manager = PodManager()
    manager.remove(static_pod("s"))
    manager.remove(mirror_pod("m"))
    assert manager.get_pods() == []


def test_setting_pods_forgets_the_ones_before() -> None:
    manager = PodManager()
    manager.set_pods([static_pod("s"), mirror_pod("m")])
    manager.set_pods([static_pod("t", "shop")])
    assert [pod.metadata.uid for pod in manager.get_pods()] == ["t"]
    assert manager.get_mirrors() == []
