"""Walking over an object finds all that is set, and nothing else."""

from nodeagent.api import Container, ObjectMeta, Pod, PodSecurityContext, PodSpec, Volume
from nodeagent.api.codec import to_builtins
from nodeagent.api.walk import set_fields, walk

_POD = Pod(
    metadata=ObjectMeta(name="web", labels={"app": "a"}),
    spec=PodSpec(
        containers=(Container(name="c", args=("x",)), Container(name="d", tty=True)),
        termination_grace_period_seconds=0,
        security_context=PodSecurityContext(),
        volumes=(Volume(),),
        host_network=False,
    ),
)


def test_every_set_field_has_its_path_outer_before_inner() -> None:
    paths = [path for path, _ in walk(_POD)]
    assert paths == [
        "metadata",
        "metadata.name",
        "metadata.labels",
        "metadata.labels[app]",
        "spec",
        "spec.volumes",
        "spec.volumes[0]",
        "spec.containers",
        "spec.containers[0]",
        "spec.containers[0].name",
        "spec.containers[0].args",
        "spec.containers[0].args[0]",
        "spec.containers[1]",
        "spec.containers[1].name",
        "spec.containers[1].tty",
        "spec.terminationGracePeriodSeconds",
        "spec.securityContext",
    ]
    assert dict(walk(_POD))["spec.containers[1].tty"] is True


def test_paths_start_where_the_caller_says() -> None:
    assert next(walk(Container(name="c"), "spec.containers[3]")) == (
        "spec.containers[3].name",
        "c",
    )


def test_set_fields_are_those_that_are_written() -> None:
    assert [name for name, _ in set_fields(_POD.spec)] == list(to_builtins(_POD.spec))
