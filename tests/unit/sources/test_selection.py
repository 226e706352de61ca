"""docs/behaviour/sources.md, "Identity" and "Selection": which documents are in force."""

from __future__ import annotations

from pathlib import Path

from nodeagent.api import Pod, PodStatus, Toleration
from nodeagent.api.documents import Identity, decode_manifest
from nodeagent.sources.keeping import FileVerdicts
from nodeagent.sources.selection import InForce, Selection, select

GOOD = """apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  containers:
    - {name: c, image: "%s"}
"""


def doc(name: str, image: str = "busybox") -> str:
    return GOOD % (name, image)


def file(name: str, *documents: str) -> FileVerdicts:
    text = "---\n".join(documents)
    return FileVerdicts(Path("/m") / name, tuple(decode_manifest(text.encode(), name)))


def chosen(selection: Selection) -> dict[str, str]:
    return {i.name: d.pod.spec.containers[0].image for i, d in selection.pods.items()}


def errors(selection: Selection) -> list[str]:
    return [line for f in selection.verdicts for v in f.verdicts for line in v.error_lines()]


def uid(selection: Selection, name: str) -> str:
    return selection.pods[Identity("default", name)].uid


def look(*files: FileVerdicts, before: Selection | None = None) -> Selection:
    known: dict[Identity, InForce] = dict(before.pods) if before else {}
    return select(files, known, "node1")


def test_every_document_of_every_file_counts() -> None:
    """sources.md, L1."""
    found = look(file("a.yaml", doc("one"), doc("two")), file("b.yaml", doc("three")))
    assert chosen(found) == {"one": "busybox", "two": "busybox", "three": "busybox"}


def test_a_static_pod_is_named_after_its_node() -> None:
    """sources.md, I2, I3, I4, I5."""
    found = look(file("a.yaml", doc("one")))
    pod = found.pods[Identity("default", "one")].pod
    assert pod.metadata.name == "one-node1"
    assert pod.metadata.namespace == "default"
    assert pod.spec.node_name == "node1"
    assert pod.metadata.annotations["kubernetes.io/config.hash"] == pod.metadata.uid
    assert pod.status.phase == "Pending"


def test_a_static_pod_tolerates_what_would_drive_it_away_and_lives_a_life_of_its_own() -> None:
    """sources.md, I6, I7."""
    text = doc("one") + "status: {phase: Failed, podIP: 10.1.1.1}\n"
    pod = look(file("a.yaml", text)).pods[Identity("default", "one")].pod
    everything = Toleration(operator="Exists", effect="NoExecute")
    assert pod.spec.tolerations.count(everything) == 1
    written = text.replace("spec:", "spec:\n  tolerations: [{operator: Exists, effect: NoExecute}]")
    again = look(file("a.yaml", written)).pods[Identity("default", "one")].pod
    assert again.spec.tolerations == pod.spec.tolerations
    assert pod.status == PodStatus(phase="Pending")


def test_the_first_of_two_files_with_one_pod_stays_and_the_other_is_reported() -> None:
    """sources.md, L6."""
    found = look(file("a.yaml", doc("one", "first")), file("b.yaml", doc("one", "second")))
    assert chosen(found) == {"one": "first"}
    assert errors(found) == [
        "b.yaml: metadata.name: duplicate: a.yaml already gives the pod default/one (line 3)"
    ]


def test_a_duplicate_that_is_bad_too_says_both() -> None:
    """sources.md, L6, V1."""
    bad = doc("one").replace("image", "imago")
    found = errors(look(file("a.yaml", doc("one")), file("b.yaml", bad)))
    assert any("spec.containers[0].image: required" in line for line in found)
    assert any("metadata.name: duplicate" in line for line in found)


def test_a_bad_edit_keeps_the_last_good_pod() -> None:
    """sources.md, L2."""
    before = look(file("a.yaml", doc("one")))
    after = look(file("a.yaml", doc("one").replace("image", "imago")), before=before)
    assert after.pods == before.pods
    assert list(after.kept) == [Identity("default", "one")]
    assert any("spec.containers[0].image: required" in line for line in errors(after))


