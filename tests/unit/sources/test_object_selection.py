"""docs/behaviour/objects.md, "Without an API server": which ConfigMaps and Secrets count."""

from __future__ import annotations

from pathlib import Path

from nodeagent.api.documents import OBJECTS, Identity, decode_manifest
from nodeagent.api.objects import ConfigMap, Secret
from nodeagent.sources.keeping import FileVerdicts
from nodeagent.sources.object_selection import ObjectSelection, select_objects

MAP = """apiVersion: v1
kind: ConfigMap
metadata: {name: %s}
data: {a: "%s"}
"""
SECRET = """apiVersion: v1
kind: Secret
metadata: {name: %s}
stringData: {a: "%s"}
"""


def file(name: str, *documents: str) -> FileVerdicts:
    text = "---\n".join(documents)
    verdicts = decode_manifest(text.encode(), name, kinds=OBJECTS)
    return FileVerdicts(Path("/m") / name, tuple(verdicts))


def look(*files: FileVerdicts, before: ObjectSelection | None = None) -> ObjectSelection:
    return select_objects(files, before.objects if before else {}, "node1")


def values(found: ObjectSelection) -> dict[str, str]:
    shown = {}
    for identity, document in found.objects.items():
        value = document.value
        text = value.data["a"]
        shown[identity.name] = text.decode() if isinstance(text, bytes) else text
    return shown


def errors(found: ObjectSelection) -> list[str]:
    return [line for f in found.verdicts for v in f.verdicts for line in v.error_lines()]


def test_os1_every_document_counts() -> None:
    found = look(file("a.yaml", MAP % ("one", 1), SECRET % ("two", 2)), file("b", MAP % ("c", 3)))
    assert values(found) == {"one": "1", "two": "2", "c": "3"}
    secret = found.objects[Identity("default", "two", "Secret")].value
    assert isinstance(secret, Secret)
    assert (secret.metadata.namespace, secret.type, secret.string_data) == ("default", "Opaque", {})
    assert secret.metadata.uid
    assert secret.metadata.resource_version


def test_os1_kinds_do_not_hide_each_other() -> None:
    found = look(file("a.yaml", MAP % ("one", 1), SECRET % ("one", 2)))
    assert len(found.objects) == 2
    assert errors(found) == []


def test_os2_an_edit_makes_another_version_of_the_same_object() -> None:
    before = look(file("a.yaml", MAP % ("one", 1)))
    same = look(file("a.yaml", "# comment\n" + MAP % ("one", 1)), before=before)
    after = look(file("a.yaml", MAP % ("one", 2)), before=before)
    (old,), (unchanged,), (new,) = (f.objects.values() for f in (before, same, after))
    assert unchanged.value is old.value
    assert new.value.metadata.uid == old.value.metadata.uid
    assert new.value.metadata.resource_version != old.value.metadata.resource_version


def test_os3_a_bad_document_leaves_the_last_good_one() -> None:
    before = look(file("a.yaml", MAP % ("one", 1), MAP % ("two", 2)))
    bad = look(
        file("a.yaml", (MAP % ("one", 1)).replace('"1"', "7"), MAP % ("two", 3)), before=before
    )
    assert values(bad) == {"one": "1", "two": "3"}
    assert list(bad.kept) == [Identity("default", "one", "ConfigMap")]
    assert errors(bad) == [
        "a.yaml: document 1: data[a]: expected a string, got a number; put it in quotes (line 4)"
    ]
    again = look(file("a.yaml", MAP % ("one", 4), MAP % ("two", 3)), before=bad)
    assert values(again) == {"one": "4", "two": "3"}
    assert not again.kept


def test_os3_a_file_that_cannot_be_read_leaves_what_it_gave() -> None:
    before = look(file("a.yaml", MAP % ("one", 1)))
    for broken in (
        FileVerdicts(Path("/m/a.yaml"), problem="cannot be read"),
        FileVerdicts(Path("/m/a.yaml"), unjudged=True),
        file("a.yaml", "{"),
        file("a.yaml", MAP.replace("ConfigMap", "Configmap") % ("other", 2)),
    ):
        assert values(look(broken, before=before)) == {"one": "1"}


def test_os3_a_bad_pod_does_not_hold_an_object() -> None:
    before = look(file("a.yaml", MAP % ("one", 1), "apiVersion: v1\nkind: Pod\n"))
    after = look(
        file("a.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: one}\n"), before=before
    )
    assert values(after) == {}


def test_os4_an_object_whose_document_is_gone_is_gone() -> None:
    before = look(file("a.yaml", MAP % ("one", 1), MAP % ("two", 2)))
    assert values(look(file("a.yaml", MAP % ("two", 2)), before=before)) == {"two": "2"}
    assert values(look(before=before)) == {}


def test_os5_of_two_files_the_first_by_name_counts() -> None:
    both = (file("a.yaml", MAP % ("one", 1)), file("b.yaml", MAP % ("one", 2)))
    found = look(*both)
    assert values(found) == {"one": "1"}
    assert errors(found) == [
        "b.yaml: metadata.name: duplicate: a.yaml already gives the ConfigMap default/one (line 3)"
    ]
    bad = look(file("a.yaml", MAP.replace("data", "data: 1 #") % ("one", 1)), both[1], before=found)
    assert values(bad) == {"one": "1"}
    assert values(look(both[1], before=bad)) == {"one": "2"}
    twice = look(file("a.yaml", MAP % ("one", 1), MAP % ("one", 2)))
    assert "an earlier document gives default/one" in errors(twice)[0]


def test_os6_a_secret_that_changes_its_type_is_refused() -> None:
    before = look(file("a.yaml", SECRET % ("one", 1)))
    changed = look(file("a.yaml", SECRET % ("one", 2) + "type: other\n"), before=before)
    assert values(changed) == {"one": "1"}
    (told,) = errors(changed)
    assert told.startswith('a.yaml: type: invalid value "other": never changes; remove the Secret')
    assert values(look(file("a.yaml", SECRET % ("one", 2) + "type: other\n"))) == {"one": "2"}


def test_os6_an_immutable_object_stays_as_it_is() -> None:
    before = look(file("a.yaml", MAP % ("one", 1) + "immutable: true\n"))
    changed = look(file("a.yaml", MAP % ("one", 2) + "immutable: true\n"), before=before)
    assert values(changed) == {"one": "1"}
    assert len(errors(changed)) == 1


def test_os1_an_object_needs_a_name() -> None:
    found = look(file("a.yaml", MAP.replace("name: %s", "generateName: x%s") % ("one", 1)))
    assert errors(found) == [
        "a.yaml: metadata.name: required: generateName does not name it (line 3)"
    ]
    assert not found.objects


def test_os1_the_namespace_is_as_written() -> None:
    found = look(file("a.yaml", MAP.replace("{name", "{namespace: shop, name") % ("one", 1)))
    (document,) = found.objects.values()
    assert isinstance(document.value, ConfigMap)
    assert document.value.metadata.namespace == "shop"
