"""docs/behaviour/decoding.md, "Kinds" and "Verdicts"; the wording that operators see."""

import json

import pytest

from nodeagent.api.documents import Identity, Verdict, decode_manifest
from nodeagent.api.problems import FieldProblem

POD = b"""\
apiVersion: v1
kind: Pod
metadata:
  name: web
  namespace: prod
spec:
  containers:
    - name: web
      image: nginx:1.27
      ports:
        - containerPort: 80
"""


NUMBER_FOR_TEXT = "expected a string, got a number; put it in quotes"
NO_OBJECT = "expected an object with apiVersion and kind"
NOT_RUN = "cannot be run from a manifest, expected Pod, List or PodList"
POD_LIST = "apiVersion: v1\nkind: PodList\nitems:\n"


def judge(data: bytes | str) -> list[Verdict]:
    return decode_manifest(data if isinstance(data, bytes) else data.encode(), "web.yaml")


def one(data: bytes | str) -> Verdict:
    (verdict,) = judge(data)
    assert (verdict.pod is None) == bool(verdict.errors)
    return verdict


def lines(data: bytes | str) -> list[str]:
    return [line for verdict in judge(data) for line in verdict.error_lines()]


def test_a_good_pod_is_served_as_written() -> None:
    verdict = one(POD)
    assert verdict.pod is not None
    assert verdict.pod.metadata.name == "web"
    assert verdict.pod.spec.containers[0].ports[0].container_port == 80
    assert verdict.pod.spec.restart_policy == ""
    assert (verdict.kind, verdict.line, verdict.identity) == ("Pod", 1, Identity("prod", "web"))
    assert (verdict.source, verdict.document, verdict.documents, verdict.item) == (
        "web.yaml",
        1,
        1,
        None,
    )
    assert (verdict.errors, verdict.warnings) == ((), ())


def test_errors_name_file_path_reason_and_line() -> None:
    bad = POD.replace(b"containerPort: 80", b"containerPort: http").replace(b"image:", b"imgae:")
    verdict = one(bad)
    path = "spec.containers[0].ports[0].containerPort"
    assert verdict.error_lines() == [
        f'web.yaml: {path}: expected an integer, got the string "http" (line 11)'
    ]
    assert verdict.warning_lines() == [
        "web.yaml: spec.containers[0].imgae: unknown field, did you mean image? (line 9)"
    ]
    assert verdict.identity == Identity("prod", "web")


def test_every_document_has_its_verdict_and_its_number() -> None:
    data = POD + b"---\n# nothing\n---\nkind: Pod\n---\nb: [\n---\n" + POD
    first, second, third, fourth = judge(data)
    assert first.pod is not None
    assert fourth.pod is not None
    assert second.error_lines() == ["web.yaml: document 2: apiVersion: required (line 15)"]
    assert third.error_lines()[0].startswith("web.yaml: document 3: not valid YAML: ")
    assert third.error_lines()[0].endswith("(line 18, column 1)")
    assert [each.documents for each in (first, second, third, fourth)] == [4, 4, 4, 4]
    assert fourth.line == 19


@pytest.mark.parametrize("kind", ["List", "PodList"])
def test_every_item_of_a_list_has_its_verdict(kind: str) -> None:
    pod = json.loads(one(POD).written)
    broken = json.loads(one(POD).written)
    broken["spec"]["containers"][0]["image"] = 5
    data = json.dumps({"apiVersion": "v1", "kind": kind, "items": [pod, broken, 7, pod]})
    verdicts = judge(data)
    assert [each.item for each in verdicts] == [0, 1, 2, 3]
    assert [each.pod is not None for each in verdicts] == [True, False, False, True]
    assert [line for each in verdicts for line in each.error_lines()] == [
        f"web.yaml: items[1].spec.containers[0].image: {NUMBER_FOR_TEXT} (line 1)",
        f"web.yaml: items[2]: {NO_OBJECT}, got the number 7 (line 1)",
    ]
    assert verdicts[0].written == one(POD).written


def test_an_item_of_a_pod_list_is_written_as_if_it_stood_alone() -> None:
    (listed,) = judge(POD_LIST + "- {kind: '', spec: {}, metadata: {name: a}}\n")
    alone = one("apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {}\n")
    assert listed.written == alone.written
    assert listed.pod == alone.pod


def test_items_of_a_pod_list_need_no_kind_and_those_of_a_list_do() -> None:
    item = "{metadata: {name: a}}"
    (served,) = judge(f"{{apiVersion: v1, kind: PodList, items: [{item}]}}")
    assert served.pod is not None
    assert (served.pod.kind, served.kind) == ("Pod", "Pod")
    assert lines(f"{{apiVersion: v1, kind: List, items: [{item}]}}") == [
        "web.yaml: items[0].apiVersion: required (line 1)",
        "web.yaml: items[0].kind: required (line 1)",
    ]
    assert lines("{apiVersion: v1, kind: PodList, items: [{kind: Job, metadata: {name: a}}]}") == [
        f'web.yaml: items[0].kind: a "Job" {NOT_RUN} (line 1)'
    ]


