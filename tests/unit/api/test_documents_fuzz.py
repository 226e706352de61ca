"""Whatever the bytes, there is a verdict: nothing raises, and good pods stay good."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.api.documents import Verdict, decode_manifest

POD = b"""\
apiVersion: v1
kind: Pod
metadata: &m {name: web, labels: {app: web}}
spec:
  terminationGracePeriodSeconds: 1e1
  containers:
  - name: web
    image: "nginx:1.27"
    env: [{name: A, value: "1"}]
    resources: {limits: {cpu: 0.5, memory: 1Gi}}
    ports: [{containerPort: 80}]
    livenessProbe: {httpGet: {port: http}}
  volumes:
  - name: v
    emptyDir: {}
"""
CORPUS = [
    POD,
    POD.replace(b"\n", b"\r\n"),
    POD.replace(b"\n", b"\r"),
    b"\xef\xbb\xbf" + POD,
    POD.decode().encode("utf-16"),
    b"\x7fELF\x02\x01\x01" + bytes(range(256)),
    b"\x1f\x8b\x08\0\0\0\0\0",
    b"%YAML 9.9\n---\na: 1\n",
    b"%TAG ! x\n",
    b"%\n",
    b"&",
    b"*",
    b"*a : b",
    b"!",
    b"!!",
    b"!<x",
    b"? ",
    b"? ? ? :",
    b"{? a}",
    b"[a: b, c]",
    b"{a, b: c}",
    b"- - -\n -",
    b"a: &a\n<<: *a",
    b"<<: ~",
    b"|",
    b">9\n",
    b"'",
    b'"\\',
    b"a: !!binary |\n  ====\n",
    b"{",
    b'{"',
    b'{"a": 1e99999, "b": -0, "c": "\\ud800"}',
    b'{"kind": "Pod", "kind": "List"}',
    b"{}",
    b"--- |\n---\n--- >\n...",
    b"kind: List\nitems: [*x]\n",
    b"kind: !!null ''\napiVersion: !!int v1\nmetadata: !!set {a, b}\n",
    b"kind: Pod\n\x85metadata: {}\n",
    "kind: Pod\n\u2028metadata: {}\n---\u2029a".encode(),
    b"a: 0x" + b"F" * 10_000,
    b"a: " + b"9" * 10_000,
    b"a: 1e" + b"9" * 10_000,
    b'{"a": ' + b"9" * 10_000 + b"}",
    b"\xed\xa0\x80",
    b"a: \xf4\x90\x80\x80",
]


def check(data: bytes) -> list[Verdict]:
    verdicts = decode_manifest(data, "f")
    assert verdicts
    for verdict in verdicts:
        assert not (verdict.pod and verdict.errors)
        assert verdict.documents >= verdict.document >= 1
        for line in [*verdict.error_lines(), *verdict.warning_lines()]:
            assert line.startswith("f: ")
            assert "\n" not in line
            line.encode()
        if verdict.pod is not None:
            assert json.loads(verdict.written)
            (again,) = decode_manifest(verdict.written, "g")
            assert again.written == verdict.written
    return verdicts


@pytest.mark.parametrize("data", CORPUS)
def test_odd_files_get_a_verdict(data: bytes) -> None:
    check(data)


@given(st.binary(max_size=200))
def test_any_bytes_get_a_verdict(data: bytes) -> None:
    check(data)


@given(st.text(alphabet="ab:-[]{},&*?|>'\"#%!~<\\ \t\r\n\0\x85\ufeff\u20280x1.yn/"))
def test_any_yaml_like_text_gets_a_verdict(text: str) -> None:
    check(text.encode())


@given(
    st.integers(0, len(POD)),
    st.integers(0, 30),
    st.binary(max_size=12)
    | st.sampled_from([b"\n---\n", b"*m", b"<<: *m", b"~", b"[", b"{}", b"5"]),
)
def test_a_damaged_manifest_gets_a_verdict(start: int, removed: int, put: bytes) -> None:
    check(POD[:start] + put + POD[start + removed :])


@given(st.integers(0, len(POD)))
def test_a_truncated_manifest_gets_a_verdict(length: int) -> None:
    check(POD[:length])


NAMES = st.sampled_from(
    [
        *("apiVersion", "kind", "metadata", "spec", "status", "items", "name", "namespace"),
        *("containers", "image", "ports", "containerPort", "env", "value", "labels", "limits"),
        *("resources", "livenessProbe", "httpGet", "port", "volumes", "startTime", "hostIPs"),
    ]
)
LEAVES = st.sampled_from(
    [
        None,
        True,
        False,
        0,
        80,
        1.5,
        -1,
        2**70,
        "",
        "v1",
        "Pod",
        "List",
        "PodList",
        "http",
        "1Gi",
        "é\0",
    ]
)
TREES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=6),
    max_leaves=30,
)


@given(TREES, TREES)
def test_any_tree_of_pod_words_gets_a_verdict_and_spares_its_neighbour(
    metadata: object, spec: object
) -> None:
    tree = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    odd = json.dumps(tree).encode()
    check(odd)
    verdicts = check(POD + b"---\n" + odd + b"\n---\n" + POD)
    assert verdicts[0].pod is not None
    assert verdicts[-1].pod is not None
    listed = json.dumps({"apiVersion": "v1", "kind": "PodList", "items": [tree, spec]})
    check(listed.encode())


@given(TREES)
def test_any_tree_at_all_gets_a_verdict(tree: object) -> None:
    check(json.dumps(tree).encode())
    check(json.dumps(tree, indent=1).replace('"', "'").encode())


@given(st.binary(max_size=60).filter(lambda data: b"\xff" not in data))
def test_garbage_between_markers_spares_its_neighbours(garbage: bytes) -> None:
    verdicts = check(POD + b"---\n" + garbage + b"\n---\n" + POD)
    assert verdicts[0].pod is not None
    assert verdicts[-1].pod is not None
