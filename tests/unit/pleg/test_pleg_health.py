"""docs/behaviour/pleg.md, "Health": one test per row."""

from __future__ import annotations

from nodeagent.model import PodUID
from nodeagent.pleg import DegradedPod, Trouble
from nodeagent.pleg.health import judge


def degraded(uid: str, since: float, error: str = "") -> DegradedPod:
    return DegradedPod(PodUID(uid), f"default/{uid}", Trouble("ContainerStatus", since, error))


def test_it_is_not_healthy_before_the_first_relist() -> None:
    """docs/behaviour/pleg.md, "Health", never."""
    health = judge(1.0, None, None)
    assert not health.ok
    assert health.cause == "pleg has yet to be successful"
    assert health.since is None


def test_the_first_relist_that_hangs_is_named() -> None:
    """docs/behaviour/pleg.md, "Health", never."""
    health = judge(10.0, None, Trouble("ListPodSandbox", 0.5))
    assert health.cause == (
        "pleg has yet to be successful (ListPodSandbox has not answered for 9.5s)"
    )
    assert (health.rpc, health.since, health.pod) == ("ListPodSandbox", 0.5, "")


def test_it_is_healthy_up_to_the_threshold() -> None:
    """docs/behaviour/pleg.md, "Health", late."""
    assert judge(180.0, 0.0, None).ok
    assert judge(180.0, 0.0, None).cause == ""


def test_past_the_threshold_it_tells_the_age() -> None:
    """docs/behaviour/pleg.md, "Health", late."""
    health = judge(185.0, 0.0, None)
    assert not health.ok
    assert health.cause == "pleg was last seen active 3m5s ago; threshold is 3m0s"


def test_past_the_threshold_it_names_the_call_that_fails_and_since_when() -> None:
    """docs/behaviour/pleg.md, "Health", late."""
    health = judge(186.0, 1.0, Trouble("ListContainers", 2.0, "unavailable: connection refused"))
    assert health.cause == (
        "pleg was last seen active 3m5s ago; threshold is 3m0s "
        "(ListContainers has been failing for 3m4s: unavailable: connection refused)"
    )
    assert (health.rpc, health.since) == ("ListContainers", 2.0)


def test_a_listing_that_fails_is_named_before_it_is_too_late() -> None:
    """docs/behaviour/pleg.md, "Health", failing."""
    health = judge(20.0, 10.0, Trouble("ListContainers", 11.0, "unavailable"))
    assert health.ok
    assert health.cause == ("cannot list pods: ListContainers has been failing for 9s: unavailable")


def test_a_listing_under_way_is_nothing_to_tell() -> None:
    """docs/behaviour/pleg.md, "Health"."""
    assert judge(20.0, 10.0, Trouble("ListContainers", 15.0)).cause == ""


def test_a_listing_that_hangs_is_named_before_it_is_too_late() -> None:
    """docs/behaviour/pleg.md, "Health", failing."""
    health = judge(20.0, 10.0, Trouble("ListPodSandbox", 11.0), [degraded("web", 8.0)])
    assert health.ok
    assert health.cause == "cannot list pods: ListPodSandbox has not answered for 9s"
    assert (health.rpc, health.since, health.pod) == ("ListPodSandbox", 11.0, "")
    assert [pod.uid for pod in health.degraded] == ["web"]


def test_a_degraded_pod_is_named_and_the_node_stays_healthy() -> None:
    """docs/behaviour/pleg.md, "Health", degraded."""
    health = judge(20.0, 19.0, None, [degraded("web", 8.0)])
    assert health.ok
    assert health.cause == (
        "cannot inspect pod default/web: ContainerStatus has not answered for 12s"
    )
    assert (health.pod, health.rpc, health.since) == ("web", "ContainerStatus", 8.0)


def test_the_pod_degraded_for_longest_is_named_and_all_are_listed() -> None:
    """docs/behaviour/pleg.md, "Health", degraded."""
    pods = [degraded("b", 9.0, "unknown: shim is gone"), degraded("a", 5.0, "internal")]
    health = judge(20.0, 19.0, None, pods)
    assert health.pod == "a"
    assert health.cause.endswith("has been failing for 15s: internal and 1 more")
    assert [pod.uid for pod in health.degraded] == ["a", "b"]
    assert pods[0].describe(20.0) == (
        "default/b: ContainerStatus has been failing for 11s: unknown: shim is gone"
    )


def test_a_node_that_is_not_healthy_still_lists_its_degraded_pods() -> None:
    """docs/behaviour/pleg.md, "Health", degraded."""
    health = judge(500.0, 1.0, None, [degraded("web", 8.0)])
    assert not health.ok
    assert [pod.uid for pod in health.degraded] == ["web"]