def test_a_bad_document_of_a_new_name_or_kind_may_be_the_old_one() -> None:
    """sources.md, L11."""
    before = look(file("a.yaml", doc("one"), doc("two")))
    bad = doc("three").replace("image", "imago")
    renamed = look(file("a.yaml", doc("two", "new"), bad), before=before)
    assert chosen(renamed) == {"two": "new", "one": "busybox"}
    assert list(renamed.kept) == [Identity("default", "one")]
    good = look(file("a.yaml", doc("two", "new"), doc("three")), before=renamed)
    assert chosen(good) == {"two": "new", "three": "busybox"}
    kinds = look(file("a.yaml", doc("one").replace("Pod", "Deployment")), before=before)
    assert chosen(kinds) == chosen(before)
    beside = doc("two") + "---\n" + doc("one").replace("Pod", "ConfigMap")
    assert chosen(look(file("a.yaml", beside), before=before)) == {"two": "busybox"}
    other = doc("two").replace("image", "imago")
    assert chosen(look(file("a.yaml", other), before=before)) == {"two": "busybox"}


def test_broken_syntax_keeps_all_pods_of_the_file() -> None:
    """sources.md, L2."""
    before = look(file("a.yaml", doc("one"), doc("two")))
    after = look(file("a.yaml", "{{{ not yaml"), before=before)
    assert after.pods == before.pods


def test_an_unreadable_file_keeps_its_pods() -> None:
    """sources.md, L2, F5."""
    before = look(file("a.yaml", doc("one")))
    after = look(FileVerdicts(Path("/m/a.yaml"), problem="cannot be read"), before=before)
    assert after.pods == before.pods


def test_a_removed_file_removes_its_pod() -> None:
    """sources.md, L5."""
    before = look(file("a.yaml", doc("one")))
    assert chosen(look(before=before)) == {}


def test_a_removed_document_removes_its_pod_only() -> None:
    """sources.md, L5."""
    before = look(file("a.yaml", doc("one"), doc("two")))
    assert chosen(look(file("a.yaml", doc("two")), before=before)) == {"two": "busybox"}


def test_a_renamed_file_keeps_the_uid() -> None:
    """sources.md, L8."""
    before = look(file("a.yaml", doc("one")))
    after = look(file("b.yaml", doc("one")), before=before)
    assert uid(after, "one") == uid(before, "one")
    assert after.pods[Identity("default", "one")].pod is before.pods[Identity("default", "one")].pod


def test_comments_and_order_do_not_matter() -> None:
    """sources.md, L8, I1."""
    before = look(file("a.yaml", doc("one")))
    other = (
        "# a comment\nkind: Pod\nspec:\n  containers: [{image: busybox, name: c}]\n"
        "metadata: {name: one}\napiVersion: v1\n"
    )
    assert uid(look(file("a.yaml", other), before=before), "one") == uid(before, "one")


def test_one_of_two_identical_files_goes_and_the_pod_lives() -> None:
    """sources.md, L8."""
    before = look(file("a.yaml", doc("one")), file("b.yaml", doc("one")))
    after = look(file("b.yaml", doc("one")), before=before)
    assert uid(after, "one") == uid(before, "one")


def test_another_file_does_not_take_over_from_one_that_turned_bad() -> None:
    """sources.md, L7."""
    before = look(file("a.yaml", doc("one", "first")), file("b.yaml", doc("one", "second")))
    bad = file("a.yaml", doc("one", "first").replace("image", "imago"))
    after = look(bad, file("b.yaml", doc("one", "second")), before=before)
    assert chosen(after) == {"one": "first"}


def test_the_uid_depends_on_content_node_and_path() -> None:
    """sources.md, I1."""
    base = look(file("a.yaml", doc("one")))
    assert uid(base, "one") == uid(look(file("a.yaml", doc("one"))), "one")
    assert uid(base, "one") != uid(look(file("b.yaml", doc("one"))), "one")
    assert uid(base, "one") != uid(look(file("a.yaml", doc("one", "x"))), "one")
    assert uid(base, "one") != uid(select([file("a.yaml", doc("one"))], {}, "node2"), "one")


def test_a_written_uid_stays() -> None:
    """sources.md, I1."""
    fixed = doc("one").replace("name: one", "name: one, uid: fixed")
    assert uid(look(file("a.yaml", fixed)), "one") == "fixed"