@pytest.mark.parametrize("items", ["[]", "~"])
def test_an_empty_list_is_no_error_and_no_pod(items: str) -> None:
    (verdict,) = judge(f"apiVersion: v1\nkind: PodList\nitems: {items}\n")
    assert (verdict.pod, verdict.errors, verdict.warnings) == (None, (), ())
    assert not verdict.may_concern(Identity("default", "a"))


def test_a_list_has_a_verdict_of_its_own_when_there_is_something_to_say() -> None:
    whole, item = (
        judge(
            "apiVersion: v1\nkind: List\nitem: []\nitems: []\n"
            "items: [{apiVersion: v1, kind: Pod}]\nitems: [5]\n"
        )[:1]
        + judge("apiVersion: v1\nkind: List\nextra: 1\nitems: [{apiVersion: v1, kind: Pod}]\n")[1:]
    )
    assert whole.error_lines() == [
        "web.yaml: items: duplicate key, first on line 4 (line 5)",
        "web.yaml: items: duplicate key, first on line 4 (line 6)",
    ]
    assert whole.warning_lines() == ["web.yaml: item: unknown field (line 3)"]
    assert item.pod is not None
    assert lines("apiVersion: v1\nkind: List\nitems: {}\n") == [
        "web.yaml: items: expected a list, got an object (line 3)"
    ]
    assert lines("apiVersion: v2\nkind: List\n") == [
        'web.yaml: apiVersion: unknown apiVersion for a List: "v2", expected "v1" (line 1)'
    ]


def test_a_list_in_a_list_is_refused() -> None:
    (line,) = lines(POD_LIST + "- {apiVersion: v1, kind: List, items: []}\n")
    assert line == "web.yaml: items[0].kind: a List cannot be an item of a list (line 4)"


@pytest.mark.parametrize(
    "data", [b"", b"\n\n", b"# only\n# comments\n", b"---\n---\n", b"\xef\xbb\xbf"]
)
def test_a_file_without_documents_is_said_to_be_empty(data: bytes) -> None:
    (verdict,) = judge(data)
    assert verdict.error_lines() == ["web.yaml: empty: no documents"]
    assert verdict.pod is None


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "kind: Deployment\napiVersion: apps/v1\n",
            f'kind: a "Deployment" {NOT_RUN} (line 1)',
        ),
        (
            "kind: pod\napiVersion: v1\n",
            'kind: a "pod" cannot be run from a manifest, did you mean Pod? (line 1)',
        ),
        (
            "kind: Pod\napiVersion: v2\n",
            'apiVersion: unknown apiVersion for a Pod: "v2", expected "v1" (line 2)',
        ),
        ("kind: Pod\napiVersion: 1\n", "apiVersion: expected a string, got the number 1 (line 2)"),
        ("kind: [Pod]\napiVersion: v1\n", "kind: expected a string, got a list (line 1)"),
        ("apiVersion: v1\n", "kind: required (line 1)"),
        ("kind: ~\napiVersion: v1\n", "kind: required (line 1)"),
        ("- kind: Pod\n", "expected an object with apiVersion and kind, got a list (line 1)"),
        (
            "Dear reader\n",
            'expected an object with apiVersion and kind, got the string "Dear reader" (line 1)',
        ),
    ],
)
def test_what_is_no_pod_is_refused_by_name(text: str, problem: str) -> None:
    assert lines(text) == [f"web.yaml: {problem}"]


def test_without_an_api_version_the_rest_is_judged_too() -> None:
    assert lines("kind: Pod\nspec: {containers: 5}\n") == [
        "web.yaml: apiVersion: required (line 1)",
        "web.yaml: spec.containers: expected a list, got the number 5 (line 2)",
    ]


@pytest.mark.parametrize(
    ("metadata", "identity"),
    [
        ("{name: a}", Identity("default", "a")),
        ("{name: a, namespace: ''}", Identity("default", "a")),
        ("{name: a, namespace: ~}", Identity("default", "a")),
        ("{name: a, namespace: b}", Identity("b", "a")),
        ("{name: a, namespace: 5}", None),
        ("{name: yes}", None),
        ("{generateName: a}", None),
        ("~", None),
        ("[]", None),
    ],
)
def test_the_identity_is_read_as_far_as_it_can_be(metadata: str, identity: Identity | None) -> None:
    (verdict,) = judge(
        f"apiVersion: v1\nkind: Pod\nmetadata: {metadata}\nspec: {{containers: 5}}\n"
    )
    assert verdict.errors
    assert verdict.identity == identity


def test_null_metadata_leaves_the_name_to_validation() -> None:
    verdict = one("apiVersion: v1\nkind: Pod\nmetadata: null\n")
    assert verdict.pod is not None
    assert verdict.pod.metadata.name == ""


WEB, OTHER = Identity("prod", "web"), Identity("prod", "other")
HEAD = b"apiVersion: v1\nkind: Pod\nmetadata: {name: web, namespace: prod}\n"


