"""Who takes too much (docs/behaviour/eviction.md, "Local storage")."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from nodeagent.api import (
    Container,
    EmptyDirVolumeSource,
    Pod,
    Quantity,
    ResourceRequirements,
    Volume,
)
from nodeagent.eviction.local_storage import (
    STORAGE,
    ContainerUse,
    PodUse,
    Signal,
    limits_containers,
    limits_volumes,
    too_much,
)
from nodeagent.testing import make_container, make_pod


def directory(name: str, limit: str | None, medium: str = "") -> Volume:
    size = None if limit is None else Quantity(limit)
    return Volume(name=name, empty_dir=EmptyDirVolumeSource(medium=medium, size_limit=size))


def container(name: str, limit: str | None = None) -> Container:
    limits = {} if limit is None else {STORAGE: Quantity(limit)}
    return make_container(name, resources=ResourceRequirements(limits=limits))


def pod(*containers: Container, volumes: tuple[Volume, ...] = ()) -> Pod:
    return make_pod("web", *containers, volumes=volumes)


def test_el2_a_directory_that_takes_more_than_its_limit() -> None:
    web = pod(volumes=(directory("a", "1Gi"), directory("b", "1Mi")))
    assert limits_volumes(web)
    assert too_much(web, PodUse({"a": 2**20 + 1, "b": 2**20})) is None
    found = too_much(web, PodUse({"a": 1, "b": 2**20 + 1}))
    assert found is not None
    assert found.signal is Signal.EMPTY_DIR
    assert found.message == 'Usage of EmptyDir volume "b" exceeds the limit "1Mi". '


def test_el2_no_limit_none_of_its_own_and_memory() -> None:
    web = pod(volumes=(directory("a", None), directory("b", "0"), directory("c", "1", "Memory")))
    assert not limits_volumes(web)
    assert too_much(web, PodUse({"a": 9, "b": 9, "c": 9})) is None


def test_el3_a_pod_that_takes_more_than_its_containers_may_together() -> None:
    web = pod(container("a", "1k"), container("b", "2k"))
    assert limits_containers(web)
    assert not limits_volumes(web)
    use = {"a": ContainerUse(400, 600), "b": ContainerUse(1000, 999)}
    assert too_much(web, PodUse({"v": 1}, use)) is None
    found = too_much(web, PodUse({"v": 2}, use))
    assert found is not None
    assert found.signal is Signal.POD
    assert found.message == (
        "Pod ephemeral local storage usage exceeds the total limit of containers 3k. "
    )


def test_el4_a_container_that_takes_more_than_it_may() -> None:
    web = pod(container("a", "1k"), container("b", "2k"))
    use = {"a": ContainerUse(400, 601), "b": ContainerUse()}
    found = too_much(web, PodUse({}, use))
    assert found is not None
    assert found.signal is Signal.CONTAINER
    assert found.message == 'Container a exceeded its local ephemeral storage limit "1k". '
    assert too_much(web, PodUse({}, use, shared_layers=False)) is None


def test_el5_what_is_not_known_does_no_harm() -> None:
    web = pod(container("a", "1"), volumes=(directory("v", "1"),))
    assert too_much(web, PodUse()) is None
    assert too_much(pod(container("a")), PodUse({"v": 9}, {"a": ContainerUse(9, 9)})) is None


SIZES = st.integers(0, 3)


@given(
    st.dictionaries(st.sampled_from("abc"), st.tuples(SIZES, SIZES)),
    st.dictionaries(st.sampled_from("xyz"), st.tuples(SIZES, SIZES, SIZES)),
)
def test_el2_el3_el4_somebody_exceeds_a_limit_exactly_when_the_pod_goes(
    volumes: dict[str, tuple[int, int]], containers: dict[str, tuple[int, int, int]]
) -> None:
    web = pod(
        *(container(name, str(limit)) for name, (limit, _, _) in containers.items()),
        volumes=tuple(directory(name, str(limit)) for name, (limit, _) in volumes.items()),
    )
    use = PodUse(
        {name: used for name, (_, used) in volumes.items()},
        {name: ContainerUse(layer, logs) for name, (_, layer, logs) in containers.items()},
    )
    everything = sum(use.volumes.values()) + sum(a + b for _, a, b in containers.values())
    exceeded = (
        any(used > limit > 0 for limit, used in volumes.values())
        or any(layer + logs > limit for limit, layer, logs in containers.values())
        or (bool(containers) and everything > sum(limit for limit, _, _ in containers.values()))
    )
    assert (too_much(web, use) is not None) is exceeded