def test_a_deletion_that_was_copied_with_the_pod_does_not_end_it() -> None:
    """sources.md, I8."""
    gone = "deletionTimestamp: 2020-01-01T00:00:00Z, deletionGracePeriodSeconds: 1"
    copied = doc("one").replace("name: one", f"name: one, {gone}")
    metadata = look(file("a.yaml", copied)).pods[Identity("default", "one")].pod.metadata
    assert metadata.deletion_timestamp is None
    assert metadata.deletion_grace_period_seconds is None


def test_two_pods_cannot_share_a_written_uid() -> None:
    """sources.md, L9."""
    one = doc("one").replace("name: one", "name: one, uid: fixed")
    two = doc("two").replace("name: two", "name: two, uid: fixed")
    found = look(file("a.yaml", one, two))
    assert chosen(found) == {"one": "busybox"}
    assert any("metadata.uid: duplicate" in line for line in errors(found))


def test_a_pod_in_force_keeps_its_uid_against_one_that_comes_anew() -> None:
    """sources.md, L9."""
    one = doc("one").replace("name: one", "name: one, uid: fixed")
    two = doc("two").replace("name: two", "name: two, uid: fixed")
    before = look(file("b.yaml", one))
    after = look(file("a.yaml", two), file("b.yaml", one), before=before)
    assert chosen(after) == {"one": "busybox"}
    assert any("a.yaml: metadata.uid: duplicate" in line for line in errors(after))
    assert chosen(look(file("a.yaml", two), before=after)) == {"two": "busybox"}
    edited = look(file("b.yaml", one.replace("busybox", "new")), before=before)
    assert (chosen(edited), uid(edited, "one")) == ({"one": "new"}, "fixed")


def test_the_uid_of_a_pod_that_a_bad_edit_keeps_is_not_given_to_another() -> None:
    """sources.md, L4."""
    one = doc("one").replace("name: one", "name: one, uid: fixed")
    two = doc("two").replace("name: two", "name: two, uid: fixed")
    before = look(file("a.yaml", one))
    bad = file("a.yaml", one.replace("image", "imago"))
    after = look(bad, file("b.yaml", two), before=before)
    assert chosen(after) == {"one": "busybox"}
    assert any("b.yaml: metadata.uid: duplicate" in line for line in errors(after))
    assert chosen(look(file("b.yaml", two), before=after)) == {"two": "busybox"}


def test_a_missing_name_is_said() -> None:
    """sources.md, V1."""
    found = look(file("a.yaml", doc("one").replace("{name: one}", "{generateName: x}")))
    assert chosen(found) == {}
    assert errors(found) == [
        "a.yaml: metadata.name: required: generateName does not name a static pod (line 3)"
    ]


def test_an_edit_that_the_pod_could_not_run_with_is_refused_and_the_pod_runs_on() -> None:
    """sources.md, L3."""

    def unsupported(pod: Pod) -> list[str]:
        return ["spec.hostPID"] if pod.spec.host_pid else []

    bad = doc("one").replace("spec:", "spec:\n  hostPID: true")
    before = select([file("a.yaml", doc("one"))], {}, "node1", unsupported)
    after = select([file("a.yaml", bad)], before.pods, "node1", unsupported)
    assert after.pods == before.pods
    (error,) = errors(after)
    assert error.startswith("a.yaml: spec.hostPID: not supported by this version of nodeagent;")
    assert error.endswith("the pod runs on as it was (line 5)")
    fresh = select([file("a.yaml", bad)], {}, "node1", unsupported)
    assert list(fresh.pods) == [Identity("default", "one")]
    assert errors(fresh) == []


def test_l12_a_static_pod_refers_to_nothing_of_an_api_server() -> None:
    refers = doc("one").rstrip()[:-1] + ", envFrom: [{secretRef: {name: x}}]}\n"
    found = look(file("a.yaml", refers))
    assert errors(found) == ["a.yaml: spec: static pods may not reference secrets (line 4)"]
    assert chosen(found) == {}
    alone = select(
        (file("a.yaml", refers),), {}, "node1", allowed=frozenset({"secrets", "configmaps"})
    )
    assert chosen(alone) == {"one": "busybox"}