@pytest.mark.parametrize(
    ("data", "web", "other"),
    [
        (POD, False, False),
        (POD.replace(b"80", b"x"), True, False),
        (POD.replace(b"kind: Pod", b"kind: pod"), True, False),
        (POD.replace(b"v1", b"v2"), True, False),
        (POD.replace(b"kind: Pod", b"kind: ConfigMap"), False, False),
        (POD.replace(b"kind: Pod\n", b""), True, False),
        (POD.replace(b"name: web\n  namespace", b"name: 5\n  namespace"), True, True),
        (b"apiVersion: v1\nkind: List\nitems: 5\n", True, True),
        (b"", True, True),
        (b"\0\1\2", True, True),
        (HEAD + b"spec:\n  containers: [\n", True, False),
        (HEAD[:-1], False, False),
        (HEAD[:-2], True, True),
        (b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: web}\ndata: [", False, False),
        (b"apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Pod, ", True, True),
    ],
)
def test_a_bad_document_may_concern_the_pod_it_names_or_any(
    data: bytes, web: bool, other: bool
) -> None:
    verdicts = judge(data)
    assert any(each.may_concern(WEB) for each in verdicts) == web
    assert any(each.may_concern(OTHER) for each in verdicts) == other


def test_the_written_form_is_one_for_all_ways_to_write_a_document() -> None:
    reordered = b"""\
# comment
kind: Pod
"apiVersion": 'v1'
spec: {containers: [{ports: [{containerPort: 0x50}], image: "nginx:1.27", name: web}]}
metadata: {namespace: prod, name: web}
"""
    written = one(POD).written
    assert one(reordered).written == written
    assert one(written).written == written
    assert one(json.dumps(json.loads(written), indent=3)).written == written
    assert one(POD + b"    extra: yes\n").written != written
    assert json.loads(written)["spec"]["containers"][0]["ports"] == [{"containerPort": 80}]
    assert one(POD.replace(b": 80", b": x")).written
    assert judge(POD + b"x: [")[0].written == b""


def test_the_written_form_keeps_what_we_do_not_know() -> None:
    verdict = one(POD + b"status: ~\nfuture: {a: [1.5, ~, \xc3\xa9]}\n")
    loaded = json.loads(verdict.written)
    assert (loaded["status"], loaded["future"]) == (None, {"a": [1.5, None, "é"]})


def test_further_problems_get_their_lines() -> None:
    verdict = one(POD)
    rejected = verdict.rejected(
        [
            ("spec.containers[0].image", "required"),
            ("spec.containers[0].ports[0].hostPort", "too large"),
            ("spec.volumes", "required"),
            ("spec.containers[3].name", "required"),
            ("", "odd"),
        ]
    )
    assert rejected.pod is None
    assert [each.line for each in rejected.errors] == [9, 11, 6, 7, 1]
    assert rejected.error_lines()[0] == "web.yaml: spec.containers[0].image: required (line 9)"
    assert verdict.rejected([]) is verdict
    warned = verdict.warned([("metadata.name", "long")])
    assert warned.warning_lines() == ["web.yaml: metadata.name: long (line 4)"]
    assert warned.pod == verdict.pod


def test_lines_are_found_by_keys_with_dots_brackets_and_quotes() -> None:
    text = (
        "apiVersion: v1\nkind: Pod\nmetadata:\n  labels:\n    a.b/c: x\n    '0': y2\n"
        "    'odd \"[key]': z\n"
    )
    verdict = one(text)
    assert verdict.line_of("metadata.labels[a.b/c]") == 5
    assert verdict.line_of("metadata.labels[0]") == 6
    assert verdict.line_of('metadata.labels["odd \\"[key]"]') == 7
    assert verdict.line_of("metadata.labels[none]") == 4
    assert verdict.without_lines().line_of("metadata.labels") == 1
    assert verdict.without_lines() == verdict


def test_a_problem_of_a_listed_pod_is_placed_in_its_item() -> None:
    (verdict,) = judge(POD_LIST + "- metadata:\n    name: a\n  spec:\n    nodeName: b\n")
    (line,) = verdict.rejected([("spec.nodeName", "bad")]).error_lines()
    assert line == "web.yaml: items[0].spec.nodeName: bad (line 7)"
    assert verdict.describe(FieldProblem("[x]", "bad")) == "web.yaml: items[0][x]: bad"


def test_a_legitimate_anchor_is_served() -> None:
    text = """\
apiVersion: v1
kind: Pod
metadata: {name: a}
spec:
  containers:
  - &base {name: one, image: x, env: &env [{name: A, value: "1"}]}
  - <<: *base
    name: two
  - {name: three, image: x, env: *env}
"""
    pod = one(text).pod
    assert pod is not None
    assert [each.name for each in pod.spec.containers] == ["one", "two", "three"]
    assert [each.env for each in pod.spec.containers] == [pod.spec.containers[0].env] * 3
